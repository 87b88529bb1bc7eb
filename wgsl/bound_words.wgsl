// Where a dense weight lies whose rows have any length: in a buffer of its own. Comes once for each such weight of a
// kernel, `W_` replaced by the weight's name, in front of its `weight_loose.wgsl`.

@group(0) @binding(W_0) var<storage, read> W_codes: array<u32>; // [ROWS, COLS] numbers of SCALAR

fn W_code_word(index: u32) -> u32 {
    return W_codes[index];
}
