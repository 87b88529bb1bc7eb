#include <metal_stdlib>
using namespace metal;
// A probe of the harness: sums[g] = the sum of the numbers of threadgroup g, by way of threadgroup memory and SIMD-groups.

struct Task {
    uint each; // numbers of a threadgroup
};

// The sum of what SIMD-groups put down.
inline float total(threadgroup float *parts, uint lane) {
    return simd_sum(lane < THREADS / 32 ? float(parts[lane]) : 0.0f);
}

kernel void probe(
    constant Task &task [[buffer(0)]],
    device const float *numbers [[buffer(1)]],
    device float *sums [[buffer(2)]],
    uint3 group [[threadgroup_position_in_grid]],
    uint self [[thread_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]],
    uint simd [[simdgroup_index_in_threadgroup]])
{
    threadgroup float parts[THREADS / 32];
    float sum = 0.0f;
    for (uint i = self; i < task.each; i += THREADS) {
        sum += numbers[group.x * task.each + i];
    }
    sum = simd_sum(sum);
    if (lane == 0) {
        parts[simd] = sum;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (simd == 0) {
        sum = total(parts, lane);
        if (lane == 0) {
            sums[group.x] = sum;
        }
    }
}
