// What both kernels of the first half of the experts share: their bindings, and what the shared expert makes
// (architecture.md section 8), whose workgroups come after those of the pairs, a row each:
//
//     shared_out[r, o] = silu(shared_gate(o) . u[r]) * (shared_up(o) . u[r])
//
// The kernel names its widths: HIDDEN inputs, INNER outputs of a routed expert, SHARED of the shared one.

override CHOICES: u32; // of a row

struct Task {
    rows: u32,
    choices: u32, // of a row
    slots: u32, // slots of the pool
    slots_per_chunk: u32,
    bound: u32, // chunk that is bound, where only one is
}

var<immediate> task: Task;

@group(0) @binding(0) var<storage, read> u: array<vec4<f32>>; // [rows, HIDDEN]
@group(0) @binding(1) var<storage, read> slots: array<u32>; // [rows, choices], a number past the pool for none
@group(0) @binding(2) var<storage, read_write> out: array<f32>; // [rows, choices, INNER]
@group(0) @binding(3) var<storage, read_write> shared_out: array<f32>; // [rows, SHARED]

fn input_quad(index: u32) -> vec4<f32> {
    return u[index];
}

fn inputs(row: u32, quad: u32) -> vec4<f32> {
    return row_quad(row * HIDDEN, HIDDEN, quad);
}

// The kernel says what a workgroup multiplies: `routed(pair, tile, thread)`, `shared_expert(row, tile, thread)`.
fn routed_or_shared(group: vec3<u32>, thread: u32) {
    let pairs = task.rows * CHOICES;
    if group.y < pairs {
        routed(group.y, group.x, thread);
    } else if task.bound == 0u {
        shared_expert(group.y - pairs, group.x, thread);
    }
}
