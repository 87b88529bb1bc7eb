// Second half of the hyper-connection read, decode form (architecture.md section 4), over the parts of the first:
//
//     factor[r, s] = 1 / sqrt(mean(x[r, s, :]^2) + eps)
//     lowrank[r, :] = silu(sum over s of factor[r, s] * down part[r, s, :], divided by STREAMS)
//     inject[r, :] = 2 sigmoid(sum over s of factor[r, s] * inject part[r, s, :], divided by STREAMS)
//     u[r, j] = sum over s of sigmoid(up(s HIDDEN + j) . lowrank[r]) * x[r, s, j] * factor[r, s] * norm[s, j], divided by STREAMS
//
// A lane has the weight rows of one j in all streams: STREAMS outputs, HIDDEN apart. Every workgroup makes the low rank
// again; the first writes the injection.
//
// Row invariance: products see `gemv_weight.wgsl`; streams are added in their order.

override STREAMS: u32; // at most 8
override HIDDEN: u32; // numbers in a stream
override WIDTH: u32 = STREAMS * HIDDEN;
override INJECTS: u32; // STREAMS, or none

struct Task {
    rows: u32,
    first: u32, // row of x from which row 0 is made
    eps: f32,
}

var<immediate> task: Task;

@group(0) @binding(0) var<storage, read> x: array<f32>; // [first + rows, STREAMS, HIDDEN]
@group(0) @binding(1) var<storage, read> norm: array<f32>; // [STREAMS, HIDDEN]
@group(0) @binding(2) var<storage, read> parts: array<f32>; // [rows, STREAMS (up_COLS + INJECTS + 1)]
@group(0) @binding(3) var<storage, read_write> u: array<f32>; // [rows, HIDDEN]
@group(0) @binding(4) var<storage, read_write> inject: array<f32>; // [rows, STREAMS]

override PITCH: u32 = STREAMS * (up_COLS + INJECTS + 1u);

fn input_quad(index: u32) -> vec4<f32> {
    return vec4<f32>();
}

fn factor(row: u32, stream: u32) -> f32 {
    let squares = parts[row * PITCH + STREAMS * (up_COLS + INJECTS) + stream];
    return 1.0 / sqrt(squares / f32(HIDDEN) + task.eps);
}

fn up_input(row: u32, quad: u32) -> vec4<f32> {
    var sums = vec4<f32>();
    for (var s = 0u; s < STREAMS; s++) {
        let begin = row * PITCH + s * up_COLS + 4u * quad;
        let part = vec4<f32>(parts[begin], parts[begin + 1u], parts[begin + 2u], parts[begin + 3u]);
        sums = fma(vec4<f32>(factor(row, s)), part, sums);
    }
    var value = vec4<f32>();
    for (var i = 0u; i < 4u; i++) {
        if 4u * quad + i < up_COLS {
            value[i] = silu(sums[i] / f32(STREAMS));
        }
    }
    return value;
}

// The injection of stream `s` of a row.
fn injection(row: u32, s: u32) -> f32 {
    var sum = 0.0;
    for (var part = 0u; part < STREAMS; part++) {
        sum = fma(factor(row, part), parts[row * PITCH + STREAMS * up_COLS + part * INJECTS + s], sum);
    }
    return 2.0 * sigmoid(sum / f32(STREAMS));
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let first = group.y * ROWS_AT_ONCE;
    let rows = min(task.rows - first, ROWS_AT_ONCE);
    if INJECTS > 0u && group.x == 0u && thread < rows * STREAMS {
        inject[first * STREAMS + thread] = injection(first + thread / STREAMS, thread % STREAMS);
    }
    up_multiply(group.x, up_ROWS, first, rows, thread);
    for (var i = thread; i < up_SPAN * rows; i += THREADS) {
        let team = i % up_SPAN;
        let r = i / up_SPAN;
        let j = group.x * up_SPAN + team;
        if j < HIDDEN {
            var sum = 0.0;
            for (var s = 0u; s < STREAMS; s++) {
                let n = x[(task.first + first + r) * WIDTH + s * HIDDEN + j] * factor(first + r, s) * norm[s * HIDDEN + j];
                sum = fma(sigmoid(up_sum(team * STREAMS + s, r)), n, sum);
            }
            u[(first + r) * HIDDEN + j] = sum / f32(STREAMS);
        }
    }
}
