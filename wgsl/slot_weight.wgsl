// Where a projection of an expert lies: in the slot at hand (`slot.wgsl`). Comes once for each projection of a kernel,
// `W_` replaced by its name, in front of the `weight_*.wgsl` of its format: the same arithmetic as for a weight that has
// buffers of its own.

override W_CODES: u32; // place in the record, in 16 bytes
override W_SCALES: u32; // place in the record, in 4 bytes
override W_BIASES: u32; // place in the record, in 4 bytes

fn W_code_quad(index: u32) -> vec4<u32> {
    return quad(slot_chunk, slot_quad + W_CODES + index);
}

fn W_code_word(index: u32) -> u32 {
    return word(slot_chunk, 4u * (slot_quad + W_CODES) + index);
}

fn W_scale_word(index: u32) -> u32 {
    return word(slot_chunk, 4u * slot_quad + W_SCALES + index);
}

fn W_bias_word(index: u32) -> u32 {
    return word(slot_chunk, 4u * slot_quad + W_BIASES + index);
}
