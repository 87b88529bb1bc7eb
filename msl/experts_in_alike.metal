// First half of the experts, decode form, where gate and up are stored alike and lie one behind the other (architecture.md
// section 8). For each pair p = (row, choice) that has a slot,
//
//     out[p, o] = silu(gate(o) . u[row]) * (up(o) . u[row])
//
// and the same for the shared expert, whose threadgroups come after those of the pairs, a row each. Counts of the inner loop
// are in `swiglu.metal`.
//
// Row invariance: see `affine.metal`. Pair, slot and chunk enter no sum; a pair is multiplied alone.

typedef Affine<pair_BITS, pair_ROWS / 2, pair_COLS, pair_GROUP, pair_SCALAR> Routed;
typedef Affine<shared_BITS, shared_ROWS / 2, shared_COLS, shared_GROUP, shared_SCALAR> SharedExpert;

kernel void experts_in_alike(
    constant Task &task [[buffer(0)]],
    device const float4 *u [[buffer(AT_u)]],                   // [rows, HIDDEN]
    device const uint *slots [[buffer(AT_slots)]],             // [rows, choices], a number past the pool for none
    device float *out [[buffer(AT_out)]],                      // [rows, choices, INNER]
    device float *shared_out [[buffer(AT_shared_out)]],        // [rows, SHARED]
#if !shared_IN_SLOT
    device const SharedExpert::Unit *gate_codes [[buffer(AT_shared_codes)]],
    device const SharedExpert::Scale *gate_scales [[buffer(AT_shared_scales)]],
    device const SharedExpert::Scale *gate_biases [[buffer(AT_shared_biases)]],
    device const SharedExpert::Unit *up_codes [[buffer(AT_shared_more_codes)]],
    device const SharedExpert::Scale *up_scales [[buffer(AT_shared_more_scales)]],
    device const SharedExpert::Scale *up_biases [[buffer(AT_shared_more_biases)]],
#endif
    Pool pool [[buffer(AT_pool_quads)]],
    uint3 group [[threadgroup_position_in_grid]],
    uint self [[thread_index_in_threadgroup]])
{
    const uint pairs = task.rows * task.choices;
    if (group.y < pairs) {
        const uint slot = slots[group.y];
        if (slot >= task.slots || !sees(slot, task.slots_per_chunk, task.bound) || group.x * pair_SPAN >= Routed::ROWS) {
            return;
        }
        device const uint4 *record = record_of(pool, slot, task.slots_per_chunk);
        const Routed gate = projection<Routed>(record, pair_CODES, pair_SCALES, pair_BIASES);
        const Routed up = projection<Routed>(record, pair_CODES + pair_CODES_AT + pair_CODES_BY,
                                             pair_SCALES + pair_SCALES_AT + pair_SCALES_BY,
                                             pair_BIASES + pair_SCALES_AT + pair_BIASES_BY);
        swiglu<pair_SPAN>(gate, up, u + group.y / task.choices * (pair_COLS / 4), out + group.y * Routed::ROWS, group.x,
                           self);
        return;
    }
#if !shared_IN_SLOT
    if (task.bound == 0 && group.x * shared_SPAN < SharedExpert::ROWS) {
        const uint row = group.y - pairs;
        const SharedExpert gate = {gate_codes, gate_scales, gate_biases};
        const SharedExpert up = {up_codes, up_scales, up_biases};
        swiglu<shared_SPAN>(gate, up, u + row * (shared_COLS / 4), shared_out + row * SharedExpert::ROWS, group.x, self);
    }
#endif
}
