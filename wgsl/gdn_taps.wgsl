// The inputs of the recurrence of Gated DeltaNet (architecture.md section 6):
//
//     c = silu(conv(qkv)) = q, k, v      q = q / sqrt(sum q^2 + 1e-6) / sqrt(KEY_DIM)      k = k / sqrt(sum k^2 + 1e-6)
//     decay = exp(-exp(a_log) softplus(a + dt_bias))      beta = sigmoid(b)
//
// The kernel says where rows of qkv lie: `input_at(place, channel)` is row `place` of the window and the rows after it.
//
// Row invariance: taps of the convolution in ascending order; a sum of squares in PARTS parts, each thread every PARTS-th
// number in order, then the parts in order.

override KERNEL: u32; // taps
override DEPTH: u32 = KERNEL - 1u; // rows of the window
override CHANNELS: u32 = 2u * KEYS + VALUES;

const PARTS = 32u;
const L2_EPS = 1e-6; // added to the sum of squares of queries and keys

var<workgroup> convolved: array<f32, 768>; // [2 KEY_DIM + VALUE_DIM]: q, k, v
var<workgroup> parts: array<f32, 64>; // [2, PARTS]

// Channel behind number `i` of the convolved q, k and v of a value head.
fn channel_of(head: u32, i: u32) -> u32 {
    if i < 2u * KEY_DIM {
        return i / KEY_DIM * KEYS + head / SHARING * KEY_DIM + i % KEY_DIM;
    }
    return 2u * KEYS + head * VALUE_DIM + i - 2u * KEY_DIM;
}

fn convolve(row: u32, channel: u32) -> f32 {
    var sum = 0.0;
    for (var j = 0u; j < KERNEL; j++) {
        sum = fma(conv[channel * KERNEL + j], input_at(row + j, channel), sum);
    }
    return silu(sum);
}

fn sum_of_parts(which: u32) -> f32 {
    var sum = 0.0;
    for (var i = 0u; i < PARTS; i++) {
        sum += parts[which * PARTS + i];
    }
    return sum;
}

// The parts of the sums of squares of query and key. A barrier follows.
fn square_query_and_key(thread: u32) {
    if thread < 2u * PARTS {
        let begin = thread / PARTS * KEY_DIM;
        var sum = 0.0;
        for (var i = thread % PARTS; i < KEY_DIM; i += PARTS) {
            sum = fma(convolved[begin + i], convolved[begin + i], sum);
        }
        parts[thread] = sum;
    }
}

// Quad `i` of query and key, one after the other, normed; the query is scaled.
fn normed_quad(i: u32) -> vec4<f32> {
    let factor = 1.0 / sqrt(sum_of_parts(i / KEY_QUADS) + L2_EPS);
    let x = vec4<f32>(convolved[4u * i], convolved[4u * i + 1u], convolved[4u * i + 2u], convolved[4u * i + 3u]);
    if i < KEY_QUADS {
        return x * factor * (1.0 / sqrt(f32(KEY_DIM)));
    }
    return x * factor;
}

// Decay and beta of the row.
fn gates_of(head: u32, row: u32) -> vec2<f32> {
    let a = ab[row * 2u * VALUE_HEADS + head];
    let b = ab[row * 2u * VALUE_HEADS + VALUE_HEADS + head];
    return vec2<f32>(exponential(-exponential(a_log[head]) * softplus(a + dt_bias[head])), sigmoid(b));
}
