// The choices of a router (architecture.md section 8): the CHOICES largest logits of a row and their softmax:
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

override KEYS: u32 = (EXPERTS + 3u) / 4u;

var<workgroup> keys: array<vec4<u32>, KEYS>; // of the experts, zeros past the last
var<workgroup> picked: array<u32, CHOICES>;
var<workgroup> chosen: array<f32, CHOICES>;

// Experts that precede each of four.
fn before(four: u32) -> vec4<u32> {
    let mine = keys[four];
    var counts = vec4<u32>();
    for (var quad = 0u; quad < KEYS; quad++) {
        let others = keys[quad];
        for (var i = 0u; i < 4u; i++) {
            let other = vec4<u32>(others[i]);
            let beside = vec4<bool>(quad == four) & (vec4<u32>(i) < vec4<u32>(0u, 1u, 2u, 3u));
            let lower = vec4<bool>(quad < four) | beside;
            counts += vec4<u32>((other > mine) | ((other == mine) & lower));
        }
    }
    return counts;
}

// All of a workgroup chooses for a row. Afterwards every thread may read `picked`.
fn choose(row: u32, thread: u32) {
    for (var quad = thread; quad < KEYS; quad += THREADS) {
        var key = vec4<u32>();
        for (var i = 0u; i < 4u; i++) {
            if 4u * quad + i < EXPERTS {
                key[i] = order_of(logits[row * EXPERTS + 4u * quad + i]);
            }
        }
        keys[quad] = key;
    }
    workgroupBarrier();
    for (var quad = thread; quad < KEYS; quad += THREADS) {
        let choices = before(quad);
        for (var i = 0u; i < 4u; i++) {
            let expert = 4u * quad + i;
            // What is past the last expert has the lowest key, and may follow fewer than CHOICES all the same.
            if choices[i] < CHOICES && expert < EXPERTS {
                experts[row * CHOICES + choices[i]] = expert;
                picked[choices[i]] = expert;
                chosen[choices[i]] = logits[row * EXPERTS + expert];
            }
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
