// The blocks that each query keeps (architecture.md 7.3): the TOPK largest scores, descending score, then ascending
// block; written ascending, then NONE. A query that sees at most TOPK complete blocks keeps them all.
//
// Radix select: three histograms of 11 bits find the key of the last block that is kept and how many blocks of that
// very key are kept. Then each thread takes a run of blocks and writes those it keeps after those of the runs before.
//
// Row invariance: a workgroup has one row. Counts are integers, so that the order of atomic additions is not seen.

override THREADS: u32; // of a workgroup, a power of two, at most BINS
override BLOCK: u32; // tokens in a block
override TOPK: u32; // blocks that a query keeps

const NONE = 0xffffffffu;
const BINS = 2048u;

struct Task {
    slice: u32, // first row of the slice
    before: u32, // tokens before the slice
    all: u32, // numbers between rows of scores
}

var<immediate> task: Task;

@group(0) @binding(0) var<storage, read> scores: array<f32>; // [rows, all]
@group(0) @binding(1) var<storage, read_write> blocks: array<u32>; // [slice + rows.., TOPK]

var<workgroup> bins: array<atomic<u32>, BINS>;
var<workgroup> counts: array<u32, THREADS>;
var<workgroup> found: vec2<u32>; // digit, and blocks of it that are kept

// What is known of the key of the last block that is kept.
struct Edge {
    known: u32, // bits that are known
    key: u32, // those bits
    left: u32, // blocks with those bits that are kept
}

// The sum of the values of the threads before this one.
fn before(value: u32, thread: u32) -> u32 {
    counts[thread] = value;
    workgroupBarrier();
    for (var apart = 1u; apart < THREADS; apart *= 2u) {
        var other = 0u;
        if thread >= apart {
            other = counts[thread - apart];
        }
        workgroupBarrier();
        counts[thread] += other;
        workgroupBarrier();
    }
    return counts[thread] - value;
}

// Finds eleven more bits of the edge.
fn narrow(edge: Edge, shift: u32, begin: u32, complete: u32, thread: u32) -> Edge {
    for (var bin = thread; bin < BINS; bin += THREADS) {
        atomicStore(&bins[bin], 0u);
    }
    workgroupBarrier();
    for (var j = thread; j < complete; j += THREADS) {
        let key = order_of(scores[begin + j]);
        if (key & edge.known) == edge.key {
            atomicAdd(&bins[(key >> shift) % BINS], 1u);
        }
    }
    workgroupBarrier();
    // A thread has the bins from `top` downwards.
    let share = BINS / THREADS;
    let top = BINS - 1u - thread * share;
    var mine = 0u;
    for (var i = 0u; i < share; i++) {
        mine += atomicLoad(&bins[top - i]);
    }
    var above = before(mine, thread);
    if above < edge.left && edge.left <= above + mine {
        for (var i = 0u; i < share; i++) {
            let count = atomicLoad(&bins[top - i]);
            if edge.left <= above + count {
                found = vec2<u32>(top - i, edge.left - above);
                break;
            }
            above += count;
        }
    }
    workgroupBarrier();
    return Edge(edge.known | ((BINS - 1u) << shift), edge.key | (found.x << shift), found.y);
}

// Writes the kept blocks of a row, ascending.
fn keep(edge: Edge, begin: u32, complete: u32, out: u32, thread: u32) {
    let share = (complete + THREADS - 1u) / THREADS;
    let first = min(thread * share, complete);
    let end = min(first + share, complete);
    var above = 0u;
    var level = 0u;
    for (var j = first; j < end; j++) {
        let key = order_of(scores[begin + j]);
        above += u32(key > edge.key);
        level += u32(key == edge.key);
    }
    let above_before = before(above, thread);
    var seen = before(level, thread);
    var place = out + above_before + min(seen, edge.left);
    for (var j = first; j < end; j++) {
        let key = order_of(scores[begin + j]);
        if key > edge.key || (key == edge.key && seen < edge.left) {
            blocks[place] = j;
            place++;
        }
        seen += u32(key == edge.key);
    }
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let row = group.x;
    let complete = (task.before + row + 1u) / BLOCK;
    let out = (task.slice + row) * TOPK;
    if complete <= TOPK {
        for (var i = thread; i < TOPK; i += THREADS) {
            blocks[out + i] = select(NONE, i, i < complete);
        }
        return;
    }
    let begin = row * task.all;
    var edge = Edge(0u, 0u, TOPK);
    edge = narrow(edge, 21u, begin, complete, thread);
    edge = narrow(edge, 10u, begin, complete, thread);
    // The lowest ten bits, and one that is known already.
    edge = narrow(edge, 0u, begin, complete, thread);
    keep(edge, begin, complete, out, thread);
}
