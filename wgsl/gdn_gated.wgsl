// The output norm and gate of Gated DeltaNet (architecture.md section 6):
//
//     out = y / sqrt(mean(y^2) + eps) * norm * act(z)
//
// Row invariance: a sum of squares in 32 parts, each thread every 32nd number in order, then the parts in order.

override SILU_GATE: u32; // act is silu, else sigmoid

const NORM_PARTS = 32u;

var<workgroup> outputs: array<f32, 256>; // [VALUE_DIM]: y
var<workgroup> norm_parts: array<f32, 32>;

// Norm and gate of `outputs`; called by at least VALUE_DIM threads after a barrier.
fn finish(head: u32, row: u32, thread: u32) {
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
        let at = row * VALUES + head * VALUE_DIM + thread;
        let gate = select(sigmoid(z[at]), silu(z[at]), SILU_GATE == 1u);
        out[at] = outputs[thread] * factor * norm[thread] * gate;
    }
}
