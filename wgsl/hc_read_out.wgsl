// Second half of the hyper-connection read, decode form (architecture.md section 4):
//
//     u[r, j] = sum over s of sigmoid(up(s HIDDEN + j) . lowrank[r]) * normed[r, s, j], divided by STREAMS
//
// A lane has the weight rows of one j in all streams: STREAMS outputs, HIDDEN apart.
//
// Row invariance: products see `gemv_weight.wgsl`; streams are added in their order.

override STREAMS: u32; // at most 8
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

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let first = group.y * ROWS_AT_ONCE;
    let rows = min(task.rows - first, ROWS_AT_ONCE);
    up_multiply(group.x, up_ROWS, first, rows, thread);
    for (var i = thread; i < up_TEAMS * rows; i += THREADS) {
        let team = i % up_TEAMS;
        let r = i / up_TEAMS;
        let j = group.x * up_TEAMS + team;
        if j < HIDDEN {
            var sum = 0.0;
            for (var s = 0u; s < STREAMS; s++) {
                let n = normed[((first + r) * STREAMS + s) * HIDDEN + j];
                sum = fma(sigmoid(up_sum(team * STREAMS + s, r)), n, sum);
            }
            u[(first + r) * HIDDEN + j] = sum / f32(STREAMS);
        }
    }
}
