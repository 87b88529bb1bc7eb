// Numbers as they are stored, and the functions of one number that the model needs, written out as in `numbers.wgsl`: a
// gate that feeds a discrete choice does not depend on a driver's own functions (engine.md 3.6).

// How a number is stored; the values are those of `numbers.wgsl`.
enum : uint { BF16 = 0, F16 = 1, F32 = 2 };

template <uint KIND> struct Stored;
template <> struct Stored<BF16> {
    typedef ushort Type;
    static float number(ushort stored) { return as_type<float>(uint(stored) << 16); }
};
template <> struct Stored<F16> {
    typedef half Type;
    static float number(half stored) { return float(stored); }
};
template <> struct Stored<F32> {
    typedef float Type;
    static float number(float stored) { return stored; }
};

// NaN is told by its bits: fast math may take a comparison away.
inline bool is_nan(float x) {
    return (as_type<uint>(x) & 0x7fffffffu) > 0x7f800000u;
}

inline float power_of_two(int k) {
    return as_type<float>(uint(k + 127) << 23);
}

// e^x: infinite above 89, zero below -104.
inline float exponential(float value) {
    const float ROUNDER = 12582912.0f; // adding it rounds to an integer, which then stands in the low bits
    const float x = value < -104.0f ? -104.0f : value > 89.0f ? 89.0f : value;
    // The integer goes through its bits: a compiler may not reorder that, as it may an addition and its inverse.
    const int k = int(as_type<uint>(fma(x, 1.44269504f, ROUNDER)) - as_type<uint>(ROUNDER));
    const float n = float(k);
    // ln 2 in two parts; the first has few bits, so that its products with small integers are exact.
    const float r = fma(n, 2.12194440e-4f, fma(n, -0.693359375f, x));
    float p = 1.9875691e-4f;
    p = fma(p, r, 1.3981999e-3f);
    p = fma(p, r, 8.333452e-3f);
    p = fma(p, r, 4.1665796e-2f);
    p = fma(p, r, 0.16666665f);
    p = fma(p, r, 0.5f);
    const float y = fma(p * r, r, r) + 1.0f;
    // 2^k in two factors: neither leaves the range of an F32 where the product still lies in it.
    const int half_k = k >> 1;
    return is_nan(value) ? value : y * power_of_two(half_k) * power_of_two(k - half_k);
}

// x / (1 + e^-x); zero at minus infinity.
inline float silu(float x) {
    return (x < -104.0f ? -104.0f : x) / (1.0f + exponential(-x));
}

// 1 / (1 + e^-x).
inline float sigmoid(float x) {
    return 1.0f / (1.0f + exponential(-x));
}

// Orders scores: a greater key is a greater score. Both zeros are the same score; NaN has its place by its bits.
inline uint order_of(float score) {
    const uint bits = as_type<uint>(score + 0.0f);
    return bits >> 31 == 1u ? ~bits : bits | 0x80000000u;
}
