// What all kernels of attention share: their bindings, and what a workgroup works on (architecture.md 7.4). A
// workgroup has AT_ONCE of the query heads that share a key head.

override HEADS: u32; // query heads
override KV_HEADS: u32; // key heads
override HEAD: u32; // numbers in a head
override AT_ONCE: u32; // query heads of a workgroup, at most MOST_AT_ONCE
override BLOCK: u32; // tokens in a block
override TOPK: u32; // blocks that a query keeps

override SHARED: u32 = HEADS / KV_HEADS; // query heads that share a key head
override UNITS: u32 = (SHARED + AT_ONCE - 1u) / AT_ONCE; // workgroups of a key head
override QUADS: u32 = HEAD / 4u;
override LOADS: u32 = QUADS / WIDE; // at most THREADS
override TEAMS: u32 = THREADS / LOADS;

const LANES = 8u;
const LOWEST = -3.4028234e38;

@group(0) @binding(0) var<storage, read> q: array<vec4<f32>>; // [rows, HEADS, QUADS]
@group(0) @binding(1) var<storage, read> gate: array<f32>; // [rows, HEADS, 2, HEAD]
@group(0) @binding(2) var<storage, read> cache_k: array<vec4<u32>>; // [first + rows, KV_HEADS, LOADS] cells
@group(0) @binding(3) var<storage, read> cache_v: array<vec4<u32>>; // [first + rows, KV_HEADS, LOADS] cells
@group(0) @binding(4) var<storage, read> blocks: array<u32>; // [rows, TOPK]
@group(0) @binding(5) var<storage, read_write> out: array<f32>; // [rows, HEADS, HEAD]

// What a workgroup works on.
struct Work {
    row: u32,
    kv_head: u32,
    head: u32, // its first query head
    heads: u32, // how many
    kept: u32, // blocks that the row keeps
    tail: u32, // first token after the complete blocks
    count: u32, // tokens of the row
}

fn work_of(unit: u32, row: u32) -> Work {
    let kv_head = unit / UNITS;
    let skipped = unit % UNITS * AT_ONCE;
    let complete = (task.first + row + 1u) / BLOCK;
    let kept = min(complete, TOPK);
    let tail = complete * BLOCK;
    let count = kept * BLOCK + task.first + row + 1u - tail;
    return Work(row, kv_head, kv_head * SHARED + skipped, min(SHARED - skipped, AT_ONCE), kept, tail, count);
}
