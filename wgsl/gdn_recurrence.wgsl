// The recurrence of Gated DeltaNet over the rows of a pass (architecture.md section 6), per value head, state S
// [VALUE_DIM, KEY_DIM]:
//
//     S = decay S      d = beta (v - S k)      y = S q + d (k . q), which is (S + d k^T) q      S = S + d k^T
//
// A workgroup has a value head, or a part of its state. LANES lanes share a row of S and keep it in registers from the first row of the pass to
// the last: lane l has the quads l, l + LANES, ...
//
// Row invariance (engine.md 3.7f): rows come one after the other and nothing is chunked, so that the end of a pass is a
// store and a load. Decode, verify, prefill and replay run this very code; products and sums that meet are written as
// `fma`, so that no compiler has a choice.

override LANES: u32; // that share a row of the state, a power of two
override STATE_IN_PLACE: u32;
override THREADS: u32 = LANES * VALUE_DIM; // of a value head, at most 256
override OWN_QUADS: u32 = KEY_QUADS / LANES;
override BATCH: u32 = 1u; // rows that lie in workgroup memory at once
override GROUP: u32 = THREADS; // threads of a workgroup
override ROOM: u32 = BATCH * KEY_QUADS;
override SHARES: u32 = BATCH * GROUP;

@group(0) @binding(0) var<storage, read> state_before: array<vec4<f32>>; // [VALUE_HEADS, VALUE_DIM, KEY_DIM], or anything if STATE_IN_PLACE
@group(0) @binding(1) var<storage, read_write> state: array<vec4<f32>>; // [VALUE_HEADS, VALUE_DIM, KEY_DIM]

// Quads of this thread's row of S.
var<private> own: array<vec4<f32>, 64>;

// Of the rows at hand, for all threads: what `advance` reads.
var<workgroup> query: array<vec4<f32>, ROOM>; // [BATCH, KEY_QUADS], normed and scaled
var<workgroup> key: array<vec4<f32>, ROOM>; // [BATCH, KEY_QUADS], normed

// Sums of each lane: S k, S q and k . q.
var<workgroup> shares: array<vec3<f32>, SHARES>; // [BATCH, GROUP]

fn state_place(head: u32, thread: u32, i: u32) -> u32 {
    return (head * VALUE_DIM + thread / LANES) * KEY_QUADS + i * LANES + thread % LANES;
}

fn load_state(head: u32, thread: u32) {
    for (var i = 0u; i < OWN_QUADS; i++) {
        if STATE_IN_PLACE == 1u {
            own[i] = state[state_place(head, thread, i)];
        } else {
            own[i] = state_before[state_place(head, thread, i)];
        }
    }
}

fn store_state(head: u32, thread: u32) {
    for (var i = 0u; i < OWN_QUADS; i++) {
        state[state_place(head, thread, i)] = own[i];
    }
}

fn across(x: vec4<f32>) -> f32 {
    return (x.x + x.y) + (x.z + x.w);
}

// One row, the one at `place` among those at hand: the state moves on, and the result is this thread's number of y. Called
// from uniform control flow after a barrier that follows the writes to `query` and `key`.
fn advance(thread: u32, place: u32, value: f32, decay: f32, beta: f32) -> f32 {
    let lane = thread % LANES;
    let first = place * KEY_QUADS + lane;
    var by_key = vec4<f32>();
    var by_query = vec4<f32>();
    var between = vec4<f32>();
    for (var i = 0u; i < OWN_QUADS; i++) {
        let k = key[first + i * LANES];
        let q = query[first + i * LANES];
        let s = own[i] * decay;
        own[i] = s;
        by_key = fma(s, k, by_key);
        by_query = fma(s, q, by_query);
        between = fma(k, q, between);
    }
    let at = place * GROUP + thread % GROUP;
    shares[at] = vec3<f32>(across(by_key), across(by_query), across(between));
    workgroupBarrier();
    var all = vec3<f32>();
    for (var l = 0u; l < LANES; l++) {
        all += shares[at - lane + l];
    }
    let d = beta * (value - all.x);
    for (var i = 0u; i < OWN_QUADS; i++) {
        own[i] = fma(vec4<f32>(d), key[first + i * LANES], own[i]);
    }
    return fma(d, all.z, all.y);
}
