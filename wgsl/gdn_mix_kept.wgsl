// Gated DeltaNet between its projections: convolution, norms, recurrence, output norm and gate (`gdn_rows.wgsl`). The
// inputs of the recurrence are kept, so that part of the pass can be replayed (engine.md 7.2).
//
// Row invariance: see `gdn_rows.wgsl`.

@group(0) @binding(13) var<storage, read_write> keys: array<f32>; // [rows, KEY_HEADS, KEY_DIM]
@group(0) @binding(14) var<storage, read_write> values: array<f32>; // [rows, VALUE_HEADS, VALUE_DIM]
@group(0) @binding(15) var<storage, read_write> gates: array<f32>; // [rows, VALUE_HEADS, 2], decay then beta

fn keep_key(at: u32, quad: vec4<f32>) {
    for (var i = 0u; i < 4u; i++) {
        keys[at + i] = quad[i];
    }
}

fn keep_value(at: u32, value: f32) {
    values[at] = value;
}

fn keep_gates(at: u32, kept: vec2<f32>) {
    gates[at] = kept.x;
    gates[at + 1u] = kept.y;
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    all_rows(group.x, thread);
}
