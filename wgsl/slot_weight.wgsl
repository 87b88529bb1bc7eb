// Where a projection of an expert lies: in the slot at hand (`slot.wgsl`). Comes once for each projection of a kernel,
// `W_` replaced by its name, in front of the `weight_*.wgsl` of its format: the same arithmetic as for a weight that has
// buffers of its own.

override W_CODES: u32; // place in the record, in 16 bytes
override W_SCALES: u32; // place in the record, in 4 bytes
override W_BIASES: u32; // place in the record, in 4 bytes

// Two projections may be read as one: what lies from `AT` on lies `BY` later.
override W_CODES_AT: u32;
override W_CODES_BY: u32;
override W_SCALES_AT: u32;
override W_SCALES_BY: u32;
override W_BIASES_BY: u32;

fn W_code_quad(index: u32) -> vec4<u32> {
    return quad(slot_chunk, slot_quad + W_CODES + index + select(0u, W_CODES_BY, index >= W_CODES_AT));
}

fn W_code_word(index: u32) -> u32 {
    return word(slot_chunk, 4u * (slot_quad + W_CODES) + index);
}

fn W_scale_word(index: u32) -> u32 {
    return word(slot_chunk, 4u * slot_quad + W_SCALES + index + select(0u, W_SCALES_BY, index >= W_SCALES_AT));
}

fn W_bias_word(index: u32) -> u32 {
    return word(slot_chunk, 4u * slot_quad + W_BIASES + index + select(0u, W_BIASES_BY, index >= W_SCALES_AT));
}
