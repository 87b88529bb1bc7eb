// Brings the pairs p = (row, choice) of prompt rows that have the same slot together:
//
//     place p = number of pairs q with (slot q, q) < (slot p, p)      order[0, place p] = p
//     order[1, place p], order[2, place p] = first place of its slot's pairs, place after the last of them
//
// Pairs without a slot come last, since their number is past the pool.
// Row invariance: pairs are only put in an order; nothing is added.

override THREADS: u32; // of a workgroup

struct Task {
    pairs: u32,
}

var<immediate> task: Task;

@group(0) @binding(0) var<storage, read> slots: array<u32>; // [pairs]
@group(0) @binding(1) var<storage, read_write> order: array<u32>; // [3, pairs]

var<workgroup> others: array<u32, THREADS>; // slots of some pairs

@compute @workgroup_size(THREADS)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let pair = id.x;
    let slot = slots[min(pair, task.pairs - 1u)];
    var lower = 0u;
    var alike = 0u;
    var before = 0u;
    for (var first = 0u; first < task.pairs; first += THREADS) {
        workgroupBarrier();
        others[thread] = slots[min(first + thread, task.pairs - 1u)];
        workgroupBarrier();
        for (var i = 0u; i < min(THREADS, task.pairs - first); i++) {
            let other = others[i];
            lower += u32(other < slot);
            alike += u32(other == slot);
            before += u32(other == slot && first + i < pair);
        }
    }
    if pair < task.pairs {
        let place = lower + before;
        order[place] = pair;
        order[task.pairs + place] = lower;
        order[2u * task.pairs + place] = lower + alike;
    }
}
