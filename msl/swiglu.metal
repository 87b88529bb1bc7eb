// What both kernels of the first half of the experts share (architecture.md section 8):
//
//     out(o) = silu(gate(o) . x) * (up(o) . x)
//
// A threadgroup has TILE outputs. A team of lanes has four of them at once, gate and up: eight rows of weights for each unit
// of inputs that it loads.
//
// What the inner loop costs, for a unit (16 weights) of one row at 4 bits, groups of 64, BF16 scales, as in the released
// model:
//
//     bytes that must come from memory    8 of codes, 1 of scale and bias (4 bytes for four units)             9
//     loads                               codes, scale, bias                                                    3
//     arithmetic, of the row              2 shifts, 4 or, 16 and, 16 subtract, 16 multiply-add, 4 for the
//                                         four places of a code, 2 to widen scale and bias, 3 to apply them    63
//     arithmetic, of the inputs           19 (4 loads, 15 adds), shared by eight rows                           2.4
//
// So 65 instructions for 9 bytes, 7.3 a byte. A GPU core of Apple's has 128 lanes at about 1.5 GHz: 40 cores make 7.7e12 of
// them a second, enough for 1.05 TB/s where an M4 Max has 0.55 TB/s of memory; 20 cores of an M5 Pro have 0.53 TB/s of
// arithmetic for 0.31 TB/s. Memory is the bound, by a factor of 1.7 to 1.9, counted and not measured. Folding the lanes adds
// 8 x 5 shuffles and adds to 5 steps x 8 rows x 65: three in a hundred.
//
// Registers of a lane: 16 inputs and their sum, 8 sums, codes, scales and biases of the rows under way: below 64.

// Outputs of a tile.
template <uint TILE, class Gate, class Up>
void swiglu(Gate gate, Up up, device const float4 *x, device float *out, uint tile, uint self) {
    enum : uint {
        LANES = Gate::LANES,
        AT_ONCE = Gate::ROWS < 4 ? uint(Gate::ROWS) : 4,
    };
    static_assert(uint(Gate::UNITS) == uint(Up::UNITS), "gate and up have the same inputs");
    const uint lane = self % LANES;
    const uint end = min(TILE * (tile + 1), uint(Gate::ROWS));
    for (uint step = 0; step < TILE; step += Gate::TEAMS * AT_ONCE) {
        const uint first = TILE * tile + step + self / LANES * AT_ONCE;
        // Past the last row a team makes the last ones once more, and writes none of them.
        const uint row = min(first, uint(Gate::ROWS) - AT_ONCE);
        float gates[AT_ONCE] = {};
        float ups[AT_ONCE] = {};
        for (uint unit = lane; unit < Gate::UNITS; unit += LANES) {
            const Inputs own = inputs_of(x, unit);
            add_products<AT_ONCE>(gate, row, unit, own, gates);
            add_products<AT_ONCE>(up, row, unit, own, ups);
        }
        const float g = folded<AT_ONCE, LANES>(gates, lane);
        const float u = folded<AT_ONCE, LANES>(ups, lane);
        const uint output = row + lane;
        if (lane < AT_ONCE && output >= first && output < end) {
            out[output] = silu(g) * u;
        }
    }
}

struct Task {
    uint rows;
    uint choices;         // of a row
    uint slots;           // slots of the pool
    uint slots_per_chunk;
    uint bound;           // chunk that is bound, where only one is
};
