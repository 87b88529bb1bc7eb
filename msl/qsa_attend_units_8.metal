// Softmax attention over the kept blocks and the open tail, and the output gate, prompt form with matrix units
// (architecture.md 7.4):
//
//     p = softmax(q . k / sqrt(HEAD)) over the kept tokens    out = sum p v * sigmoid(gate)
//
// A threadgroup has one row and the query heads that share a key head, sixteen at most: the rows of its matrices. It walks the
// row's tokens ascending, in tiles of TILE, and a tile's keys and values in parts of PART numbers. Queries, keys, values and
// weights are F16, sums F32 (engine.md 3.5); softmax is F32. Of the sixteen matrices of a tile's logits, and of each part of
// the sums, a SIMD-group has four: two of heads by two of tokens or numbers.
//
// Weights are in terms of the best logit so far. Where a tile brings a better one, the sums so far are multiplied from the left
// with a diagonal matrix of what turns each head to it, which costs a product a matrix and no threadgroup memory of their size.
//
// A tile of 64 tokens and 256 numbers costs a SIMD-group 256 products of 8 x 8 x 8 and 320 loads of matrices; a thread brings
// 32 times 16 bytes of keys and values and widens them: the matrix units and threadgroup memory are the bound.
//
// Row invariance: which tokens a row has, and so its tiles, follows from its own position and its own blocks. A tile that
// brings no better logit leaves the sums as they are. In which order a matrix unit adds eight products does not depend on the
// row (proved on each device by `ss selftest`).

constant uint TILE = 64;
constant uint PART = 64;
constant uint PARTS = (HEAD + PART - 1) / PART; // at most four
constant uint GROUP_HEADS = 16;
constant uint PITCH = 72;                       // numbers of a part or a tile, and room that keeps neighbours apart
constant uint QUERY_PITCH = PARTS * PART + 8;
constant uint TILE_LOADS = PART / 8;            // 16 bytes of a part of a key
constant float HIGHEST_F16 = 65504.0f;

struct Task {
    uint first; // rows in the cache before row 0
};

// Two matrices of heads by two of tokens or numbers.
struct Four {
    simdgroup_float8x8 at[2][2];
};

inline void clear(thread Four &four) {
    for (uint i = 0; i < 4; i++) {
        four.at[i / 2][i % 2] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    }
}

// Puts four numbers down as the units see them: F16 holds BF16 but for its range.
inline void put_quad(threadgroup half *to, float4 x) {
    for (uint i = 0; i < 4; i++) {
        to[i] = half(max(min(x[i], HIGHEST_F16), -HIGHEST_F16));
    }
}

// A part of the rows of a tile's tokens; a token past the last is read as the last one, numbers past a row are zeros.
inline void stage_cells(Work work, device const uint4 *cache, uint here, uint part, threadgroup uint *tokens,
                        threadgroup half *tile, uint self) {
    for (uint i = self; i < TILE * TILE_LOADS; i += THREADS) {
        const uint key = i / TILE_LOADS, load = part * TILE_LOADS + i % TILE_LOADS;
        Cells own = {float4(0.0f), float4(0.0f)};
        if (load < ROW_LOADS) {
            const uint token = tokens[min(key, here - 1)];
            own = cells(cache[(token * KV_HEADS + work.kv_head) * ROW_LOADS + load]);
        }
        put_quad(tile + (key * PITCH + i % TILE_LOADS * 8), own.a);
        put_quad(tile + (key * PITCH + i % TILE_LOADS * 8 + 4), own.b);
    }
}

// Adds the products of a part of the queries and of the keys in the tile.
inline void add_logits(thread Four &logits, threadgroup half *queries, threadgroup half *keys, uint simd) {
    for (uint k = 0; k < PART; k += 8) {
        simdgroup_half8x8 x[2], y[2];
        for (uint i = 0; i < 2; i++) {
            simdgroup_load(x[i], queries + (i * 8 * QUERY_PITCH + k), QUERY_PITCH);
            // A row of the tile is a token, so that a matrix of numbers by tokens lies transposed.
            simdgroup_load(y[i], keys + ((simd * 2 + i) * 8 * PITCH + k), PITCH, ulong2(0), true);
        }
        for (uint i = 0; i < 4; i++) {
            simdgroup_multiply_accumulate(logits.at[i / 2][i % 2], x[i / 2], y[i % 2], logits.at[i / 2][i % 2]);
        }
    }
}

// Adds the products of the weights and of the values in the tile to a part of the sums.
inline void add_values(thread Four &sums, threadgroup half *weights, threadgroup half *values, uint simd) {
    for (uint k = 0; k < TILE; k += 8) {
        simdgroup_half8x8 x[2], y[2];
        for (uint i = 0; i < 2; i++) {
            simdgroup_load(x[i], weights + (i * 8 * PITCH + k), PITCH);
            simdgroup_load(y[i], values + (k * PITCH + (simd * 2 + i) * 8), PITCH);
        }
        for (uint i = 0; i < 4; i++) {
            simdgroup_multiply_accumulate(sums.at[i / 2][i % 2], x[i / 2], y[i % 2], sums.at[i / 2][i % 2]);
        }
    }
}

// Puts the four of a SIMD-group at their places in the strip, [GROUP_HEADS, PITCH].
inline void put_four(thread const Four &four, threadgroup float *strip, uint simd) {
    for (uint i = 0; i < 4; i++) {
        simdgroup_store(four.at[i / 2][i % 2], strip + (i / 2 * 8 * PITCH + (simd * 2 + i % 2) * 8), PITCH);
    }
}

// Of the eight lanes that share a head, the largest.
inline float shared_max(float value) {
    value = max(value, simd_shuffle_xor(value, ushort(4)));
    value = max(value, simd_shuffle_xor(value, ushort(2)));
    return max(value, simd_shuffle_xor(value, ushort(1)));
}

// Turns the logits of a tile to weights in terms of the best one so far, eight tokens a thread. `turns` holds two diagonal
// matrices of what turns the sums so far.
inline void weigh(uint here, thread float &best, thread float &weight_sum, threadgroup float *strip,
                  threadgroup half *weights, threadgroup float *turns, uint self) {
    const uint head = self / SHARERS, first = self % SHARERS * (TILE / SHARERS);
    float logits[TILE / SHARERS];
    float now = best;
    for (uint i = 0; i < TILE / SHARERS; i++) {
        const float logit = strip[head * PITCH + first + i];
        logits[i] = first + i < here ? logit * (1.0f / sqrt(float(HEAD))) : LOWEST;
        now = max(now, logits[i]);
    }
    now = shared_max(now);
    const float turn = now > best ? exponential(best - now) : 1.0f;
    best = now;
    weight_sum *= turn;
    for (uint i = 0; i < TILE / SHARERS; i++) {
        const half weight = half(exponential(logits[i] - now));
        weight_sum += float(weight);
        weights[head * PITCH + first + i] = weight;
    }
    // A lane has one number of its head's row.
    const uint column = self % SHARERS;
    turns[head * 8 + column] = column == head % 8 ? turn : 0.0f;
}

// Whether any head's sums must be turned: the same in all threads.
inline bool any_turns(threadgroup float *turns) {
    bool any = false;
    for (uint head = 0; head < GROUP_HEADS; head++) {
        const float turn = turns[head * 8 + head % 8];
        any = any || turn != 1.0f;
    }
    return any;
}

inline void turn_sums(thread Four *sums, threadgroup float *turns) {
    const simdgroup_float8x8 zeros = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    for (uint i = 0; i < 2; i++) {
        simdgroup_float8x8 diagonal;
        simdgroup_load(diagonal, turns + i * 64, 8);
        for (uint part = 0; part < PARTS; part++) {
            for (uint j = 0; j < 2; j++) {
                simdgroup_multiply_accumulate(sums[part].at[i][j], diagonal, sums[part].at[i][j], zeros);
            }
        }
    }
}

kernel void qsa_attend_units_8(
    constant Task &task [[buffer(0)]],
    device const float4 *q [[buffer(AT_q)]],                   // [rows, HEADS, QUADS]
    device const float *gate [[buffer(AT_gate)]],              // [rows, HEADS, 2, HEAD]
    device const uint4 *cache_k [[buffer(AT_cache_k)]],        // [first + rows, KV_HEADS, LOADS] cells
    device const uint4 *cache_v [[buffer(AT_cache_v)]],        // [first + rows, KV_HEADS, LOADS] cells
    device const uint *blocks [[buffer(AT_blocks)]],           // [rows, TOPK]
    device float *out [[buffer(AT_out)]],                      // [rows, HEADS, HEAD]
    uint3 group [[threadgroup_position_in_grid]],
    uint self [[thread_index_in_threadgroup]],
    uint simd [[simdgroup_index_in_threadgroup]])
{
    threadgroup uint tokens[TILE];
    threadgroup half queries[GROUP_HEADS * QUERY_PITCH];
    threadgroup half tile[TILE * PITCH];
    threadgroup half weights[GROUP_HEADS * PITCH];
    threadgroup float strip[GROUP_HEADS * PITCH];
    threadgroup float turns[GROUP_HEADS * 8];
    threadgroup float totals[GROUP_HEADS];
    const Work work = work_of(group.x, group.y, task.first);
    for (uint i = self; i < GROUP_HEADS * PARTS * PART / 4; i += THREADS) {
        const uint h = i / (PARTS * PART / 4), quad = i % (PARTS * PART / 4);
        const bool there = h < work.heads && quad < WHOLE_QUADS;
        const float4 x = there ? q[(work.row * HEADS + work.head + h) * WHOLE_QUADS + quad] : float4(0.0f);
        put_quad(queries + (h * QUERY_PITCH + quad * 4), x);
    }
    Four sums[PARTS];
    for (uint part = 0; part < PARTS; part++) {
        clear(sums[part]);
    }
    float best = LOWEST;
    float weight_sum = 0.0f;
    for (uint first = 0; first < work.count; first += TILE) {
        const uint here = min(work.count - first, TILE);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        if (self < here) {
            tokens[self] = token_of(work, blocks, first + self);
        }
        Four logits;
        clear(logits);
        for (uint part = 0; part < PARTS; part++) {
            threadgroup_barrier(mem_flags::mem_threadgroup);
            stage_cells(work, cache_k, here, part, tokens, tile, self);
            threadgroup_barrier(mem_flags::mem_threadgroup);
            add_logits(logits, queries + part * PART, tile, simd);
        }
        put_four(logits, strip, simd);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        weigh(here, best, weight_sum, strip, weights, turns, self);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        if (any_turns(turns)) {
            turn_sums(sums, turns);
        }
        for (uint part = 0; part < PARTS; part++) {
            threadgroup_barrier(mem_flags::mem_threadgroup);
            stage_cells(work, cache_v, here, part, tokens, tile, self);
            threadgroup_barrier(mem_flags::mem_threadgroup);
            add_values(sums[part], weights, tile, simd);
        }
    }
    weight_sum = shared_sum(weight_sum);
    if (self % SHARERS == 0) {
        totals[self / SHARERS] = weight_sum;
    }
    for (uint part = 0; part < PARTS; part++) {
        threadgroup_barrier(mem_flags::mem_threadgroup);
        put_four(sums[part], strip, simd);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (uint i = self; i < GROUP_HEADS * PART; i += THREADS) {
            const uint h = i / PART, number = part * PART + i % PART;
            if (h < work.heads && number < HEAD) {
                const float sum = strip[h * PITCH + i % PART];
                write(work, gate, out, h, number, sum / totals[h]);
            }
        }
    }
}
