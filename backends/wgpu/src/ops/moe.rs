//! Owns: the router and the sum of the experts' rows (architecture.md section 8).
//!
//! `logits = Wr u`; the `choices` largest, descending, ties by ascending expert; their softmax. Sum: `y = sum_k w_k
//! routed_k + sigmoid(gate . u) shared`, then `out[s] += inject[s] * y`.
//!
//! Refuses: more experts or choices than the kernel has room for.
//! Invariants: neither takes rounded inputs; choices are added in their order (engine.md 3.7e). Routing is two dispatches, one
//! where generated rows look their slots up; the sum is one in both forms.

use ss_backend::op::{Combine, Lookup, Route};
use ss_backend::{Form, Result};

use super::linear::{GEMV_TUNING, Strided, gemv_grid, multiply};
use crate::encoding::{Encoding, Launch, View, Weight, volume};
use crate::parts;
use crate::registry::{Kernel, Part, Product};
use crate::tuning::{ROWS_AT_ONCE, THREADS};

const CHOOSE: Kernel = Kernel {
    main: Part { file: "route_choose.wgsl", text: include_str!("../../../../wgsl/route_choose.wgsl") },
    operation: "Route",
    parts: &[&parts::NUMBERS, &parts::ROUTE_TOPK],
    weights: &[],
    product: Product::Numbers,
    section: "architecture.md 8",
    twin: "backends/reference/src/ops/moe.rs",
    tests: "backends/wgpu/src/selftest/moe.rs",
    tuning: &["threads"],
};

const LOOKUP: Kernel = Kernel {
    main: Part { file: "route_lookup.wgsl", text: include_str!("../../../../wgsl/route_lookup.wgsl") },
    parts: &[&parts::NUMBERS, &parts::ROUTE_TOPK, &parts::ROUTE_SLOTS],
    section: "architecture.md 8, engine.md 5.3",
    ..CHOOSE
};

const ROUTE: Kernel = Kernel {
    main: Part { file: "route.wgsl", text: include_str!("../../../../wgsl/route.wgsl") },
    parts: &[&parts::NUMBERS, &parts::ROUTE_TOPK, &parts::ROUTE_SLOTS, &parts::TICKET],
    weights: &["w"],
    product: Product::Gemv,
    tuning: GEMV_TUNING,
    ..LOOKUP
};

const COMBINE: Kernel = Kernel {
    main: Part { file: "combine.wgsl", text: include_str!("../../../../wgsl/combine.wgsl") },
    operation: "Combine",
    parts: &[&parts::NUMBERS],
    weights: &["gate"],
    product: Product::Gemv,
    tuning: GEMV_TUNING,
    ..CHOOSE
};

/// The kernels of this family.
pub(crate) const KERNELS: &[&Kernel] = &[&CHOOSE, &LOOKUP, &ROUTE, &COMBINE];

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
    if let (Some(lookup), Form::Generated) = (&op.lookup, op.rows.form) {
        let views = [&logits, &chosen, &weights];
        return route_whole(enc, op, lookup, views, &u, &weight);
    }
    multiply(enc, op.rows, &Strided::rows(&u, hidden), &weight, &Strided::rows(&logits, experts))?;
    let choose = Launch {
        kernel: &CHOOSE,
        constants: &[("THREADS", THREADS.value), ("EXPERTS", experts), ("CHOICES", choices)],
        views: &[&logits, &chosen, &weights],
        weights: &[],
        immediates: &[],
        grid: [rows, 1, 1],
    };
    match &op.lookup {
        None => enc.launch(&choose),
        Some(lookup) => look_up(enc, op, lookup, choose),
    }
}

/// Where choices are looked up: the table, the slots, the control block and the workgroups of later dispatches.
fn places(enc: &Encoding<'_>, op: &Route, lookup: &Lookup) -> Result<[View; 4]> {
    let (rows, choices, layers) = (op.rows.count, op.choices, lookup.layer.saturating_add(1));
    let table = enc.view(&lookup.table, "lookup.table", volume(&[layers, op.weight.matrix.rows]))?;
    let slots = enc.view(&lookup.slots, "lookup.slots", volume(&[rows, choices]))?;
    let log = volume(&[layers, rows, choices]).saturating_add(1);
    let control = enc.view(&lookup.control, "lookup.control", log)?;
    Ok([table, slots, control, enc.grids()?])
}

/// The choices, their slots, and the end of the submission where one has none.
fn look_up(enc: &mut Encoding<'_>, op: &Route, lookup: &Lookup, choose: Launch<'_>) -> Result<()> {
    let places = places(enc, op, lookup)?;
    let views: Vec<&View> = choose.views.iter().copied().chain(&places).collect();
    let immediates = [lookup.layer, op.rows.count];
    enc.launch_deciding(&Launch { kernel: &LOOKUP, views: &views, immediates: &immediates, ..choose })
}

/// Logits, choices and slots of generated rows in one dispatch.
fn route_whole(
    enc: &mut Encoding<'_>,
    op: &Route,
    lookup: &Lookup,
    chosen: [&View; 3],
    u: &View,
    weight: &Weight,
) -> Result<()> {
    let (rows, experts) = (op.rows.count, op.weight.matrix.rows);
    let places = places(enc, op, lookup)?;
    let tickets = enc.tickets(rows.div_ceil(ROWS_AT_ONCE))?;
    let views: Vec<&View> = chosen.into_iter().chain(&places).chain([u, &tickets]).collect();
    enc.launch_deciding(&Launch {
        kernel: &ROUTE,
        constants: &[("EXPERTS", experts), ("CHOICES", op.choices)],
        views: &views,
        weights: &[weight],
        immediates: &[lookup.layer, rows],
        grid: gemv_grid(rows, weight.tiles(experts)),
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
        constants: &[("STREAMS", streams.count), ("CHOICES", choices)],
        views: &[&routed, &weights, &shared, &u, &inject, &out],
        weights: &[&gate],
        immediates: &[rows],
        grid: [hidden.div_ceil(THREADS.value), rows.div_ceil(ROWS_AT_ONCE), 1],
    })
}
