// Softmax attention over the kept blocks and the open tail, and the output gate, decode form (architecture.md 7.4):
//
//     p = softmax(q . k / sqrt(HEAD)) over the kept tokens    out = sum p v * sigmoid(gate)
//
// The tokens of a row, ascending, are split every SPLIT (engine.md 3.7c). A workgroup has one split of one row and AT_ONCE
// of the query heads that share a key head: LANES lanes share a logit, then TEAMS teams share the sum of the values, team t
// adding the tokens t, t + TEAMS, ... The workgroup that arrives last adds the splits of its heads in order. The ticket decides
// who adds, never what; parts of other workgroups are read by atomic loads, which no cache makes stale.
//
// Row invariance: which tokens a row has, and so its splits, follows from its own position and its own blocks. Lanes, teams
// and splits are added in order; tokens that the last split lacks are not added at all.

override PART: u32 = HEAD + 2u; // numbers of a head's part of a split: sums, their weight, the best logit

const THREADS = 256u; // of a workgroup
const SPLIT = 256u; // tokens of a split, THREADS
const OWN = 8u; // tokens of a lane: SPLIT LANES / THREADS
const MOST_AT_ONCE = 2u;

struct Task {
    first: u32, // rows in the cache before row 0
    splits: u32, // of the last row, the most
}

var<immediate> task: Task;

@group(0) @binding(6) var<storage, read_write> split_parts: array<atomic<u32>>; // [rows, HEADS, splits, PART]
@group(0) @binding(7) var<storage, read_write> tickets: array<atomic<u32>>; // [rows, KV_HEADS UNITS], zeros before and after

var<workgroup> tokens: array<u32, SPLIT>;
// First the lanes' parts of the logits, [MOST_AT_ONCE, SPLIT, LANES]; at the end the teams' sums, [TEAMS, AT_ONCE, HEAD].
var<workgroup> parts: array<f32, 4096>;
var<workgroup> weights: array<f32, 512>; // [MOST_AT_ONCE, SPLIT]
var<workgroup> few: array<f32, 64>; // [2, MOST_AT_ONCE, 16]: largest logits, then sums of weights, of 16 tokens each

fn token_of(work: Work, i: u32) -> u32 {
    if i / BLOCK < work.kept {
        return blocks[work.row * TOPK + i / BLOCK] * BLOCK + i % BLOCK;
    }
    return work.tail + i - work.kept * BLOCK;
}

// The lanes' parts of the logits. A token past the last is read as the last one.
fn multiply(work: Work, here: u32, thread: u32) {
    let lane = thread % LANES;
    var begins: array<u32, OWN>;
    for (var i = 0u; i < OWN; i++) {
        let key = min(thread / LANES + i * (THREADS / LANES), here - 1u);
        begins[i] = (tokens[key] * KV_HEADS + work.kv_head) * LOADS;
    }
    var products: array<vec4<f32>, OWN * MOST_AT_ONCE>;
    for (var load = lane; load < LOADS; load += LANES) {
        var keys: array<vec4<u32>, OWN>;
        for (var i = 0u; i < OWN; i++) {
            keys[i] = cache_k[begins[i] + load];
        }
        for (var h = 0u; h < AT_ONCE; h++) {
            let a = queries[h * QUADS + load * WIDE];
            let b = queries[min(h * QUADS + load * WIDE + 1u, STAGED - 1u)];
            for (var i = 0u; i < OWN; i++) {
                let numbers = cells(keys[i]);
                var sum = fma(numbers[0], a, products[h * OWN + i]);
                if WIDE == 2u {
                    sum = fma(numbers[1], b, sum);
                }
                products[h * OWN + i] = sum;
            }
        }
    }
    for (var h = 0u; h < AT_ONCE; h++) {
        for (var i = 0u; i < OWN; i++) {
            let key = thread / LANES + i * (THREADS / LANES);
            parts[(h * SPLIT + key) * LANES + lane] = total(products[h * OWN + i]);
        }
    }
}

// The logit of a token; one past the last token is never the best.
fn logit_of(h: u32, key: u32, here: u32) -> f32 {
    if key >= here {
        return LOWEST;
    }
    var logit = 0.0;
    for (var lane = 0u; lane < LANES; lane++) {
        logit += parts[(h * SPLIT + key) * LANES + lane];
    }
    return logit * (1.0 / sqrt(f32(HEAD)));
}

// Turns the logits to weights in terms of the best one. Afterwards `best_of` and `sum_of` give a head's.
fn weigh(here: u32, thread: u32) {
    for (var h = 0u; h < AT_ONCE; h++) {
        weights[h * SPLIT + thread] = logit_of(h, thread, here);
    }
    workgroupBarrier();
    if thread < 16u * AT_ONCE {
        var best = LOWEST;
        for (var i = 0u; i < 16u; i++) {
            best = max(best, weights[thread * 16u + i]);
        }
        few[thread] = best;
    }
    workgroupBarrier();
    for (var h = 0u; h < AT_ONCE; h++) {
        let weight = exponential(weights[h * SPLIT + thread] - best_of(h));
        weights[h * SPLIT + thread] = select(0.0, weight, thread < here);
    }
    workgroupBarrier();
    if thread < 16u * AT_ONCE {
        var sum = 0.0;
        for (var i = 0u; i < 16u; i++) {
            sum += weights[thread * 16u + i];
        }
        few[16u * MOST_AT_ONCE + thread] = sum;
    }
}

fn best_of(h: u32) -> f32 {
    var best = LOWEST;
    for (var i = 0u; i < 16u; i++) {
        best = max(best, few[16u * h + i]);
    }
    return best;
}

fn sum_of(h: u32) -> f32 {
    var sum = 0.0;
    for (var i = 0u; i < 16u; i++) {
        sum += few[16u * (MOST_AT_ONCE + h) + i];
    }
    return sum;
}

// The teams' sums of the values.
fn add_values(work: Work, here: u32, thread: u32) {
    let load = thread % LOADS;
    let team = thread / LOADS;
    if team >= TEAMS {
        return;
    }
    var sums: array<vec4<f32>, 2u * MOST_AT_ONCE>;
    for (var first = team; first < here; first += OWN * TEAMS) {
        var values: array<vec4<u32>, OWN>;
        for (var i = 0u; i < OWN; i++) {
            let key = min(first + i * TEAMS, here - 1u);
            values[i] = cache_v[(tokens[key] * KV_HEADS + work.kv_head) * LOADS + load];
        }
        for (var i = 0u; i < OWN; i++) {
            if first + i * TEAMS < here {
                let numbers = cells(values[i]);
                for (var h = 0u; h < AT_ONCE; h++) {
                    let weight = vec4<f32>(weights[h * SPLIT + first + i * TEAMS]);
                    sums[2u * h] = fma(weight, numbers[0], sums[2u * h]);
                    if WIDE == 2u {
                        sums[2u * h + 1u] = fma(weight, numbers[1], sums[2u * h + 1u]);
                    }
                }
            }
        }
    }
    for (var h = 0u; h < AT_ONCE; h++) {
        for (var i = 0u; i < 4u * WIDE; i++) {
            parts[(team * AT_ONCE + h) * HEAD + load * 4u * WIDE + i] = sums[2u * h + i / 4u][i % 4u];
        }
    }
}

// Number `i` of a head, all teams added.
fn teams_sum(h: u32, i: u32) -> f32 {
    var value = 0.0;
    for (var t = 0u; t < TEAMS; t++) {
        value += parts[(t * AT_ONCE + h) * HEAD + i];
    }
    return value;
}

fn write(work: Work, h: u32, i: u32, value: f32) {
    let at = work.row * HEADS + work.head + h;
    out[at * HEAD + i] = value * sigmoid(gate[(2u * at + 1u) * HEAD + i]);
}

// Number at which a head's part of a split begins.
fn part_of(work: Work, h: u32, split: u32) -> u32 {
    return ((work.row * HEADS + work.head + h) * task.splits + split) * PART;
}

fn leave_part(work: Work, split: u32, thread: u32) {
    for (var h = 0u; h < work.heads; h++) {
        let begin = part_of(work, h, split);
        for (var i = thread; i < HEAD; i += THREADS) {
            atomicStore(&split_parts[begin + i], bitcast<u32>(teams_sum(h, i)));
        }
        if thread == 0u {
            atomicStore(&split_parts[begin + HEAD], bitcast<u32>(sum_of(h)));
            atomicStore(&split_parts[begin + HEAD + 1u], bitcast<u32>(best_of(h)));
        }
    }
}

fn number_of_part(at: u32) -> f32 {
    return bitcast<f32>(atomicLoad(&split_parts[at]));
}

// Numbers `i` of a head's parts of four splits from `split` on; a split past the last is read as the last one.
fn four_parts(work: Work, h: u32, split: u32, splits: u32, i: u32) -> vec4<f32> {
    return vec4<f32>(
        number_of_part(part_of(work, h, split) + i),
        number_of_part(part_of(work, h, min(split + 1u, splits - 1u)) + i),
        number_of_part(part_of(work, h, min(split + 2u, splits - 1u)) + i),
        number_of_part(part_of(work, h, min(split + 3u, splits - 1u)) + i),
    );
}

// Adds the splits of a row, in order. Their best logits and weights lie in `parts` first, [heads, splits, 2].
fn merge(work: Work, splits: u32, thread: u32) {
    for (var i = thread; i < 2u * work.heads * splits; i += THREADS) {
        let part = part_of(work, i / (2u * splits), i / 2u % splits);
        parts[i] = number_of_part(part + HEAD + i % 2u);
    }
    workgroupBarrier();
    for (var i = thread; i < work.heads * HEAD; i += THREADS) {
        let h = i / HEAD;
        var best = LOWEST;
        for (var split = 0u; split < splits; split++) {
            best = max(best, parts[2u * (h * splits + split) + 1u]);
        }
        var value = 0.0;
        var weight = 0.0;
        for (var first = 0u; first < splits; first += 4u) {
            let four = four_parts(work, h, first, splits, i % HEAD);
            for (var j = 0u; j < 4u; j++) {
                if first + j < splits {
                    let at = 2u * (h * splits + first + j);
                    let factor = exponential(parts[at + 1u] - best);
                    value = fma(factor, four[j], value);
                    weight = fma(factor, parts[at], weight);
                }
            }
        }
        write(work, h, i % HEAD, value / weight);
    }
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let work = work_of(group.x, group.z);
    let first = group.y * SPLIT;
    if first >= work.count {
        return;
    }
    let here = min(work.count - first, SPLIT);
    let splits = (work.count + SPLIT - 1u) / SPLIT;
    if thread < here {
        tokens[thread] = token_of(work, first + thread);
    }
    take_queries(work, thread);
    workgroupBarrier();
    multiply(work, here, thread);
    workgroupBarrier();
    weigh(here, thread);
    workgroupBarrier();
    add_values(work, here, thread);
    workgroupBarrier();
    if splits == 1u {
        for (var h = 0u; h < work.heads; h++) {
            for (var i = thread; i < HEAD; i += THREADS) {
                write(work, h, i, teams_sum(h, i) / sum_of(h));
            }
        }
        return;
    }
    leave_part(work, group.y, thread);
    if arrives_last(work.row * KV_HEADS * UNITS + group.x, splits, thread) {
        merge(work, splits, thread);
    }
}
