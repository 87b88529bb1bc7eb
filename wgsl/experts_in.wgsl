// First half of the experts, decode form (architecture.md section 8): for each pair p = (row, choice) that has a slot,
//
//     out[p, o] = silu(gate(o) . u[row]) * (up(o) . u[row])
//
// and the same for the shared expert, whose workgroups come after those of the pairs, a row each. An operation
// without the shared expert has none of those workgroups.
//
// Row invariance: see `gemv_weight.wgsl`. Pair, slot and chunk enter no sum; a pair is multiplied alone.

override HIDDEN: u32 = gate_COLS;
override INNER: u32 = gate_ROWS;
override SHARED: u32 = shared_gate_ROWS;

fn gate_input(pair: u32, quad: u32) -> vec4<f32> {
    return inputs(pair / CHOICES, quad);
}

fn up_input(pair: u32, quad: u32) -> vec4<f32> {
    return inputs(pair / CHOICES, quad);
}

// Gate and up have the same tiles; the gate waits in `out` for the thread that wrote it.
fn routed(pair: u32, tile: u32, thread: u32) {
    let slot = slots[pair];
    if slot >= task.slots || !sees(slot / SLOTS_PER_CHUNK, task.bound) || tile * gate_TILE >= gate_ROWS {
        return;
    }
    hold_slot(slot);
    gate_multiply(tile, gate_ROWS, pair, 1u, thread);
    for (var i = thread; i < gate_TILE; i += THREADS) {
        let output = gate_output(tile, i);
        if output < gate_ROWS {
            out[pair * gate_ROWS + output] = gate_sum(i, 0u);
        }
    }
    up_multiply(tile, up_ROWS, pair, 1u, thread);
    for (var i = thread; i < up_TILE; i += THREADS) {
        let output = up_output(tile, i);
        if output < up_ROWS {
            let at = pair * up_ROWS + output;
            out[at] = silu(out[at]) * up_sum(i, 0u);
        }
    }
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

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    routed_or_shared(group, thread);
}
