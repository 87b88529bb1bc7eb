// The slot whose expert a workgroup multiplies with. It is the same in all of a workgroup.

override RECORD_QUADS: u32; // size of a slot, in 16 bytes

var<private> slot_chunk: u32; // chunk of the pool
var<private> slot_quad: u32; // first 16 bytes of the slot in its chunk

fn hold_slot(slot: u32, slots_per_chunk: u32) {
    slot_chunk = slot / slots_per_chunk;
    slot_quad = slot % slots_per_chunk * RECORD_QUADS;
}
