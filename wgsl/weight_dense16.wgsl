// A weight of BF16 or F16 numbers in rows that are multiples of 16 bytes. Comes once for each such weight of a kernel,
// `W_` replaced by the weight's name. A unit is what 16 bytes hold: 8 inputs, as 2 quads.

override W_ROWS: u32; // outputs
override W_COLS: u32; // inputs, a multiple of 8
override W_SCALAR: u32; // BF16 or F16

const W_UNIT = 8u;
const W_QUADS = 2u;
override W_UNITS: u32 = W_COLS / W_UNIT;

struct W_Unit {
    words: vec4<u32>,
}

fn W_load(row: u32, unit: u32) -> W_Unit {
    return W_Unit(W_code_quad(row * W_UNITS + unit));
}

// The numbers of a unit, in order.
fn W_numbers(unit: W_Unit) -> array<vec4<f32>, 2> {
    return array<vec4<f32>, 2>(
        vec4<f32>(numbers_in(unit.words.x, W_SCALAR), numbers_in(unit.words.y, W_SCALAR)),
        vec4<f32>(numbers_in(unit.words.z, W_SCALAR), numbers_in(unit.words.w, W_SCALAR)),
    );
}

// `unit` times its inputs.
fn W_dot(unit: W_Unit, x: Inputs) -> f32 {
    let w = W_numbers(unit);
    return dot(w[0], x.a) + dot(w[1], x.b);
}
