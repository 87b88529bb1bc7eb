// The inputs of a product whose rows have any length, prompt form, number by number.

@group(0) @binding(0) var<storage, read> x: array<f32>; // [rows, COLS]

// Numbers 4 quad .. 4 quad + 3 of a row, zeros past its end.
fn input_quad(row: u32, quad: u32, cols: u32) -> vec4<f32> {
    var value = vec4<f32>();
    for (var i = 0u; i < 4u; i++) {
        if 4u * quad + i < cols {
            value[i] = x[row * cols + 4u * quad + i];
        }
    }
    return value;
}
