// What both kernels of the first half of the experts share: their bindings, and the shared expert (architecture.md
// section 8), whose workgroups come after those of the pairs, a row each:
//
//     shared_out[r, o] = silu(shared_gate(o) . u[r]) * (shared_up(o) . u[r])
//
// The kernel names its widths: HIDDEN inputs, INNER outputs of a routed expert.

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
@group(0) @binding(3) var<storage, read_write> shared_out: array<f32>; // [rows, shared_gate_ROWS]

fn input_quad(index: u32) -> vec4<f32> {
    return u[index];
}

fn inputs(row: u32, quad: u32) -> vec4<f32> {
    return row_quad(row * HIDDEN, HIDDEN, quad);
}

fn shared_gate_input(row: u32, quad: u32) -> vec4<f32> {
    return inputs(row, quad);
}

fn shared_up_input(row: u32, quad: u32) -> vec4<f32> {
    return inputs(row, quad);
}

// Gate and up have the same tiles; the gate waits in `shared_out` for the thread that wrote it.
fn shared_expert(row: u32, tile: u32, thread: u32) {
    if tile * shared_gate_TILE >= shared_gate_ROWS {
        return;
    }
    shared_gate_multiply(tile, shared_gate_ROWS, row, 1u, thread);
    for (var i = thread; i < shared_gate_TILE; i += THREADS) {
        let output = shared_gate_output(tile, i);
        if output < shared_gate_ROWS {
            let at = row * shared_gate_ROWS + output;
            shared_out[at] = shared_gate_sum(i, 0u);
        }
    }
    shared_up_multiply(tile, shared_up_ROWS, row, 1u, thread);
    for (var i = thread; i < shared_up_TILE; i += THREADS) {
        let output = shared_up_output(tile, i);
        if output < shared_up_ROWS {
            let at = row * shared_up_ROWS + output;
            shared_out[at] = silu(shared_out[at]) * shared_up_sum(i, 0u);
        }
    }
}
