// Second half of the router (architecture.md section 8): the CHOICES largest logits of a row and their softmax:
//
//     experts[r, k] = the expert that k others precede: by a larger logit, or the same logit and a lower number
//     weights[r, :] = softmax(logits[r, experts[r, :]])
//
// Every expert counts those that precede it, so that the order is total and needs no rounds.
//
// Row invariance: a workgroup has a row; the softmax adds in the order of the choices.

override THREADS: u32; // of a workgroup
override EXPERTS: u32; // at most 1024
override CHOICES: u32; // at most 16

@group(0) @binding(0) var<storage, read> logits: array<f32>; // [rows, EXPERTS]
@group(0) @binding(1) var<storage, read_write> experts: array<u32>; // [rows, CHOICES]
@group(0) @binding(2) var<storage, read_write> weights: array<f32>; // [rows, CHOICES]

var<workgroup> keys: array<u32, EXPERTS>;
var<workgroup> chosen: array<f32, CHOICES>;

// Experts that precede this one.
fn before(expert: u32) -> u32 {
    let key = keys[expert];
    var count = 0u;
    for (var other = 0u; other < expert; other++) {
        count += u32(keys[other] >= key);
    }
    for (var other = expert + 1u; other < EXPERTS; other++) {
        count += u32(keys[other] > key);
    }
    return count;
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let row = group.x;
    for (var expert = thread; expert < EXPERTS; expert += THREADS) {
        keys[expert] = order_of(logits[row * EXPERTS + expert]);
    }
    workgroupBarrier();
    for (var expert = thread; expert < EXPERTS; expert += THREADS) {
        let choice = before(expert);
        if choice < CHOICES {
            experts[row * CHOICES + choice] = expert;
            chosen[choice] = logits[row * EXPERTS + expert];
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
