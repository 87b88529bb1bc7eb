// A weight of BF16, F16 or F32 numbers in rows of any length, number by number. Comes once for each such weight of a
// kernel, `W_` replaced by the weight's name. A unit is 8 inputs, as 2 quads, zeros past the end of a row.

override W_ROWS: u32; // outputs
override W_COLS: u32; // inputs
override W_SCALAR: u32; // BF16, F16 or F32

const W_UNIT = 8u;
const W_QUADS = 2u;
override W_UNITS: u32 = (W_COLS + W_UNIT - 1u) / W_UNIT;

struct W_Unit {
    first: vec4<f32>,
    second: vec4<f32>,
}

fn W_number(row: u32, col: u32) -> f32 {
    if col >= W_COLS {
        return 0.0;
    }
    let index = row * W_COLS + col;
    return number_in(W_code_word(word_of(index, W_SCALAR)), index, W_SCALAR);
}

fn W_quad(row: u32, col: u32) -> vec4<f32> {
    return vec4<f32>(W_number(row, col), W_number(row, col + 1u), W_number(row, col + 2u), W_number(row, col + 3u));
}

fn W_load(row: u32, unit: u32) -> W_Unit {
    return W_Unit(W_quad(row, unit * W_UNIT), W_quad(row, unit * W_UNIT + 4u));
}

// The numbers of a unit, in order.
fn W_numbers(unit: W_Unit) -> array<vec4<f32>, 2> {
    return array<vec4<f32>, 2>(unit.first, unit.second);
}

// `unit` times its inputs.
fn W_dot(unit: W_Unit, x: Inputs) -> f32 {
    return dot(unit.first, x.a) + dot(unit.second, x.b);
}
