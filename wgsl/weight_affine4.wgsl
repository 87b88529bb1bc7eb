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

// Codes times inputs of one word; even codes lie in the low halves of its bytes.
fn W_word_dot(codes: u32, a: vec4<f32>, b: vec4<f32>) -> f32 {
    let even = vec4<f32>(unpack4xU8(codes & 0x0f0f0f0fu));
    let odd = vec4<f32>(unpack4xU8((codes >> 4u) & 0x0f0f0f0fu));
    return dot(even, vec4<f32>(a.xz, b.xz)) + dot(odd, vec4<f32>(a.yw, b.yw));
}

// `unit` times inputs that add up to `sum`.
fn W_dot(unit: W_Unit, x: array<vec4<f32>, 8>, sum: f32) -> f32 {
    let first = W_word_dot(unit.codes.x, x[0], x[1]) + W_word_dot(unit.codes.y, x[2], x[3]);
    let second = W_word_dot(unit.codes.z, x[4], x[5]) + W_word_dot(unit.codes.w, x[6], x[7]);
    return unit.scale * (first + second) + unit.bias * sum;
}

fn W_word_numbers(codes: u32, scale: f32, bias: f32) -> array<vec4<f32>, 2> {
    let even = vec4<f32>(unpack4xU8(codes & 0x0f0f0f0fu));
    let odd = vec4<f32>(unpack4xU8((codes >> 4u) & 0x0f0f0f0fu));
    let a = vec4<f32>(even.x, odd.x, even.y, odd.y);
    let b = vec4<f32>(even.z, odd.z, even.w, odd.w);
    return array<vec4<f32>, 2>(fma(a, vec4<f32>(scale), vec4<f32>(bias)), fma(b, vec4<f32>(scale), vec4<f32>(bias)));
}

// The numbers of a unit, in order.
fn W_numbers(unit: W_Unit) -> array<vec4<f32>, 8> {
    let a = W_word_numbers(unit.codes.x, unit.scale, unit.bias);
    let b = W_word_numbers(unit.codes.y, unit.scale, unit.bias);
    let c = W_word_numbers(unit.codes.z, unit.scale, unit.bias);
    let d = W_word_numbers(unit.codes.w, unit.scale, unit.bias);
    return array<vec4<f32>, 8>(a[0], a[1], b[0], b[1], c[0], c[1], d[0], d[1]);
}
