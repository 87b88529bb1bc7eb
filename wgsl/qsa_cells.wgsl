// Rows of the caches of sparse attention, 16 bytes at a time (engine.md 3.3).

override SCALAR: u32; // how caches are stored: BF16 or F32
override WIDE: u32; // quads of numbers in 16 bytes: 2 of BF16, 1 of F32

// The numbers of 16 bytes, in order; the second quad counts where WIDE is 2.
fn cells(words: vec4<u32>) -> array<vec4<f32>, 2> {
    if SCALAR == F32 {
        return array<vec4<f32>, 2>(bitcast<vec4<f32>>(words), vec4<f32>());
    }
    let even = bitcast<vec4<f32>>(words << vec4<u32>(16u));
    let odd = bitcast<vec4<f32>>(words & vec4<u32>(0xffff0000u));
    return array<vec4<f32>, 2>(vec4<f32>(even.x, odd.x, even.y, odd.y), vec4<f32>(even.z, odd.z, even.w, odd.w));
}

// The sum of a quad.
fn total(quad: vec4<f32>) -> f32 {
    return (quad.x + quad.y) + (quad.z + quad.w);
}
