// The output projection of a mixer and its hyper-connection write, prompt form (architecture.md section 4):
//
//     out[r, s, :] += inject[r, s] * (W x[r])
//
// With PLAIN the factor is one: the fusion in front of the MTP layer (architecture.md section 11).
//
// Row invariance: see `gemm_weight.wgsl`.

override STREAMS: u32;
override PLAIN: u32;

struct Task {
    rows: u32,
}

var<immediate> task: Task;

@group(0) @binding(0) var<storage, read> x: array<f32>; // [rows, w_COLS]
@group(0) @binding(1) var<storage, read> inject: array<f32>; // [rows, STREAMS]
@group(0) @binding(2) var<storage, read_write> out: array<f32>; // [rows, STREAMS, w_ROWS]

fn w_input(row: u32, quad: u32) -> vec4<f32> {
    var value = vec4<f32>();
    for (var i = 0u; i < 4u; i++) {
        if 4u * quad + i < w_COLS {
            value[i] = x[row * w_COLS + 4u * quad + i];
        }
    }
    return value;
}

@compute @workgroup_size(GEMM_THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let first = group.x * OUTPUT_TILE;
    let first_row = group.y * ROW_TILE;
    w_multiply(first, w_ROWS, first_row, min(task.rows, first_row + ROW_TILE), thread);
    for (var i = 0u; i < TEAM; i++) {
        let row = first_row + row_of(thread) + i;
        for (var s = 0u; s < STREAMS; s++) {
            for (var j = 0u; j < TEAM; j++) {
                let output = first + output_of(thread) + j;
                if row < task.rows && output < w_ROWS {
                    let factor = select(inject[row * STREAMS + s], 1.0, PLAIN == 1u);
                    let at = (row * STREAMS + s) * w_ROWS + output;
                    out[at] = fma(factor, sums[i][j], out[at]);
                }
            }
        }
    }
}
