// Brings the pairs p = (row, choice) of prompt rows that have the same slot together:
//
//     place p = number of pairs q with (slot q, q) < (slot p, p)      order[0, place p] = p
//     order[1, place p], order[2, place p] = first place of its slot's pairs, place after the last of them
//
// Pairs without a slot come last, since their number is past the pool.
// The threads of a pair each compare it with a part of every stretch of pairs.
// Row invariance: pairs are only put in an order; nothing is added.

override THREADS: u32; // of a workgroup, a multiple of PARTS
override PARTS: u32; // threads that share a pair
override PAIRS: u32 = THREADS / PARTS; // of a workgroup
override PART: u32 = THREADS / PARTS; // quads of a stretch that a thread compares

struct Task {
    pairs: u32,
}

var<immediate> task: Task;

@group(0) @binding(0) var<storage, read> slots: array<u32>; // [pairs]
@group(0) @binding(1) var<storage, read_write> order: array<u32>; // [3, pairs]

var<workgroup> others: array<vec4<u32>, THREADS>; // slots of a stretch of pairs
var<workgroup> counts: array<vec3<u32>, THREADS>; // lower, alike, alike and before

// The pairs of quad `quad`, which may not exist.
fn pairs_of(quad: u32) -> vec4<u32> {
    return vec4<u32>(4u * quad) + vec4<u32>(0u, 1u, 2u, 3u);
}

fn slots_of(quad: u32) -> vec4<u32> {
    let at = min(pairs_of(quad), vec4<u32>(task.pairs - 1u));
    return vec4<u32>(slots[at.x], slots[at.y], slots[at.z], slots[at.w]);
}

fn sum(counted: vec4<u32>) -> u32 {
    return (counted.x + counted.y) + (counted.z + counted.w);
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let pair = group.x * PAIRS + thread % PAIRS;
    let slot = slots[min(pair, task.pairs - 1u)];
    var lower = vec4<u32>();
    var alike = vec4<u32>();
    var before = vec4<u32>();
    for (var first = 0u; first < (task.pairs + 3u) / 4u; first += THREADS) {
        workgroupBarrier();
        others[thread] = slots_of(first + thread);
        workgroupBarrier();
        let part = thread / PAIRS * PART;
        for (var i = part; i < part + PART; i++) {
            let at = pairs_of(first + i);
            let there = at < vec4<u32>(task.pairs);
            let same = (others[i] == vec4<u32>(slot)) & there;
            lower += vec4<u32>((others[i] < vec4<u32>(slot)) & there);
            alike += vec4<u32>(same);
            before += vec4<u32>(same & (at < vec4<u32>(pair)));
        }
    }
    counts[thread] = vec3<u32>(sum(lower), sum(alike), sum(before));
    workgroupBarrier();
    if thread < PAIRS && pair < task.pairs {
        var all = vec3<u32>();
        for (var part = 0u; part < PARTS; part++) {
            all += counts[part * PAIRS + thread];
        }
        let place = all.x + all.z;
        order[place] = pair;
        order[task.pairs + place] = all.x;
        order[2u * task.pairs + place] = all.x + all.y;
    }
}
