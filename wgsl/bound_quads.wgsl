// Where a dense weight lies whose rows are multiples of 16 bytes: in a buffer of its own. Comes once for each such
// weight of a kernel, `W_` replaced by the weight's name, in front of its `weight_dense*.wgsl`.

@group(0) @binding(W_0) var<storage, read> W_codes: array<vec4<u32>>; // [ROWS, UNITS]

fn W_code_quad(index: u32) -> vec4<u32> {
    return W_codes[index];
}
