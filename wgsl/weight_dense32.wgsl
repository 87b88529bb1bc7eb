// A weight of F32 numbers in rows that are multiples of 16 bytes. Comes once for each such weight of a kernel, `W_`
// replaced by the weight's name. A unit is what 16 bytes hold: 4 inputs, one quad.

override W_ROWS: u32; // outputs
override W_COLS: u32; // inputs, a multiple of 4

const W_UNIT = 4u;
const W_QUADS = 1u;
override W_UNITS: u32 = W_COLS / W_UNIT;

struct W_Unit {
    numbers: vec4<f32>,
}

fn W_load(row: u32, unit: u32) -> W_Unit {
    return W_Unit(bitcast<vec4<f32>>(W_code_quad(row * W_UNITS + unit)));
}

// The numbers of a unit, in order.
fn W_numbers(unit: W_Unit) -> array<vec4<f32>, 1> {
    return array<vec4<f32>, 1>(unit.numbers);
}

// `unit` times its inputs.
fn W_dot(unit: W_Unit, x: Inputs) -> f32 {
    return dot(unit.numbers, x.a);
}
