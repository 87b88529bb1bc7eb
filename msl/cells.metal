// Rows of the caches of sparse attention, 16 bytes at a time (engine.md 3.3), and sums over the lanes that share a row.

// The numbers of 16 bytes, in order: eight of BF16 or four of F32, the rest zeros.
struct Cells {
    float4 a, b;
};

inline Cells cells(uint4 words) {
    Cells own;
    if (SCALAR == F32) {
        own.a = as_type<float4>(words);
        own.b = float4(0.0f);
        return own;
    }
    const float4 even = as_type<float4>(words << 16u);
    const float4 odd = as_type<float4>(words & 0xffff0000u);
    own.a = float4(even.x, odd.x, even.y, odd.y);
    own.b = float4(even.z, odd.z, even.w, odd.w);
    return own;
}

// The sum of a quad.
inline float total(float4 quad) {
    return (quad.x + quad.y) + (quad.z + quad.w);
}

// Lanes that share a row.
constant uint SHARERS = 8;

// The sum of the lanes that share a row, in each of them: a tree whose shape is always the same.
inline float shared_sum(float value) {
    value += simd_shuffle_xor(value, ushort(4));
    value += simd_shuffle_xor(value, ushort(2));
    return value + simd_shuffle_xor(value, ushort(1));
}

// The same of all lanes of a SIMD-group.
inline float simd_tree_sum(float value) {
    value += simd_shuffle_xor(value, ushort(16));
    value += simd_shuffle_xor(value, ushort(8));
    return shared_sum(value);
}
