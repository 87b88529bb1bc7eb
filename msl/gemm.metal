// Prompt rows times affine weights with matrix units (engine.md 3.5): sums of up to ROW_TILE rows with OUTPUT_TILE rows of
// weights, inputs and weights rounded to F16 once, sums F32.
//
// Eight SIMD-groups share a tile: two of 32 rows each by four of 32 outputs, so that one has 4 x 4 matrices of sums. A block of
// 32 inputs of rows and weights goes through threadgroup memory; while it is multiplied, the next is on its way to registers.
// A thread feeds one unit (16 weights) and two quads of inputs a block.
//
// What a block costs a SIMD-group: 16 loads of matrices of rows and 16 of weights for 64 products of 8 x 8 x 8; what it costs a
// thread: 2 loads of inputs and 3 of a weight, 16 numbers made of codes. At 4 bits a block of weights is 2,304 bytes for
// 64 x 128 x 32 multiply-adds, so that matrix units are the bound, not memory, from a few rows on.
//
// Row invariance (engine.md 3.7b): an output is one sum over blocks of inputs in order, each block in four steps in order;
// nothing is split over K. Rows that do not exist are zeros and change no other row. In which order a matrix unit adds eight
// products does not depend on the place in a matrix (proved on each device by `ss selftest`).

constant uint GEMM_THREADS = 256;
constant uint ROW_TILE = 64;
constant uint OUTPUT_TILE = 128;
constant uint DEEP = 32;          // inputs of a block
constant uint PITCH = DEEP + 8;   // room that keeps neighbours out of one memory bank
constant uint SIDE = 32;          // rows and outputs of a SIMD-group
constant uint WINDOW = 32;        // places of pairs among which a threadgroup has the tiles that begin there

// A unit of weights on its way to the tile.
struct Fetched {
    uint4 codes;
    float scale;
    float bias;
};

// The numbers of four codes, as the unit's scale and bias make them.
inline float4 numbers_of(uint4 codes, Fetched unit) {
    return fma(float4(codes), float4(unit.scale), float4(unit.bias));
}

inline void put_quad(threadgroup half *to, float4 x) {
    to[0] = half(x.x);
    to[1] = half(x.y);
    to[2] = half(x.z);
    to[3] = half(x.w);
}

// How a unit of BITS a code is fetched and put down.
template <uint BITS> struct Feed;

template <> struct Feed<4> {
    static uint4 raw(uint2 unit) { return uint4(unit.x, unit.y, 0, 0); }
    static uint4 codes(Fetched unit, uint quad) {
        const uint word = (quad < 2 ? unit.codes.x : unit.codes.y) >> quad % 2 * 16;
        return uint4(word, word >> 4, word >> 8, word >> 12) & uint4(15u);
    }
};

template <> struct Feed<8> {
    static uint4 raw(uint4 unit) { return unit; }
    static uint4 codes(Fetched unit, uint quad) {
        const uint word = unit.codes[quad];
        return uint4(word, word >> 8, word >> 16, word >> 24) & uint4(255u);
    }
};

// A unit of a row of a weight; zeros for a row that does not exist.
template <uint BITS, uint ROWS, uint COLS, uint GROUP, uint KIND>
Fetched fetched(Affine<BITS, ROWS, COLS, GROUP, KIND> weight, uint row, uint unit) {
    if (row >= ROWS) {
        return Fetched{uint4(0u), 0.0f, 0.0f};
    }
    const uint group = row * (COLS / GROUP) + unit / (GROUP / 16);
    return Fetched{Feed<BITS>::raw(weight.codes[row * (COLS / 16) + unit]), Stored<KIND>::number(weight.scales[group]),
                   Stored<KIND>::number(weight.biases[group])};
}

template <uint BITS> void put_unit(threadgroup half *to, Fetched unit) {
#pragma unroll
    for (uint quad = 0; quad < 4; quad++) {
        put_quad(to + quad * 4, numbers_of(Feed<BITS>::codes(unit, quad), unit));
    }
}

// The sums of a SIMD-group.
struct Sums {
    simdgroup_float8x8 at[4][4];
};

inline void begin(thread Sums &sums) {
    for (uint i = 0; i < 4; i++) {
        for (uint j = 0; j < 4; j++) {
            sums.at[i][j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
        }
    }
}

// Adds a block to the sums of a SIMD-group, whose rows and weights begin there.
inline void add_block(thread Sums &sums, threadgroup half *rows, threadgroup half *weights) {
    for (uint k = 0; k < DEEP; k += 8) {
        simdgroup_half8x8 x[4];
        simdgroup_half8x8 w[4];
#pragma unroll
        for (uint i = 0; i < 4; i++) {
            simdgroup_load(x[i], rows + (i * 8 * PITCH + k), PITCH);
            // A row of the tile is an output, so that a matrix of inputs by outputs lies transposed.
            simdgroup_load(w[i], weights + (i * 8 * PITCH + k), PITCH, ulong2(0), true);
        }
#pragma unroll
        for (uint i = 0; i < 4; i++) {
#pragma unroll
            for (uint j = 0; j < 4; j++) {
                simdgroup_multiply_accumulate(sums.at[i][j], x[i], w[j], sums.at[i][j]);
            }
        }
    }
}

// Leaves eight rows of the sums of a SIMD-group in its strip, [8, SIDE], for its lanes to read.
inline void leave_rows(thread Sums &sums, uint i, threadgroup float *strip) {
    simdgroup_barrier(mem_flags::mem_threadgroup);
#pragma unroll
    for (uint j = 0; j < 4; j++) {
        simdgroup_store(sums.at[i][j], strip + j * 8, SIDE);
    }
    simdgroup_barrier(mem_flags::mem_threadgroup);
}

// Rows of inputs that a thread feeds: two, half a tile apart, a quad of each in every block.
struct Feeder {
    device const float4 *first;
    device const float4 *second;
    float4 a, b;
};

inline void fetch_rows(thread Feeder &feeder, uint block) {
    feeder.a = feeder.first[block * (DEEP / 4)];
    feeder.b = feeder.second[block * (DEEP / 4)];
}

inline void put_rows(thread const Feeder &feeder, threadgroup half *rows, uint self) {
    put_quad(rows + (self / 8 * PITCH + self % 8 * 4), feeder.a);
    put_quad(rows + ((self / 8 + ROW_TILE / 2) * PITCH + self % 8 * 4), feeder.b);
}

// Pairs at places of the order that have one expert: a tile of rows.
struct Run {
    uint place;
    uint end;
};

// The tile of rows that begins at a place, if one does: `end` is the place after it in any case.
inline Run run_at(uint place, uint pairs, device const uint *order) {
    const uint begin = place - (place - order[pairs + place]) % ROW_TILE;
    return Run{begin, min(begin + ROW_TILE, order[2 * pairs + place])};
}
