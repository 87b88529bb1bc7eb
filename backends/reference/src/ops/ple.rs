//! Owns: n-gram injection (architecture.md 9.2).
//!
//! `kk = rms_group(Wkey e) * w_key`, `qq = rms_group(x) * w_query`, `s = kk . qq / sqrt(H)`,
//! `gate = sigmoid(sign(s) sqrt(max(|s|, 1e-6)))`, `G = gate * (Wval e)`, `N = rms_group(G) * w_conv`,
//! `x += G + silu(conv(N))`.
//!
//! Row rule: see [`crate::gemm`], [`crate::norm`] and [`super::conv`].

use ss_backend::Result;
use ss_backend::op::{PleMix, PleProject};

use super::conv::{Conv, ConvRows, transposed};
use super::copy::slide;
use crate::dot::dot;
use crate::gemm::Input;
use crate::math::sigmoid;
use crate::norm::rms_norm;
use crate::simd::{Arith, Kernel};
use crate::step::{Carried, Read, Step, Write, volume};
use crate::tuning::EXP_COST;

/// Smallest score under the root (architecture.md 9.2).
const SCORE_FLOOR: f32 = 1e-6;

/// n-gram rows to keys and values.
pub fn project(step: &Step<'_>, op: &PleProject) -> Result<()> {
    let (keys, values) = (op.key.matrix, op.value.matrix);
    step.nonzero(&[("keys", keys.rows), ("values", values.rows), ("ple", keys.cols)])?;
    let (rows, ple) = (op.rows.count, keys.cols as usize);
    let e = step.read::<f32>(&op.e, "e", volume(&[rows, keys.cols]))?;
    let key = step.weight(&op.key, "key", keys.rows as usize, ple)?;
    let value = step.weight(&op.value, "value", values.rows as usize, ple)?;
    let mut keys_out = step.write::<f32>(&op.keys, "keys", volume(&[rows, keys.rows]))?;
    let mut values_out = step.write::<f32>(&op.values, "values", volume(&[rows, values.rows]))?;
    let (key, value, round) = (key.view(), value.view(), step.rounds(op.rows));
    for tile in step.tiles(rows) {
        let input = Input::contiguous(step.machine, &e[tile.start * ple..tile.end * ple], ple);
        let rows = tile.len();
        input.multiply(&key, round, keys_out.chunks_exact_mut(key.rows()).skip(tile.start).take(rows).collect());
        input.multiply(&value, round, values_out.chunks_exact_mut(value.rows()).skip(tile.start).take(rows).collect());
    }
    step.tap("embed", &[rows as usize, ple], &e);
    step.tap("value", &[rows as usize, value.rows()], &values_out);
    Ok(())
}

struct Views<'a> {
    norm_key: Read<'a, f32>,
    norm_query: Read<'a, f32>,
    norm_conv: Read<'a, f32>,
    conv: Read<'a, f32>,
    keys: Read<'a, f32>,
    values: Read<'a, f32>,
    inputs: Write<'a, f32>,
    window: Carried<'a>,
    out: Write<'a, f32>,
}

impl<'a> Views<'a> {
    fn new(step: &Step<'_>, op: &'a PleMix) -> Result<Self> {
        let (shape, rows) = (op.shape, op.rows.count);
        let streams = shape.streams;
        step.nonzero(&[("streams", streams.count), ("hidden", streams.hidden), ("kernel", shape.kernel)])?;
        step.nonzero(&[("dilation", shape.dilation)])?;
        let width = volume(&[streams.count, streams.hidden]);
        let size = volume(&[rows, streams.count, streams.hidden]);
        let window = volume(&[shape.kernel - 1, shape.dilation, streams.count, streams.hidden]);
        Ok(Views {
            norm_key: step.read(&op.norm_key, "norm_key", width)?,
            norm_query: step.read(&op.norm_query, "norm_query", width)?,
            norm_conv: step.read(&op.norm_conv, "norm_conv", width)?,
            conv: step.read(&op.conv, "conv", volume(&[shape.kernel, streams.count, streams.hidden]))?,
            keys: step.read(&op.keys, "keys", size)?,
            values: step.read(&op.values, "values", volume(&[rows, streams.hidden]))?,
            inputs: step.write(&op.inputs, "inputs", size)?,
            window: step.carry(&op.window, "window", window)?,
            out: step.write(&op.out, "out", size)?,
        })
    }
}

/// Gate, convolution and sum.
pub fn mix(step: &Step<'_>, op: &PleMix) -> Result<()> {
    let mut views = Views::new(step, op)?;
    let (rows, kernel) = (op.rows.count as usize, op.shape.kernel as usize);
    let width = volume(&[op.shape.streams.count, op.shape.streams.hidden]);
    let taps = transposed(step, &views.conv, kernel);
    for tile in step.tiles(op.rows.count) {
        let range = tile.start * width..tile.end * width;
        let mut gated = step.scratch(range.len());
        gate(step, op, &mut views, tile.clone(), &mut gated);
        let conv = Conv {
            taps: &taps,
            channels: width,
            dilation: op.shape.dilation as usize,
            before: views.window.before(),
            inputs: &views.inputs,
        };
        let mut convolved = step.scratch(range.len());
        step.split(range.len() * (kernel + EXP_COST as usize), &mut convolved, width, |first, out| {
            step.run(ConvRows { conv: &conv, first: tile.start + first, out });
        });
        step.tap("conv_out", &[rows, width], &convolved);
        for ((g, &d), x) in gated.iter_mut().zip(&*convolved).zip(&mut views.out[range]) {
            *g += d;
            *x += *g;
        }
        step.tap("out", &[rows, width], &gated);
    }
    slide(&mut views.window, &views.inputs);
    step.tap("conv_in", &[rows, width], &views.inputs);
    step.tap_layer("after_ple", &[rows, width], &views.out);
    Ok(())
}

/// Gates of a tile: `gated` is G, the inputs of the convolution are N.
fn gate(step: &Step<'_>, op: &PleMix, views: &mut Views<'_>, tile: std::ops::Range<usize>, gated: &mut [f32]) {
    let streams = op.shape.streams;
    let (count, hidden) = (streams.count as usize, streams.hidden as usize);
    let width = count * hidden;
    let mut scores = step.scratch(2 * tile.len() * count);
    let inputs = &mut views.inputs[tile.start * width..tile.end * width];
    let rows =
        gated.chunks_exact_mut(width).zip(inputs.chunks_exact_mut(width)).zip(scores.chunks_exact_mut(2 * count));
    let mut rows: Vec<GateRow> = rows.map(|((gated, normed), scores)| GateRow { gated, normed, scores }).collect();
    step.split(8 * width * tile.len(), &mut rows, 1, |first, rows| {
        for (row, out) in (tile.start + first..).zip(rows) {
            let mut scratch = step.scratch(2 * hidden);
            step.run(GateOneRow {
                keys: &views.keys[row * width..(row + 1) * width],
                x: &views.out[row * width..(row + 1) * width],
                value: &views.values[row * hidden..(row + 1) * hidden],
                norms: [&views.norm_key, &views.norm_query, &views.norm_conv],
                eps: op.shape.eps,
                scratch: &mut scratch,
                out,
            });
        }
    });
    if step.tapped() {
        let of =
            |which: usize| scores.chunks_exact(count).skip(which).step_by(2).flatten().copied().collect::<Vec<_>>();
        step.tap("score", &[tile.len(), count], &of(0));
        step.tap("gate", &[tile.len(), count], &of(1));
    }
}

struct GateRow<'a> {
    gated: &'a mut [f32],
    normed: &'a mut [f32],
    /// `[2, streams]`: score, then gate.
    scores: &'a mut [f32],
}

struct GateOneRow<'a, 'o> {
    keys: &'a [f32],
    x: &'a [f32],
    value: &'a [f32],
    /// Of key, query and convolution.
    norms: [&'a [f32]; 3],
    eps: f32,
    /// `[2, hidden]`.
    scratch: &'a mut [f32],
    out: &'a mut GateRow<'o>,
}

impl Kernel for GateOneRow<'_, '_> {
    #[inline(always)]
    fn run<A: Arith>(self) {
        let GateOneRow { keys, x, value, norms, eps, scratch, out } = self;
        let hidden = value.len();
        let (key, query) = scratch.split_at_mut(hidden);
        let (scores, gates) = out.scores.split_at_mut(keys.len() / hidden);
        for (stream, (score, gate)) in scores.iter_mut().zip(gates).enumerate() {
            let range = stream * hidden..(stream + 1) * hidden;
            rms_norm::<A>(&keys[range.clone()], &norms[0][range.clone()], eps, key);
            rms_norm::<A>(&x[range.clone()], &norms[1][range.clone()], eps, query);
            *score = dot::<A>(key, query) / (hidden as f32).sqrt();
            *gate = sigmoid::<A>(signed_root(*score));
            let gated = &mut out.gated[range.clone()];
            for (g, &v) in gated.iter_mut().zip(value) {
                *g = *gate * v;
            }
            rms_norm::<A>(gated, &norms[2][range.clone()], eps, &mut out.normed[range]);
        }
    }
}

/// `sign(s) sqrt(max(|s|, floor))`, zero at zero.
#[inline(always)]
fn signed_root(s: f32) -> f32 {
    let magnitude = if s.abs() < SCORE_FLOOR { SCORE_FLOOR } else { s.abs() };
    if s == 0.0 { 0.0 } else { magnitude.sqrt().copysign(s) }
}
