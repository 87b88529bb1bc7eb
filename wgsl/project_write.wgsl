// The output projection of a mixer and its hyper-connection write, decode form (architecture.md section 4):
//
//     out[r, s, :] += inject[r, s] * (W x[r])
//
// With PLAIN the factor is one: the fusion in front of the MTP layer (architecture.md section 11).
//
// Row invariance: see `gemv_weight.wgsl`.

override STREAMS: u32;
override PLAIN: u32;

struct Task {
    rows: u32,
}

var<immediate> task: Task;

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>; // [rows, w_COLS]
@group(0) @binding(1) var<storage, read> inject: array<f32>; // [rows, STREAMS]
@group(0) @binding(2) var<storage, read_write> out: array<f32>; // [rows, STREAMS, w_ROWS]

fn input_quad(index: u32) -> vec4<f32> {
    return x[index];
}

fn w_input(row: u32, quad: u32) -> vec4<f32> {
    return row_quad(row * w_COLS, w_COLS, quad);
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let first = group.y * ROWS_AT_ONCE;
    let rows = min(task.rows - first, ROWS_AT_ONCE);
    w_multiply(group.x, w_ROWS, first, rows, thread);
    for (var i = thread; i < w_TILE * rows; i += THREADS) {
        let row = first + i / w_TILE;
        let output = w_output(group.x, i % w_TILE);
        if output < w_ROWS {
            let y = w_sum(i % w_TILE, i / w_TILE);
            for (var s = 0u; s < STREAMS; s++) {
                let factor = select(inject[row * STREAMS + s], 1.0, PLAIN == 1u);
                let at = (row * STREAMS + s) * w_ROWS + output;
                out[at] = fma(factor, y, out[at]);
            }
        }
    }
}
