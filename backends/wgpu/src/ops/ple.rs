//! Owns: n-gram injection (architecture.md 9.2).
//! Invariants: the projections are one dispatch in the decode form, two in the prompt form; gates, convolution and sum are
//! two in both. Rounds no input but those of the projections.

use ss_backend::op::{PleMix, PleProject};
use ss_backend::{Form, Result};

use super::linear::{BESIDE_TUNING, Strided, gemv_grid, multiply};
use crate::encoding::{Encoding, Launch, volume};
use crate::parts;
use crate::registry::{Kernel, Part, Product};
use crate::tuning::THREADS;

const PROJECT: Kernel = Kernel {
    main: Part { file: "ple_project.wgsl", text: include_str!("../../../../wgsl/ple_project.wgsl") },
    operation: "PleProject",
    parts: &[&parts::NUMBERS],
    weights: &["key", "value"],
    product: Product::Gemv,
    section: "architecture.md 9.2",
    twin: "backends/reference/src/ops/ple.rs",
    tests: "backends/wgpu/src/selftest/ple.rs",
    tuning: BESIDE_TUNING,
};

const GATE: Kernel = Kernel {
    main: Part { file: "ple_gate.wgsl", text: include_str!("../../../../wgsl/ple_gate.wgsl") },
    operation: "PleMix",
    weights: &[],
    product: Product::Numbers,
    tuning: &["threads"],
    ..PROJECT
};

const MIX: Kernel =
    Kernel { main: Part { file: "ple_mix.wgsl", text: include_str!("../../../../wgsl/ple_mix.wgsl") }, ..GATE };

/// The kernels of this family.
pub(crate) const KERNELS: &[&Kernel] = &[&PROJECT, &GATE, &MIX];

/// n-gram rows to keys and values.
pub(crate) fn project(enc: &mut Encoding<'_>, op: &PleProject) -> Result<()> {
    let (key_rows, value_rows, ple) = (op.key.matrix.rows, op.value.matrix.rows, op.key.matrix.cols);
    enc.nonzero(&[("keys", key_rows), ("values", value_rows), ("ple", ple)])?;
    let (rows, inputs) = (op.rows.count, enc.inputs(op.rows));
    let e = enc.view(&op.e, "e", volume(&[rows, ple]))?;
    let key = enc.weight(&op.key, "key", key_rows, ple)?.beside_others().multiplied(inputs);
    let value = enc.weight(&op.value, "value", value_rows, ple)?.beside_others().multiplied(inputs);
    let keys = enc.view(&op.keys, "keys", volume(&[rows, key_rows]))?;
    let values = enc.view(&op.values, "values", volume(&[rows, value_rows]))?;
    if op.rows.form == Form::Prompt {
        let e = Strided::rows(&e, ple);
        multiply(enc, op.rows, &e, &key, &Strided::rows(&keys, key_rows))?;
        return multiply(enc, op.rows, &e, &value, &Strided::rows(&values, value_rows));
    }
    let key_tiles = key.tiles(key_rows);
    enc.launch(&Launch {
        kernel: &PROJECT,
        constants: &[],
        views: &[&e, &keys, &values],
        weights: &[&key, &value],
        immediates: &[rows, key_tiles],
        grid: gemv_grid(rows, key_tiles + value.tiles(value_rows)),
    })
}

/// Gates, convolution and sum.
pub(crate) fn mix(enc: &mut Encoding<'_>, op: &PleMix) -> Result<()> {
    let (rows, shape) = (op.rows.count, op.shape);
    let (streams, hidden) = (shape.streams.count, shape.streams.hidden);
    enc.nonzero(&[("streams", streams), ("hidden", hidden), ("kernel", shape.kernel), ("dilation", shape.dilation)])?;
    let width = streams.checked_mul(hidden).ok_or_else(|| enc.refuse("`streams` and `hidden` overflow"))?;
    let norm_key = enc.view(&op.norm_key, "norm_key", u64::from(width))?;
    let norm_query = enc.view(&op.norm_query, "norm_query", u64::from(width))?;
    let norm_conv = enc.view(&op.norm_conv, "norm_conv", u64::from(width))?;
    let conv = enc.view(&op.conv, "conv", volume(&[width, shape.kernel]))?;
    let keys = enc.view(&op.keys, "keys", volume(&[rows, width]))?;
    let values = enc.view(&op.values, "values", volume(&[rows, hidden]))?;
    let inputs = enc.view(&op.inputs, "inputs", volume(&[rows, width]))?;
    let window_size = volume(&[shape.kernel - 1, shape.dilation, width]);
    let window = enc.view(&op.window.state, "window", window_size)?;
    let before = op.window.from.as_ref().map(|from| enc.view(from, "window", window_size)).transpose()?;
    let out = enc.view(&op.out, "out", volume(&[rows, width]))?;
    let gates = enc.scratch(volume(&[rows, streams, size_of::<f32>() as u32]))?;

    let sizes = [("THREADS", THREADS.value), ("STREAMS", streams), ("HIDDEN", hidden)];
    enc.launch(&Launch {
        kernel: &GATE,
        constants: &sizes,
        views: &[&norm_key, &norm_query, &norm_conv, &keys, &values, &out, &inputs, &gates],
        weights: &[],
        immediates: &[shape.eps.to_bits()],
        grid: [streams, rows, 1],
    })?;
    let mut constants = sizes.to_vec();
    let in_place = u32::from(before.is_none());
    constants.extend([("KERNEL", shape.kernel), ("DILATION", shape.dilation), ("IN_PLACE", in_place)]);
    enc.launch(&Launch {
        kernel: &MIX,
        constants: &constants,
        views: &[&conv, &inputs, &gates, &values, before.as_ref().unwrap_or(&conv), &window, &out],
        weights: &[],
        immediates: &[rows],
        grid: [width.div_ceil(THREADS.value), 1, 1],
    })
}
