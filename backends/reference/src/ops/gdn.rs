//! Owns: Gated DeltaNet without its output projection (architecture.md section 6).
//!
//! `c = silu(conv(Wqkv u))` splits into q, k, v; `q = q rsqrt(sum q^2 + 1e-6) / sqrt(dk)`, `k` likewise unscaled;
//! `beta = sigmoid(b)`, `decay = exp(-exp(A_log) softplus(a + dt_bias))`; the recurrence of [`super::recurrence`];
//! `out = rms(y) * w * act(z)` per value head.
//!
//! Row rule: see [`crate::gemm`], [`super::conv`] and [`super::recurrence`].

use std::ops::Range;

use ss_backend::Result;
use ss_backend::op::{Gate, GdnMix, GdnProject, GdnReplay, GdnShape};

use super::conv::{Conv, ConvRows, transposed};
use super::copy::slide;
use super::recurrence::{Heads, Inputs, recur};
use crate::dot::dot;
use crate::gemm::Input;
use crate::math::{exp, sigmoid, silu, softplus};
use crate::norm::rms_norm;
use crate::scratch::Lease;
use crate::simd::{Arith, Kernel};
use crate::step::{Carried, Read, Step, Write, volume};
use crate::tuning::EXP_COST;

/// Added to the sum of squares of queries and keys (architecture.md section 6).
const L2_EPS: f32 = 1e-6;

/// Projections.
pub fn project(step: &Step<'_>, op: &GdnProject) -> Result<()> {
    let (channels, values, heads, hidden) =
        (op.qkv.matrix.rows, op.z.matrix.rows, op.a.matrix.rows, op.qkv.matrix.cols);
    step.nonzero(&[("hidden", hidden), ("channels", channels), ("values", values), ("value_heads", heads)])?;
    let (rows, width) = (op.rows.count, hidden as usize);
    let u = step.read::<f32>(&op.u, "u", volume(&[rows, hidden]))?;
    let qkv = step.weight(&op.qkv, "qkv", channels as usize, width)?;
    let z = step.weight(&op.z, "z", values as usize, width)?;
    let a = step.weight(&op.a, "a", heads as usize, width)?;
    let b = step.weight(&op.b, "b", heads as usize, width)?;
    let mut qkv_out = step.write::<f32>(&op.qkv_out, "qkv_out", volume(&[rows, channels]))?;
    let mut z_out = step.write::<f32>(&op.z_out, "z_out", volume(&[rows, values]))?;
    let mut ab_out = step.write::<f32>(&op.ab_out, "ab_out", volume(&[rows, 2, heads]))?;
    let (qkv, z, a, b, round) = (qkv.view(), z.view(), a.view(), b.view(), step.rounds(op.rows));
    for tile in step.tiles(rows) {
        let input = Input::contiguous(step.machine, &u[tile.start * width..tile.end * width], width);
        input.multiply(&qkv, round, rows_of(&mut qkv_out, qkv.rows(), &tile));
        input.multiply(&z, round, rows_of(&mut z_out, z.rows(), &tile));
        let heads = heads as usize;
        input.multiply(
            &a,
            false,
            rows_of(&mut ab_out, 2 * heads, &tile).into_iter().map(|r| &mut r[..heads]).collect(),
        );
        input.multiply(
            &b,
            false,
            rows_of(&mut ab_out, 2 * heads, &tile).into_iter().map(|r| &mut r[heads..]).collect(),
        );
    }
    tap_projections(step, op, [&qkv_out, &z_out, &ab_out]);
    Ok(())
}

fn rows_of<'a>(out: &'a mut [f32], width: usize, tile: &Range<usize>) -> Vec<&'a mut [f32]> {
    out[tile.start * width..tile.end * width].chunks_exact_mut(width).collect()
}

fn tap_projections(step: &Step<'_>, op: &GdnProject, [qkv, z, ab]: [&[f32]; 3]) {
    if step.tapped() {
        let (rows, heads) = (op.rows.count as usize, op.a.matrix.rows as usize);
        step.tap("qkv", &[rows, op.qkv.matrix.rows as usize], qkv);
        step.tap("z", &[rows, op.z.matrix.rows as usize], z);
        let of = |which: usize| ab.chunks_exact(heads).skip(which).step_by(2).flatten().copied().collect::<Vec<_>>();
        step.tap("a", &[rows, heads], &of(0));
        step.tap("b", &[rows, heads], &of(1));
    }
}

/// Sizes of a shape, once it is known that they fit memory.
#[derive(Clone, Copy)]
struct Sizes {
    heads: Heads,
    keys: usize,
    values: usize,
    channels: usize,
}

fn sizes(step: &Step<'_>, shape: &GdnShape) -> Result<Sizes> {
    step.nonzero(&[("key_heads", shape.key_heads), ("value_heads", shape.value_heads), ("kernel", shape.kernel)])?;
    step.nonzero(&[("key_dim", shape.key_dim), ("value_dim", shape.value_dim)])?;
    if !shape.value_heads.is_multiple_of(shape.key_heads) {
        let (values, keys) = (shape.value_heads, shape.key_heads);
        return Err(step.refuse(format_args!("`value_heads` is {values}, not a multiple of the {keys} key heads")));
    }
    let keys = volume(&[shape.key_heads, shape.key_dim]);
    let values = volume(&[shape.value_heads, shape.value_dim]);
    let heads = Heads {
        keys: shape.key_heads as usize,
        values: shape.value_heads as usize,
        key_dim: shape.key_dim as usize,
        value_dim: shape.value_dim as usize,
    };
    Ok(Sizes { heads, keys, values, channels: keys.saturating_mul(2).saturating_add(values) })
}

struct Recorded<'a> {
    k: Write<'a, f32>,
    v: Write<'a, f32>,
    gates: Write<'a, f32>,
}

struct Views<'a> {
    conv: Read<'a, f32>,
    a_log: Read<'a, f32>,
    dt_bias: Read<'a, f32>,
    norm: Read<'a, f32>,
    qkv: Read<'a, f32>,
    z: Read<'a, f32>,
    ab: Read<'a, f32>,
    window: Carried<'a>,
    state: Carried<'a>,
    recorded: Option<Recorded<'a>>,
    out: Write<'a, f32>,
}

impl<'a> Views<'a> {
    fn new(step: &Step<'_>, op: &'a GdnMix, sizes: &Sizes) -> Result<Self> {
        let (rows, shape) = (op.rows.count as usize, &op.shape);
        let each = |width: usize| width.saturating_mul(rows);
        let (heads, kernel) = (shape.value_heads as usize, shape.kernel as usize);
        let recorded = match &op.inputs {
            Some(inputs) => Some(Recorded {
                k: step.write(&inputs.k, "inputs.k", each(sizes.keys))?,
                v: step.write(&inputs.v, "inputs.v", each(sizes.values))?,
                gates: step.write(&inputs.gates, "inputs.gates", each(2 * heads))?,
            }),
            None => None,
        };
        Ok(Views {
            conv: step.read(&op.weights.conv, "conv", sizes.channels.saturating_mul(kernel))?,
            a_log: step.read(&op.weights.a_log, "a_log", heads)?,
            dt_bias: step.read(&op.weights.dt_bias, "dt_bias", heads)?,
            norm: step.read(&op.weights.norm, "norm", shape.value_dim as usize)?,
            qkv: step.read(&op.qkv, "qkv", each(sizes.channels))?,
            z: step.read(&op.z, "z", each(sizes.values))?,
            ab: step.read(&op.ab, "ab", each(2 * heads))?,
            window: step.carry(&op.window, "window", sizes.channels.saturating_mul(kernel - 1))?,
            state: step.carry(&op.state, "state", state_size(shape))?,
            recorded,
            out: step.write(&op.out, "out", each(sizes.values))?,
        })
    }
}

fn state_size(shape: &GdnShape) -> usize {
    volume(&[shape.value_heads, shape.value_dim, shape.key_dim])
}

/// Brings a state that lies elsewhere to the place where it is carried on.
fn bring(carried: &mut Carried<'_>) {
    if let Some(from) = &carried.from {
        carried.state.copy_from_slice(from);
    }
}

/// Convolution, recurrence, norm and gate.
pub fn mix(step: &Step<'_>, op: &GdnMix) -> Result<()> {
    let sizes = sizes(step, &op.shape)?;
    let mut mix = Mix { step, op, sizes, views: Views::new(step, op, &sizes)? };
    bring(&mut mix.views.state);
    let state = [sizes.heads.values, sizes.heads.value_dim, sizes.heads.key_dim];
    step.tap("state_in", &state, &mix.views.state.state);
    let taps = transposed(step, &mix.views.conv, op.shape.kernel as usize);
    for tile in step.tiles(op.rows.count) {
        mix.tile(&taps, tile);
    }
    slide(&mut mix.views.window, &mix.views.qkv);
    step.tap("state_out", &state, &mix.views.state.state);
    step.tap("gated", &[op.rows.count as usize, sizes.heads.values, sizes.heads.value_dim], &mix.views.out);
    Ok(())
}

struct Mix<'s, 'a> {
    step: &'s Step<'s>,
    op: &'a GdnMix,
    sizes: Sizes,
    views: Views<'a>,
}

impl<'s> Mix<'s, '_> {
    fn tile(&mut self, taps: &[f32], tile: Range<usize>) {
        let prepared = self.prepare(&self.convolve(taps, &tile), &tile);
        self.record(&prepared, &tile);
        let mut y = self.step.scratch(tile.len() * self.sizes.values);
        recur(self.step, prepared.inputs(self.sizes.heads), &mut self.views.state.state, &mut y);
        prepared.tap(self.step, self.sizes.heads, tile.len());
        self.finish(&y, &tile);
    }

    fn convolve(&self, taps: &[f32], tile: &Range<usize>) -> Lease<'s> {
        let (step, channels, kernel) = (self.step, self.sizes.channels, self.op.shape.kernel as usize);
        let (before, inputs) = (self.views.window.before(), &*self.views.qkv);
        let conv = Conv { taps, channels, dilation: 1, before, inputs };
        let mut out = step.scratch(tile.len() * channels);
        step.split(out.len() * (kernel + EXP_COST as usize), &mut out, channels, |first, out| {
            step.run(ConvRows { conv: &conv, first: tile.start + first, out });
        });
        step.tap("conv_out", &[tile.len(), channels], &out);
        out
    }

    /// Norms of queries and keys, gates.
    fn prepare(&self, convolved: &[f32], tile: &Range<usize>) -> Prepared<'s> {
        let (step, sizes, rows) = (self.step, self.sizes, tile.len());
        let mut out = Prepared {
            q: step.scratch(rows * sizes.keys),
            k: step.scratch(rows * sizes.keys),
            v: step.scratch(rows * sizes.values),
            gates: step.scratch(rows * 2 * sizes.heads.values),
        };
        let mut rows = out.rows(&sizes);
        step.split(2 * convolved.len(), &mut rows, 1, |first, rows| {
            for (i, out) in (first..).zip(rows) {
                step.run(PrepareRow {
                    convolved: &convolved[i * sizes.channels..(i + 1) * sizes.channels],
                    ab: &self.views.ab[(tile.start + i) * 2 * sizes.heads.values..],
                    a_log: &self.views.a_log,
                    dt_bias: &self.views.dt_bias,
                    key_dim: sizes.heads.key_dim,
                    out,
                });
            }
        });
        drop(rows);
        out
    }

    /// Keeps the inputs of the recurrence where they are wanted.
    fn record(&mut self, prepared: &Prepared<'_>, tile: &Range<usize>) {
        if let Some(recorded) = &mut self.views.recorded {
            let at = |all: &[f32]| tile.start * (all.len() / tile.len())..tile.end * (all.len() / tile.len());
            recorded.k[at(&prepared.k)].copy_from_slice(&prepared.k);
            recorded.v[at(&prepared.v)].copy_from_slice(&prepared.v);
            recorded.gates[at(&prepared.gates)].copy_from_slice(&prepared.gates);
        }
    }

    /// Output norm and gate; `y` is `[value_heads, rows, value_dim]`.
    fn finish(&mut self, y: &[f32], tile: &Range<usize>) {
        let (step, values, shape) = (self.step, self.sizes.values, self.op.shape);
        let range = tile.start * values..tile.end * values;
        let (norm, z) = (&*self.views.norm, &self.views.z[range.clone()]);
        let out = &mut self.views.out[range];
        let height = tile.len();
        step.split(EXP_COST as usize * z.len(), out, values, |first, out| {
            step.run(GatedNorm { y, z: &z[first * values..], norm, height, first, shape: &shape, out });
        });
        if step.tapped() {
            let dim = shape.value_dim as usize;
            let heads = y.len() / dim / height;
            let order = (0..height * heads).map(|i| (i % heads) * height + i / heads);
            let core: Vec<f32> = order.flat_map(|i| &y[i * dim..(i + 1) * dim]).copied().collect();
            step.tap("core", &[height, heads, dim], &core);
        }
    }
}

/// Inputs of the recurrence over a tile.
struct Prepared<'a> {
    q: Lease<'a>,
    k: Lease<'a>,
    v: Lease<'a>,
    gates: Lease<'a>,
}

impl Prepared<'_> {
    fn inputs(&self, heads: Heads) -> Inputs<'_> {
        Inputs { k: &self.k, v: &self.v, gates: &self.gates, q: Some(&self.q), heads }
    }

    fn rows(&mut self, sizes: &Sizes) -> Vec<PreparedRow<'_>> {
        let queries = self.q.chunks_exact_mut(sizes.keys).zip(self.k.chunks_exact_mut(sizes.keys));
        let gates = self.gates.chunks_exact_mut(2 * sizes.heads.values);
        let rest = self.v.chunks_exact_mut(sizes.values).zip(gates);
        queries.zip(rest).map(|((q, k), (v, gates))| PreparedRow { q, k, v, gates }).collect()
    }

    fn tap(&self, step: &Step<'_>, heads: Heads, rows: usize) {
        if step.tapped() {
            step.tap("q_l2", &[rows, heads.keys, heads.key_dim], &self.q);
            step.tap("k_l2", &[rows, heads.keys, heads.key_dim], &self.k);
            step.tap("v", &[rows, heads.values, heads.value_dim], &self.v);
            let of = |which: usize| self.gates.iter().skip(which).step_by(2).copied().collect::<Vec<_>>();
            step.tap("decay", &[rows, heads.values], &of(0));
            step.tap("beta", &[rows, heads.values], &of(1));
        }
    }
}

struct PreparedRow<'a> {
    q: &'a mut [f32],
    k: &'a mut [f32],
    v: &'a mut [f32],
    gates: &'a mut [f32],
}

struct PrepareRow<'a, 'o> {
    convolved: &'a [f32],
    /// a then b of this row, and what comes after.
    ab: &'a [f32],
    a_log: &'a [f32],
    dt_bias: &'a [f32],
    key_dim: usize,
    out: &'a mut PreparedRow<'o>,
}

impl Kernel for PrepareRow<'_, '_> {
    #[inline(always)]
    fn run<A: Arith>(self) {
        let PrepareRow { convolved, ab, a_log, dt_bias, key_dim, out } = self;
        let (q, rest) = convolved.split_at(out.q.len());
        let (k, v) = rest.split_at(out.k.len());
        l2_norm::<A>(q, key_dim, 1.0 / (key_dim as f32).sqrt(), out.q);
        l2_norm::<A>(k, key_dim, 1.0, out.k);
        out.v.copy_from_slice(v);
        let (a, b) = ab.split_at(a_log.len());
        let weights = a_log.iter().zip(dt_bias);
        for ((gates, (&a, &b)), (&a_log, &dt_bias)) in
            out.gates.as_chunks_mut::<2>().0.iter_mut().zip(a.iter().zip(b)).zip(weights)
        {
            *gates = [exp::<A>(-exp::<A>(a_log) * softplus::<A>(a + dt_bias)), sigmoid::<A>(b)];
        }
    }
}

#[inline(always)]
fn l2_norm<A: Arith>(x: &[f32], width: usize, scale: f32, out: &mut [f32]) {
    for (x, out) in x.chunks_exact(width).zip(out.chunks_exact_mut(width)) {
        let factor = 1.0 / (dot::<A>(x, x) + L2_EPS).sqrt();
        for (out, &x) in out.iter_mut().zip(x) {
            *out = x * factor * scale;
        }
    }
}

/// `out = rms(y) * norm * act(z)` for rows from `first`.
struct GatedNorm<'a> {
    /// `[value_heads, height, value_dim]`.
    y: &'a [f32],
    /// `[rows, value_heads, value_dim]`.
    z: &'a [f32],
    norm: &'a [f32],
    height: usize,
    first: usize,
    shape: &'a GdnShape,
    out: &'a mut [f32],
}

impl Kernel for GatedNorm<'_> {
    #[inline(always)]
    fn run<A: Arith>(self) {
        let GatedNorm { y, z, norm, height, first, shape, out } = self;
        let (dim, heads) = (norm.len(), shape.value_heads as usize);
        for (i, (out, z)) in out.chunks_exact_mut(dim).zip(z.chunks_exact(dim)).enumerate() {
            let (row, head) = (first + i / heads, i % heads);
            let start = (head * height + row) * dim;
            rms_norm::<A>(&y[start..start + dim], norm, shape.eps, out);
            match shape.gate {
                Gate::Sigmoid => {
                    for (o, &z) in out.iter_mut().zip(z) {
                        *o *= sigmoid::<A>(z);
                    }
                }
                Gate::Silu => {
                    for (o, &z) in out.iter_mut().zip(z) {
                        *o *= silu::<A>(z);
                    }
                }
            }
        }
    }
}

/// The recurrence alone, over recorded rows.
pub fn replay(step: &Step<'_>, op: &GdnReplay) -> Result<()> {
    let sizes = sizes(step, &op.shape)?;
    let each = |width: usize| width.saturating_mul(op.rows as usize);
    let k = step.read::<f32>(&op.inputs.k, "inputs.k", each(sizes.keys))?;
    let v = step.read::<f32>(&op.inputs.v, "inputs.v", each(sizes.values))?;
    let gates = step.read::<f32>(&op.inputs.gates, "inputs.gates", each(2 * sizes.heads.values))?;
    let mut state = step.carry(&op.state, "state", state_size(&op.shape))?;
    bring(&mut state);
    recur(step, Inputs { k: &k, v: &v, gates: &gates, q: None, heads: sizes.heads }, &mut state.state, &mut []);
    Ok(())
}
