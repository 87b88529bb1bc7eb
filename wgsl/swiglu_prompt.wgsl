// First half of the shared expert, prompt form (architecture.md section 8):
//
//     out[r, o] = silu(gate(o) . x[r]) * (up(o) . x[r])
//
// Row invariance: see `gemm_weight.wgsl`.

struct Task {
    rows: u32,
}

var<immediate> task: Task;

@group(0) @binding(1) var<storage, read_write> out: array<f32>; // [rows, gate_ROWS]

fn input_row(row: u32) -> u32 {
    return row;
}

fn output_row(row: u32) -> u32 {
    return row;
}

@compute @workgroup_size(GEMM_THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    multiply_both(tile_of(group, SWIGLU_TILE, task.rows), thread);
}
