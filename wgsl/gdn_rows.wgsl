// What surrounds the recurrence of Gated DeltaNet in a pass (architecture.md section 6), rows one after the other:
//
//     c = silu(conv(qkv)) = q, k, v      q = q / sqrt(sum q^2 + 1e-6) / sqrt(KEY_DIM)      k = k / sqrt(sum k^2 + 1e-6)
//     decay = exp(-exp(a_log) softplus(a + dt_bias))      beta = sigmoid(b)
//     y of the recurrence      out = y / sqrt(mean(y^2) + eps) * norm * act(z)
//
// The kernel says what is kept of the inputs of the recurrence: `keep_key`, `keep_value`, `keep_gates`.
//
// The window moves on in the same dispatch. A value head's own channels are seen by its workgroup alone; those of a key
// head by the workgroups of all its value heads, so that the last of them to arrive moves them. The ticket decides who
// moves, never what is computed; a workgroup draws it after a barrier behind which it reads the window no more.
//
// Row invariance (engine.md 3.7f): see `gdn_recurrence.wgsl`; taps of the convolution in ascending order, a sum of squares
// in PARTS parts, each thread every PARTS-th number in order, then the parts in order.

override KERNEL: u32; // taps
override SILU_GATE: u32; // act is silu, else sigmoid
override WINDOW_IN_PLACE: u32;
override DEPTH: u32 = KERNEL - 1u; // rows of the window
override CHANNELS: u32 = 2u * KEYS + VALUES;

const PARTS = 32u;
const L2_EPS = 1e-6; // added to the sum of squares of queries and keys

struct Task {
    rows: u32,
    eps: f32,
}

var<immediate> task: Task;

@group(0) @binding(2) var<storage, read> conv: array<f32>; // [CHANNELS, KERNEL]
@group(0) @binding(3) var<storage, read> a_log: array<f32>; // [VALUE_HEADS]
@group(0) @binding(4) var<storage, read> dt_bias: array<f32>; // [VALUE_HEADS]
@group(0) @binding(5) var<storage, read> norm: array<f32>; // [VALUE_DIM]
@group(0) @binding(6) var<storage, read> qkv: array<f32>; // [rows, CHANNELS]
@group(0) @binding(7) var<storage, read> z: array<f32>; // [rows, VALUE_HEADS, VALUE_DIM]
@group(0) @binding(8) var<storage, read> ab: array<f32>; // [rows, 2, VALUE_HEADS]
@group(0) @binding(9) var<storage, read> window_before: array<f32>; // [DEPTH, CHANNELS], or anything if WINDOW_IN_PLACE
@group(0) @binding(10) var<storage, read_write> window: array<f32>; // [DEPTH, CHANNELS], oldest first
@group(0) @binding(11) var<storage, read_write> out: array<f32>; // [rows, VALUE_HEADS, VALUE_DIM]
@group(0) @binding(12) var<storage, read_write> tickets: array<atomic<u32>>; // [KEY_HEADS], zeros before and after

var<workgroup> convolved: array<f32, 768>; // [2 KEY_DIM + VALUE_DIM]: q, k, v
var<workgroup> outputs: array<f32, 256>; // [VALUE_DIM]: y
var<workgroup> parts: array<f32, 64>; // [2, PARTS]
var<workgroup> is_last: u32;

// Row `place` of the window and the rows after it.
fn input_at(place: u32, channel: u32) -> f32 {
    if place >= DEPTH {
        return qkv[(place - DEPTH) * CHANNELS + channel];
    }
    if WINDOW_IN_PLACE == 1u {
        return window[place * CHANNELS + channel];
    }
    return window_before[place * CHANNELS + channel];
}

// Channel behind number `i` of the convolved q, k and v of a value head.
fn channel_of(head: u32, i: u32) -> u32 {
    if i < 2u * KEY_DIM {
        return i / KEY_DIM * KEYS + head / SHARING * KEY_DIM + i % KEY_DIM;
    }
    return 2u * KEYS + head * VALUE_DIM + i - 2u * KEY_DIM;
}

fn convolve(row: u32, channel: u32) -> f32 {
    var sum = 0.0;
    for (var j = 0u; j < KERNEL; j++) {
        sum = fma(conv[channel * KERNEL + j], input_at(row + j, channel), sum);
    }
    return silu(sum);
}

fn sum_of_parts(which: u32) -> f32 {
    var sum = 0.0;
    for (var i = 0u; i < PARTS; i++) {
        sum += parts[which * PARTS + i];
    }
    return sum;
}

// Query and key of the row for all threads.
fn norm_query_and_key(head: u32, row: u32, thread: u32) {
    if thread < 2u * PARTS {
        let begin = thread / PARTS * KEY_DIM;
        var sum = 0.0;
        for (var i = thread % PARTS; i < KEY_DIM; i += PARTS) {
            sum = fma(convolved[begin + i], convolved[begin + i], sum);
        }
        parts[thread] = sum;
    }
    workgroupBarrier();
    for (var i = thread; i < 2u * KEY_QUADS; i += THREADS) {
        let quad = i % KEY_QUADS;
        let factor = 1.0 / sqrt(sum_of_parts(i / KEY_QUADS) + L2_EPS);
        let x = vec4<f32>(convolved[4u * i], convolved[4u * i + 1u], convolved[4u * i + 2u], convolved[4u * i + 3u]);
        if i < KEY_QUADS {
            query[quad] = x * factor * (1.0 / sqrt(f32(KEY_DIM)));
        } else {
            key[quad] = x * factor;
            if head % SHARING == 0u {
                keep_key(row * KEYS + head / SHARING * KEY_DIM + 4u * quad, key[quad]);
            }
        }
    }
}

// Decay and beta of the row.
fn gates_of(head: u32, row: u32) -> vec2<f32> {
    let a = ab[row * 2u * VALUE_HEADS + head];
    let b = ab[row * 2u * VALUE_HEADS + VALUE_HEADS + head];
    return vec2<f32>(exponential(-exponential(a_log[head]) * softplus(a + dt_bias[head])), sigmoid(b));
}

// Norm and gate of the outputs.
fn finish(head: u32, row: u32, thread: u32) {
    if thread < PARTS {
        var sum = 0.0;
        for (var i = thread; i < VALUE_DIM; i += PARTS) {
            sum = fma(outputs[i], outputs[i], sum);
        }
        parts[thread] = sum;
    }
    workgroupBarrier();
    if thread < VALUE_DIM {
        let factor = 1.0 / sqrt(sum_of_parts(0u) / f32(VALUE_DIM) + task.eps);
        let at = row * VALUES + head * VALUE_DIM + thread;
        let gate = select(sigmoid(z[at]), silu(z[at]), SILU_GATE == 1u);
        out[at] = outputs[thread] * factor * norm[thread] * gate;
    }
}

fn one_row(head: u32, row: u32, thread: u32) {
    for (var i = thread; i < 2u * KEY_DIM + VALUE_DIM; i += THREADS) {
        convolved[i] = convolve(row, channel_of(head, i));
    }
    workgroupBarrier();
    norm_query_and_key(head, row, thread);
    let gates = gates_of(head, row);
    if thread < VALUE_DIM {
        keep_value(row * VALUES + head * VALUE_DIM + thread, convolved[2u * KEY_DIM + thread]);
    }
    if thread == 0u {
        keep_gates(2u * (row * VALUE_HEADS + head), gates);
    }
    workgroupBarrier();
    let y = advance(thread, convolved[2u * KEY_DIM + thread / LANES], gates.x, gates.y);
    if thread % LANES == 0u {
        outputs[thread / LANES] = y;
    }
    workgroupBarrier();
    finish(head, row, thread);
}

// Moves a channel of the window over the rows, oldest first.
fn slide(channel: u32) {
    for (var i = 0u; i < DEPTH; i++) {
        window[i * CHANNELS + channel] = input_at(i + task.rows, channel);
    }
}

// Whether this workgroup moves the channels of its key head.
fn moves_key_head(head: u32, thread: u32) -> bool {
    if WINDOW_IN_PLACE == 0u {
        return head % SHARING == 0u;
    }
    storageBarrier();
    workgroupBarrier();
    if thread == 0u {
        let place = head / SHARING;
        let before = atomicAdd(&tickets[place], 1u);
        if before == SHARING - 1u {
            atomicStore(&tickets[place], 0u);
        }
        is_last = u32(before == SHARING - 1u);
    }
    workgroupBarrier();
    return is_last == 1u;
}

// All rows of a value head.
fn all_rows(head: u32, thread: u32) {
    load_state(head, thread);
    for (var row = 0u; row < task.rows; row++) {
        one_row(head, row, thread);
    }
    store_state(head, thread);
    if thread < VALUE_DIM {
        slide(channel_of(head, 2u * KEY_DIM + thread));
    }
    if moves_key_head(head, thread) {
        for (var i = thread; i < 2u * KEY_DIM; i += THREADS) {
            slide(channel_of(head, i));
        }
    }
}
