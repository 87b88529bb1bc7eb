// Rows times a weight, prompt form:  out[r, o] = W(o) . x[r]
//
// Row invariance: see `gemm_weight.wgsl`. Serves every product of prompt rows whose result is needed as it is.

struct Task {
    rows: u32, // rows of x
    outputs: u32, // weight rows that are bound
    row_begin: u32, // number of x at which row 0 begins
    row_pitch: u32, // numbers of x from a row to the next
    out_begin: u32, // number of out at which row 0 begins, the weight rows before the bound ones included
    out_pitch: u32, // numbers of out from a row to the next
}

var<immediate> task: Task;

@group(0) @binding(0) var<storage, read> x: array<f32>; // [rows, w_COLS], rows row_pitch apart
@group(0) @binding(1) var<storage, read_write> out: array<f32>; // [rows, outputs], rows out_pitch apart

fn w_input(row: u32, quad: u32) -> vec4<f32> {
    var value = vec4<f32>();
    let at = task.row_begin + row * task.row_pitch + 4u * quad;
    for (var i = 0u; i < 4u; i++) {
        if 4u * quad + i < w_COLS {
            value[i] = x[at + i];
        }
    }
    return value;
}

@compute @workgroup_size(GEMM_THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let first = group.x * OUTPUT_TILE;
    let first_row = group.y * ROW_TILE;
    w_multiply(first, task.outputs, first_row, min(task.rows, first_row + ROW_TILE), thread);
    for (var i = 0u; i < TEAM; i++) {
        for (var j = 0u; j < TEAM; j++) {
            let row = first_row + row_of(thread) + i;
            let output = first + output_of(thread) + j;
            if row < task.rows && output < task.outputs {
                out[task.out_begin + row * task.out_pitch + output] = sums[i][j];
            }
        }
    }
}
