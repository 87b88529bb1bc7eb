// Norms, rotation, growth of the cache, and pooling of the blocks that the new rows complete (architecture.md 7.1, 7.2):
//
//     q, k, index_q = rope(x / sqrt(mean(x^2) + eps) * norm)    v and raw as they are
//     pooled[j] = the same of the mean of the block's stored raw rows, at the block's first position
//     rope(x)[i] = x[i] cos - x[i + ROTARY / 2] sin    rope(x)[i + ROTARY / 2] = x[i + ROTARY / 2] cos + x[i] sin
//
// A workgroup has one head of one row, or the block that a row completes. Raw rows of this pass are not in the cache
// yet when a block needs them, so they are taken from the inputs and rounded as the cache rounds them (engine.md 3.3).
//
// Row invariance: a head is normed and rotated alone: each thread adds every THREADS-th square in order, then a tree adds
// the threads. A block is the sum of its stored rows, in row order, wherever passes end (engine.md 3.7g).

override THREADS: u32; // of a workgroup, a power of two
override HEADS: u32; // query heads
override KV_HEADS: u32; // key heads and value heads
override HEAD: u32; // numbers in a head, even
override ROTARY: u32; // leading numbers that are rotated
override INDEX_HEADS: u32; // query heads of the indexer
override INDEX: u32; // numbers in an indexer head, even
override WIDEST: u32; // the larger of HEAD and INDEX
override BLOCK: u32; // rows in a block

// What a workgroup makes.
const Q = 0u;
const K = 1u;
const V = 2u;
const INDEX_Q = 3u;
const RAW = 4u;
const POOLED = 5u;

struct Task {
    first: u32, // rows in the cache before row 0
    eps: f32,
}

var<immediate> task: Task;

@group(0) @binding(0) var<storage, read> q: array<f32>; // [rows, HEADS, 2, HEAD]
@group(0) @binding(1) var<storage, read> kv: array<f32>; // [rows, 2, KV_HEADS, HEAD]
@group(0) @binding(2) var<storage, read> index: array<f32>; // [rows, INDEX_HEADS + 1, INDEX]
@group(0) @binding(3) var<storage, read> rope: array<f32>; // [rows, ROTARY / 2, 2] cosine, sine
@group(0) @binding(4) var<storage, read> block_rope: array<f32>; // [blocks completed, ROTARY / 2, 2]
@group(0) @binding(5) var<storage, read> norm_q: array<f32>; // [HEAD]
@group(0) @binding(6) var<storage, read> norm_k: array<f32>; // [HEAD]
@group(0) @binding(7) var<storage, read> norm_index_q: array<f32>; // [INDEX]
@group(0) @binding(8) var<storage, read> norm_index_k: array<f32>; // [INDEX]
@group(0) @binding(9) var<storage, read_write> cache_k: array<u32>; // [first + rows, KV_HEADS, HEAD] cells
@group(0) @binding(10) var<storage, read_write> cache_v: array<u32>; // [first + rows, KV_HEADS, HEAD] cells
@group(0) @binding(11) var<storage, read_write> cache_raw: array<u32>; // [first + rows, INDEX] cells
@group(0) @binding(12) var<storage, read_write> cache_pooled: array<u32>; // [(first + rows) / BLOCK, INDEX] cells
@group(0) @binding(13) var<storage, read_write> q_out: array<f32>; // [rows, HEADS, HEAD]
@group(0) @binding(14) var<storage, read_write> index_q_out: array<f32>; // [rows, INDEX_HEADS, INDEX]

var<workgroup> staged: array<f32, WIDEST>; // the head or the mean, not normed
var<workgroup> squares: array<f32, THREADS>;

struct Place {
    kind: u32,
    head: u32,
    row: u32,
}

fn place_of(unit: u32, row: u32) -> Place {
    if unit < HEADS {
        return Place(Q, unit, row);
    }
    let kv_unit = unit - HEADS;
    if kv_unit < 2u * KV_HEADS {
        return Place(select(K, V, kv_unit >= KV_HEADS), kv_unit % KV_HEADS, row);
    }
    let index_unit = kv_unit - 2u * KV_HEADS;
    if index_unit < INDEX_HEADS {
        return Place(INDEX_Q, index_unit, row);
    }
    return Place(select(RAW, POOLED, index_unit > INDEX_HEADS), 0u, row);
}

// Number `i` of the raw row at a position, as it is stored.
fn stored_raw(position: u32, i: u32) -> f32 {
    if position >= task.first {
        let x = index[((position - task.first) * (INDEX_HEADS + 1u) + INDEX_HEADS) * INDEX + i];
        return select(through_bf16(x), x, SCALAR == F32);
    }
    let at = position * INDEX + i;
    return number_in(cache_raw[word_of(at, SCALAR)], at, SCALAR);
}

// Number `i` of the mean of the block that ends with a row.
fn mean(row: u32, i: u32) -> f32 {
    let begin = task.first + row + 1u - BLOCK;
    var sum = 0.0;
    for (var token = 0u; token < BLOCK; token++) {
        sum += stored_raw(begin + token, i);
    }
    return sum / f32(BLOCK);
}

// Number `i` of the inputs.
fn source(place: Place, i: u32) -> f32 {
    switch place.kind {
        case Q: {
            return q[(place.row * HEADS + place.head) * 2u * HEAD + i];
        }
        case K: {
            return kv[(2u * place.row * KV_HEADS + place.head) * HEAD + i];
        }
        case V: {
            return kv[((2u * place.row + 1u) * KV_HEADS + place.head) * HEAD + i];
        }
        case INDEX_Q: {
            return index[(place.row * (INDEX_HEADS + 1u) + place.head) * INDEX + i];
        }
        case RAW: {
            return index[(place.row * (INDEX_HEADS + 1u) + INDEX_HEADS) * INDEX + i];
        }
        default: {
            return mean(place.row, i);
        }
    }
}

fn norm_at(kind: u32, i: u32) -> f32 {
    switch kind {
        case Q: {
            return norm_q[i];
        }
        case K: {
            return norm_k[i];
        }
        case INDEX_Q: {
            return norm_index_q[i];
        }
        default: {
            return norm_index_k[i];
        }
    }
}

// 1 / sqrt(mean(x^2) + eps) of what is staged.
fn measure(width: u32, thread: u32) -> f32 {
    var sum = 0.0;
    for (var i = thread; i < width; i += THREADS) {
        sum = fma(staged[i], staged[i], sum);
    }
    squares[thread] = sum;
    workgroupBarrier();
    for (var apart = THREADS / 2u; apart > 0u; apart /= 2u) {
        if thread < apart {
            squares[thread] += squares[thread + apart];
        }
        workgroupBarrier();
    }
    return 1.0 / sqrt(squares[0] / f32(width) + task.eps);
}

// Cosine and sine of angle `i` of a row, or of the first row of the block that it completes.
fn angle(place: Place, i: u32) -> vec2<f32> {
    if place.kind == POOLED {
        let done = (task.first + place.row + 1u) / BLOCK - 1u - task.first / BLOCK;
        return vec2<f32>(block_rope[done * ROTARY + 2u * i], block_rope[done * ROTARY + 2u * i + 1u]);
    }
    return vec2<f32>(rope[place.row * ROTARY + 2u * i], rope[place.row * ROTARY + 2u * i + 1u]);
}

fn normed(place: Place, factor: f32, i: u32) -> f32 {
    return staged[i] * factor * norm_at(place.kind, i);
}

// Number `i` of what comes out.
fn result(place: Place, factor: f32, i: u32) -> f32 {
    if place.kind == V || place.kind == RAW {
        return staged[i];
    }
    let x = normed(place, factor, i);
    if i >= ROTARY {
        return x;
    }
    let between = ROTARY / 2u;
    if i < between {
        let turn = angle(place, i);
        return x * turn.x - normed(place, factor, i + between) * turn.y;
    }
    let turn = angle(place, i - between);
    return x * turn.x + normed(place, factor, i - between) * turn.y;
}

// Writes word `i` of a row of the cache.
fn store(place: Place, words: u32, i: u32, word: u32) {
    let position = task.first + place.row;
    switch place.kind {
        case K: {
            cache_k[(position * KV_HEADS + place.head) * words + i] = word;
        }
        case V: {
            cache_v[(position * KV_HEADS + place.head) * words + i] = word;
        }
        case RAW: {
            cache_raw[position * words + i] = word;
        }
        default: {
            cache_pooled[((position + 1u) / BLOCK - 1u) * words + i] = word;
        }
    }
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let place = place_of(group.x, group.y);
    if place.kind == POOLED && (task.first + place.row + 1u) % BLOCK != 0u {
        return;
    }
    let width = select(HEAD, INDEX, place.kind >= INDEX_Q);
    for (var i = thread; i < width; i += THREADS) {
        staged[i] = source(place, i);
    }
    workgroupBarrier();
    let factor = measure(width, thread);
    if place.kind == Q {
        for (var i = thread; i < width; i += THREADS) {
            q_out[(place.row * HEADS + place.head) * HEAD + i] = result(place, factor, i);
        }
    } else if place.kind == INDEX_Q {
        for (var i = thread; i < width; i += THREADS) {
            index_q_out[(place.row * INDEX_HEADS + place.head) * INDEX + i] = result(place, factor, i);
        }
    } else if SCALAR == F32 {
        for (var i = thread; i < width; i += THREADS) {
            store(place, width, i, bitcast<u32>(result(place, factor, i)));
        }
    } else {
        // A thread has whole words: two numbers share one.
        for (var i = thread; i < width / 2u; i += THREADS) {
            let word = bf16_word(result(place, factor, 2u * i), result(place, factor, 2u * i + 1u));
            store(place, width / 2u, i, word);
        }
    }
}
