// The TOP largest adjusted logits of a row: descending value, then ascending id; and the logarithm of the sum of `e^l`
// over all that may be drawn (engine.md 5.3):
//
//     out[r] = listed, flags, log-sum-exp, 0, then value and id of each
//
// The TOP-th largest peak of a block is a floor: TOP ids at least do not lie below it. Radix select finds it in four
// histograms of 8 bits. All ids at or above it, which are in blocks with such a peak, are gathered and ranked: each
// counts those that precede it, so that the order in which they were gathered is not seen. Where more than ROOM reach
// the floor, as among many equals, none is listed.
//
// Row invariance: a workgroup has one row; counts are integers, and the parts of the sum are added in an order that
// follows from the vocabulary alone.

override TOP: u32; // ids that are listed
override BLOCK: u32; // ids of a block
override ROOM: u32; // ids that can be ranked, at least TOP

override ROW: u32 = HEAD + 2u * TOP; // words of a row of `out`

const NONE = 0xffffffffu;
const HEAD = 4u;
const BINS = 256u;
const SPAN = 16u; // bins that are added up first
const SPANS = 16u;
const UNRANKED = 2u; // flag: more ids reach the floor than can be ranked
const INFINITY = 0x7f800000u;
const MINUS_INFINITY = 0xff800000u;

@group(0) @binding(0) var<storage, read> adjusted: array<u32>; // [rows, VOCAB] bits of F32
@group(0) @binding(1) var<storage, read> found: array<u32>; // [rows, BLOCKS + PART GROUPS]
@group(0) @binding(2) var<storage, read_write> out: array<u32>; // [rows, HEAD + 2 TOP]

var<workgroup> bins: array<atomic<u32>, BINS>;
var<workgroup> spans: array<u32, SPANS>; // keys in each SPAN bins
var<workgroup> edge_found: vec2<u32>; // digit, and peaks of it that are wanted
var<workgroup> high_blocks: array<u32, ROOM>; // blocks whose peak reaches the floor
var<workgroup> high: array<vec2<u32>, ROOM>; // ids that reach it, each behind its key
var<workgroup> blocks_found: atomic<u32>;
var<workgroup> ids_found: atomic<u32>;
var<workgroup> flags: atomic<u32>;

// What is known of the TOP-th largest peak.
struct Edge {
    known: u32, // bits that are known
    key: u32, // those bits
    left: u32, // peaks with those bits that are among the TOP largest
}

// Finds eight more bits of the edge.
fn narrow(edge: Edge, shift: u32, begin: u32, thread: u32) -> Edge {
    for (var bin = thread; bin < BINS; bin += THREADS) {
        atomicStore(&bins[bin], 0u);
    }
    workgroupBarrier();
    for (var block = thread; block < BLOCKS; block += THREADS) {
        let key = found[begin + block];
        if (key & edge.known) == edge.key {
            atomicAdd(&bins[(key >> shift) % BINS], 1u);
        }
    }
    workgroupBarrier();
    for (var span = thread; span < SPANS; span += THREADS) {
        var all = 0u;
        for (var i = 0u; i < SPAN; i++) {
            all += atomicLoad(&bins[span * SPAN + i]);
        }
        spans[span] = all;
    }
    workgroupBarrier();
    for (var bin = thread; bin < BINS; bin += THREADS) {
        var above = 0u;
        for (var span = bin / SPAN + 1u; span < SPANS; span++) {
            above += spans[span];
        }
        for (var higher = bin + 1u; higher < (bin / SPAN + 1u) * SPAN; higher++) {
            above += atomicLoad(&bins[higher]);
        }
        if above < edge.left && edge.left <= above + atomicLoad(&bins[bin]) {
            edge_found = vec2<u32>(bin, edge.left - above);
        }
    }
    workgroupBarrier();
    return Edge(edge.known | ((BINS - 1u) << shift), edge.key | (edge_found.x << shift), edge_found.y);
}

// A key that TOP ids do not lie below; the lowest of all where there are fewer blocks.
fn floor_of(begin: u32, thread: u32) -> u32 {
    if BLOCKS <= TOP {
        return 1u;
    }
    var edge = Edge(0u, 0u, TOP);
    edge = narrow(edge, 24u, begin, thread);
    edge = narrow(edge, 16u, begin, thread);
    edge = narrow(edge, 8u, begin, thread);
    edge = narrow(edge, 0u, begin, thread);
    return max(edge.key, 1u);
}

// Id `i` of the highest blocks; past the last none that there is.
fn high_id(i: u32, wanted: u32) -> u32 {
    let id = high_blocks[min(i, wanted - 1u) / BLOCK] + i % BLOCK * BLOCKS;
    return select(VOCAB, id, i < wanted);
}

fn four_ids(i: u32, wanted: u32) -> vec4<u32> {
    return vec4<u32>(
        high_id(i, wanted),
        high_id(i + THREADS, wanted),
        high_id(i + 2u * THREADS, wanted),
        high_id(i + 3u * THREADS, wanted),
    );
}

// The keys of four ids; 0 for one that there is not.
fn four_keys(row: u32, ids: vec4<u32>) -> vec4<u32> {
    let at = vec4<u32>(row * VOCAB) + min(ids, vec4<u32>(VOCAB - 1u));
    let bits = vec4<u32>(adjusted[at.x], adjusted[at.y], adjusted[at.z], adjusted[at.w]);
    let keys_of = vec4<u32>(key_of(bits.x), key_of(bits.y), key_of(bits.z), key_of(bits.w));
    return select(vec4<u32>(), keys_of, ids < vec4<u32>(VOCAB));
}

fn keep(key: u32, id: u32, floor: u32) {
    if key < floor {
        return;
    }
    let place = atomicAdd(&ids_found, 1u);
    if place < ROOM {
        high[place] = vec2<u32>(key, id);
    }
}

// Gathers the ids at or above the floor; how many there are, or more than ROOM.
fn gather(row: u32, floor: u32, thread: u32) -> u32 {
    for (var block = thread; block < BLOCKS; block += THREADS) {
        if found[row * FOUND + block] >= floor {
            let place = atomicAdd(&blocks_found, 1u);
            if place < ROOM {
                high_blocks[place] = block;
            }
        }
    }
    workgroupBarrier();
    let blocks = atomicLoad(&blocks_found);
    // Eight at once, since each is a load that all else waits for.
    let wanted = min(blocks, ROOM) * BLOCK;
    for (var i = thread; i < wanted; i += 8u * THREADS) {
        let first = four_ids(i, wanted);
        let second = four_ids(i + 4u * THREADS, wanted);
        let keys_of_first = four_keys(row, first);
        let keys_of_second = four_keys(row, second);
        for (var j = 0u; j < 4u; j++) {
            keep(keys_of_first[j], first[j], floor);
            keep(keys_of_second[j], second[j], floor);
        }
    }
    workgroupBarrier();
    // Each block has one id at least.
    return max(blocks, atomicLoad(&ids_found));
}

// Writes the largest of the gathered ids to their places.
fn list(row: u32, gathered: u32, thread: u32) {
    let places = row * ROW + HEAD;
    for (var i = thread; i < gathered; i += THREADS) {
        let own = high[i];
        var place = 0u;
        for (var j = 0u; j < gathered; j++) {
            let other = high[j];
            place += u32(other.x > own.x || (other.x == own.x && other.y < own.y));
        }
        if place < TOP {
            out[places + 2u * place] = adjusted[row * VOCAB + own.y];
            out[places + 2u * place + 1u] = own.y;
        }
    }
    for (var place = gathered + thread; place < TOP; place += THREADS) {
        out[places + 2u * place] = MINUS_INFINITY;
        out[places + 2u * place + 1u] = NONE;
    }
}

// Bits of the log-sum-exp; collects the flags of the parts.
fn log_sum_exp(row: u32, thread: u32) -> u32 {
    let parts = row * FOUND + BLOCKS;
    var key = 0u;
    for (var group = thread; group < GROUPS; group += THREADS) {
        key = max(key, found[parts + PART * group]);
        atomicOr(&flags, found[parts + PART * group + 2u]);
    }
    keys[thread] = key;
    fold_keys(THREADS, 1u, thread);
    let largest = number_of(keys[0]);
    var sum = 0.0;
    for (var group = thread; group < GROUPS; group += THREADS) {
        let part = found[parts + PART * group];
        if part > 0u {
            sum = fma(bitcast<f32>(found[parts + PART * group + 1u]), exponential(number_of(part) - largest), sum);
        }
    }
    sums[thread] = sum;
    fold_sums(thread);
    if keys[0] == 0u {
        return MINUS_INFINITY;
    }
    if bitcast<u32>(largest) == INFINITY {
        return INFINITY;
    }
    return bitcast<u32>(largest + logarithm(sums[0]));
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let row = group.x;
    if thread == 0u {
        atomicStore(&blocks_found, 0u);
        atomicStore(&ids_found, 0u);
        atomicStore(&flags, 0u);
    }
    workgroupBarrier();
    let sum = log_sum_exp(row, thread);
    let reached = gather(row, floor_of(row * FOUND, thread), thread);
    let gathered = select(reached, 0u, reached > ROOM);
    list(row, gathered, thread);
    if thread == 0u {
        let unranked = select(0u, UNRANKED, reached > ROOM);
        out[row * ROW] = min(gathered, TOP);
        out[row * ROW + 1u] = atomicLoad(&flags) | unranked;
        out[row * ROW + 2u] = sum;
        out[row * ROW + 3u] = 0u;
    }
}
