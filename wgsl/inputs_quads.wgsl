// The inputs of a product whose rows are whole quads, prompt form.

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>; // [rows, COLS]

// Numbers 4 quad .. 4 quad + 3 of a row, zeros past its end.
fn input_quad(row: u32, quad: u32, cols: u32) -> vec4<f32> {
    if 4u * quad < cols {
        return x[row * (cols / 4u) + quad];
    }
    return vec4<f32>();
}
