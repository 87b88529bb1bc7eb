//! Owns: the projections of routed experts and of the shared expert (architecture.md section 8).
//!
//! In: `h = silu(Wg u) * (Wu u)`, one row a (row, choice). Out: `Wd h`, unweighted.
//!
//! Row rule: see [`crate::gemm`]. Rows that chose the same expert are multiplied together, which changes no sum.

use ss_backend::op::{ExpertsIn, ExpertsOut, SharedIn, SharedOut};
use ss_backend::{Matrix, NONE, Pool, PoolMemory, Result, Rows};

use crate::gemm::Input;
use crate::math::silu;
use crate::simd::{Arith, Kernel};
use crate::step::{HeldWeight, Read, Step, Write, volume};
use crate::tuning::ROW_TILE;
use crate::weights::Weight;

/// Gate and up projections and SwiGLU.
pub fn gate_up(step: &Step<'_>, op: &ExpertsIn) -> Result<()> {
    let layout = op.pool.layout();
    let (inner, hidden) = (layout.gate.matrix.rows, layout.gate.matrix.cols);
    step.nonzero(&[("inner", inner), ("hidden", hidden), ("choices", op.choices)])?;
    expect(step, "up", layout.up.matrix, (inner, hidden))?;
    let rows = op.rows.count;
    let u = step.read::<f32>(&op.u, "u", volume(&[rows, hidden]))?;
    let slots = step.read::<u32>(&op.slots, "slots", volume(&[rows, op.choices]))?;
    let mut out = step.write::<f32>(&op.out, "out", volume(&[rows, op.choices, inner]))?;
    let mut shared = op.shared.as_ref().map(|shared| SharedGateUp::new(step, shared, rows, hidden)).transpose()?;

    let (width, choices, round) = (hidden as usize, op.choices as usize, step.rounds(op.rows));
    let x = |pair: usize| &u[pair / choices * width..(pair / choices + 1) * width];
    let pairs = pairs(&slots, x, &mut out, inner as usize);
    by_slot(step, &op.pool, pairs, 2 * inner as usize * width, |record, pairs| {
        let (gate, up) = (Weight::in_slot(&layout.gate, record), Weight::in_slot(&layout.up, record));
        for pairs in pairs.chunks_mut(ROW_TILE) {
            let xs = pairs.iter().map(|pair| pair.x).collect();
            swiglu(step, [&gate, &up], &Input::new(step.machine, xs), round, outs(pairs));
        }
    })?;
    if let Some(shared) = &mut shared {
        shared.run(step, op.rows, &u, width);
    }
    Ok(())
}

/// Down projections.
pub fn down(step: &Step<'_>, op: &ExpertsOut) -> Result<()> {
    let layout = op.pool.layout();
    let (hidden, inner) = (layout.down.matrix.rows, layout.down.matrix.cols);
    step.nonzero(&[("hidden", hidden), ("inner", inner), ("choices", op.choices)])?;
    let rows = op.rows.count;
    let x = step.read::<f32>(&op.x, "x", volume(&[rows, op.choices, inner]))?;
    let slots = step.read::<u32>(&op.slots, "slots", volume(&[rows, op.choices]))?;
    let mut out = step.write::<f32>(&op.out, "out", volume(&[rows, op.choices, hidden]))?;
    let mut shared = op.shared.as_ref().map(|shared| SharedDown::new(step, shared, rows, hidden)).transpose()?;

    let (width, round) = (inner as usize, step.rounds(op.rows));
    let pairs = pairs(&slots, |pair| &x[pair * width..(pair + 1) * width], &mut out, hidden as usize);
    by_slot(step, &op.pool, pairs, hidden as usize * width, |record, pairs| {
        let down = Weight::in_slot(&layout.down, record);
        for pairs in pairs.chunks_mut(ROW_TILE) {
            let xs = pairs.iter().map(|pair| pair.x).collect();
            Input::new(step.machine, xs).multiply(&down, round, outs(pairs));
        }
    })?;
    if let Some(shared) = &mut shared {
        shared.run(step, op.rows);
    }
    Ok(())
}

fn expect(step: &Step<'_>, part: &str, matrix: Matrix, (rows, cols): (u32, u32)) -> Result<()> {
    if (matrix.rows, matrix.cols) == (rows, cols) {
        return Ok(());
    }
    let have = format!("[{}, {}]", matrix.rows, matrix.cols);
    Err(step.refuse(format_args!("the pool's `{part}` has shape {have}, expected [{rows}, {cols}]")))
}

/// A (row, choice) whose expert has a slot.
struct Pair<'a> {
    slot: u32,
    x: &'a [f32],
    out: &'a mut [f32],
}

fn pairs<'a>(slots: &[u32], x: impl Fn(usize) -> &'a [f32], out: &'a mut [f32], width: usize) -> Vec<Pair<'a>> {
    let outs = slots.iter().zip(out.chunks_exact_mut(width)).enumerate().filter(|(_, (slot, _))| **slot != NONE);
    outs.map(|(pair, (&slot, out))| Pair { slot, x: x(pair), out }).collect()
}

fn outs<'a>(pairs: &'a mut [Pair<'_>]) -> Vec<&'a mut [f32]> {
    pairs.iter_mut().map(|pair| &mut *pair.out).collect()
}

/// Runs `f` on the record and the pairs of every slot; `work` multiply-adds a pair. A slot that is open is refused.
fn by_slot<'p>(
    step: &Step<'_>,
    pool: &Pool,
    mut pairs: Vec<Pair<'p>>,
    work: usize,
    f: impl Fn(&[u8], &mut [Pair<'p>]) + Sync,
) -> Result<()> {
    let (host, work) = (step.pool(pool)?, work * pairs.len());
    pairs.sort_by_key(|pair| pair.slot);
    let mut groups = Vec::new();
    for pairs in pairs.chunk_by_mut(|a, b| a.slot == b.slot) {
        let slot = pairs[0].slot;
        let unknown = || step.refuse(format_args!("`slots` holds {slot}, the pool has {}", host.slots()));
        let open = || step.refuse(format_args!("`slots` holds {slot}, which is open for writing"));
        groups.push((host.slot(slot).ok_or_else(unknown)?.try_read().ok_or_else(open)?, pairs));
    }
    step.split(work, &mut groups, 1, |_, groups| {
        groups.iter_mut().for_each(|(record, pairs)| f(bytemuck::cast_slice(record), pairs));
    });
    Ok(())
}

/// `outs = silu(gate x) * (up x)`.
fn swiglu(step: &Step<'_>, [gate, up]: [&Weight<'_>; 2], x: &Input<'_>, round: bool, mut outs: Vec<&mut [f32]>) {
    let mut ups = step.scratch(outs.len() * up.rows());
    x.multiply(gate, round, outs.iter_mut().map(|out| &mut **out).collect());
    x.multiply(up, round, ups.chunks_exact_mut(up.rows()).collect());
    for (out, up) in outs.into_iter().zip(ups.chunks_exact(up.rows())) {
        step.run(SiluTimes { up, out });
    }
}

/// `out = silu(out) * up`.
struct SiluTimes<'a> {
    up: &'a [f32],
    out: &'a mut [f32],
}

impl Kernel for SiluTimes<'_> {
    #[inline(always)]
    fn run<A: Arith>(self) {
        for (x, &up) in self.out.iter_mut().zip(self.up) {
            *x = silu::<A>(*x) * up;
        }
    }
}

/// First half of the shared expert.
struct SharedGateUp<'a> {
    gate: HeldWeight<'a>,
    up: HeldWeight<'a>,
    out: Write<'a, f32>,
}

impl<'a> SharedGateUp<'a> {
    fn new(step: &Step<'_>, shared: &'a SharedIn, rows: u32, hidden: u32) -> Result<Self> {
        let inner = shared.gate.matrix.rows;
        step.nonzero(&[("shared.gate", inner)])?;
        Ok(SharedGateUp {
            gate: step.weight(&shared.gate, "shared.gate", inner as usize, hidden as usize)?,
            up: step.weight(&shared.up, "shared.up", inner as usize, hidden as usize)?,
            out: step.write(&shared.out, "shared.out", volume(&[rows, inner]))?,
        })
    }

    fn run(&mut self, step: &Step<'_>, rows: Rows, u: &[f32], hidden: usize) {
        let (gate, up) = (self.gate.view(), self.up.view());
        let inner = gate.rows();
        for tile in step.tiles(rows.count) {
            let x = Input::contiguous(step.machine, &u[tile.start * hidden..tile.end * hidden], hidden);
            let out = self.out[tile.start * inner..tile.end * inner].chunks_exact_mut(inner).collect();
            swiglu(step, [&gate, &up], &x, step.rounds(rows), out);
        }
    }
}

/// Second half of the shared expert.
struct SharedDown<'a> {
    x: Read<'a, f32>,
    down: HeldWeight<'a>,
    out: Write<'a, f32>,
}

impl<'a> SharedDown<'a> {
    fn new(step: &Step<'_>, shared: &'a SharedOut, rows: u32, hidden: u32) -> Result<Self> {
        let inner = shared.down.matrix.cols;
        step.nonzero(&[("shared.down", inner)])?;
        Ok(SharedDown {
            x: step.read(&shared.x, "shared.x", volume(&[rows, inner]))?,
            down: step.weight(&shared.down, "shared.down", hidden as usize, inner as usize)?,
            out: step.write(&shared.out, "shared.out", volume(&[rows, hidden]))?,
        })
    }

    fn run(&mut self, step: &Step<'_>, rows: Rows) {
        let down = self.down.view();
        let (hidden, inner) = (down.rows(), down.cols());
        for tile in step.tiles(rows.count) {
            let x = Input::contiguous(step.machine, &self.x[tile.start * inner..tile.end * inner], inner);
            let out = self.out[tile.start * hidden..tile.end * hidden].chunks_exact_mut(hidden).collect();
            x.multiply(&down, step.rounds(rows), out);
        }
    }
}
