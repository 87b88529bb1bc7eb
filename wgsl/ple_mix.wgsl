// Convolution and sum of the n-gram injection (architecture.md 9.2), per row r, stream s and number c:
//
//     out[r, s, c] += gates[r, s] values[r, c] + silu(sum_j conv[s, c, j] inputs[r - DILATION (KERNEL - 1 - j), s, c])
//
// Inputs before row 0 lie in the window, which moves on at the end: a thread has a column of all rows and of the window.
//
// Row invariance: a number is one sum, taps in ascending order.

override THREADS: u32; // of a workgroup
override STREAMS: u32;
override HIDDEN: u32; // numbers in a stream
override KERNEL: u32; // taps
override DILATION: u32; // rows between taps
override IN_PLACE: u32;
override WIDTH: u32 = STREAMS * HIDDEN;
override DEPTH: u32 = (KERNEL - 1u) * DILATION; // rows of the window

struct Task {
    rows: u32,
}

var<immediate> task: Task;

@group(0) @binding(0) var<storage, read> conv: array<f32>; // [STREAMS, HIDDEN, KERNEL]
@group(0) @binding(1) var<storage, read> inputs: array<f32>; // [rows, STREAMS, HIDDEN]
@group(0) @binding(2) var<storage, read> gates: array<f32>; // [rows, STREAMS]
@group(0) @binding(3) var<storage, read> values: array<f32>; // [rows, HIDDEN]
@group(0) @binding(4) var<storage, read> window_before: array<f32>; // [DEPTH, STREAMS, HIDDEN], or anything if IN_PLACE
@group(0) @binding(5) var<storage, read_write> window: array<f32>; // [DEPTH, STREAMS, HIDDEN], oldest first
@group(0) @binding(6) var<storage, read_write> out: array<f32>; // [rows, STREAMS, HIDDEN]

// Row `place` of the window and the rows after it.
fn input_at(place: u32, column: u32) -> f32 {
    if place >= DEPTH {
        return inputs[(place - DEPTH) * WIDTH + column];
    }
    if IN_PLACE == 1u {
        return window[place * WIDTH + column];
    }
    return window_before[place * WIDTH + column];
}

@compute @workgroup_size(THREADS)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let column = id.x;
    if column >= WIDTH {
        return;
    }
    for (var row = 0u; row < task.rows; row++) {
        var sum = 0.0;
        for (var j = 0u; j < KERNEL; j++) {
            sum = fma(conv[column * KERNEL + j], input_at(row + j * DILATION, column), sum);
        }
        let gate = gates[row * STREAMS + column / HIDDEN];
        let added = fma(gate, values[row * HIDDEN + column % HIDDEN], silu(sum));
        out[row * WIDTH + column] += added;
    }
    for (var i = 0u; i < DEPTH; i++) {
        window[i * WIDTH + column] = input_at(i + task.rows, column);
    }
}
