// Brings the pairs p = (row, choice) of prompt rows that have the same slot together:
//
//     order[number of pairs q with (slot q, q) < (slot p, p)] = p
//
// Pairs without a slot come last, since their number is past the pool.
// Row invariance: pairs are only put in an order; nothing is added.

override THREADS: u32; // of a workgroup

struct Task {
    pairs: u32,
}

var<immediate> task: Task;

@group(0) @binding(0) var<storage, read> slots: array<u32>; // [pairs]
@group(0) @binding(1) var<storage, read_write> order: array<u32>; // [pairs]

var<workgroup> others: array<u32, THREADS>; // slots of some pairs

@compute @workgroup_size(THREADS)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let pair = id.x;
    let slot = slots[min(pair, task.pairs - 1u)];
    var before = 0u;
    for (var first = 0u; first < task.pairs; first += THREADS) {
        workgroupBarrier();
        others[thread] = slots[min(first + thread, task.pairs - 1u)];
        workgroupBarrier();
        for (var i = 0u; i < min(THREADS, task.pairs - first); i++) {
            let other = others[i];
            before += u32(other < slot || (other == slot && first + i < pair));
        }
    }
    if pair < task.pairs {
        order[before] = pair;
    }
}
