// Second half of the router where it chooses among logits (`route_topk.wgsl`), and the slots of what it chose
// (`route_slots.wgsl`).
//
// Row invariance: a workgroup has a row.

override THREADS: u32; // of a workgroup, at least 64

@group(0) @binding(0) var<storage, read> logits: array<f32>; // [rows, EXPERTS]

fn logit(at: u32) -> f32 {
    return logits[at];
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    if !is_halted() {
        look_up(group.x, thread);
    }
}
