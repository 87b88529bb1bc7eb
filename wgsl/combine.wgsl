// Sum of the experts' rows and hyper-connection write (architecture.md sections 8 and 4), in both forms:
//
//     y = sum over k of weights[r, k] * routed[r, k, :], k ascending, then + sigmoid(gate . u[r]) * shared[r, :]
//     out[r, s, :] += inject[r, s] * y
//
// A workgroup has THREADS columns of four rows, and makes the gates of its rows again.
//
// Row invariance: the gate see `gemv_weight.wgsl`; choices are added in their order, whatever order their experts came
// in (engine.md 3.7e).

override STREAMS: u32;
override CHOICES: u32; // of a row

struct Task {
    rows: u32,
}

var<immediate> task: Task;

@group(0) @binding(0) var<storage, read> routed: array<f32>; // [rows, CHOICES, gate_COLS]
@group(0) @binding(1) var<storage, read> weights: array<f32>; // [rows, CHOICES]
@group(0) @binding(2) var<storage, read> shared_rows: array<f32>; // [rows, gate_COLS]
@group(0) @binding(3) var<storage, read> u: array<vec4<f32>>; // [rows, gate_COLS]
@group(0) @binding(4) var<storage, read> inject: array<f32>; // [rows, STREAMS]
@group(0) @binding(5) var<storage, read_write> out: array<f32>; // [rows, STREAMS, gate_COLS]

fn input_quad(index: u32) -> vec4<f32> {
    return u[index];
}

fn gate_input(row: u32, quad: u32) -> vec4<f32> {
    return row_quad(row * gate_COLS, gate_COLS, quad);
}

// Writes to four streams. All are read before one is written, so that they are under way at once.
fn write_streams(row: u32, first: u32, col: u32, y: f32) {
    var before = vec4<f32>();
    for (var i = 0u; i < min(4u, STREAMS - first); i++) {
        before[i] = out[(row * STREAMS + first + i) * gate_COLS + col];
    }
    for (var i = 0u; i < min(4u, STREAMS - first); i++) {
        let at = row * STREAMS + first + i;
        out[at * gate_COLS + col] = fma(inject[at], y, before[i]);
    }
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let first = group.y * ROWS_AT_ONCE;
    let rows = min(task.rows - first, ROWS_AT_ONCE);
    gate_multiply(0u, gate_ROWS, first, rows, thread);
    let col = group.x * THREADS + thread;
    if col >= gate_COLS {
        return;
    }
    for (var r = 0u; r < rows; r++) {
        let row = first + r;
        var y = 0.0;
        for (var k = 0u; k < CHOICES; k++) {
            let pair = row * CHOICES + k;
            y = fma(weights[pair], routed[pair * gate_COLS + col], y);
        }
        y = fma(sigmoid(gate_sum(0u, r)), shared_rows[row * gate_COLS + col], y);
        for (var first = 0u; first < STREAMS; first += 4u) {
            write_streams(row, first, col, y);
        }
    }
}
