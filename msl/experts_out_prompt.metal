// Second half of the routed experts, prompt form with matrix units (architecture.md section 8): for each pair
// p = (row, choice) that has a slot,
//
//     out[p, o] = down(o) . x[p]
//
// unweighted. Pairs follow each other slot by slot in `order`; those of a slot are multiplied in tiles of rows that begin with
// the first of them, and a threadgroup has the tiles that begin among its WINDOW places. Costs are in `gemm.metal`.
//
// Row invariance: see `gemm.metal`. Which pairs are multiplied together enters no sum.

typedef Affine<down_BITS, down_ROWS, down_COLS, down_GROUP, down_SCALAR> Down;

struct Task {
    uint pairs;
    uint slots;           // slots of the pool
    uint slots_per_chunk;
    uint bound;           // chunk that is bound, where only one is
};

kernel void experts_out_prompt(
    constant Task &task [[buffer(0)]],
    device const float4 *x [[buffer(AT_x)]],                   // [pairs, COLS]
    device const uint *slots [[buffer(AT_slots)]],             // [pairs], a number past the pool for none
    device const uint *order [[buffer(AT_order)]],             // [3, pairs]
    device float *out [[buffer(AT_out)]],                      // [pairs, down_ROWS]
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
        const Down down = projection<Down>(record_of(pool, slot, task.slots_per_chunk), down_CODES, down_SCALES,
                                           down_BIASES);
        // A row past the last one is read as the last one; nobody takes its sums.
        const uint first = order[min(run.place + self / 8, run.end - 1)];
        const uint second = order[min(run.place + self / 8 + ROW_TILE / 2, run.end - 1)];
        Feeder feeder = {x + (first * (down_COLS / 4) + self % 8), x + (second * (down_COLS / 4) + self % 8), 0.0f, 0.0f};
        const uint row = group.x * OUTPUT_TILE + self / 2;
        const uint from = run.place + simd % 2 * SIDE;
        Sums sums;
        begin(sums);
        fetch_rows(feeder, 0);
        Fetched unit = fetched(down, row, self % 2);
        for (uint block = 0; block < down_COLS / DEEP; block++) {
            threadgroup_barrier(mem_flags::mem_threadgroup);
            put_rows(feeder, rows, self);
            put_unit<down_BITS>(weights + (self / 2 * PITCH + self % 2 * 16), unit);
            threadgroup_barrier(mem_flags::mem_threadgroup);
            if (block + 1 < down_COLS / DEEP) {
                fetch_rows(feeder, block + 1);
                unit = fetched(down, row, (block + 1) * 2 + self % 2);
            }
            if (from < run.end) {
                add_block(sums, rows + simd % 2 * SIDE * PITCH, weights + simd / 2 * SIDE * PITCH);
            }
        }
        const uint output = group.x * OUTPUT_TILE + simd / 2 * SIDE + lane;
        for (uint i = 0; from + i * 8 < run.end && i < 4; i++) {
            leave_rows(sums, i, strips + simd * 8 * SIDE);
            for (uint r = 0; r < 8 && from + i * 8 + r < run.end; r++) {
                if (output < Down::ROWS) {
                    out[order[from + i * 8 + r] * Down::ROWS + output] = strips[(simd * 8 + r) * SIDE + lane];
                }
            }
        }
    }
}
