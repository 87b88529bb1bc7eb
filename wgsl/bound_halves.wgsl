// Where two affine weights of one shape lie that are read as one of twice the outputs: each in buffers of its own. Comes once
// for each such pair of a kernel, `W_` replaced by its name, in front of its `weight_affine*.wgsl`.

@group(0) @binding(W_0) var<storage, read> W_codes: array<vec4<u32>>; // [ROWS / 2, UNITS]
@group(0) @binding(W_1) var<storage, read> W_scales: array<u32>; // [ROWS / 2, GROUPS] numbers of SCALAR
@group(0) @binding(W_2) var<storage, read> W_biases: array<u32>; // [ROWS / 2, GROUPS] numbers of SCALAR
@group(0) @binding(W_3) var<storage, read> W_more_codes: array<vec4<u32>>; // [ROWS / 2, UNITS]
@group(0) @binding(W_4) var<storage, read> W_more_scales: array<u32>; // [ROWS / 2, GROUPS] numbers of SCALAR
@group(0) @binding(W_5) var<storage, read> W_more_biases: array<u32>; // [ROWS / 2, GROUPS] numbers of SCALAR

override W_CODES_AT: u32 = W_ROWS / 2u * W_UNITS; // first quad of the second

// First word of scales of the second; its scales fill whole words.
fn W_scales_at() -> u32 {
    return word_of(W_ROWS / 2u * W_GROUPS, W_SCALAR);
}

fn W_code_quad(index: u32) -> vec4<u32> {
    if index >= W_CODES_AT {
        return W_more_codes[index - W_CODES_AT];
    }
    return W_codes[index];
}

fn W_scale_word(index: u32) -> u32 {
    if index >= W_scales_at() {
        return W_more_scales[index - W_scales_at()];
    }
    return W_scales[index];
}

fn W_bias_word(index: u32) -> u32 {
    if index >= W_scales_at() {
        return W_more_biases[index - W_scales_at()];
    }
    return W_biases[index];
}
