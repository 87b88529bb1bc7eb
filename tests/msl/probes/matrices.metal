#include <metal_stdlib>
#include <metal_simdgroup_matrix>
using namespace metal;
// A probe of the harness: c = a b + 0, matrices of 16 x 24 by 24 x 8 in tiles of 8 x 8, b stored by columns in halves, the sum
// of each tile by way of threadgroup memory.

kernel void probe(
    device const half *a [[buffer(1)]],
    device const half *b [[buffer(2)]],
    device float *c [[buffer(3)]],
    uint self [[thread_index_in_threadgroup]],
    uint simd [[simdgroup_index_in_threadgroup]])
{
    threadgroup float tiles[2 * 64];
    simdgroup_float8x8 sum = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    for (uint k = 0; k < 24; k += 8) {
        simdgroup_half8x8 left, right;
        simdgroup_load(left, a + simd * 8 * 24 + k, 24);
        simdgroup_load(right, b + k, 24, ulong2(0), true);
        simdgroup_multiply_accumulate(sum, left, right, sum);
    }
    simdgroup_store(sum, tiles + simd * 64, 8);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    // Each thread writes what the other SIMD-group made.
    for (uint i = self % 32; i < 64; i += 32) {
        c[(1 - simd) * 64 + i] = tiles[(1 - simd) * 64 + i];
    }
}
