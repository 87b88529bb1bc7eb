// What the prompt form of all products shares where no matrix units multiply: rounding, the sums of a thread and how they
// reach the kernel. Comes once in a kernel, after `gemm_large.wgsl` or `gemm_small.wgsl`, which say how large a tile is, and
// before one `gemm_weight.wgsl` a weight. `gemm_units.wgsl` is the same with matrix units.
//
// A thread has rows, TALL apart, of eight outputs, WIDE apart, so that neighbours read neighbouring quads of a tile: no two
// of them in one memory bank. Its sums are named one by one, since drivers keep what is indexed in memory.

override ROUNDED: u32; // 1 to round inputs and weights to F16

const DEEP = 8u; // quads of inputs in a block of the K loop
const PITCH = 9u; // DEEP and room that keeps neighbours out of one memory bank

// Sums of a row: outputs 0 .. 3 of the thread, then 4 .. 7.
struct Sums {
    a: vec4<f32>,
    b: vec4<f32>,
}

fn put_row(row: u32, quad: u32, x: vec4<f32>) {
    if ROUNDED == 1u {
        row_tile[row * PITCH + quad] = through_f16_quad(x);
    } else {
        row_tile[row * PITCH + quad] = x;
    }
}

fn put_weight(output: u32, quad: u32, x: vec4<f32>) {
    if ROUNDED == 1u {
        weight_tile[output * PITCH + quad] = through_f16_quad(x);
    } else {
        weight_tile[output * PITCH + quad] = x;
    }
}

// A quad of inputs of four outputs: number i of all of them in column i.
fn weights_at(place: u32) -> mat4x4<f32> {
    let a = weight_tile[place];
    let b = weight_tile[place + WIDE * PITCH];
    let c = weight_tile[place + 2u * WIDE * PITCH];
    let d = weight_tile[place + 3u * WIDE * PITCH];
    return mat4x4<f32>(
        vec4<f32>(a.x, b.x, c.x, d.x),
        vec4<f32>(a.y, b.y, c.y, d.y),
        vec4<f32>(a.z, b.z, c.z, d.z),
        vec4<f32>(a.w, b.w, c.w, d.w),
    );
}

fn added(sum: vec4<f32>, x: vec4<f32>, w: mat4x4<f32>) -> vec4<f32> {
    let first = fma(vec4<f32>(x.y), w[1], fma(vec4<f32>(x.x), w[0], sum));
    return fma(vec4<f32>(x.w), w[3], fma(vec4<f32>(x.z), w[2], first));
}

fn added_row(sums: Sums, x: vec4<f32>, a: mat4x4<f32>, b: mat4x4<f32>) -> Sums {
    return Sums(added(sums.a, x, a), added(sums.b, x, b));
}

// Puts the sums of a thread's row away in workgroup memory, `i`th of those that `give_held` gives next.
fn hold(i: u32, sums: Sums, thread: u32) {
    weight_tile[2u * i * GEMM_THREADS + thread] = sums.a;
    weight_tile[(2u * i + 1u) * GEMM_THREADS + thread] = sums.b;
}

// Gives so many rows that a thread has put away to the kernel, from row `first` on. A thread reads what it wrote, so that no
// barrier is needed; the loop has one piece of code for all rows.
fn give_held(tile: Tile, first: u32, rows: u32, thread: u32) {
    for (var i = thread; i < rows * GEMM_THREADS; i += GEMM_THREADS) {
        let at = 2u * i - thread;
        give(tile, first + i / GEMM_THREADS * TALL, weight_tile[at], weight_tile[at + GEMM_THREADS], thread);
    }
}
