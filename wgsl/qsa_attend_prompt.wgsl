// Softmax attention over the kept blocks and the open tail, and the output gate (architecture.md 7.4):
//
//     p = softmax(q . k / sqrt(HEAD)) over the kept tokens    out = sum p v * sigmoid(gate)
//
// A workgroup has one row and AT_ONCE of the query heads that share a key head. It walks the row's tokens ascending,
// in tiles of TILE, with the online softmax: `best` is the largest logit so far, and sums are in terms of it. LANES lanes
// share a logit; TEAMS teams share the sum of the values, team t adding the tokens t, t + TEAMS, ... of each tile.
//
// Row invariance: which tokens a row has, and so its tiles, follows from its own position and its own blocks. Lanes, teams
// and tiles are added in order; the tokens that the last tile lacks are not added at all.

override THREADS: u32; // of a workgroup, at least TILE

const TILE = 64u;
const MOST_AT_ONCE = 4u;

struct Task {
    first: u32, // rows in the cache before row 0
}

var<immediate> task: Task;

var<workgroup> tokens: array<u32, 128>; // [2, TILE]: of this tile and of the next one
// First the lanes' parts of the logits, [MOST_AT_ONCE, TILE, LANES]; at the end the teams' sums, [TEAMS, HEAD].
var<workgroup> parts: array<f32, 2048>;
var<workgroup> logits: array<f32, 256>; // [MOST_AT_ONCE, TILE]
var<workgroup> weights: array<f32, 256>; // [MOST_AT_ONCE, TILE]
var<workgroup> totals: array<f32, THREADS>; // [TEAMS]

// What a thread has of the sums of its team.
var<private> best: array<f32, MOST_AT_ONCE>;
var<private> weight_sums: array<f32, MOST_AT_ONCE>;
var<private> sums: array<vec4<f32>, 8>; // [MOST_AT_ONCE, 2]

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

// The lanes' parts of the logits of a tile.
fn multiply(work: Work, tile: u32, thread: u32) {
    let lane = thread % LANES;
    for (var key = thread / LANES; key < min(work.count - tile * TILE, TILE); key += THREADS / LANES) {
        let at = (tokens[tile % 2u * TILE + key] * KV_HEADS + work.kv_head) * LOADS;
        var products: array<vec4<f32>, MOST_AT_ONCE>;
        for (var load = lane; load < LOADS; load += LANES) {
            let numbers = cells(cache_k[at + load]);
            for (var h = 0u; h < AT_ONCE; h++) {
                products[h] = fma(numbers[0], queries[h * QUADS + load * WIDE], products[h]);
                if WIDE == 2u {
                    products[h] = fma(numbers[1], queries[h * QUADS + load * WIDE + 1u], products[h]);
                }
            }
        }
        for (var h = 0u; h < AT_ONCE; h++) {
            parts[(h * TILE + key) * LANES + lane] = total(products[h]);
        }
    }
}

// The logits of a tile; one past the last token is never the best.
fn add_lanes(here: u32, thread: u32) {
    for (var i = thread; i < AT_ONCE * TILE; i += THREADS) {
        var logit = LOWEST;
        if i % TILE < here {
            logit = 0.0;
            for (var lane = 0u; lane < LANES; lane++) {
                logit += parts[i * LANES + lane];
            }
            logit *= 1.0 / sqrt(f32(HEAD));
        }
        logits[i] = logit;
    }
}

// Turns the sums to the best logit of all tiles so far, and makes the weights of this one.
fn turn(thread: u32) {
    for (var h = 0u; h < AT_ONCE; h++) {
        var now = best[h];
        for (var i = 0u; i < TILE; i++) {
            now = max(now, logits[h * TILE + i]);
        }
        let factor = exponential(best[h] - now);
        best[h] = now;
        weight_sums[h] *= factor;
        sums[2u * h] *= factor;
        sums[2u * h + 1u] *= factor;
        if thread < TILE {
            weights[h * TILE + thread] = exponential(logits[h * TILE + thread] - now);
        }
    }
}

// Adds the values of a tile.
fn add_values(work: Work, tile: u32, here: u32, thread: u32) {
    let load = thread % LOADS;
    if thread / LOADS >= TEAMS {
        return;
    }
    for (var key = thread / LOADS; key < here; key += TEAMS) {
        let at = (tokens[tile % 2u * TILE + key] * KV_HEADS + work.kv_head) * LOADS;
        let numbers = cells(cache_v[at + load]);
        for (var h = 0u; h < AT_ONCE; h++) {
            let weight = weights[h * TILE + key];
            weight_sums[h] += weight;
            sums[2u * h] = fma(vec4<f32>(weight), numbers[0], sums[2u * h]);
            if WIDE == 2u {
                sums[2u * h + 1u] = fma(vec4<f32>(weight), numbers[1], sums[2u * h + 1u]);
            }
        }
    }
}

// Adds the teams of a head and writes it.
fn finish(work: Work, h: u32, thread: u32) {
    let team = thread / LOADS;
    if team < TEAMS {
        for (var i = 0u; i < 4u * WIDE; i++) {
            parts[team * HEAD + thread % LOADS * 4u * WIDE + i] = sums[2u * h + i / 4u][i % 4u];
        }
        totals[team] = weight_sums[h];
    }
    workgroupBarrier();
    if h < work.heads {
        for (var i = thread; i < HEAD; i += THREADS) {
            var value = 0.0;
            var weight = 0.0;
            for (var t = 0u; t < TEAMS; t++) {
                value += parts[t * HEAD + i];
                weight += totals[t];
            }
            let at = work.row * HEADS + work.head + h;
            out[at * HEAD + i] = value / weight * sigmoid(gate[(2u * at + 1u) * HEAD + i]);
        }
    }
    workgroupBarrier();
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let work = work_of(group.x, group.y);
    take_queries(work, thread);
    for (var h = 0u; h < MOST_AT_ONCE; h++) {
        best[h] = LOWEST;
    }
    find_tokens(work, 0u, thread);
    workgroupBarrier();
    for (var tile = 0u; tile * TILE < work.count; tile++) {
        let here = min(work.count - tile * TILE, TILE);
        multiply(work, tile, thread);
        workgroupBarrier();
        find_tokens(work, tile + 1u, thread);
        add_lanes(here, thread);
        workgroupBarrier();
        turn(thread);
        workgroupBarrier();
        add_values(work, tile, here, thread);
    }
    workgroupBarrier();
    for (var h = 0u; h < AT_ONCE; h++) {
        finish(work, h, thread);
    }
}
