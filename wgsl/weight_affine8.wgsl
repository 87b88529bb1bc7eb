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

// `unit` times inputs that add up to `sum`.
fn W_dot(unit: W_Unit, x: array<vec4<f32>, 4>, sum: f32) -> f32 {
    let a = dot(vec4<f32>(unpack4xU8(unit.codes.x)), x[0]);
    let b = dot(vec4<f32>(unpack4xU8(unit.codes.y)), x[1]);
    let c = dot(vec4<f32>(unpack4xU8(unit.codes.z)), x[2]);
    let d = dot(vec4<f32>(unpack4xU8(unit.codes.w)), x[3]);
    return unit.scale * ((a + b) + (c + d)) + unit.bias * sum;
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
