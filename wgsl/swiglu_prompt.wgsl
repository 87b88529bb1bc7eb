// First half of the shared expert, prompt form (architecture.md section 8):
//
//     out[r, o] = silu(gate(o) . u[r]) * (up(o) . u[r])
//
// Row invariance: see `gemm_weight.wgsl`.

struct Task {
    rows: u32,
}

var<immediate> task: Task;

@group(0) @binding(0) var<storage, read> u: array<f32>; // [rows, gate_COLS]
@group(0) @binding(1) var<storage, read_write> out: array<f32>; // [rows, gate_ROWS]

fn gate_input(row: u32, quad: u32) -> vec4<f32> {
    var value = vec4<f32>();
    for (var i = 0u; i < 4u; i++) {
        if 4u * quad + i < gate_COLS {
            value[i] = u[row * gate_COLS + 4u * quad + i];
        }
    }
    return value;
}

fn up_input(row: u32, quad: u32) -> vec4<f32> {
    return gate_input(row, quad);
}

@compute @workgroup_size(GEMM_THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let first = group.x * OUTPUT_TILE;
    let first_row = group.y * ROW_TILE;
    let end_row = min(task.rows, first_row + ROW_TILE);
    gate_multiply(first, gate_ROWS, first_row, end_row, thread);
    var gates = sums;
    up_multiply(first, up_ROWS, first_row, end_row, thread);
    for (var i = 0u; i < TEAM; i++) {
        let row = first_row + row_of(thread) + i;
        for (var j = 0u; j < TEAM; j++) {
            let output = first + output_of(thread) + j;
            if row < end_row && output < up_ROWS {
                out[row * up_ROWS + output] = silu(gates[i][j]) * sums[i][j];
            }
        }
    }
}
