// Softmax attention over the kept blocks and the open tail, and the output gate (architecture.md 7.4), where matrix units
// multiply:
//
//     p = softmax(q . k / sqrt(HEAD)) over the kept tokens    out = sum p v * sigmoid(gate)
//
// A workgroup has one row and the query heads that share a key head, GROUP_HEADS at most: the rows of its matrices. It walks
// the row's tokens ascending, in tiles of TILE, and a tile's keys and values in parts of PART numbers. Queries, keys, values
// and weights are F16, sums F32 (engine.md 3.5); keys and values are BF16, which F16 holds but for its range. Softmax is F32.
//
// Weights are in terms of `base`, a logit that is at most SLACK below the best one so far, so that it seldom moves: when it
// does, all sums so far go through workgroup memory to be turned to the new one.
//
// Row invariance: which tokens a row has, and so its tiles, follows from its own position and its own blocks, and when the
// base moves from its own logits. The units add in an order that does not depend on the row (proved on each device by
// `ss selftest`).

override SUBGROUP: u32; // threads of a subgroup

const THREADS = 128u;
const TILE = 64u;
const TILE_LOADS = 8u; // 16 bytes of a part of a key
const FETCHED = 4u; // of them a thread's: TILE * TILE_LOADS / THREADS
const LANES_OF_HEAD = 8u; // threads of a head: THREADS / GROUP_HEADS
const SLACK = 8.0; // e^SLACK is in the range of F16
const HIGHEST_F16 = 65504.0;

struct Task {
    first: u32, // rows in the cache before row 0
}

var<immediate> task: Task;

override PARTS: u32 = (HEAD + PART - 1u) / PART; // at most MOST_PARTS

var<workgroup> tokens: array<u32, 128>; // [2, TILE]: of this tile and of the next one
var<workgroup> bests: array<f32, 128>; // [GROUP_HEADS, LANES_OF_HEAD]
var<workgroup> turns: array<f32, 16>; // [GROUP_HEADS]: what turns earlier sums to the base of now
var<workgroup> turned: array<atomic<u32>, 4>; // whether a base moved, in the first

// Of the head whose logits this thread looks at.
var<private> base: f32;
var<private> weight_sum: f32;

// What a thread has fetched and not yet put down: the next part of keys or values, while the part before is multiplied.
alias Fetched = array<vec4<u32>, FETCHED>;

// Numbers that F16 holds.
fn bounded(x: vec4<f32>) -> vec4<f32> {
    return clamp(x, vec4<f32>(-HIGHEST_F16), vec4<f32>(HIGHEST_F16));
}

fn stage_queries(work: Work, thread: u32) {
    for (var i = thread; i < GROUP_HEADS * PARTS * PART / 4u; i += THREADS) {
        let h = i / (PARTS * PART / 4u);
        let quad = i % (PARTS * PART / 4u);
        var x = vec4<f32>();
        if h < work.heads && quad < QUADS {
            x = q[(work.row * HEADS + work.head + h) * QUADS + quad];
        }
        put_query(h, quad, bounded(x));
    }
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

// Tokens of a tile that has some.
fn tokens_in(work: Work, tile: u32) -> u32 {
    return min(work.count - tile * TILE, TILE);
}

// Where load `i` of a thread lies in the cache; a key past the last one is read as the last one.
fn load_at(work: Work, tile: u32, here: u32, i: u32) -> u32 {
    return (tokens[tile % 2u * TILE + min(i / TILE_LOADS, here - 1u)] * KV_HEADS + work.kv_head) * LOADS + i % TILE_LOADS;
}

fn fetch_keys(next: ptr<function, Fetched>, work: Work, tile: u32, part: u32, thread: u32) {
    let here = tokens_in(work, tile);
    for (var n = 0u; n < FETCHED; n++) {
        (*next)[n] = vec4<u32>();
        if part * TILE_LOADS + thread % TILE_LOADS < LOADS {
            (*next)[n] = cache_k[load_at(work, tile, here, thread + n * THREADS) + part * TILE_LOADS];
        }
    }
}

fn fetch_values(next: ptr<function, Fetched>, work: Work, tile: u32, part: u32, thread: u32) {
    let here = tokens_in(work, tile);
    for (var n = 0u; n < FETCHED; n++) {
        (*next)[n] = vec4<u32>();
        if part * TILE_LOADS + thread % TILE_LOADS < LOADS {
            (*next)[n] = cache_v[load_at(work, tile, here, thread + n * THREADS) + part * TILE_LOADS];
        }
    }
}

fn put_fetched(next: ptr<function, Fetched>, thread: u32) {
    for (var n = 0u; n < FETCHED; n++) {
        let numbers = cells((*next)[n]);
        let at = thread + n * THREADS;
        put_cells(at / TILE_LOADS, at % TILE_LOADS * 2u, bounded(numbers[0]));
        put_cells(at / TILE_LOADS, at % TILE_LOADS * 2u + 1u, bounded(numbers[1]));
    }
}

// The logit of key `i` of a tile; one past the last is never the best and weighs nothing.
fn logit(head: u32, i: u32, here: u32) -> f32 {
    return select(LOWEST, strip[head * STRIP_PITCH + i] * (1.0 / sqrt(f32(HEAD))), i < here);
}

// The best of a thread's logits.
fn find_best(here: u32, thread: u32) {
    let head = thread / LANES_OF_HEAD;
    let first = thread % LANES_OF_HEAD * 8u;
    var now = LOWEST;
    for (var i = 0u; i < 8u; i++) {
        now = max(now, logit(head, first + i, here));
    }
    bests[thread] = now;
}

// Moves the base if it must.
fn move_base(thread: u32) {
    let head = thread / LANES_OF_HEAD;
    var now = LOWEST;
    for (var i = 0u; i < LANES_OF_HEAD; i++) {
        now = max(now, bests[head * LANES_OF_HEAD + i]);
    }
    var turn = 1.0;
    if now > base + SLACK {
        turn = exponential(base - now);
        // Nothing is there to turn before the first tile.
        if base > LOWEST {
            atomicOr(&turned[0], 1u);
        }
        base = now;
    }
    if thread % LANES_OF_HEAD == 0u {
        turns[head] = turn;
    }
    weight_sum *= turn;
}

// The weights of four keys of a tile, as the units see them.
fn weigh(head: u32, first: u32, here: u32) {
    var weights: vec4<f32>;
    for (var i = 0u; i < 4u; i++) {
        weights[i] = exponential(logit(head, first + i, here) - base);
    }
    let rounded = through_f16_quad(weights);
    weight_sum += total(rounded);
    put_weights(head, first / 4u, rounded);
}

// Turns all sums to the base of now, a part after the other.
fn turn_sums(thread: u32) {
    for (var part = 0u; part < PARTS; part++) {
        workgroupBarrier();
        put_sums(part, thread);
        workgroupBarrier();
        for (var i = thread; i < GROUP_HEADS * PART; i += THREADS) {
            let at = i / PART * STRIP_PITCH + i % PART;
            strip[at] = strip[at] * turns[i / PART];
        }
        workgroupBarrier();
        take_sums(part, thread);
    }
}

// Writes what a head's sums come to.
fn finish(work: Work, thread: u32) {
    bests[thread] = weight_sum;
    for (var part = 0u; part < PARTS; part++) {
        workgroupBarrier();
        put_sums(part, thread);
        workgroupBarrier();
        for (var i = thread; i < GROUP_HEADS * PART; i += THREADS) {
            let h = i / PART;
            let number = part * PART + i % PART;
            if h < work.heads && number < HEAD {
                var weight = 0.0;
                for (var lane = 0u; lane < LANES_OF_HEAD; lane++) {
                    weight += bests[h * LANES_OF_HEAD + lane];
                }
                let at = work.row * HEADS + work.head + h;
                let value = strip[h * STRIP_PITCH + i % PART] / weight;
                out[at * HEAD + number] = value * sigmoid(gate[(2u * at + 1u) * HEAD + number]);
            }
        }
    }
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let work = work_of(group.x, group.y);
    let head = thread / LANES_OF_HEAD;
    let first = thread % LANES_OF_HEAD * 8u;
    stage_queries(work, thread);
    base = LOWEST;
    weight_sum = 0.0;
    begin_sums();
    find_tokens(work, 0u, thread);
    if thread == 0u {
        atomicStore(&turned[0], 0u);
    }
    workgroupBarrier();
    var next: Fetched;
    fetch_keys(&next, work, 0u, 0u, thread);
    for (var tile = 0u; tile * TILE < work.count; tile++) {
        let here = tokens_in(work, tile);
        begin_logits();
        for (var part = 0u; part < PARTS; part++) {
            workgroupBarrier();
            put_fetched(&next, thread);
            workgroupBarrier();
            if part + 1u < PARTS {
                fetch_keys(&next, work, tile, part + 1u, thread);
            } else {
                fetch_values(&next, work, tile, 0u, thread);
            }
            add_logits(part, thread);
        }
        put_logits(thread);
        find_tokens(work, tile + 1u, thread);
        workgroupBarrier();
        find_best(here, thread);
        workgroupBarrier();
        move_base(thread);
        weigh(head, first, here);
        weigh(head, first + 4u, here);
        workgroupBarrier();
        if atomicLoad(&turned[0]) == 1u {
            turn_sums(thread);
            workgroupBarrier();
            if thread == 0u {
                atomicStore(&turned[0], 0u);
            }
        }
        for (var part = 0u; part < PARTS; part++) {
            workgroupBarrier();
            put_fetched(&next, thread);
            workgroupBarrier();
            if part + 1u < PARTS {
                fetch_values(&next, work, tile, part + 1u, thread);
            } else if (tile + 1u) * TILE < work.count {
                fetch_keys(&next, work, tile + 1u, 0u, thread);
            }
            add_values(part, thread);
        }
    }
    finish(work, thread);
}
