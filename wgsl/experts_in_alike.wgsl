// First half of the experts, decode form, where gate and up are stored alike: one weight of twice the outputs, of which a
// lane has output o of both, so that inputs are loaded once (architecture.md section 8). For each pair p = (row, choice)
// that has a slot,
//
//     out[p, o] = silu(pair(o) . u[row]) * (pair(INNER + o) . u[row])
//
// and the same for the shared expert (`experts_in_shared.wgsl`), whose gate and up are one weight too.
//
// Row invariance: see `gemv_weight.wgsl`. Pair, slot and chunk enter no sum; a pair is multiplied alone.

override HIDDEN: u32 = pair_COLS;
override INNER: u32 = pair_ROWS / 2u;
override SHARED: u32 = shared_ROWS / 2u;

fn pair_input(pair: u32, quad: u32) -> vec4<f32> {
    return inputs(pair / CHOICES, quad);
}

fn routed(pair: u32, tile: u32, thread: u32) {
    let slot = slots[pair];
    if slot >= task.slots || !sees(slot / SLOTS_PER_CHUNK, task.bound) || tile * pair_SPAN >= INNER {
        return;
    }
    hold_slot(slot);
    pair_multiply(tile, pair_ROWS, pair, 1u, thread);
    for (var i = thread; i < pair_SPAN; i += THREADS) {
        let output = tile * pair_SPAN + i;
        if output < INNER {
            out[pair * INNER + output] = silu(pair_sum(2u * i, 0u)) * pair_sum(2u * i + 1u, 0u);
        }
    }
}

fn shared_input(row: u32, quad: u32) -> vec4<f32> {
    return inputs(row, quad);
}

fn shared_expert(row: u32, tile: u32, thread: u32) {
    if tile * shared_SPAN >= SHARED {
        return;
    }
    shared_multiply(tile, shared_ROWS, row, 1u, thread);
    for (var i = thread; i < shared_SPAN; i += THREADS) {
        let output = tile * shared_SPAN + i;
        if output < SHARED {
            shared_out[row * SHARED + output] = silu(shared_sum(2u * i, 0u)) * shared_sum(2u * i + 1u, 0u);
        }
    }
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    routed_or_shared(group, thread);
}
