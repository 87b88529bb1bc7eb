// A convolution window after some rows (architecture.md sections 6 and 9.2):
//
//     window' = the last `depth` rows of (window ++ inputs[.. rows])
//
// The window before lies in `before`, or IN_PLACE in `state`; there a thread moves its column down, oldest row first.
//
// Row invariance: nothing is computed.

override THREADS: u32; // of a workgroup
override IN_PLACE: u32;

struct Task {
    rows: u32,
    depth: u32,
    width: u32,
}

var<immediate> task: Task;

@group(0) @binding(0) var<storage, read> inputs: array<f32>; // [rows.., width]
@group(0) @binding(1) var<storage, read> before: array<f32>; // [depth, width], or anything if IN_PLACE
@group(0) @binding(2) var<storage, read_write> state: array<f32>; // [depth, width]

@compute @workgroup_size(THREADS)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let col = id.x;
    if col >= task.width {
        return;
    }
    for (var i = 0u; i < task.depth; i++) {
        let place = i + task.rows;
        var value = 0.0;
        if place >= task.depth {
            value = inputs[(place - task.depth) * task.width + col];
        } else if IN_PLACE == 1u {
            value = state[place * task.width + col];
        } else {
            value = before[place * task.width + col];
        }
        state[i * task.width + col] = value;
    }
}
