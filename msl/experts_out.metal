// Second half of the experts, decode form (architecture.md section 8): for each pair p = (row, choice) that has a slot,
//
//     out[p, o] = down(o) . x[p]
//
// unweighted, and the same for the shared expert, whose threadgroups come after those of the pairs, a row each.
//
// A team of lanes has eight rows of the weight for each unit of inputs that it loads; with the 640 inputs of the released
// model eight lanes are a team, six of the eight teams make the 48 outputs of a threadgroup in one walk of five steps. A unit of a
// row costs what `swiglu.metal` counts: 65 instructions and 3 loads for 9 bytes. Folding the lanes adds 8 x 3 shuffles and
// adds to 5 steps x 8 rows x 65: two in a hundred.
//
// Row invariance: see `affine.metal`. Pair, slot and chunk enter no sum; a pair is multiplied alone.

typedef Affine<down_BITS, down_ROWS, down_COLS, down_GROUP, down_SCALAR> Down;
typedef Affine<shared_down_BITS, shared_down_ROWS, shared_down_COLS, shared_down_GROUP, shared_down_SCALAR> SharedDown;

struct Task {
    uint rows;
    uint choices;         // of a row
    uint slots;           // slots of the pool
    uint slots_per_chunk;
    uint bound;           // chunk that is bound, where only one is
};

// Outputs of a tile.
template <uint TILE, class Weight>
void multiply(Weight weight, device const float4 *x, device float *out, uint tile, uint self) {
    enum : uint {
        LANES = Weight::LANES,
        AT_ONCE = Weight::ROWS < 8 ? uint(Weight::ROWS) : 8,
    };
    const uint lane = self % LANES;
    const uint end = min(TILE * (tile + 1), uint(Weight::ROWS));
    for (uint step = 0; step < TILE; step += Weight::TEAMS * AT_ONCE) {
        const uint first = TILE * tile + step + self / LANES * AT_ONCE;
        // Past the last row a team makes the last ones once more, and writes none of them.
        const uint row = min(first, uint(Weight::ROWS) - AT_ONCE);
        float sums[AT_ONCE] = {};
        for (uint unit = lane; unit < Weight::UNITS; unit += LANES) {
            const Inputs own = inputs_of(x, unit);
            add_products<AT_ONCE>(weight, row, unit, own, sums);
        }
        const float sum = folded<AT_ONCE, LANES>(sums, lane);
        const uint output = row + lane;
        if (lane < AT_ONCE && output >= first && output < end) {
            out[output] = sum;
        }
    }
}

kernel void experts_out(
    constant Task &task [[buffer(0)]],
    device const float4 *x [[buffer(AT_x)]],                   // [rows, choices, down_COLS]
    device const uint *slots [[buffer(AT_slots)]],             // [rows, choices], a number past the pool for none
    device const float4 *shared_x [[buffer(AT_shared_x)]],     // [rows, shared_down_COLS]
    device float *out [[buffer(AT_out)]],                      // [rows, choices, down_ROWS]
    device float *shared_out [[buffer(AT_shared_out)]],        // [rows, shared_down_ROWS]
#if !shared_down_IN_SLOT
    device const SharedDown::Unit *codes [[buffer(AT_shared_down_codes)]],
    device const SharedDown::Scale *scales [[buffer(AT_shared_down_scales)]],
    device const SharedDown::Scale *biases [[buffer(AT_shared_down_biases)]],
#endif
    Pool pool [[buffer(AT_pool_quads)]],
    uint3 group [[threadgroup_position_in_grid]],
    uint self [[thread_index_in_threadgroup]])
{
    const uint pairs = task.rows * task.choices;
    if (group.y < pairs) {
        const uint slot = slots[group.y];
        if (slot >= task.slots || !sees(slot, task.slots_per_chunk, task.bound) || group.x * down_TILE >= Down::ROWS) {
            return;
        }
        const Down down = projection<Down>(record_of(pool, slot, task.slots_per_chunk), down_CODES, down_SCALES,
                                           down_BIASES);
        multiply<down_TILE>(down, x + group.y * (down_COLS / 4), out + group.y * Down::ROWS, group.x, self);
        return;
    }
#if !shared_down_IN_SLOT
    if (task.bound == 0 && group.x * shared_down_TILE < SharedDown::ROWS) {
        const uint row = group.y - pairs;
        const SharedDown down = {codes, scales, biases};
        multiply<shared_down_TILE>(down, shared_x + row * (shared_down_COLS / 4), shared_out + row * SharedDown::ROWS,
                                   group.x, self);
    }
#endif
}
