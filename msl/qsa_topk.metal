// The blocks that each query keeps (architecture.md 7.3): the TOPK largest scores, descending score, then ascending block;
// written ascending, then NONE. A query that sees at most TOPK complete blocks keeps them all.
//
// Radix select: three histograms of 11 bits find the key of the last block that is kept and how many blocks of that very key
// are kept. Then each thread takes a run of blocks and writes those it keeps after those of the runs before. Counts of the
// threads before are sums in a SIMD-group, then over the SIMD-groups: two barriers where a tree over threads has seventeen.
//
// A score is read five times, from a cache after the first; a bin is counted by one atomic in threadgroup memory.
//
// Row invariance: a threadgroup has one row. Counts are integers, so that the order of atomic additions is not seen.

constant uint NONE = 0xffffffffu;
constant uint BINS = 2048;
constant uint SIMDS = THREADS / 32;

struct Task {
    uint slice;  // first row of the slice
    uint before; // tokens before the slice
    uint all;    // numbers between rows of scores
};

// What is known of the key of the last block that is kept.
struct Edge {
    uint known; // bits that are known
    uint key;   // those bits
    uint left;  // blocks with those bits that are kept
};

// The sum of the values of the threads before this one. `counts` may be written again after the next barrier.
inline uint before_of(uint value, threadgroup uint *counts, uint self) {
    const uint lane = self % 32, simd = self / 32;
    const uint before = simd_prefix_exclusive_sum(value);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (lane == 31) {
        counts[simd] = before + value;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    uint sum = before;
    for (uint s = 0; s < simd; s++) {
        sum += counts[s];
    }
    return sum;
}

// Finds eleven more bits of the edge.
inline Edge narrow(Edge edge, uint shift, device const float *scores, uint complete, threadgroup atomic_uint *bins,
                   threadgroup uint *counts, threadgroup uint *found, uint self) {
    for (uint bin = self; bin < BINS; bin += THREADS) {
        atomic_store_explicit(&bins[bin], 0u, memory_order_relaxed);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint j = self; j < complete; j += THREADS) {
        const uint key = order_of(scores[j]);
        if ((key & edge.known) == edge.key) {
            atomic_fetch_add_explicit(&bins[(key >> shift) % BINS], 1u, memory_order_relaxed);
        }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    // A thread has the bins from `top` downwards.
    const uint share = BINS / THREADS;
    const uint top = BINS - 1 - self * share;
    uint mine = 0;
    for (uint i = 0; i < share; i++) {
        mine += atomic_load_explicit(&bins[top - i], memory_order_relaxed);
    }
    uint above = before_of(mine, counts, self);
    if (above < edge.left && edge.left <= above + mine) {
        for (uint i = 0; i < share; i++) {
            const uint count = atomic_load_explicit(&bins[top - i], memory_order_relaxed);
            if (edge.left <= above + count) {
                found[0] = top - i;
                found[1] = edge.left - above;
                break;
            }
            above += count;
        }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const uint digit = found[0], left = found[1];
    return Edge{edge.known | (BINS - 1) << shift, edge.key | digit << shift, left};
}

// Writes the kept blocks of a row, ascending.
inline void keep(Edge edge, device const float *scores, uint complete, device uint *blocks, threadgroup uint *counts,
                 uint self) {
    const uint share = (complete + THREADS - 1) / THREADS;
    const uint first = min(self * share, complete);
    const uint end = min(first + share, complete);
    uint above = 0;
    uint level = 0;
    for (uint j = first; j < end; j++) {
        const uint key = order_of(scores[j]);
        above += uint(key > edge.key);
        level += uint(key == edge.key);
    }
    const uint above_before = before_of(above, counts, self);
    uint seen = before_of(level, counts, self);
    uint place = above_before + min(seen, edge.left);
    for (uint j = first; j < end; j++) {
        const uint key = order_of(scores[j]);
        if (key > edge.key || (key == edge.key && seen < edge.left)) {
            blocks[place] = j;
            place++;
        }
        seen += uint(key == edge.key);
    }
}

kernel void qsa_topk(
    constant Task &task [[buffer(0)]],
    device const float *scores [[buffer(AT_scores)]],          // [rows, all]
    device uint *blocks [[buffer(AT_blocks)]],                 // [slice + rows.., TOPK]
    uint3 group [[threadgroup_position_in_grid]],
    uint self [[thread_index_in_threadgroup]])
{
    threadgroup atomic_uint bins[BINS];
    threadgroup uint counts[SIMDS];
    threadgroup uint found[2];
    const uint complete = (task.before + group.x + 1) / BLOCK;
    device uint *kept = blocks + (task.slice + group.x) * TOPK;
    if (complete <= TOPK) {
        for (uint i = self; i < TOPK; i += THREADS) {
            kept[i] = i < complete ? i : NONE;
        }
        return;
    }
    device const float *own = scores + group.x * task.all;
    Edge edge = {0, 0, TOPK};
    edge = narrow(edge, 21, own, complete, bins, counts, found, self);
    edge = narrow(edge, 10, own, complete, bins, counts, found, self);
    // The lowest ten bits, and one that is known already.
    edge = narrow(edge, 0, own, complete, bins, counts, found, self);
    keep(edge, own, complete, kept, counts, self);
}
