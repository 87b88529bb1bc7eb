// The choices of a router (architecture.md section 8): the CHOICES largest logits of a row and their softmax:
//
//     experts[r, k] = the expert that k others precede: by a larger logit, or the same logit and a lower number
//     weights[r, :] = softmax(logits[r, experts[r, :]])
//
// The experts fall into groups. As many groups as there are choices have a best one that is no less than `edge`, so that
// no expert below it is chosen; each of the few others counts those of them that precede it. The order is total: it does
// not matter in which order these few are put down.
//
// The kernel has THREADS threads in a workgroup, at least 64, and says where logits lie: `logit(at)` is one of [rows, EXPERTS].
//
// Row invariance: a workgroup has one row at a time; the softmax adds in the order of the choices.

override EXPERTS: u32; // at most 1024
override CHOICES: u32; // at most 16

@group(0) @binding(1) var<storage, read_write> experts: array<u32>; // [rows, CHOICES]
@group(0) @binding(2) var<storage, read_write> weights: array<f32>; // [rows, CHOICES]

override GROUPS: u32 = min(EXPERTS, 64u); // at least CHOICES

var<workgroup> keys: array<u32, EXPERTS>;
var<workgroup> best: array<u32, GROUPS>; // key of each group
var<workgroup> edge: u32;
var<workgroup> few: array<u32, EXPERTS>; // experts that may be chosen
var<workgroup> count: atomic<u32>; // how many
var<workgroup> picked: array<u32, CHOICES>;
var<workgroup> chosen: array<f32, CHOICES>;

// Finds the edge.
fn bound(row: u32, thread: u32) {
    for (var expert = thread; expert < EXPERTS; expert += THREADS) {
        keys[expert] = order_of(logit(row * EXPERTS + expert));
    }
    if thread == 0u {
        atomicStore(&count, 0u);
    }
    workgroupBarrier();
    if thread < GROUPS {
        var most = 0u;
        for (var expert = thread; expert < EXPERTS; expert += GROUPS) {
            most = max(most, keys[expert]);
        }
        best[thread] = most;
    }
    workgroupBarrier();
    if thread < GROUPS {
        let mine = best[thread];
        var before = 0u;
        for (var i = 0u; i < GROUPS; i++) {
            before += u32(best[i] > mine || (best[i] == mine && i < thread));
        }
        if before + 1u == CHOICES {
            edge = mine;
        }
    }
    workgroupBarrier();
}

// All of a workgroup chooses for a row. Afterwards every thread may read `picked`.
fn choose(row: u32, thread: u32) {
    bound(row, thread);
    for (var expert = thread; expert < EXPERTS; expert += THREADS) {
        if keys[expert] >= edge {
            few[atomicAdd(&count, 1u)] = expert;
        }
    }
    workgroupBarrier();
    let all = atomicLoad(&count);
    for (var i = thread; i < all; i += THREADS) {
        let expert = few[i];
        let mine = keys[expert];
        var before = 0u;
        for (var j = 0u; j < all; j++) {
            let other = few[j];
            before += u32(keys[other] > mine || (keys[other] == mine && other < expert));
        }
        if before < CHOICES {
            experts[row * CHOICES + before] = expert;
            picked[before] = expert;
            chosen[before] = logit(row * EXPERTS + expert);
        }
    }
    workgroupBarrier();
    if thread < CHOICES {
        // The first of the choices is the largest.
        var total = 0.0;
        for (var choice = 0u; choice < CHOICES; choice++) {
            total += exponential(chosen[choice] - chosen[0]);
        }
        weights[row * CHOICES + thread] = exponential(chosen[thread] - chosen[0]) / total;
    }
}
