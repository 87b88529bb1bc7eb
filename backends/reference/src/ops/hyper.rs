//! Owns: hyper-connections (architecture.md section 4).
//!
//! Read: `n = rms_group(x) * w`, `a = silu(Wdown n / S)`, `m = sigmoid(Wup a)`, `u_j = sum_s m[s,j] n[s,j] / S`,
//! `inject_s = 2 sigmoid((Winj n)_s / S)`. Write: `streams[r, s, :] += inject[r, s] * (weight x[r])`.
//!
//! Row rule: see [`crate::gemm`] and [`crate::norm`]; streams are added in their order.

use ss_backend::Result;
use ss_backend::op::{HcRead, ProjectWrite};

use crate::gemm::Input;
use crate::math::{sigmoid, silu};
use crate::norm::GroupNorm;
use crate::simd::{Arith, Kernel};
use crate::step::{HeldWeight, Read, Step, Write, volume};
use crate::tuning::EXP_COST;
use crate::weights::Weight;

/// Streams to one row.
pub fn read(step: &Step<'_>, op: &HcRead) -> Result<()> {
    let (lowrank, count) = (op.weights.down.matrix.rows, op.streams.count);
    step.nonzero(&[("streams", count), ("hidden", op.streams.hidden), ("lowrank", lowrank)])?;
    let views = ReadViews::new(step, op)?;
    let (first, width) = (op.first as usize, volume(&[op.streams.count, op.streams.hidden]));
    let mut outs = ReadOuts::new(step, op)?;
    let rows = op.rows.count as usize;
    for tile in step.tiles(op.rows.count) {
        let x = &views.x[(first + tile.start) * width..(first + tile.end) * width];
        views.tile(step, op, x, outs.tile(op, tile));
    }
    let (hidden, count, lowrank) = (op.streams.hidden as usize, count as usize, lowrank as usize);
    step.tap("norm", &[rows, width], &outs.normed);
    step.tap("lowrank", &[rows, lowrank], &outs.lowrank);
    step.tap("mixed", &[rows, hidden], &outs.u);
    if let Some(inject) = &outs.inject {
        step.tap("inject", &[rows, count], inject);
    }
    Ok(())
}

struct ReadViews<'a> {
    x: Read<'a, f32>,
    norm: Read<'a, f32>,
    down: HeldWeight<'a>,
    up: HeldWeight<'a>,
    inject: Option<HeldWeight<'a>>,
}

struct ReadOuts<'a> {
    normed: Write<'a, f32>,
    lowrank: Write<'a, f32>,
    u: Write<'a, f32>,
    inject: Option<Write<'a, f32>>,
}

/// Outputs of the rows of one tile.
struct ReadTile<'a> {
    normed: &'a mut [f32],
    lowrank: &'a mut [f32],
    u: &'a mut [f32],
    inject: &'a mut [f32],
}

impl<'a> ReadOuts<'a> {
    fn new(step: &Step<'_>, op: &'a HcRead) -> Result<Self> {
        let (rows, streams) = (op.rows.count, op.streams);
        let inject = match op.weights.inject {
            Some(_) => Some(step.write(&op.inject, "inject", volume(&[rows, streams.count]))?),
            None => None,
        };
        Ok(ReadOuts {
            normed: step.write(&op.normed, "normed", volume(&[rows, streams.count, streams.hidden]))?,
            lowrank: step.write(&op.lowrank, "lowrank", volume(&[rows, op.weights.down.matrix.rows]))?,
            u: step.write(&op.u, "u", volume(&[rows, streams.hidden]))?,
            inject,
        })
    }

    fn tile(&mut self, op: &HcRead, tile: std::ops::Range<usize>) -> ReadTile<'_> {
        let of = |dims: &[u32]| tile.start * volume(dims)..tile.end * volume(dims);
        let streams = op.streams;
        ReadTile {
            normed: &mut self.normed[of(&[streams.count, streams.hidden])],
            lowrank: &mut self.lowrank[of(&[op.weights.down.matrix.rows])],
            u: &mut self.u[of(&[streams.hidden])],
            inject: self.inject.as_mut().map_or(&mut [], |inject| &mut inject[of(&[streams.count])]),
        }
    }
}

impl<'a> ReadViews<'a> {
    fn new(step: &Step<'_>, op: &'a HcRead) -> Result<Self> {
        let (streams, weights) = (op.streams, &op.weights);
        let (width, lowrank) = (volume(&[streams.count, streams.hidden]), weights.down.matrix.rows as usize);
        let rows = volume(&[op.rows.count]).saturating_add(op.first as usize);
        let inject = match &weights.inject {
            Some(inject) => Some(step.weight(inject, "inject", streams.count as usize, width)?),
            None => None,
        };
        Ok(ReadViews {
            x: step.read(&op.x, "x", rows.saturating_mul(width))?,
            norm: step.read(&weights.norm, "norm", width)?,
            down: step.weight(&weights.down, "down", lowrank, width)?,
            up: step.weight(&weights.up, "up", width, lowrank)?,
            inject,
        })
    }

    fn tile(&self, step: &Step<'_>, op: &HcRead, x: &[f32], outs: ReadTile<'_>) {
        let ReadTile { normed, lowrank, u, inject } = outs;
        let (hidden, width, round) =
            (op.streams.hidden as usize, volume(&[op.streams.count, op.streams.hidden]), step.rounds(op.rows));
        step.split(2 * normed.len(), normed, width, |first, out| {
            let x = &x[first * width..first * width + out.len()];
            step.run(GroupNorm { x, weight: &self.norm, group: hidden, eps: op.eps, out });
        });
        let input = Input::contiguous(step.machine, normed, width);
        let rank = self.down.view().rows();
        input.multiply(&self.down.view(), round, lowrank.chunks_exact_mut(rank).collect());
        let count = op.streams.count as usize;
        step.run(ScaledSilu { x: lowrank, divisor: count as f32 });
        if let Some(weight) = &self.inject {
            input.multiply(&weight.view(), false, inject.chunks_exact_mut(count).collect());
            step.run(InjectionWeights { x: inject, divisor: count as f32 });
        }
        let mut gates = step.scratch(normed.len());
        let input = Input::contiguous(step.machine, lowrank, rank);
        input.multiply(&self.up.view(), round, gates.chunks_exact_mut(width).collect());
        step.split(gates.len() * EXP_COST as usize, u, hidden, |first, u| {
            let rows = first * width..(first + u.len() / hidden) * width;
            step.run(GatedMean { gates: &gates[rows.clone()], normed: &normed[rows], hidden, count, u });
        });
    }
}

/// `x = silu(x / divisor)`.
struct ScaledSilu<'a> {
    x: &'a mut [f32],
    divisor: f32,
}

impl Kernel for ScaledSilu<'_> {
    #[inline(always)]
    fn run<A: Arith>(self) {
        let divisor = self.divisor;
        for x in self.x.iter_mut() {
            *x = silu::<A>(*x / divisor);
        }
    }
}

/// `x = 2 sigmoid(x / divisor)`.
struct InjectionWeights<'a> {
    x: &'a mut [f32],
    divisor: f32,
}

impl Kernel for InjectionWeights<'_> {
    #[inline(always)]
    fn run<A: Arith>(self) {
        let divisor = self.divisor;
        for x in self.x.iter_mut() {
            *x = 2.0 * sigmoid::<A>(*x / divisor);
        }
    }
}

/// `u = sum over streams of sigmoid(gates) * normed, divided by their number`.
struct GatedMean<'a> {
    gates: &'a [f32],
    normed: &'a [f32],
    hidden: usize,
    count: usize,
    u: &'a mut [f32],
}

impl Kernel for GatedMean<'_> {
    #[inline(always)]
    fn run<A: Arith>(self) {
        let GatedMean { gates, normed, hidden, count, u } = self;
        let width = hidden * count;
        let rows = gates.chunks_exact(width).zip(normed.chunks_exact(width)).zip(u.chunks_exact_mut(hidden));
        for ((gates, normed), u) in rows {
            u.fill(0.0);
            for (gates, normed) in gates.chunks_exact(hidden).zip(normed.chunks_exact(hidden)) {
                for ((u, &gate), &n) in u.iter_mut().zip(gates).zip(normed) {
                    *u = A::fma(sigmoid::<A>(gate), n, *u);
                }
            }
            for u in u.iter_mut() {
                *u /= count as f32;
            }
        }
    }
}

/// Output projection of a mixer and its hyper-connection write.
pub fn project_write(step: &Step<'_>, op: &ProjectWrite) -> Result<()> {
    let (streams, cols) = (op.streams, op.weight.matrix.cols);
    step.nonzero(&[("streams", streams.count), ("hidden", streams.hidden), ("cols", cols)])?;
    let rows = op.rows.count;
    let (hidden, count) = (streams.hidden as usize, streams.count as usize);
    let x = step.read::<f32>(&op.x, "x", volume(&[rows, cols]))?;
    let weight = step.weight(&op.weight, "weight", hidden, cols as usize)?;
    let inject = step.read::<f32>(&op.inject, "inject", volume(&[rows, streams.count]))?;
    let mut out = step.write::<f32>(&op.out, "out", volume(&[rows, streams.count, streams.hidden]))?;
    let (weight, width) = (weight.view(), hidden * count);
    for tile in step.tiles(rows) {
        let y = project(step, &weight, &x[tile.start * cols as usize..tile.end * cols as usize], step.rounds(op.rows));
        let inject = &inject[tile.start * count..tile.end * count];
        write(step, &y, inject, &mut out[tile.start * width..tile.end * width], hidden);
        step.tap("out", &[tile.len(), hidden], &y);
    }
    step.tap_layer("after_attn", &[rows as usize, width], &out);
    Ok(())
}

fn project<'a>(step: &Step<'a>, weight: &Weight<'_>, x: &[f32], round: bool) -> crate::scratch::Lease<'a> {
    let input = Input::contiguous(step.machine, x, weight.cols());
    let mut y = step.scratch(x.len() / weight.cols() * weight.rows());
    input.multiply(weight, round, y.chunks_exact_mut(weight.rows()).collect());
    y
}

/// `streams[r, s, :] += inject[r, s] * y[r, :]`.
pub fn write(step: &Step<'_>, y: &[f32], inject: &[f32], streams: &mut [f32], hidden: usize) {
    let count = streams.len() / y.len().max(1);
    step.split(streams.len(), streams, count * hidden, |first, streams| {
        step.run(Inject { y: &y[first * hidden..], inject: &inject[first * count..], hidden, count, streams });
    });
}

struct Inject<'a> {
    y: &'a [f32],
    inject: &'a [f32],
    hidden: usize,
    count: usize,
    streams: &'a mut [f32],
}

impl Kernel for Inject<'_> {
    #[inline(always)]
    fn run<A: Arith>(self) {
        let Inject { y, inject, hidden, count, streams } = self;
        let rows = streams.chunks_exact_mut(hidden * count).zip(y.chunks_exact(hidden)).zip(inject.chunks_exact(count));
        for ((streams, y), inject) in rows {
            for (stream, &inject) in streams.chunks_exact_mut(hidden).zip(inject) {
                for (x, &y) in stream.iter_mut().zip(y) {
                    *x = A::fma(inject, y, *x);
                }
            }
        }
    }
}
