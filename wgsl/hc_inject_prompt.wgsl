// The injection weights of prompt rows (architecture.md section 4), after `group_norm.wgsl`:
//
//     inject[r, :] = 2 sigmoid(inject normed[r] / STREAMS)
//
// A few outputs of very long rows, inputs never rounded: the product of `gemv_weight.wgsl`, which see for the row
// invariance.

override STREAMS: u32;

struct Task {
    rows: u32,
}

var<immediate> task: Task;

@group(0) @binding(0) var<storage, read> normed: array<vec4<f32>>; // [rows, inject_COLS]
@group(0) @binding(1) var<storage, read_write> inject: array<f32>; // [rows, STREAMS]

fn input_quad(index: u32) -> vec4<f32> {
    return normed[index];
}

fn inject_input(row: u32, quad: u32) -> vec4<f32> {
    return row_quad(row * inject_COLS, inject_COLS, quad);
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let first = group.y * ROWS_AT_ONCE;
    let rows = min(task.rows - first, ROWS_AT_ONCE);
    inject_multiply(group.x, inject_ROWS, first, rows, thread);
    for (var i = thread; i < inject_TILE * rows; i += THREADS) {
        let output = inject_output(group.x, i % inject_TILE);
        if output < inject_ROWS {
            let sum = inject_sum(i % inject_TILE, i / inject_TILE);
            inject[(first + i / inject_TILE) * STREAMS + output] = 2.0 * sigmoid(sum / f32(STREAMS));
        }
    }
}
