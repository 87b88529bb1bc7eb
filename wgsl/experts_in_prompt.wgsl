// First half of the routed experts, prompt form (architecture.md section 8): for each pair p = (row, choice) that has a
// slot,
//
//     out[p, o] = silu(gate(o) . u[row]) * (up(o) . u[row])
//
// A workgroup has 64 outputs of 32 pairs that follow each other in `order`, slot by slot; it multiplies those that have
// the same slot together.
//
// Row invariance: see `gemm_weight.wgsl`. Which pairs are multiplied together enters no sum.

struct Task {
    choices: u32, // of a row
    pairs: u32,
    slots: u32, // slots of the pool
    slots_per_chunk: u32,
    bound: u32, // chunk that is bound, where only one is
}

var<immediate> task: Task;

@group(0) @binding(0) var<storage, read> u: array<f32>; // [rows, gate_COLS]
@group(0) @binding(1) var<storage, read> slots: array<u32>; // [pairs], a number past the pool for none
@group(0) @binding(2) var<storage, read> order: array<u32>; // [pairs], as `experts_order.wgsl` leaves them
@group(0) @binding(3) var<storage, read_write> out: array<f32>; // [pairs, gate_ROWS]

fn gate_input(place: u32, quad: u32) -> vec4<f32> {
    let row = order[place] / task.choices;
    var value = vec4<f32>();
    for (var i = 0u; i < 4u; i++) {
        if 4u * quad + i < gate_COLS {
            value[i] = u[row * gate_COLS + 4u * quad + i];
        }
    }
    return value;
}

fn up_input(place: u32, quad: u32) -> vec4<f32> {
    return gate_input(place, quad);
}

// Multiplies the pairs at `place .. end` with the outputs from `first` on of the expert in the slot at hand.
fn multiply(first: u32, place: u32, end: u32, thread: u32) {
    gate_multiply(first, gate_ROWS, place, end, thread);
    var gates = sums;
    up_multiply(first, up_ROWS, place, end, thread);
    for (var i = 0u; i < TEAM; i++) {
        let at = place + row_of(thread) + i;
        for (var j = 0u; j < TEAM; j++) {
            let output = first + output_of(thread) + j;
            if at < end && output < up_ROWS {
                out[order[at] * up_ROWS + output] = silu(gates[i][j]) * sums[i][j];
            }
        }
    }
}

@compute @workgroup_size(GEMM_THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    walk(group, thread);
}
