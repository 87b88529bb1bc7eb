// The logits of a row as they may be drawn from, and where the largest of them are (engine.md 5.3):
//
//     l = logits[r, id] + bias[id]
//     adjusted[r, id] = l * factor - penalty, or -inf where the id may not be drawn
//
// The ids of a block lie BLOCKS apart, so that ids of a kind, which lie together, are in many blocks: a block then has
// few of the largest, and `top_list.wgsl` few ids to rank. LANES threads share a block. A workgroup leaves the peaks of
// its blocks, and of all that it has the largest, the sum of `e^(l - largest)`, and whether a logit was not finite.
//
// Row invariance: a workgroup has one row; what is added follows from the vocabulary alone.

override LANES: u32; // threads of a block, a power of two that divides THREADS
override GENERATED: u32; // whether rows are successive tokens

override TILE: u32 = THREADS / LANES; // blocks of a workgroup

const SEEN = 0x80000000u;
const MINUS_INFINITY = 0xff800000u;
const EXPONENT = 0x7f800000u;

struct Rules {
    vocabulary: u32,
    masked: u32,
    biased: u32,
    counted: u32,
    presence: f32,
    frequency: f32,
    repetition: f32,
    repetition_inverse: f32,
}

@group(0) @binding(0) var<storage, read> logits: array<f32>; // [rows, VOCAB]
@group(0) @binding(1) var<storage, read> ids: array<u32>; // [rows]
@group(0) @binding(2) var<storage, read> rules: Rules; // those of the request
@group(0) @binding(3) var<storage, read> counts: array<u32>; // [VOCAB]
@group(0) @binding(4) var<storage, read> bias: array<f32>; // [VOCAB]
@group(0) @binding(5) var<storage, read> allowed: array<u32>; // [VOCAB / 32, rounded up] bits
@group(0) @binding(6) var<storage, read_write> adjusted: array<u32>; // [rows, VOCAB] bits of F32
@group(0) @binding(7) var<storage, read_write> found: array<u32>; // [rows, BLOCKS + PART GROUPS]

var<workgroup> flags: atomic<u32>;

fn allows(id: u32) -> bool {
    return id < rules.vocabulary && (rules.masked == 0u || ((allowed[id / 32u] >> (id % 32u)) & 1u) == 1u);
}

// The logit of an id after bias and penalties.
fn adjust(row: u32, id: u32, logit: f32) -> f32 {
    var l = logit;
    if rules.biased != 0u {
        l += bias[id];
    }
    if rules.counted == 0u {
        return l;
    }
    let count = counts[id];
    var fed = 0u;
    for (var before = 0u; before < GENERATED * (row + 1u); before++) {
        fed += u32(ids[before] == id);
    }
    let times = (count & ~SEEN) + fed;
    var factor = 1.0;
    if count >= SEEN || fed > 0u {
        factor = select(rules.repetition, rules.repetition_inverse, l > 0.0);
    }
    let penalty = select(0.0, fma(rules.frequency, f32(times), rules.presence), times > 0u);
    return fma(l, factor, -penalty);
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let row = group.y;
    let block = group.x * TILE + thread % TILE;
    let first = select(VOCAB, block + thread / TILE * BLOCKS, block < BLOCKS);
    if thread == 0u {
        atomicStore(&flags, 0u);
    }
    workgroupBarrier();
    var peak = 0u;
    for (var id = first; id < VOCAB; id += LANES * BLOCKS) {
        let at = row * VOCAB + id;
        let logit = logits[at];
        if id < rules.vocabulary && (bitcast<u32>(logit) & EXPONENT) == EXPONENT {
            atomicOr(&flags, NOT_FINITE);
        }
        var bits = MINUS_INFINITY;
        if allows(id) {
            bits = bitcast<u32>(adjust(row, id, logit));
        }
        adjusted[at] = bits;
        peak = max(peak, key_of(bits));
    }
    keys[thread] = peak;
    fold_keys(THREADS, TILE, thread);
    let begin = row * FOUND;
    if thread < TILE && block < BLOCKS {
        found[begin + block] = keys[thread];
    }
    fold_keys(TILE, 1u, thread);

    let largest = number_of(keys[0]);
    var sum = 0.0;
    for (var id = first; id < VOCAB; id += LANES * BLOCKS) {
        let bits = adjusted[row * VOCAB + id];
        if key_of(bits) > 0u {
            sum += exponential(bitcast<f32>(bits) - largest);
        }
    }
    sums[thread] = sum;
    fold_sums(thread);
    if thread == 0u {
        let part = begin + BLOCKS + PART * group.x;
        found[part] = keys[0];
        found[part + 1u] = bitcast<u32>(sums[0]);
        found[part + 2u] = atomicLoad(&flags);
    }
}
