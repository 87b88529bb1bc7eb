// Softmax attention over the kept blocks and the open tail, and the output gate, decode form (architecture.md 7.4):
//
//     p = softmax(q . k / sqrt(HEAD)) over the kept tokens    out = sum p v * sigmoid(gate)
//
// The tokens of a row, ascending, are split every SPLIT (engine.md 3.7c). A threadgroup has one split of one row and AT_ONCE
// of the query heads that share a key head. Eight lanes share a token's logits, a SIMD-group has four tokens at once; then
// TEAMS teams share the sum of the values, team t adding the tokens t, t + TEAMS, ... The threadgroup that arrives last adds
// the splits of its heads in order. The ticket decides who adds, never what; parts of other threadgroups are read by atomic
// loads, which no cache makes stale.
//
// A token's key and value of 256 numbers are 1024 bytes in BF16. For two heads they cost 2 x 512 multiply-adds, 512 to widen
// them and 12 to add lanes: 1.5 instructions a byte, so that memory is the bound.
//
// Row invariance: which tokens a row has, and so its splits, follows from its own position and its own blocks. Lanes, teams
// and splits are added in order; tokens that the last split lacks are not added at all.

constant uint SPLIT = 256; // tokens of a split, and threads of a threadgroup
constant uint SIMDS = SPLIT / 32;
constant uint VALUE_TEAMS = SPLIT / ROW_LOADS;
constant uint PART = HEAD + 2; // numbers of a head's part of a split: sums, their weight, the best logit
constant uint PARTS = 4096;    // room for sums of teams, [TEAMS, AT_ONCE, HEAD], and for the ends of parts of splits

struct Task {
    uint first;  // rows in the cache before row 0
    uint splits; // of the last row, the most
};

// Leaves the logits of a split's tokens in `weights`, [AT_ONCE, SPLIT]; a place past the last token has one that is never the
// best.
inline void multiply(Work work, uint here, device const uint4 *cache_k, threadgroup uint *tokens,
                     threadgroup float4 *queries, threadgroup float *weights, uint self) {
    const uint lane = self % SHARERS;
    const uint first = self / 32 * 32 + self % 32 / SHARERS;
    for (uint step = 0; step < 32; step += 32 / SHARERS) {
        const uint key = first + step;
        const uint token = tokens[min(key, here - 1)];
        device const uint4 *row = cache_k + (token * KV_HEADS + work.kv_head) * ROW_LOADS;
        float4 sums[AT_ONCE] = {};
        for (uint load = lane; load < ROW_LOADS; load += SHARERS) {
            const Cells own = cells(row[load]);
#pragma unroll
            for (uint h = 0; h < AT_ONCE; h++) {
                const float4 a = queries[h * WHOLE_QUADS + load * WIDE];
                const float4 b = queries[h * WHOLE_QUADS + load * WIDE + WIDE - 1];
                sums[h] = fma(own.a, a, sums[h]);
                sums[h] = WIDE == 2u ? fma(own.b, b, sums[h]) : sums[h];
            }
        }
#pragma unroll
        for (uint h = 0; h < AT_ONCE; h++) {
            const float logit = shared_sum(total(sums[h]));
            if (lane == 0) {
                weights[h * SPLIT + key] = key < here ? logit * (1.0f / sqrt(float(HEAD))) : LOWEST;
            }
        }
    }
}

// Turns the logits to weights in terms of the best one, and leaves each SIMD-group's sum of weights and each head's best logit
// in `few`, [AT_ONCE, SIMDS + 1].
inline void weigh(uint here, threadgroup float *weights, threadgroup float *few, uint self) {
    const uint lane = self % 32, simd = self / 32;
    for (uint h = 0; h < AT_ONCE; h++) {
        const float best = simd_max(float(weights[h * SPLIT + self]));
        if (lane == 0) {
            few[h * (SIMDS + 1) + simd] = best;
        }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    float bests[AT_ONCE];
    for (uint h = 0; h < AT_ONCE; h++) {
        float best = LOWEST;
        for (uint s = 0; s < SIMDS; s++) {
            const float other = few[h * (SIMDS + 1) + s];
            best = max(best, other);
        }
        bests[h] = best;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint h = 0; h < AT_ONCE; h++) {
        const float logit = weights[h * SPLIT + self];
        const float weight = self < here ? exponential(logit - bests[h]) : 0.0f;
        weights[h * SPLIT + self] = weight;
        const float sum = simd_tree_sum(weight);
        if (lane == 0) {
            few[h * (SIMDS + 1) + simd] = sum;
        }
        if (self == 0) {
            few[h * (SIMDS + 1) + SIMDS] = bests[h];
        }
    }
}

inline float best_of(threadgroup float *few, uint h) {
    return few[h * (SIMDS + 1) + SIMDS];
}

inline float sum_of(threadgroup float *few, uint h) {
    float sum = 0.0f;
    for (uint s = 0; s < SIMDS; s++) {
        sum += few[h * (SIMDS + 1) + s];
    }
    return sum;
}

// Leaves the teams' sums of the values in `parts`, [TEAMS, AT_ONCE, HEAD].
inline void add_values(Work work, uint here, device const uint4 *cache_v, threadgroup uint *tokens,
                       threadgroup float *weights, threadgroup float *parts, uint self) {
    const uint load = self % ROW_LOADS, team = self / ROW_LOADS;
    if (team >= VALUE_TEAMS) {
        return;
    }
    float4 sums[2 * AT_ONCE] = {};
    for (uint key = team; key < here; key += VALUE_TEAMS) {
        const uint token = tokens[key];
        const Cells own = cells(cache_v[(token * KV_HEADS + work.kv_head) * ROW_LOADS + load]);
#pragma unroll
        for (uint h = 0; h < AT_ONCE; h++) {
            const float4 weight = float4(weights[h * SPLIT + key]);
            sums[2 * h] = fma(weight, own.a, sums[2 * h]);
            sums[2 * h + 1] = fma(weight, own.b, sums[2 * h + 1]);
        }
    }
    for (uint h = 0; h < AT_ONCE; h++) {
        for (uint i = 0; i < 4 * WIDE; i++) {
            parts[(team * AT_ONCE + h) * HEAD + load * 4 * WIDE + i] = sums[2 * h + i / 4][i % 4];
        }
    }
}

// Number `i` of a head, all teams added.
inline float teams_sum(threadgroup float *parts, uint h, uint i) {
    float value = 0.0f;
    for (uint t = 0; t < VALUE_TEAMS; t++) {
        value += parts[(t * AT_ONCE + h) * HEAD + i];
    }
    return value;
}

// Number at which a head's part of a split begins.
inline uint part_of(Work work, uint h, uint split, uint splits) {
    return ((work.row * HEADS + work.head + h) * splits + split) * PART;
}

inline void put(device atomic_uint *split_parts, uint at, float value) {
    atomic_store_explicit(&split_parts[at], as_type<uint>(value), memory_order_relaxed);
}

inline float got(device atomic_uint *split_parts, uint at) {
    return as_type<float>(atomic_load_explicit(&split_parts[at], memory_order_relaxed));
}

inline void leave_part(Work work, uint split, uint most, threadgroup float *parts, threadgroup float *few,
                       device atomic_uint *split_parts, uint self) {
    for (uint h = 0; h < work.heads; h++) {
        const uint begin = part_of(work, h, split, most);
        for (uint i = self; i < HEAD; i += SPLIT) {
            put(split_parts, begin + i, teams_sum(parts, h, i));
        }
        if (self == 0) {
            put(split_parts, begin + HEAD, sum_of(few, h));
            put(split_parts, begin + HEAD + 1, best_of(few, h));
        }
    }
}

// Whether this threadgroup is the last of so many at a ticket, which is zero before and after.
inline bool arrives_last(device atomic_uint *ticket, uint threadgroups, threadgroup uint *last, uint self) {
    threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);
    if (self == 0) {
        const uint before = atomic_fetch_add_explicit(ticket, 1u, memory_order_relaxed);
        if (before == threadgroups - 1) {
            atomic_store_explicit(ticket, 0u, memory_order_relaxed);
        }
        last[0] = uint(before == threadgroups - 1);
    }
    threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);
    return last[0] == 1u;
}

// Adds the splits of a row, in order. Their weights and best logits lie in `parts` first, [heads, splits, 2].
inline void merge(Work work, uint splits, uint most, device atomic_uint *split_parts, device const float *gate,
                  device float *out, threadgroup float *parts, uint self) {
    for (uint i = self; i < 2 * work.heads * splits; i += SPLIT) {
        parts[i] = got(split_parts, part_of(work, i / (2 * splits), i / 2 % splits, most) + HEAD + i % 2);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint i = self; i < work.heads * HEAD; i += SPLIT) {
        const uint h = i / HEAD;
        float best = LOWEST;
        for (uint split = 0; split < splits; split++) {
            const float other = parts[2 * (h * splits + split) + 1];
            best = max(best, other);
        }
        float value = 0.0f;
        float weight = 0.0f;
        for (uint split = 0; split < splits; split++) {
            const uint at = 2 * (h * splits + split);
            const float own_weight = parts[at], own_best = parts[at + 1];
            const float factor = exponential(own_best - best);
            value = fma(factor, got(split_parts, part_of(work, h, split, most) + i % HEAD), value);
            weight = fma(factor, own_weight, weight);
        }
        write(work, gate, out, h, i % HEAD, value / weight);
    }
}

kernel void qsa_attend(
    constant Task &task [[buffer(0)]],
    device const float4 *q [[buffer(AT_q)]],                   // [rows, HEADS, QUADS]
    device const float *gate [[buffer(AT_gate)]],              // [rows, HEADS, 2, HEAD]
    device const uint4 *cache_k [[buffer(AT_cache_k)]],        // [first + rows, KV_HEADS, LOADS] cells
    device const uint4 *cache_v [[buffer(AT_cache_v)]],        // [first + rows, KV_HEADS, LOADS] cells
    device const uint *blocks [[buffer(AT_blocks)]],           // [rows, TOPK]
    device float *out [[buffer(AT_out)]],                      // [rows, HEADS, HEAD]
    device atomic_uint *split_parts [[buffer(AT_split_parts)]], // [rows, HEADS, splits, PART]
    device atomic_uint *tickets [[buffer(AT_tickets)]],        // [rows, KV_HEADS UNITS], zeros before and after
    uint3 group [[threadgroup_position_in_grid]],
    uint self [[thread_index_in_threadgroup]])
{
    threadgroup uint tokens[SPLIT];
    threadgroup float4 queries[AT_ONCE * WHOLE_QUADS];
    threadgroup float weights[AT_ONCE * SPLIT];
    threadgroup float few[AT_ONCE * (SIMDS + 1)];
    threadgroup float parts[PARTS];
    threadgroup uint last[1];
    const Work work = work_of(group.x, group.z, task.first);
    const uint first = group.y * SPLIT;
    if (first >= work.count) {
        return;
    }
    const uint here = min(work.count - first, SPLIT);
    const uint splits = (work.count + SPLIT - 1) / SPLIT;
    if (self < here) {
        tokens[self] = token_of(work, blocks, first + self);
    }
    for (uint i = self; i < AT_ONCE * WHOLE_QUADS; i += SPLIT) {
        // A head past the last one is read as the last one and not written.
        const uint h = min(i / WHOLE_QUADS, work.heads - 1);
        queries[i] = q[(work.row * HEADS + work.head + h) * WHOLE_QUADS + i % WHOLE_QUADS];
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    multiply(work, here, cache_k, tokens, queries, weights, self);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    weigh(here, weights, few, self);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    add_values(work, here, cache_v, tokens, weights, parts, self);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (splits == 1) {
        for (uint h = 0; h < work.heads; h++) {
            for (uint i = self; i < HEAD; i += SPLIT) {
                write(work, gate, out, h, i, teams_sum(parts, h, i) / sum_of(few, h));
            }
        }
        return;
    }
    leave_part(work, group.y, task.splits, parts, few, split_parts, self);
    if (arrives_last(&tickets[work.row * KV_HEADS * UNITS + group.x], splits, last, self)) {
        merge(work, splits, task.splits, split_parts, gate, out, parts, self);
    }
}
