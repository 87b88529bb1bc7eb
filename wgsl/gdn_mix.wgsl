// Gated DeltaNet between its projections: convolution, norms, recurrence, output norm and gate (`gdn_rows.wgsl`). The
// inputs of the recurrence are not kept.
//
// Row invariance: see `gdn_rows.wgsl`.

fn keep_key(at: u32, quad: vec4<f32>) {}

fn keep_value(at: u32, value: f32) {}

fn keep_gates(at: u32, gates: vec2<f32>) {}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    all_rows(group.x, thread);
}
