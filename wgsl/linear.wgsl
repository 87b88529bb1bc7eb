// Rows times a weight, decode form:  out[r, o] = W(o) . x[r]
//
// Row invariance: see `gemv_weight.wgsl`. Serves the output head and every product that is not fused with others.

struct Task {
    rows: u32, // rows of x
    outputs: u32, // weight rows that are bound
    row_begin: u32, // number of x at which row 0 begins
    row_pitch: u32, // numbers of x from a row to the next
    out_begin: u32, // number of out at which row 0 begins, the weight rows before the bound ones included
    out_pitch: u32, // numbers of out from a row to the next
}

var<immediate> task: Task;

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>; // [rows, w_COLS], rows row_pitch apart
@group(0) @binding(1) var<storage, read_write> out: array<f32>; // [rows, outputs], rows out_pitch apart

fn input_quad(index: u32) -> vec4<f32> {
    return x[index];
}

fn w_input(row: u32, quad: u32) -> vec4<f32> {
    return row_quad(task.row_begin + row * task.row_pitch, w_COLS, quad);
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let first = group.y * ROWS_AT_ONCE;
    let rows = min(task.rows - first, ROWS_AT_ONCE);
    w_multiply(group.x, task.outputs, first, rows, thread);
    for (var i = thread; i < w_TILE * rows; i += THREADS) {
        let output = w_output(group.x, i % w_TILE);
        if output < task.outputs {
            out[task.out_begin + (first + i / w_TILE) * task.out_pitch + output] = w_sum(i % w_TILE, i / w_TILE);
        }
    }
}
