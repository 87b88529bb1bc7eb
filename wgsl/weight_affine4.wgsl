// A weight of 4-bit codes (checkpoint.md section 3). Comes once for each such weight of a kernel, `W_` replaced by the
// weight's name.
//
//     W(o, c) = scale[o, c / GROUP] * code(o, c) + bias[o, c / GROUP]
//
// A unit is what 16 bytes of codes hold: 32 inputs, as 8 quads.

override W_ROWS: u32; // outputs
override W_COLS: u32; // inputs, a multiple of GROUP
override W_GROUP: u32; // inputs that share a scale: 32 or 64
override W_SCALAR: u32; // scales and biases: BF16, F16, F32

const W_UNIT = 32u;
const W_QUADS = 8u;
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

// The last four codes of a word times 1, 16, 256 and 4096. Codes stand in the low bits of 2^23, whose last place is 1, so
// that masks and a subtraction do what would take four conversions, of which a processor makes few at a time.
fn W_scaled_codes(word: u32) -> vec4<f32> {
    let codes = vec4<u32>(word | 0x4b000000u) & vec4<u32>(0x4b00000fu, 0x4b0000f0u, 0x4b000f00u, 0x4b00f000u);
    return bitcast<vec4<f32>>(codes) - vec4<f32>(0x1p23);
}

// `unit` times its inputs.
fn W_dot(unit: W_Unit, x: Inputs) -> f32 {
    var sums = W_scaled_codes(unit.codes.x) * x.a;
    sums = fma(W_scaled_codes(unit.codes.x >> 16u), x.b, sums);
    sums = fma(W_scaled_codes(unit.codes.y), x.c, sums);
    sums = fma(W_scaled_codes(unit.codes.y >> 16u), x.d, sums);
    sums = fma(W_scaled_codes(unit.codes.z), x.e, sums);
    sums = fma(W_scaled_codes(unit.codes.z >> 16u), x.f, sums);
    sums = fma(W_scaled_codes(unit.codes.w), x.g, sums);
    sums = fma(W_scaled_codes(unit.codes.w >> 16u), x.h, sums);
    let affine = W_affine(unit);
    return fma(affine.x, dot(sums, vec4<f32>(1.0, 0x1p-4, 0x1p-8, 0x1p-12)), affine.y * x.sum);
}

fn W_word_numbers(codes: u32, scale: f32, bias: f32) -> array<vec4<f32>, 2> {
    let scales = scale * vec4<f32>(1.0, 0x1p-4, 0x1p-8, 0x1p-12);
    return array<vec4<f32>, 2>(
        fma(W_scaled_codes(codes), scales, vec4<f32>(bias)),
        fma(W_scaled_codes(codes >> 16u), scales, vec4<f32>(bias)),
    );
}

// The numbers of a unit, in order.
fn W_numbers(unit: W_Unit) -> array<vec4<f32>, 8> {
    let affine = W_affine(unit);
    let a = W_word_numbers(unit.codes.x, affine.x, affine.y);
    let b = W_word_numbers(unit.codes.y, affine.x, affine.y);
    let c = W_word_numbers(unit.codes.z, affine.x, affine.y);
    let d = W_word_numbers(unit.codes.w, affine.x, affine.y);
    return array<vec4<f32>, 8>(a[0], a[1], b[0], b[1], c[0], c[1], d[0], d[1]);
}
