// First half of the routed experts, prompt form with matrix units (architecture.md section 8): for each pair
// p = (row, choice) that has a slot,
//
//     out[p, o] = silu(gate(o) . x[row]) * (up(o) . x[row])
//
// Pairs follow each other slot by slot in `order`; those of a slot are multiplied in tiles of rows that begin with the first of
// them, and a threadgroup has the tiles that begin among its WINDOW places. Half of a tile's rows of weights are gate's and half
// are up's, sixteen by sixteen, so that both sums of an output meet in one SIMD-group. Costs are in `gemm.metal`.
//
// Row invariance: see `gemm.metal`. Which pairs are multiplied together enters no sum.

typedef Affine<gate_BITS, gate_ROWS, gate_COLS, gate_GROUP, gate_SCALAR> Gate;
typedef Affine<up_BITS, up_ROWS, up_COLS, up_GROUP, up_SCALAR> Up;

struct Task {
    uint choices;         // of a row
    uint pairs;
    uint slots;           // slots of the pool
    uint slots_per_chunk;
    uint bound;           // chunk that is bound, where only one is
};

constant uint MET = SIDE / 2; // outputs of a SIMD-group

kernel void experts_in_prompt(
    constant Task &task [[buffer(0)]],
    device const float4 *x [[buffer(AT_x)]],                   // [rows, COLS]
    device const uint *slots [[buffer(AT_slots)]],             // [pairs], a number past the pool for none
    device const uint *order [[buffer(AT_order)]],             // [3, pairs]
    device float *out [[buffer(AT_out)]],                      // [pairs, gate_ROWS]
    Pool pool [[buffer(AT_pool_quads)]],
    uint3 group [[threadgroup_position_in_grid]],
    uint self [[thread_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]],
    uint simd [[simdgroup_index_in_threadgroup]])
{
    threadgroup half rows[ROW_TILE * PITCH];
    threadgroup half weights[OUTPUT_TILE * PITCH];
    threadgroup float strips[8 * 8 * SIDE];
    const uint last = min(task.pairs, (group.y + 1) * WINDOW);
    uint place = group.y * WINDOW;
    while (place < last) {
        const uint slot = slots[order[place]];
        const Run run = run_at(place, task.pairs, order);
        const bool own = run.place == place && slot < task.slots && sees(slot, task.slots_per_chunk, task.bound);
        place = run.end;
        if (!own) {
            continue;
        }
        device const uint4 *record = record_of(pool, slot, task.slots_per_chunk);
        const Gate gate = projection<Gate>(record, gate_CODES, gate_SCALES, gate_BIASES);
        const Up up = projection<Up>(record, up_CODES, up_SCALES, up_BIASES);
        // A row past the last one is read as the last one; nobody takes its sums.
        const uint first = order[min(run.place + self / 8, run.end - 1)] / task.choices;
        const uint second = order[min(run.place + self / 8 + ROW_TILE / 2, run.end - 1)] / task.choices;
        Feeder feeder = {x + (first * (gate_COLS / 4) + self % 8), x + (second * (gate_COLS / 4) + self % 8), 0.0f, 0.0f};
        // Rows of the weight tile: of each 32, sixteen of gate and sixteen of up.
        const bool feeds_gate = self / 2 % SIDE < MET;
        const uint row = group.x * (OUTPUT_TILE / 2) + self / 2 / SIDE * MET + self / 2 % MET;
        const uint from = run.place + simd % 2 * SIDE;
        Sums sums;
        begin(sums);
        fetch_rows(feeder, 0);
        Fetched unit = feeds_gate ? fetched(gate, row, self % 2) : fetched(up, row, self % 2);
        for (uint block = 0; block < gate_COLS / DEEP; block++) {
            threadgroup_barrier(mem_flags::mem_threadgroup);
            put_rows(feeder, rows, self);
            if (feeds_gate) {
                put_unit<gate_BITS>(weights + (self / 2 * PITCH + self % 2 * 16), unit);
            } else {
                put_unit<up_BITS>(weights + (self / 2 * PITCH + self % 2 * 16), unit);
            }
            threadgroup_barrier(mem_flags::mem_threadgroup);
            if (block + 1 < gate_COLS / DEEP) {
                const uint next = (block + 1) * 2 + self % 2;
                fetch_rows(feeder, block + 1);
                unit = feeds_gate ? fetched(gate, row, next) : fetched(up, row, next);
            }
            if (from < run.end) {
                add_block(sums, rows + simd % 2 * SIDE * PITCH, weights + simd / 2 * SIDE * PITCH);
            }
        }
        const uint output = group.x * (OUTPUT_TILE / 2) + simd / 2 * MET + lane % MET;
        for (uint i = 0; from + i * 8 < run.end && i < 4; i++) {
            leave_rows(sums, i, strips + simd * 8 * SIDE);
            // Half of the lanes have the even rows.
            for (uint r = lane / MET; r < 8 && from + i * 8 + r < run.end; r += 2) {
                const float g = strips[(simd * 8 + r) * SIDE + lane % MET];
                const float u = strips[(simd * 8 + r) * SIDE + MET + lane % MET];
                if (output < Gate::ROWS) {
                    out[order[from + i * 8 + r] * Gate::ROWS + output] = silu(g) * u;
                }
            }
        }
    }
}
