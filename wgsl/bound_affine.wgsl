// Where an affine weight lies: in buffers of its own. Comes once for each such weight of a kernel, `W_` replaced by the
// weight's name, in front of its `weight_affine*.wgsl`.

@group(0) @binding(W_0) var<storage, read> W_codes: array<vec4<u32>>; // [ROWS, UNITS]
@group(0) @binding(W_1) var<storage, read> W_scales: array<u32>; // [ROWS, GROUPS] numbers of SCALAR
@group(0) @binding(W_2) var<storage, read> W_biases: array<u32>; // [ROWS, GROUPS] numbers of SCALAR

fn W_code_quad(index: u32) -> vec4<u32> {
    return W_codes[index];
}

fn W_scale_word(index: u32) -> u32 {
    return W_scales[index];
}

fn W_bias_word(index: u32) -> u32 {
    return W_biases[index];
}
