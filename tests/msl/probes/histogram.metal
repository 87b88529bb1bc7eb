#include <metal_stdlib>
using namespace metal;
// A probe of the harness: counts[b] = how many of all ids are b, by way of atomic counters, then of each thread's first id how
// many threads below it in its SIMD-group have smaller numbers, which is their number.

constant uint BINS = 40;

kernel void probe(
    device const uint *ids [[buffer(1)]],
    device atomic_uint *counts [[buffer(2)]],
    device uint *places [[buffer(3)]],
    uint3 group [[threadgroup_position_in_grid]],
    uint self [[thread_index_in_threadgroup]])
{
    threadgroup atomic_uint bins[BINS];
    for (uint i = self; i < BINS; i += THREADS) {
        atomic_store_explicit(&bins[i], 0u, memory_order_relaxed);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const uint place = group.x * THREADS + self;
    atomic_fetch_add_explicit(&bins[ids[place]], 1u, memory_order_relaxed);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint i = self; i < BINS; i += THREADS) {
        atomic_fetch_add_explicit(&counts[i], atomic_load_explicit(&bins[i], memory_order_relaxed), memory_order_relaxed);
    }
    places[place] = simd_prefix_exclusive_sum(1u);
}
