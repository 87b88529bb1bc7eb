// The recurrence of Gated DeltaNet alone, over the first rows of a pass whose inputs were kept (engine.md 7.2). There are
// no queries, and nobody reads y.
//
// Row invariance: see `gdn_recurrence.wgsl`.

struct Task {
    rows: u32,
}

var<immediate> task: Task;

@group(0) @binding(2) var<storage, read> keys: array<f32>; // [rows, KEY_HEADS, KEY_DIM]
@group(0) @binding(3) var<storage, read> values: array<f32>; // [rows, VALUE_HEADS, VALUE_DIM]
@group(0) @binding(4) var<storage, read> gates: array<f32>; // [rows, VALUE_HEADS, 2], decay then beta

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let head = group.x;
    load_state(head, thread);
    for (var row = 0u; row < task.rows; row++) {
        workgroupBarrier();
        for (var i = thread; i < KEY_QUADS; i += THREADS) {
            let at = row * KEYS + head / SHARING * KEY_DIM + 4u * i;
            key[i] = vec4<f32>(keys[at], keys[at + 1u], keys[at + 2u], keys[at + 3u]);
            query[i] = vec4<f32>();
        }
        workgroupBarrier();
        let at = row * VALUE_HEADS + head;
        _ = advance(thread, 0u, values[at * VALUE_DIM + thread / LANES], gates[2u * at], gates[2u * at + 1u]);
    }
    store_state(head, thread);
}
