// The slot whose expert a workgroup multiplies with. It is the same in all of a workgroup.

override RECORD_QUADS: u32; // size of a slot, in 16 bytes
override SLOTS_PER_CHUNK: u32; // known beforehand: dividing by what is not takes longer than a load

var<private> slot_chunk: u32; // chunk of the pool
var<private> slot_quad: u32; // first 16 bytes of the slot in its chunk

fn hold_slot(slot: u32) {
    slot_chunk = slot / SLOTS_PER_CHUNK;
    slot_quad = slot % SLOTS_PER_CHUNK * RECORD_QUADS;
}
