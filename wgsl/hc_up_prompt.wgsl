// The gated mean of the hyper-connection read, prompt form (architecture.md section 4):
//
//     u[r, j] = sum over s of sigmoid(up(s HIDDEN + j) . lowrank[r]) * normed[r, s, j], divided by STREAMS
//
// A workgroup multiplies its tile of j in one stream after the other.
//
// Row invariance: products see `gemm_weight.wgsl`; streams are added in their order.

override STREAMS: u32;
override HIDDEN: u32; // numbers in a stream

struct Task {
    rows: u32,
}

var<immediate> task: Task;

@group(0) @binding(0) var<storage, read> normed: array<f32>; // [rows, STREAMS, HIDDEN]
@group(0) @binding(1) var<storage, read> lowrank: array<f32>; // [rows, up_COLS]
@group(0) @binding(2) var<storage, read_write> u: array<f32>; // [rows, HIDDEN]

fn up_input(row: u32, quad: u32) -> vec4<f32> {
    var value = vec4<f32>();
    for (var i = 0u; i < 4u; i++) {
        if 4u * quad + i < up_COLS {
            value[i] = lowrank[row * up_COLS + 4u * quad + i];
        }
    }
    return value;
}

@compute @workgroup_size(GEMM_THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let first = group.x * OUTPUT_TILE;
    let first_row = group.y * ROW_TILE;
    let end_row = min(task.rows, first_row + ROW_TILE);
    var mean: array<vec4<f32>, TEAM>;
    for (var s = 0u; s < STREAMS; s++) {
        let begin = s * HIDDEN;
        up_multiply(begin + first, begin + HIDDEN, first_row, end_row, thread);
        for (var i = 0u; i < TEAM; i++) {
            let row = first_row + row_of(thread) + i;
            for (var j = 0u; j < TEAM; j++) {
                let col = first + output_of(thread) + j;
                if row < task.rows && col < HIDDEN {
                    let n = normed[(row * STREAMS + s) * HIDDEN + col];
                    mean[i][j] = fma(sigmoid(sums[i][j]), n, mean[i][j]);
                }
            }
        }
    }
    for (var i = 0u; i < TEAM; i++) {
        for (var j = 0u; j < TEAM; j++) {
            let row = first_row + row_of(thread) + i;
            let col = first + output_of(thread) + j;
            if row < task.rows && col < HIDDEN {
                u[row * HIDDEN + col] = mean[i][j] / f32(STREAMS);
            }
        }
    }
}
