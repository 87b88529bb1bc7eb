// The low-rank gate of the hyper-connection read, prompt form (architecture.md section 4), after `group_norm.wgsl`:
//
//     lowrank[r, :] = silu(down normed[r] / STREAMS)
//
// Row invariance: see `gemm_weight.wgsl`.

override STREAMS: u32;

struct Task {
    rows: u32,
}

var<immediate> task: Task;

@group(0) @binding(0) var<storage, read> normed: array<f32>; // [rows, down_COLS]
@group(0) @binding(1) var<storage, read_write> lowrank: array<f32>; // [rows, down_ROWS]

fn down_input(row: u32, quad: u32) -> vec4<f32> {
    var value = vec4<f32>();
    for (var i = 0u; i < 4u; i++) {
        if 4u * quad + i < down_COLS {
            value[i] = normed[row * down_COLS + 4u * quad + i];
        }
    }
    return value;
}

@compute @workgroup_size(GEMM_THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let first = group.x * OUTPUT_TILE;
    let first_row = group.y * ROW_TILE;
    down_multiply(first, down_ROWS, first_row, min(task.rows, first_row + ROW_TILE), thread);
    for (var i = 0u; i < TEAM; i++) {
        for (var j = 0u; j < TEAM; j++) {
            let row = first_row + row_of(thread) + i;
            let output = first + output_of(thread) + j;
            if row < task.rows && output < down_ROWS {
                lowrank[row * down_ROWS + output] = silu(sums[i][j] / f32(STREAMS));
            }
        }
    }
}
