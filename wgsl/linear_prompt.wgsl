// Rows times a weight, prompt form:  out[r, o] = W(o) . x[first + r]
//
// Row invariance: see `gemm_weight.wgsl`. Serves every product of prompt rows whose result is needed as it is.

struct Task {
    rows: u32,
    outputs: u32, // weight rows that are bound
    first: u32, // row of x at which row 0 lies
    out_begin: u32, // number of out at which row 0 begins, the weight rows before the bound ones included
    out_pitch: u32, // numbers of out from a row to the next
}

var<immediate> task: Task;

@group(0) @binding(1) var<storage, read_write> out: array<f32>; // [rows, outputs], rows out_pitch apart

fn input_row(row: u32) -> u32 {
    return task.first + row;
}

fn w_row(tile: Tile, output: u32) -> u32 {
    return select(w_ROWS, tile.first + output, tile.first + output < task.outputs);
}

fn begin_of(row: u32) -> u32 {
    return task.out_begin + row * task.out_pitch;
}

fn take(begin: u32, output: u32, sum: f32) {
    if output < task.outputs {
        out[begin + output] = sum;
    }
}

@compute @workgroup_size(GEMM_THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    w_multiply(tile_of(group, OUTPUT_TILE, task.rows), thread);
}
