// The output norm and gate of Gated DeltaNet (architecture.md section 6):
//
//     out = y / sqrt(mean(y^2) + eps) * norm * act(z)
//
// Row invariance: a sum of squares in 32 parts, each thread every 32nd number in order, then the parts in order.

override SILU_GATE: u32; // act is silu, else sigmoid

const NORM_PARTS = 32u;

var<workgroup> outputs: array<f32, 256>; // [VALUE_DIM]: y
var<workgroup> norm_parts: array<f32, 32>;

// Number of the norm and gate for this thread's output.
fn gated_by(head: u32, row: u32, thread: u32) -> vec2<f32> {
    let own = min(thread, VALUE_DIM - 1u);
    let gate = z[row * VALUES + head * VALUE_DIM + own];
    return vec2<f32>(norm[own], select(sigmoid(gate), silu(gate), SILU_GATE == 1u));
}

// Norm and gate of `outputs`; called by at least VALUE_DIM threads after a barrier.
fn finish(head: u32, row: u32, thread: u32, by: vec2<f32>) {
    if thread < NORM_PARTS {
        var sum = 0.0;
        for (var i = thread; i < VALUE_DIM; i += NORM_PARTS) {
            sum = fma(outputs[i], outputs[i], sum);
        }
        norm_parts[thread] = sum;
    }
    workgroupBarrier();
    if thread < VALUE_DIM {
        var sum = 0.0;
        for (var i = 0u; i < NORM_PARTS; i++) {
            sum += norm_parts[i];
        }
        let factor = 1.0 / sqrt(sum / f32(VALUE_DIM) + task.eps);
        out[row * VALUES + head * VALUE_DIM + thread] = outputs[thread] * factor * by.x * by.y;
    }
}
