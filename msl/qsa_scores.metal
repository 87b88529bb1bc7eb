// Scores of the indexer's blocks (architecture.md 7.3), for queries that see more than TOPK complete blocks:
//
//     scores[r, j] = sum_h max(0, index_q[r, h] . pooled[j]) / sqrt(INDEX)
//
// A threadgroup has TILE blocks and up to four rows. Eight lanes share a block: each loads every eighth 16 bytes of it, for all
// heads of all rows, and the lanes are added as a tree, head by head. There is no threadgroup memory and no barrier.
//
// A block of 128 numbers is 256 bytes in BF16; a head of a row costs it 128 multiply-adds over eight lanes, 128 to widen what
// was loaded and 6 to add the lanes: with four heads and one row about 5 instructions a byte, so that memory is the bound.
//
// Row invariance: a dot product is one sum over four places of a quad in each lane, then over the lanes; heads are added in
// order. Rows share what is loaded of a block and nothing else.

constant uint WHOLE_QUADS = INDEX / 4;
constant uint BLOCK_LOADS = WHOLE_QUADS / WIDE;
constant uint TILE = THREADS / INDEX_HEADS;
constant uint TEAMS = THREADS / SHARERS;
constant uint ROWS_AT_ONCE = 4;

struct Task {
    uint rows;   // of the slice
    uint slice;  // first row of the slice
    uint before; // tokens before the slice
    uint all;    // blocks of the last row, the numbers between rows of scores
};

// max(0, x); NaN stays.
inline float positive(float x) {
    return x < 0.0f ? 0.0f : x;
}

// A lane's part of the dot product of a head with a block.
inline float dot_part(device const uint4 *block, device const float4 *query, uint lane) {
    float4 sums = float4(0.0f);
    for (uint load = lane; load < BLOCK_LOADS; load += SHARERS) {
        const Cells key = cells(block[load]);
        sums = fma(key.a, query[load * WIDE], sums);
        if (WIDE == 2u) {
            sums = fma(key.b, query[load * WIDE + WIDE - 1], sums);
        }
    }
    return total(sums);
}

kernel void qsa_scores(
    constant Task &task [[buffer(0)]],
    device const float4 *index_q [[buffer(AT_index_q)]],       // [slice + rows.., INDEX_HEADS, QUADS]
    device const uint4 *pooled [[buffer(AT_pooled)]],          // [all, LOADS] cells
    device float *scores [[buffer(AT_scores)]],                // [rows, all]
    uint3 group [[threadgroup_position_in_grid]],
    uint self [[thread_index_in_threadgroup]])
{
    const uint first = group.y * ROWS_AT_ONCE;
    const uint rows = min(task.rows - first, ROWS_AT_ONCE);
    const uint most = (task.before + first + rows) / BLOCK;
    if (most <= TOPK || most <= group.x * TILE) {
        return;
    }
    const uint lane = self % SHARERS;
    for (uint step = 0; step < TILE; step += TEAMS) {
        const uint own = step + self / SHARERS;
        const uint block = group.x * TILE + own;
        // Past the last block a team makes that one once more, and writes nothing.
        device const uint4 *key = pooled + min(block, most - 1) * BLOCK_LOADS;
        for (uint r = 0; r < rows; r++) {
            device const float4 *query = index_q + (task.slice + first + r) * INDEX_HEADS * WHOLE_QUADS;
            float sum = 0.0f;
            for (uint h = 0; h < INDEX_HEADS; h++) {
                sum += positive(shared_sum(dot_part(key, query + h * WHOLE_QUADS, lane)));
            }
            const uint complete = (task.before + first + r + 1) / BLOCK;
            if (lane == 0 && own < TILE && complete > TOPK && block < complete) {
                scores[(first + r) * task.all + block] = sum / sqrt(float(INDEX));
            }
        }
    }
}
