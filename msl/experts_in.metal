// First half of the experts, decode form, where gate and up may be stored differently (architecture.md section 8). For each
// pair p = (row, choice) that has a slot,
//
//     out[p, o] = silu(gate(o) . u[row]) * (up(o) . u[row])
//
// and the same for the shared expert, whose threadgroups come after those of the pairs, a row each. Counts of the inner loop
// are in `swiglu.metal`.
//
// Row invariance: see `affine.metal`. Pair, slot and chunk enter no sum; a pair is multiplied alone.

typedef Affine<gate_BITS, gate_ROWS, gate_COLS, gate_GROUP, gate_SCALAR> Gate;
typedef Affine<up_BITS, up_ROWS, up_COLS, up_GROUP, up_SCALAR> Up;
typedef Affine<shared_gate_BITS, shared_gate_ROWS, shared_gate_COLS, shared_gate_GROUP, shared_gate_SCALAR> SharedGate;
typedef Affine<shared_up_BITS, shared_up_ROWS, shared_up_COLS, shared_up_GROUP, shared_up_SCALAR> SharedUp;

kernel void experts_in(
    constant Task &task [[buffer(0)]],
    device const float4 *u [[buffer(AT_u)]],                   // [rows, HIDDEN]
    device const uint *slots [[buffer(AT_slots)]],             // [rows, choices], a number past the pool for none
    device float *out [[buffer(AT_out)]],                      // [rows, choices, INNER]
    device float *shared_out [[buffer(AT_shared_out)]],        // [rows, SHARED]
#if !shared_gate_IN_SLOT
    device const SharedGate::Unit *gate_codes [[buffer(AT_shared_gate_codes)]],
    device const SharedGate::Scale *gate_scales [[buffer(AT_shared_gate_scales)]],
    device const SharedGate::Scale *gate_biases [[buffer(AT_shared_gate_biases)]],
    device const SharedUp::Unit *up_codes [[buffer(AT_shared_up_codes)]],
    device const SharedUp::Scale *up_scales [[buffer(AT_shared_up_scales)]],
    device const SharedUp::Scale *up_biases [[buffer(AT_shared_up_biases)]],
#endif
    Pool pool [[buffer(AT_pool_quads)]],
    uint3 group [[threadgroup_position_in_grid]],
    uint self [[thread_index_in_threadgroup]])
{
    const uint pairs = task.rows * task.choices;
    if (group.y < pairs) {
        const uint slot = slots[group.y];
        if (slot >= task.slots || !sees(slot, task.slots_per_chunk, task.bound) || group.x * gate_TILE >= Gate::ROWS) {
            return;
        }
        device const uint4 *record = record_of(pool, slot, task.slots_per_chunk);
        const Gate gate = projection<Gate>(record, gate_CODES, gate_SCALES, gate_BIASES);
        const Up up = projection<Up>(record, up_CODES, up_SCALES, up_BIASES);
        swiglu<gate_TILE>(gate, up, u + group.y / task.choices * (gate_COLS / 4), out + group.y * Gate::ROWS, group.x,
                          self);
        return;
    }
#if !shared_gate_IN_SLOT
    if (task.bound == 0 && group.x * shared_gate_TILE < SharedGate::ROWS) {
        const uint row = group.y - pairs;
        const SharedGate gate = {gate_codes, gate_scales, gate_biases};
        const SharedUp up = {up_codes, up_scales, up_biases};
        swiglu<shared_gate_TILE>(gate, up, u + row * (shared_gate_COLS / 4), shared_out + row * SharedGate::ROWS, group.x,
                                 self);
    }
#endif
}
