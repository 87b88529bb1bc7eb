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

// As it was loaded: who makes numbers of a word waits for it, which a lane that loads ahead must not.
struct W_Unit {
    codes: vec4<u32>,
    scale: u32, // word that holds it
    bias: u32, // the same
    group: u32, // which tells the half of the word
}

fn W_load(row: u32, unit: u32) -> W_Unit {
    let group = row * W_GROUPS + unit / (W_GROUP / W_UNIT);
    let word = word_of(group, W_SCALAR);
    return W_Unit(W_code_quad(row * W_UNITS + unit), W_scale_word(word), W_bias_word(word), group);
}

// Scale and bias of a unit.
fn W_affine(unit: W_Unit) -> vec2<f32> {
    return vec2<f32>(number_in(unit.scale, unit.group, W_SCALAR), number_in(unit.bias, unit.group, W_SCALAR));
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
    let affine = W_affine(unit);
    return fma(affine.x, dot(sums, vec4<f32>(1.0, 0x1p-8, 1.0, 0x1p-8)), affine.y * x.sum);
}

// The numbers of a unit, in order.
fn W_numbers(unit: W_Unit) -> array<vec4<f32>, 4> {
    let affine = W_affine(unit);
    let scale = vec4<f32>(affine.x);
    let bias = vec4<f32>(affine.y);
    return array<vec4<f32>, 4>(
        fma(vec4<f32>(unpack4xU8(unit.codes.x)), scale, bias),
        fma(vec4<f32>(unpack4xU8(unit.codes.y)), scale, bias),
        fma(vec4<f32>(unpack4xU8(unit.codes.z)), scale, bias),
        fma(vec4<f32>(unpack4xU8(unit.codes.w)), scale, bias),
    );
}
