//! Owns: the router and the sum of the experts' rows (architecture.md section 8).
//!
//! `logits = Wr u`; the `choices` largest, descending, ties by ascending expert; their softmax. Sum: `y = sum_k w_k
//! routed_k + sigmoid(gate . u) shared`, then `out[s] += inject[s] * y`.
//!
//! Refuses: more experts or choices than the kernel has room for.
//! Invariants: neither takes rounded inputs; choices are added in their order (engine.md 3.7e). Routing is two dispatches,
//! the sum one, in both forms.

use ss_backend::Result;
use ss_backend::op::{Combine, Route};

use super::linear::{GEMV_TUNING, Strided, multiply};
use crate::encoding::{Encoding, Launch, volume};
use crate::parts;
use crate::registry::{Kernel, Part, Product};
use crate::tuning::{ROWS_AT_ONCE, THREADS};

const CHOOSE: Kernel = Kernel {
    main: Part { file: "route_choose.wgsl", text: include_str!("../../../../wgsl/route_choose.wgsl") },
    operation: "Route",
    parts: &[&parts::NUMBERS],
    weights: &[],
    product: Product::Numbers,
    section: "architecture.md 8",
    twin: "backends/reference/src/ops/moe.rs",
    tests: "backends/wgpu/src/selftest/moe.rs",
    tuning: &["threads"],
};

const COMBINE: Kernel = Kernel {
    main: Part { file: "combine.wgsl", text: include_str!("../../../../wgsl/combine.wgsl") },
    operation: "Combine",
    weights: &["gate"],
    product: Product::Gemv,
    tuning: GEMV_TUNING,
    ..CHOOSE
};

/// The kernels of this family.
pub(crate) const KERNELS: &[&Kernel] = &[&CHOOSE, &COMBINE];

/// Experts and choices that `route_choose.wgsl` has room for.
const MOST_EXPERTS: u32 = 1024;
const MOST_CHOICES: u32 = 16;

/// Router.
pub(crate) fn route(enc: &mut Encoding<'_>, op: &Route) -> Result<()> {
    let (rows, choices) = (op.rows.count, op.choices);
    let (experts, hidden) = (op.weight.matrix.rows, op.weight.matrix.cols);
    enc.nonzero(&[("experts", experts), ("hidden", hidden), ("choices", choices)])?;
    if choices > experts {
        return Err(enc.refuse(format_args!("`choices` is {choices}, there are {experts} experts")));
    }
    if experts > MOST_EXPERTS || choices > MOST_CHOICES {
        return Err(enc.unavailable(format_args!(
            "{choices} choices of {experts} experts, only for {MOST_CHOICES} of {MOST_EXPERTS}"
        )));
    }
    let u = enc.view(&op.u, "u", volume(&[rows, hidden]))?;
    let weight = enc.weight(&op.weight, "weight", experts, hidden)?;
    let logits = enc.view(&op.logits, "logits", volume(&[rows, experts]))?;
    let chosen = enc.view(&op.experts, "experts", volume(&[rows, choices]))?;
    let weights = enc.view(&op.weights, "weights", volume(&[rows, choices]))?;
    multiply(enc, op.rows, &Strided::rows(&u, hidden), &weight, &Strided::rows(&logits, experts))?;
    enc.launch(&Launch {
        kernel: &CHOOSE,
        constants: &[("THREADS", THREADS.value), ("EXPERTS", experts), ("CHOICES", choices)],
        views: &[&logits, &chosen, &weights],
        weights: &[],
        immediates: &[],
        grid: [rows, 1, 1],
    })
}

/// Sum of the experts' rows and hyper-connection write.
pub(crate) fn combine(enc: &mut Encoding<'_>, op: &Combine) -> Result<()> {
    let (rows, choices, streams) = (op.rows.count, op.choices, op.streams);
    let hidden = streams.hidden;
    enc.nonzero(&[("streams", streams.count), ("hidden", hidden), ("choices", choices)])?;
    let routed = enc.view(&op.routed, "routed", volume(&[rows, choices, hidden]))?;
    let weights = enc.view(&op.weights, "weights", volume(&[rows, choices]))?;
    let shared = enc.view(&op.shared, "shared", volume(&[rows, hidden]))?;
    let gate = enc.weight(&op.gate, "gate", 1, hidden)?;
    let u = enc.view(&op.u, "u", volume(&[rows, hidden]))?;
    let inject = enc.view(&op.inject, "inject", volume(&[rows, streams.count]))?;
    let out = enc.view(&op.out, "out", volume(&[rows, streams.count, hidden]))?;
    enc.launch(&Launch {
        kernel: &COMBINE,
        constants: &[("STREAMS", streams.count)],
        views: &[&routed, &weights, &shared, &u, &inject, &out],
        weights: &[&gate],
        immediates: &[rows, choices],
        grid: [hidden.div_ceil(THREADS.value), rows.div_ceil(ROWS_AT_ONCE), 1],
    })
}
