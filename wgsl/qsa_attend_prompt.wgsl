// Softmax attention over the kept blocks and the open tail, and the output gate (architecture.md 7.4):
//
//     p = softmax(q . k / sqrt(HEAD)) over the kept tokens    out = sum p v * sigmoid(gate)
//
// A workgroup has one row and AT_ONCE of the query heads that share a key head. It walks the row's tokens ascending,
// in tiles of TILE, with the online softmax: `best` is the largest logit so far, and sums are in terms of it. Logits are made
// in PARTS parts, part p of every PARTS-th 16 bytes of a key; a thread has a part of four keys and a share of the heads.
// TEAMS teams share the sum of the values, team t adding the tokens t, t + TEAMS, ... of each tile.
//
// Row invariance: which tokens a row has, and so its tiles, follows from its own position and its own blocks. Parts, teams
// and tiles are added in order; the tokens that the last tile lacks are not added at all.

override THREADS: u32; // of a workgroup: four times TILE

const TILE = 64u;
const MOST_AT_ONCE = 12u;
const PARTS = 4u; // of a logit
const SHARES = 4u; // of the heads
const SHARE = 3u; // heads of a share, at most
const ROUND = 16u; // keys between those of a thread, threads that look for the best logit of a head
const KEYS = 4u; // keys of a thread: TILE / ROUND

struct Task {
    first: u32, // rows in the cache before row 0
}

var<immediate> task: Task;

override VALUE_TEAMS: u32; // TEAMS, at most 8

var<workgroup> tokens: array<u32, 128>; // [2, TILE]: of this tile and of the next one
// First the parts of the logits, [PARTS, MOST_AT_ONCE, TILE]; at the end the teams' sums of a head, [TEAMS, HEAD].
var<workgroup> parts: array<f32, 3072>;
var<workgroup> logits: array<f32, 768>; // [MOST_AT_ONCE, TILE], then the weights
var<workgroup> bests: array<f32, 192>; // [MOST_AT_ONCE, ROUND]: of some logits of a tile
var<workgroup> turns: array<f32, 12>; // [MOST_AT_ONCE]: what turns earlier sums to the best logit now
var<workgroup> team_totals: array<f32, 8>; // [TEAMS]

// The best logit so far of the head whose logits this thread looks at.
var<private> best: f32;

// A quad of each head of a share. What is indexed drivers keep in memory, so that heads are named.
struct Three {
    a: vec4<f32>,
    b: vec4<f32>,
    c: vec4<f32>,
}

// What a thread has of the sums of its team, for the heads of its share: of the weights, of the first and the second quad
// of its 16 bytes of the values.
var<private> weight_sums: vec3<f32>;
var<private> first_sums: Three;
var<private> second_sums: Three;

// sum + x * y, the quad of a head with that of the same head.
fn added(sum: Three, x: vec4<f32>, y: Three) -> Three {
    return Three(fma(x, y.a, sum.a), fma(x, y.b, sum.b), fma(x, y.c, sum.c));
}

// sum + x * y, the quad with a number of each head.
fn weighed(sum: Three, x: vec4<f32>, y: vec3<f32>) -> Three {
    return Three(
        fma(x, vec4<f32>(y.x), sum.a),
        fma(x, vec4<f32>(y.y), sum.b),
        fma(x, vec4<f32>(y.z), sum.c),
    );
}

fn turned(sum: Three, factor: vec3<f32>) -> Three {
    return Three(sum.a * factor.x, sum.b * factor.y, sum.c * factor.z);
}

// Number of a share's heads; past the last one, the last one.
fn heads_of(share: u32) -> vec3<u32> {
    return min(vec3<u32>(share * SHARE) + vec3<u32>(0u, 1u, 2u), vec3<u32>(AT_ONCE - 1u));
}

fn queries_at(heads: vec3<u32>, quad: u32) -> Three {
    let at = heads * QUADS + quad;
    return Three(queries[at.x], queries[at.y], queries[at.z]);
}

// Finds the tokens of a tile.
fn find_tokens(work: Work, tile: u32, thread: u32) {
    let i = tile * TILE + thread;
    if thread < TILE && i < work.count {
        var token = work.tail + i - work.kept * BLOCK;
        if i / BLOCK < work.kept {
            token = blocks[work.row * TOPK + i / BLOCK] * BLOCK + i % BLOCK;
        }
        tokens[tile % 2u * TILE + thread] = token;
    }
}

// Where key `i` of a tile lies; a key past the last one is read as the last one and not used.
fn key_at(work: Work, tile: u32, i: u32, here: u32) -> u32 {
    return (tokens[tile % 2u * TILE + min(i, here - 1u)] * KV_HEADS + work.kv_head) * LOADS;
}

// Products of 16 bytes of a key with the queries there.
fn multiplied(sum: Three, at: u32, x: Three, y: Three) -> Three {
    let numbers = cells(cache_k[at]);
    let first = added(sum, numbers[0], x);
    if WIDE == 2u {
        return added(first, numbers[1], y);
    }
    return first;
}

fn put_part(part: u32, share: u32, key: u32, sum: Three) {
    let at = (part * MOST_AT_ONCE + share * SHARE) * TILE + key;
    parts[at] = total(sum.a);
    parts[at + TILE] = total(sum.b);
    parts[at + 2u * TILE] = total(sum.c);
}

// The parts of the logits of a tile.
fn multiply(work: Work, tile: u32, here: u32, thread: u32) {
    let key = thread % ROUND;
    let part = thread / ROUND % PARTS;
    let share = thread / TILE;
    if share * SHARE >= AT_ONCE {
        return;
    }
    let heads = heads_of(share);
    let at_0 = key_at(work, tile, key, here);
    let at_1 = key_at(work, tile, key + ROUND, here);
    let at_2 = key_at(work, tile, key + 2u * ROUND, here);
    let at_3 = key_at(work, tile, key + 3u * ROUND, here);
    var sum_0 = Three();
    var sum_1 = Three();
    var sum_2 = Three();
    var sum_3 = Three();
    for (var load = part; load < LOADS; load += PARTS) {
        let x = queries_at(heads, load * WIDE);
        let y = queries_at(heads, load * WIDE + WIDE - 1u);
        sum_0 = multiplied(sum_0, at_0 + load, x, y);
        sum_1 = multiplied(sum_1, at_1 + load, x, y);
        sum_2 = multiplied(sum_2, at_2 + load, x, y);
        sum_3 = multiplied(sum_3, at_3 + load, x, y);
    }
    put_part(part, share, key, sum_0);
    put_part(part, share, key + ROUND, sum_1);
    put_part(part, share, key + 2u * ROUND, sum_2);
    put_part(part, share, key + 3u * ROUND, sum_3);
}

// The logits of a tile, four of a head a thread, and the best of these; one past the last token is never the best.
fn add_parts(here: u32, thread: u32) {
    let head = thread / ROUND;
    if head >= AT_ONCE {
        return;
    }
    var now = LOWEST;
    for (var c = 0u; c < KEYS; c++) {
        let key = thread % ROUND + c * ROUND;
        var logit = LOWEST;
        if key < here {
            logit = 0.0;
            for (var part = 0u; part < PARTS; part++) {
                logit += parts[(part * MOST_AT_ONCE + head) * TILE + key];
            }
            logit *= 1.0 / sqrt(f32(HEAD));
        }
        logits[head * TILE + key] = logit;
        now = max(now, logit);
    }
    bests[thread] = now;
}

// The weights of a tile, and what turns the sums to the best logit of all tiles so far.
fn weigh(thread: u32) {
    let head = thread / ROUND;
    if head >= AT_ONCE {
        return;
    }
    var now = best;
    for (var i = 0u; i < ROUND; i++) {
        now = max(now, bests[head * ROUND + i]);
    }
    if thread % ROUND == 0u {
        turns[head] = exponential(best - now);
    }
    best = now;
    for (var c = 0u; c < KEYS; c++) {
        let key = thread % ROUND + c * ROUND;
        logits[head * TILE + key] = exponential(logits[head * TILE + key] - now);
    }
}

// Turns the sums, and adds the values of a tile.
fn add_values(work: Work, tile: u32, here: u32, thread: u32) {
    let load = thread % LOADS;
    let share = thread / LOADS % SHARES;
    let team = thread / (LOADS * SHARES);
    if team >= VALUE_TEAMS || share * SHARE >= AT_ONCE {
        return;
    }
    let heads = heads_of(share);
    let factor = vec3<f32>(turns[heads.x], turns[heads.y], turns[heads.z]);
    let rows = heads * TILE;
    var totals = weight_sums * factor;
    var first = turned(first_sums, factor);
    var second = turned(second_sums, factor);
    for (var key = team; key < here; key += VALUE_TEAMS) {
        let numbers = cells(cache_v[key_at(work, tile, key, here) + load]);
        let weight = vec3<f32>(logits[rows.x + key], logits[rows.y + key], logits[rows.z + key]);
        totals += weight;
        first = weighed(first, numbers[0], weight);
        if WIDE == 2u {
            second = weighed(second, numbers[1], weight);
        }
    }
    weight_sums = totals;
    first_sums = first;
    second_sums = second;
}

// What a thread has of a head.
struct Own {
    weight: f32,
    first: vec4<f32>,
    second: vec4<f32>,
}

fn put_quad(at: u32, quad: vec4<f32>) {
    parts[at] = quad.x;
    parts[at + 1u] = quad.y;
    parts[at + 2u] = quad.z;
    parts[at + 3u] = quad.w;
}

// Adds the teams of a head of share `share` and writes it.
fn finish(work: Work, share: u32, head: u32, own: Own, thread: u32) {
    let team = thread / (LOADS * SHARES);
    if team < VALUE_TEAMS && thread / LOADS % SHARES == share {
        let at = team * HEAD + thread % LOADS * 4u * WIDE;
        put_quad(at, own.first);
        if WIDE == 2u {
            put_quad(at + 4u, own.second);
        }
        team_totals[team] = own.weight;
    }
    workgroupBarrier();
    if head < work.heads {
        for (var i = thread; i < HEAD; i += THREADS) {
            var value = 0.0;
            var weight = 0.0;
            for (var t = 0u; t < VALUE_TEAMS; t++) {
                value += parts[t * HEAD + i];
                weight += team_totals[t];
            }
            let at = work.row * HEADS + work.head + head;
            out[at * HEAD + i] = value / weight * sigmoid(gate[(2u * at + 1u) * HEAD + i]);
        }
    }
    workgroupBarrier();
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let work = work_of(group.x, group.y);
    take_queries(work, thread);
    best = LOWEST;
    find_tokens(work, 0u, thread);
    workgroupBarrier();
    for (var tile = 0u; tile * TILE < work.count; tile++) {
        let here = min(work.count - tile * TILE, TILE);
        multiply(work, tile, here, thread);
        workgroupBarrier();
        find_tokens(work, tile + 1u, thread);
        add_parts(here, thread);
        workgroupBarrier();
        weigh(thread);
        workgroupBarrier();
        add_values(work, tile, here, thread);
    }
    workgroupBarrier();
    for (var share = 0u; share < SHARES; share++) {
        let head = share * SHARE;
        finish(work, share, head, Own(weight_sums.x, first_sums.a, second_sums.a), thread);
        finish(work, share, head + 1u, Own(weight_sums.y, first_sums.b, second_sums.b), thread);
        finish(work, share, head + 2u, Own(weight_sums.z, first_sums.c, second_sums.c), thread);
    }
}
