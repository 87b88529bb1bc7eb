// Second half of the router (architecture.md section 8): the choices of each row and their weights, as `route_topk.wgsl`
// says.
//
// Row invariance: a workgroup has a row.

override THREADS: u32; // of a workgroup, at least 64

@group(0) @binding(0) var<storage, read> logits: array<f32>; // [rows, EXPERTS]

fn logit(at: u32) -> f32 {
    return logits[at];
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    choose(group.x, thread);
}
