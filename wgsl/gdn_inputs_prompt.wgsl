// The inputs of the recurrence of prompt rows (`gdn_taps.wgsl`), a row as
//
//     mixed[r] = queries [KEY_HEADS, KEY_DIM], keys [KEY_HEADS, KEY_DIM], values [VALUE_HEADS, VALUE_DIM],
//                decay and beta [VALUE_HEADS, 2]
//
// A workgroup has a key head, or a value head with its gates, of ROWS_AT_ONCE rows.
//
// Row invariance: see `gdn_taps.wgsl`; rows share nothing.

override MIXED: u32 = CHANNELS + (2u * VALUE_HEADS + 3u) / 4u * 4u; // numbers from a row of mixed to the next
override THREADS: u32; // of a workgroup, at least 64

const ROWS_AT_ONCE = 8u;

struct Task {
    first: u32, // row of the pass that is the first of mixed
    end: u32, // row after the last
}

var<immediate> task: Task;

@group(0) @binding(0) var<storage, read> conv: array<f32>; // [CHANNELS, KERNEL]
@group(0) @binding(1) var<storage, read> a_log: array<f32>; // [VALUE_HEADS]
@group(0) @binding(2) var<storage, read> dt_bias: array<f32>; // [VALUE_HEADS]
@group(0) @binding(3) var<storage, read> qkv: array<f32>; // [rows, CHANNELS]
@group(0) @binding(4) var<storage, read> ab: array<f32>; // [rows, 2, VALUE_HEADS]
@group(0) @binding(5) var<storage, read> window: array<f32>; // [DEPTH, CHANNELS], oldest first
@group(0) @binding(6) var<storage, read_write> mixed: array<f32>; // [end - first, MIXED]

fn input_at(place: u32, channel: u32) -> f32 {
    if place >= DEPTH {
        return qkv[(place - DEPTH) * CHANNELS + channel];
    }
    return window[place * CHANNELS + channel];
}

fn mix_key_head(head: u32, row: u32, thread: u32) {
    workgroupBarrier();
    for (var i = thread; i < 2u * KEY_DIM; i += THREADS) {
        convolved[i] = convolve(row, channel_of(head * SHARING, i));
    }
    workgroupBarrier();
    square_query_and_key(thread);
    workgroupBarrier();
    for (var i = thread; i < 2u * KEY_QUADS; i += THREADS) {
        let quad = normed_quad(i);
        let at = (row - task.first) * MIXED + i / KEY_QUADS * KEYS + head * KEY_DIM + i % KEY_QUADS * 4u;
        for (var j = 0u; j < 4u; j++) {
            mixed[at + j] = quad[j];
        }
    }
}

fn mix_value_head(head: u32, row: u32, thread: u32) {
    let begin = (row - task.first) * MIXED;
    for (var i = thread; i < VALUE_DIM; i += THREADS) {
        let channel = channel_of(head, 2u * KEY_DIM + i);
        mixed[begin + channel] = convolve(row, channel);
    }
    if thread == 0u {
        let gates = gates_of(head, row);
        mixed[begin + CHANNELS + 2u * head] = gates.x;
        mixed[begin + CHANNELS + 2u * head + 1u] = gates.y;
    }
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let first = task.first + group.y * ROWS_AT_ONCE;
    let end = min(first + ROWS_AT_ONCE, task.end);
    for (var row = first; row < end; row++) {
        if group.x < KEY_HEADS {
            mix_key_head(group.x, row, thread);
        } else {
            mix_value_head(group.x - KEY_HEADS, row, thread);
        }
    }
}
