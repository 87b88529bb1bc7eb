// Gates of the n-gram injection and the inputs of its convolution (architecture.md 9.2), per row r and stream s:
//
//     score = rms(keys[r, s]) norm_key[s] . rms(x[r, s]) norm_query[s] / sqrt(HIDDEN)
//     gate = sigmoid(sign(score) sqrt(max(|score|, 1e-6)))      inputs[r, s] = rms(gate values[r]) norm_conv[s]
//
// Norms are factors of whole groups, so that four sums of one walk give them all.
//
// Row invariance: a workgroup has one stream of one row: each thread adds every THREADS-th number in order, then a tree
// adds the threads.

override THREADS: u32; // of a workgroup, a power of two
override STREAMS: u32;
override HIDDEN: u32; // numbers in a stream

const SCORE_FLOOR = 1e-6; // smallest score under the root

struct Task {
    eps: f32,
}

var<immediate> task: Task;

@group(0) @binding(0) var<storage, read> norm_key: array<f32>; // [STREAMS, HIDDEN]
@group(0) @binding(1) var<storage, read> norm_query: array<f32>; // [STREAMS, HIDDEN]
@group(0) @binding(2) var<storage, read> norm_conv: array<f32>; // [STREAMS, HIDDEN]
@group(0) @binding(3) var<storage, read> keys: array<f32>; // [rows, STREAMS, HIDDEN]
@group(0) @binding(4) var<storage, read> values: array<f32>; // [rows, HIDDEN]
@group(0) @binding(5) var<storage, read> x: array<f32>; // [rows, STREAMS, HIDDEN]
@group(0) @binding(6) var<storage, read_write> inputs: array<f32>; // [rows, STREAMS, HIDDEN]
@group(0) @binding(7) var<storage, read_write> gates: array<f32>; // [rows, STREAMS]

// Squares of keys, of streams and of values, and products of normed keys and queries.
var<workgroup> sums: array<vec4<f32>, THREADS>;

fn signed_root(score: f32) -> f32 {
    let magnitude = select(abs(score), SCORE_FLOOR, abs(score) < SCORE_FLOOR);
    let root = select(sqrt(magnitude), -sqrt(magnitude), score < 0.0);
    return select(root, 0.0, score == 0.0);
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let begin = (id.y * STREAMS + id.x) * HIDDEN;
    var sum = vec4<f32>();
    for (var c = thread; c < HIDDEN; c += THREADS) {
        let k = keys[begin + c];
        let q = x[begin + c];
        let v = values[id.y * HIDDEN + c];
        let weighted = vec2<f32>(k * norm_key[id.x * HIDDEN + c], q * norm_query[id.x * HIDDEN + c]);
        sum = fma(vec4<f32>(k, q, v, weighted.x), vec4<f32>(k, q, v, weighted.y), sum);
    }
    sums[thread] = sum;
    workgroupBarrier();
    for (var apart = THREADS / 2u; apart > 0u; apart /= 2u) {
        if thread < apart {
            sums[thread] += sums[thread + apart];
        }
        workgroupBarrier();
    }
    let all = sums[0];
    let factors = 1.0 / sqrt(all.xy / f32(HIDDEN) + task.eps);
    let gate = sigmoid(signed_root(all.w * factors.x * factors.y / sqrt(f32(HIDDEN))));
    let factor = 1.0 / sqrt(gate * gate * all.z / f32(HIDDEN) + task.eps);
    for (var c = thread; c < HIDDEN; c += THREADS) {
        inputs[begin + c] = gate * values[id.y * HIDDEN + c] * factor * norm_conv[id.x * HIDDEN + c];
    }
    if thread == 0u {
        gates[id.y * STREAMS + id.x] = gate;
    }
}
