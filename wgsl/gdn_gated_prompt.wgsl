// The output norm and gate of prompt rows (`gdn_gated.wgsl`), in place. A workgroup has a value head of a row.
//
// Row invariance: see `gdn_gated.wgsl`.

struct Task {
    first: u32, // row of workgroup 0
    eps: f32,
}

var<immediate> task: Task;

@group(0) @binding(0) var<storage, read> norm: array<f32>; // [VALUE_DIM]
@group(0) @binding(1) var<storage, read> z: array<f32>; // [rows, VALUE_HEADS, VALUE_DIM]
@group(0) @binding(2) var<storage, read_write> out: array<f32>; // [rows, VALUE_HEADS, VALUE_DIM]: y before

@compute @workgroup_size(VALUE_DIM)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let row = task.first + group.y;
    outputs[thread] = out[row * VALUES + group.x * VALUE_DIM + thread];
    workgroupBarrier();
    finish(group.x, row, thread, gated_by(group.x, row, thread));
}
