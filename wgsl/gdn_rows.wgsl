// What surrounds the recurrence of Gated DeltaNet in a pass (architecture.md section 6), rows one after the other:
// inputs (`gdn_taps.wgsl`), recurrence (`gdn_recurrence.wgsl`), norm and gate (`gdn_gated.wgsl`) of a row in a workgroup.
//
// The kernel says what is kept of the inputs of the recurrence: `keep_key`, `keep_value`, `keep_gates`.
//
// The window moves on in the same dispatch. A value head's own channels are seen by its workgroup alone; those of a key
// head by the workgroups of all its value heads, so that the last of them to arrive moves them. The ticket decides who
// moves, never what is computed; a workgroup draws it after a barrier behind which it reads the window no more.
//
// Row invariance (engine.md 3.7f): see these three.

override WINDOW_IN_PLACE: u32;

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

// Row `place` of the window and the rows after it. Both are read, without a branch: behind a branch a load waits for the one
// before it.
fn input_at(place: u32, channel: u32) -> f32 {
    let fresh = qkv[(max(place, DEPTH) - DEPTH) * CHANNELS + channel];
    let at = min(place, DEPTH - 1u) * CHANNELS + channel;
    if WINDOW_IN_PLACE == 1u {
        return select(window[at], fresh, place >= DEPTH);
    }
    return select(window_before[at], fresh, place >= DEPTH);
}

// Query and key of the row for all threads.
fn norm_query_and_key(head: u32, row: u32, thread: u32) {
    square_query_and_key(thread);
    workgroupBarrier();
    for (var i = thread; i < 2u * KEY_QUADS; i += THREADS) {
        let quad = normed_quad(i);
        if i < KEY_QUADS {
            query[i] = quad;
        } else {
            key[i - KEY_QUADS] = quad;
            if head % SHARING == 0u {
                keep_key(row * KEYS + head / SHARING * KEY_DIM + 4u * (i - KEY_QUADS), quad);
            }
        }
    }
}

fn one_row(head: u32, row: u32, thread: u32) {
    // Asked for first, needed last.
    let gated = gated_by(head, row, thread);
    let gates = gates_of(head, row);
    for (var i = thread; i < 2u * KEY_DIM + VALUE_DIM; i += THREADS) {
        convolved[i] = convolve(row, channel_of(head, i));
    }
    workgroupBarrier();
    if WINDOW_IN_PLACE == 1u && row + 1u == task.rows {
        arrive(head / SHARING, thread);
    }
    norm_query_and_key(head, row, thread);
    if thread < VALUE_DIM {
        keep_value(row * VALUES + head * VALUE_DIM + thread, convolved[2u * KEY_DIM + thread]);
    }
    if thread == 0u {
        keep_gates(2u * (row * VALUE_HEADS + head), gates);
    }
    workgroupBarrier();
    let y = advance(thread, 0u, convolved[2u * KEY_DIM + thread / LANES], gates.x, gates.y);
    if thread % LANES == 0u {
        outputs[thread / LANES] = y;
    }
    workgroupBarrier();
    finish(head, row, thread, gated);
}

// Moves a channel of the window over the rows, oldest first.
fn slide(channel: u32) {
    var kept = vec3<f32>();
    for (var i = 0u; i < DEPTH; i++) {
        kept[i] = input_at(i + task.rows, channel);
    }
    for (var i = 0u; i < DEPTH; i++) {
        window[i * CHANNELS + channel] = kept[i];
    }
}

// Whether this workgroup moves the channels of its key head.
fn moves_key_head(head: u32, thread: u32) -> bool {
    if WINDOW_IN_PLACE == 0u {
        return head % SHARING == 0u;
    }
    return was_last(head / SHARING, SHARING, thread);
}

// All rows of a value head.
fn all_rows(head: u32, thread: u32) {
    load_state(head, thread);
    for (var row = 0u; row < task.rows; row++) {
        one_row(head, row, thread);
    }
    // Before the state is stored, which a barrier would wait for.
    let moves = moves_key_head(head, thread);
    store_state(head, thread);
    if thread < VALUE_DIM {
        slide(channel_of(head, 2u * KEY_DIM + thread));
    }
    if moves {
        for (var i = thread; i < 2u * KEY_DIM; i += THREADS) {
            slide(channel_of(head, i));
        }
    }
}
