// The low-rank gate of the hyper-connection read, prompt form (architecture.md section 4), after `group_norm.wgsl`, whose
// result is x:
//
//     lowrank[r, :] = silu(down x[r] / STREAMS)
//
// Row invariance: see `gemm_weight.wgsl`.

override STREAMS: u32;

struct Task {
    rows: u32,
}

var<immediate> task: Task;

@group(0) @binding(1) var<storage, read_write> lowrank: array<f32>; // [rows, down_ROWS]

fn input_row(row: u32) -> u32 {
    return row;
}

fn down_row(tile: Tile, output: u32) -> u32 {
    return tile.first + output;
}

fn begin_of(row: u32) -> u32 {
    return row * down_ROWS;
}

fn take(begin: u32, output: u32, sum: f32) {
    if output < down_ROWS {
        lowrank[begin + output] = silu(sum / f32(STREAMS));
    }
}

@compute @workgroup_size(GEMM_THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    down_multiply(tile_of(group, OUTPUT_TILE, task.rows), thread);
}
