// Rows times an affine weight, decode form (checkpoint.md section 3):
//
//     W(o, c) = scale[o, c / GROUP] * code(o, c) + bias[o, c / GROUP]
//     sum_c W(o, c) x(c) = sum over units of scale * (sum of code * x) + bias * (sum of x)
//
// A unit is 16 inputs, all of one group. LANES lanes of a SIMD-group share a row of the weight: lane l takes the units l,
// l + LANES, ... in order and so has several rows at once, which share what it loads of the inputs. Then the lanes are
// added as a tree, each to its neighbour at half the distance. There is no threadgroup memory and no barrier.
//
// Row invariance (engine.md 3.2, 3.7): which values meet in which order follows from COLS alone.

// Inputs of a unit, and their sum.
struct Inputs {
    float4 a, b, c, d;
    float sum;
};

inline Inputs inputs_of(device const float4 *x, uint unit) {
    Inputs own;
    own.a = x[4 * unit];
    own.b = x[4 * unit + 1];
    own.c = x[4 * unit + 2];
    own.d = x[4 * unit + 3];
    const float4 all = (own.a + own.b) + (own.c + own.d);
    own.sum = (all.x + all.y) + (all.z + all.w);
    return own;
}

// The codes of a unit. Codes stand in the low bits of 2^23, whose last place is 1: a mask and a subtraction do what takes a
// conversion, of which an Apple GPU makes fewer at a time.
template <uint BITS> struct Codes;

template <> struct Codes<4> {
    typedef uint2 Unit;

    // Four codes from the low half of a word, times 1, 16, 256 and 4096.
    static float4 scaled(uint word) {
        const uint4 codes = uint4(word | 0x4b000000u) & uint4(0x4b00000fu, 0x4b0000f0u, 0x4b000f00u, 0x4b00f000u);
        return as_type<float4>(codes) - float4(8388608.0f);
    }

    static float times(uint2 unit, thread const Inputs &x) {
        float4 sums = scaled(unit.x) * x.a;
        sums = fma(scaled(unit.x >> 16), x.b, sums);
        sums = fma(scaled(unit.y), x.c, sums);
        sums = fma(scaled(unit.y >> 16), x.d, sums);
        return dot(sums, float4(1.0f, 0.0625f, 0.00390625f, 0.000244140625f));
    }
};

template <> struct Codes<8> {
    typedef uint4 Unit;

    // The codes of a word, the second and the fourth times 256.
    static float4 scaled(uint word) {
        const uint4 codes = uint4(word, word, word >> 16, word >> 16) & uint4(0xffu, 0xff00u, 0xffu, 0xff00u);
        return as_type<float4>(codes | uint4(0x4b000000u)) - float4(8388608.0f);
    }

    static float times(uint4 unit, thread const Inputs &x) {
        float4 sums = scaled(unit.x) * x.a;
        sums = fma(scaled(unit.y), x.b, sums);
        sums = fma(scaled(unit.z), x.c, sums);
        sums = fma(scaled(unit.w), x.d, sums);
        return dot(sums, float4(1.0f, 0.00390625f, 1.0f, 0.00390625f));
    }
};

// A weight: where it lies and how it is stored. ROWS outputs from COLS inputs.
template <uint BITS, uint ROWS_, uint COLS, uint GROUP, uint KIND> struct Affine {
    typedef typename Codes<BITS>::Unit Unit;
    typedef typename Stored<KIND>::Type Scale;
    enum : uint {
        ROWS = ROWS_,
        UNITS = COLS / 16,
        // As many lanes as all have work, but eight at least: fewer would read a row's codes in scraps.
        LANES = UNITS % 32 == 0 ? 32 : UNITS % 16 == 0 ? 16 : 8,
        TEAMS = THREADS / LANES,
    };

    device const Unit *codes;
    device const Scale *scales;
    device const Scale *biases;

    // A unit of a row times its inputs.
    float product(uint row, uint unit, thread const Inputs &x) const {
        const uint group = row * (COLS / GROUP) + unit / (GROUP / 16);
        const float scale = Stored<KIND>::number(scales[group]);
        const float bias = Stored<KIND>::number(biases[group]);
        return fma(scale, Codes<BITS>::times(codes[row * UNITS + unit], x), bias * x.sum);
    }
};

// Adds a unit of COUNT rows from `row` on to their sums.
template <uint COUNT, class Weight>
void add_products(Weight weight, uint row, uint unit, thread const Inputs &x, thread float *sums) {
#pragma unroll
    for (uint k = 0; k < COUNT; k++) {
        sums[k] += weight.product(row + k, unit, x);
    }
}

// Adds COUNT sums of LANES lanes, and gives lane k of them sum k.
template <uint COUNT, uint LANES> float folded(thread const float *sums, uint lane) {
    float own = 0.0f;
#pragma unroll
    for (uint k = 0; k < COUNT; k++) {
        float sum = sums[k];
#pragma unroll
        for (uint apart = LANES / 2; apart > 0; apart /= 2) {
            sum += simd_shuffle_xor(sum, ushort(apart));
        }
        own = lane == k ? sum : own;
    }
    return own;
}
