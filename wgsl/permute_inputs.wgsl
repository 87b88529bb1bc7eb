// Puts rows of inputs in the order in which the 4-bit kernels read them, once for all weight rows:
//
//     permuted[r, step, i, lane] = (x[r, c], x[r, c + 2], x[r, c + 4], x[r, c + 6])
//     c = 32 (step LANES + lane) + 8 (i % 4) + i / 4        i < 4: even codes of word i, else odd codes of word i - 4
//
// With ROUNDED the inputs are rounded to F16 on the way, to nearest, ties to even (engine.md 3.5).
// Row invariance: values are moved, or rounded one by one; nothing is added.

override INPUTS: u32; // numbers in a row, a multiple of 32
override LANES: u32; // lanes that share an output in the kernel that reads
override ROUNDED: u32; // 1 to round to F16
override THREADS: u32; // of a workgroup

override BLOCKS: u32 = INPUTS / 32u;
override STEPS: u32 = (BLOCKS + LANES - 1u) / LANES;
override QUADS: u32 = STEPS * 8u * LANES;

struct Task {
    first: u32, // first row of this dispatch
}

var<immediate> task: Task;

@group(0) @binding(0) var<storage, read> x: array<f32>; // [rows, INPUTS]
@group(0) @binding(1) var<storage, read_write> permuted: array<vec4<f32>>; // [rows, STEPS, 8, LANES]

// The nearest F16, written out, since the rounding of a device's own conversion is its own choice.
fn rounded(value: f32) -> f32 {
    if ROUNDED == 0u {
        return value;
    }
    let magnitude = abs(value);
    if magnitude < 0x1p-14 {
        return round(value * 0x1p24) * 0x1p-24;
    }
    // Too large for F16, or NaN: infinite with its sign, or NaN.
    if !(magnitude < 65520.0) {
        return value * 0x1p127;
    }
    let bits = bitcast<u32>(value);
    return bitcast<f32>((bits + 0xfffu + ((bits >> 13u) & 1u)) & 0xffffe000u);
}

@compute @workgroup_size(THREADS)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let row = task.first + id.y;
    let lane = id.x % LANES;
    let i = id.x / LANES % 8u;
    let block = id.x / (8u * LANES) * LANES + lane;
    if id.x >= QUADS || block >= BLOCKS {
        return;
    }
    let c = row * INPUTS + block * 32u + i % 4u * 8u + i / 4u;
    permuted[row * QUADS + id.x] =
        vec4<f32>(rounded(x[c]), rounded(x[c + 2u]), rounded(x[c + 4u]), rounded(x[c + 6u]));
}
