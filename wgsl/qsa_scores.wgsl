// Scores of the indexer's blocks (architecture.md 7.3), for queries that see more than TOPK complete blocks:
//
//     scores[r, j] = sum_h max(0, index_q[r, h] . pooled[j]) / sqrt(INDEX)
//
// A workgroup has TILE blocks and up to four rows; a thread has one head of one block, so that a block is loaded for
// all of them at once.
//
// Row invariance: a dot product is one sum over four lanes of a quad, in order, heads are added in order; rows share
// what is loaded of a block and nothing else.

override THREADS: u32; // of a workgroup
override INDEX_HEADS: u32; // at most THREADS
override INDEX: u32; // numbers in an indexer head
override BLOCK: u32; // tokens in a block
override TOPK: u32; // blocks that a query keeps

override QUADS: u32 = INDEX / 4u;
override LOADS: u32 = QUADS / WIDE;
override TILE: u32 = THREADS / INDEX_HEADS;

const ROWS_AT_ONCE = 4u; // the columns of a quad

struct Task {
    rows: u32, // of the slice
    slice: u32, // first row of the slice
    before: u32, // tokens before the slice
    all: u32, // blocks of the last row, the numbers between rows of scores
}

var<immediate> task: Task;

@group(0) @binding(0) var<storage, read> index_q: array<vec4<f32>>; // [slice + rows.., INDEX_HEADS, QUADS]
@group(0) @binding(1) var<storage, read> pooled: array<vec4<u32>>; // [all, LOADS] cells
@group(0) @binding(2) var<storage, read_write> scores: array<f32>; // [rows, all]

var<workgroup> parts: array<vec4<f32>, THREADS>; // [INDEX_HEADS, TILE], a row a column

// max(0, x); NaN stays.
fn positive(x: vec4<f32>) -> vec4<f32> {
    return select(x, vec4<f32>(), x < vec4<f32>());
}

// Dot products of a head of up to four rows with a block.
fn dots(block: u32, head: u32, first: u32, rows: u32) -> vec4<f32> {
    var sums: array<vec4<f32>, ROWS_AT_ONCE>;
    for (var load = 0u; load < LOADS; load++) {
        let key = cells(pooled[block * LOADS + load]);
        for (var r = 0u; r < ROWS_AT_ONCE; r++) {
            if r < rows {
                let at = ((task.slice + first + r) * INDEX_HEADS + head) * QUADS + load * WIDE;
                sums[r] = fma(key[0], index_q[at], sums[r]);
                if WIDE == 2u {
                    sums[r] = fma(key[1], index_q[at + 1u], sums[r]);
                }
            }
        }
    }
    return vec4<f32>(total(sums[0]), total(sums[1]), total(sums[2]), total(sums[3]));
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let first = group.y * ROWS_AT_ONCE;
    let rows = min(task.rows - first, ROWS_AT_ONCE);
    let most = (task.before + first + rows) / BLOCK;
    if most <= max(TOPK, group.x * TILE) {
        return;
    }
    let head = thread / TILE;
    let block = group.x * TILE + thread % TILE;
    if head < INDEX_HEADS && block < most {
        parts[thread] = positive(dots(block, head, first, rows));
    }
    workgroupBarrier();
    if thread >= TILE || block >= most {
        return;
    }
    var sum = vec4<f32>();
    for (var h = 0u; h < INDEX_HEADS; h++) {
        sum += parts[h * TILE + thread];
    }
    let score = sum / sqrt(f32(INDEX));
    for (var r = 0u; r < rows; r++) {
        let complete = (task.before + first + r + 1u) / BLOCK;
        if complete > TOPK && block < complete {
            scores[(first + r) * task.all + block] = score[r];
        }
    }
}
