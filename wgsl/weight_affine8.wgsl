// A weight of 8-bit codes (checkpoint.md section 3). Comes once for each such weight of a kernel, `W_` replaced by the
// weight's name.
//
//     W(o, c) = scale[o, c / GROUP] * code(o, c) + bias[o, c / GROUP]
//
// A unit is what 16 bytes of codes hold: 16 inputs, as 4 quads.

override W_ROWS: u32; // outputs
override W_COLS: u32; // inputs, a multiple of GROUP
override W_GROUP: u32; // inputs that share a scale: 32 or 64
override W_SCALAR: u32; // scales and biases: BF16, F16, F32

const W_UNIT = 16u;
const W_QUADS = 4u;
override W_UNITS: u32 = W_COLS / W_UNIT;
override W_GROUPS: u32 = W_COLS / W_GROUP;

struct W_Unit {
    codes: vec4<u32>,
    scale: f32,
    bias: f32,
}

fn W_load(row: u32, unit: u32) -> W_Unit {
    let group = row * W_GROUPS + unit / (W_GROUP / W_UNIT);
    let word = word_of(group, W_SCALAR);
    return W_Unit(
        W_code_quad(row * W_UNITS + unit),
        number_in(W_scale_word(word), group, W_SCALAR),
        number_in(W_bias_word(word), group, W_SCALAR),
    );
}

// The codes of a word, the second and the fourth times 256; see `weight_affine4.wgsl`.
fn W_scaled_codes(word: u32) -> vec4<f32> {
    let codes = vec4<u32>(word, word, word >> 16u, word >> 16u) & vec4<u32>(0xffu, 0xff00u, 0xffu, 0xff00u);
    return bitcast<vec4<f32>>(codes | vec4<u32>(0x4b000000u)) - vec4<f32>(0x1p23);
}

// `unit` times its inputs.
fn W_dot(unit: W_Unit, x: Inputs) -> f32 {
    var sums = W_scaled_codes(unit.codes.x) * x.a;
    sums = fma(W_scaled_codes(unit.codes.y), x.b, sums);
    sums = fma(W_scaled_codes(unit.codes.z), x.c, sums);
    sums = fma(W_scaled_codes(unit.codes.w), x.d, sums);
    return fma(unit.scale, dot(sums, vec4<f32>(1.0, 0x1p-8, 1.0, 0x1p-8)), unit.bias * x.sum);
}

// The numbers of a unit, in order.
fn W_numbers(unit: W_Unit) -> array<vec4<f32>, 4> {
    let scale = vec4<f32>(unit.scale);
    let bias = vec4<f32>(unit.bias);
    return array<vec4<f32>, 4>(
        fma(vec4<f32>(unpack4xU8(unit.codes.x)), scale, bias),
        fma(vec4<f32>(unpack4xU8(unit.codes.y)), scale, bias),
        fma(vec4<f32>(unpack4xU8(unit.codes.z)), scale, bias),
        fma(vec4<f32>(unpack4xU8(unit.codes.w)), scale, bias),
    );
}
