//! Owns: projections of sparse attention and its indexer, and the growth of the cache (architecture.md 7.1, 7.2).
//!
//! `q, k = rope(rms(x) * w)` per head, `v` as it is, `index_q = rope(rms(x) * w)`, `raw` as it is;
//! `pooled[j] = rope(rms(mean of the block's stored raw rows) * w)` at the block's first position.
//!
//! Row rule: a row is normed and rotated alone; a block is pooled from the stored rows, in row order (engine.md 3.7g).

use ss_backend::op::{QsaAppend, QsaCache, QsaProject, QsaShape};
use ss_backend::{Result, Scalar};

use crate::cell::Cell;
use crate::gemm::Input;
use crate::norm::rms_norm;
use crate::simd::{Arith, Kernel};
use crate::step::{Read, Step, Write, volume};

/// Projections.
pub fn project(step: &Step<'_>, op: &QsaProject) -> Result<()> {
    let (q, kv, index) = (op.q.matrix.rows, op.k.matrix.rows, op.index.matrix.rows);
    let hidden = op.q.matrix.cols;
    step.nonzero(&[("hidden", hidden), ("q", q), ("k", kv), ("index", index)])?;
    let (rows, width) = (op.rows.count, hidden as usize);
    let u = step.read::<f32>(&op.u, "u", volume(&[rows, hidden]))?;
    let weights = [
        step.weight(&op.q, "q", q as usize, width)?,
        step.weight(&op.k, "k", kv as usize, width)?,
        step.weight(&op.v, "v", kv as usize, width)?,
        step.weight(&op.index, "index", index as usize, width)?,
    ];
    let mut q_out = step.write::<f32>(&op.q_out, "q_out", volume(&[rows, q]))?;
    let mut kv_out = step.write::<f32>(&op.kv_out, "kv_out", volume(&[rows, 2, kv]))?;
    let mut index_out = step.write::<f32>(&op.index_out, "index_out", volume(&[rows, index]))?;
    let ([q, k, v, index], round) = (weights.each_ref().map(|weight| weight.view()), step.rounds(op.rows));
    for tile in step.tiles(rows) {
        let input = Input::contiguous(step.machine, &u[tile.start * width..tile.end * width], width);
        let kv = k.rows();
        input.multiply(&q, round, q_out.chunks_exact_mut(q.rows()).skip(tile.start).take(tile.len()).collect());
        let pairs = kv_out.chunks_exact_mut(2 * kv).skip(tile.start).take(tile.len());
        let (k_rows, v_rows) = pairs.map(|pair| pair.split_at_mut(kv)).unzip();
        input.multiply(&k, round, k_rows);
        input.multiply(&v, round, v_rows);
        input.multiply(
            &index,
            false,
            index_out.chunks_exact_mut(index.rows()).skip(tile.start).take(tile.len()).collect(),
        );
    }
    Ok(())
}

/// Refuses shapes that no model has.
///
/// # Errors
/// [`Error::Refused`](ss_backend::Error::Refused) naming the field.
pub fn check(step: &Step<'_>, shape: &QsaShape) -> Result<()> {
    step.nonzero(&[("heads", shape.heads), ("kv_heads", shape.kv_heads), ("head_dim", shape.head_dim)])?;
    step.nonzero(&[("index_heads", shape.index_heads), ("index_dim", shape.index_dim)])?;
    step.nonzero(&[("block", shape.block), ("topk", shape.topk)])?;
    if !shape.heads.is_multiple_of(shape.kv_heads) {
        let (heads, kv) = (shape.heads, shape.kv_heads);
        return Err(step.refuse(format_args!("`heads` is {heads}, not a multiple of the {kv} KV heads")));
    }
    if !shape.rotary.is_multiple_of(2) || shape.rotary > shape.head_dim.min(shape.index_dim) {
        return Err(step.refuse(format_args!("`rotary` is {}, expected an even part of a head", shape.rotary)));
    }
    Ok(())
}

/// An error for a cache that is stored in neither F32 nor BF16.
pub fn bad_scalar(step: &Step<'_>, cache: &QsaCache) -> ss_backend::Error {
    step.refuse(format_args!("`cache` is stored in {:?}, expected F32 or Bf16", cache.scalar))
}

/// Norms, rotation, cache append and block pooling.
pub fn append(step: &Step<'_>, op: &QsaAppend) -> Result<()> {
    match op.cache.scalar {
        Scalar::F32 => Append::<f32>::new(step, op)?.run(step, op),
        Scalar::Bf16 => Append::<u16>::new(step, op)?.run(step, op),
        Scalar::F16 => return Err(bad_scalar(step, &op.cache)),
    }
    Ok(())
}

struct Append<'a, C> {
    norms: [Read<'a, f32>; 4],
    q: Read<'a, f32>,
    kv: Read<'a, f32>,
    index: Read<'a, f32>,
    rope: Read<'a, f32>,
    block_rope: Read<'a, f32>,
    k: Write<'a, C>,
    v: Write<'a, C>,
    raw: Write<'a, C>,
    pooled: Write<'a, C>,
    q_out: Write<'a, f32>,
    index_q_out: Write<'a, f32>,
}

impl<'a, C: Cell> Append<'a, C> {
    fn new(step: &Step<'_>, op: &'a QsaAppend) -> Result<Self> {
        let shape = &op.shape;
        check(step, shape)?;
        let (rows, norms, cache) = (op.rows.count, &op.norms, &op.cache);
        let after = op.first.checked_add(rows).ok_or_else(|| step.refuse("`first` and `rows` overflow"))?;
        let blocks = after / shape.block;
        let completed = blocks - op.first / shape.block;
        let (head, index) = (shape.head_dim as usize, shape.index_dim as usize);
        let width = |rows: u32| volume(&[rows, shape.kv_heads, shape.head_dim]);
        let index_width = volume(&[rows, shape.index_heads, shape.index_dim]);
        let index_size = index_width.saturating_add(volume(&[rows, shape.index_dim]));
        Ok(Append {
            norms: [
                step.read(&norms.q, "norms.q", head)?,
                step.read(&norms.k, "norms.k", head)?,
                step.read(&norms.index_q, "norms.index_q", index)?,
                step.read(&norms.index_k, "norms.index_k", index)?,
            ],
            q: step.read(&op.q, "q", volume(&[rows, shape.heads, 2, shape.head_dim]))?,
            kv: step.read(&op.kv, "kv", width(rows).saturating_mul(2))?,
            index: step.read(&op.index, "index", index_size)?,
            rope: step.read(&op.rope, "rope", volume(&[rows, shape.rotary]))?,
            block_rope: step.read(&op.block_rope, "block_rope", volume(&[completed, shape.rotary]))?,
            k: step.write(&cache.k, "cache.k", width(after))?,
            v: step.write(&cache.v, "cache.v", width(after))?,
            raw: step.write(&cache.raw, "cache.raw", volume(&[after, shape.index_dim]))?,
            pooled: step.write(&cache.pooled, "cache.pooled", volume(&[blocks, shape.index_dim]))?,
            q_out: step.write(&op.q_out, "q_out", volume(&[rows, shape.heads, shape.head_dim]))?,
            index_q_out: step.write(&op.index_q_out, "index_q_out", index_width)?,
        })
    }

    fn run(mut self, step: &Step<'_>, op: &QsaAppend) {
        self.rows(step, op);
        self.pool(step, op);
        if step.tapped() {
            self.tap(step, op);
        }
    }

    fn rows(&mut self, step: &Step<'_>, op: &QsaAppend) {
        let shape = op.shape;
        let (q_width, kv) = ((shape.heads * shape.head_dim) as usize, (shape.kv_heads * shape.head_dim) as usize);
        let (iq_width, raw, first) =
            ((shape.index_heads * shape.index_dim) as usize, shape.index_dim as usize, op.first as usize);
        let heads = self.q_out.chunks_exact_mut(q_width).zip(self.index_q_out.chunks_exact_mut(iq_width));
        let cached = self.k.chunks_exact_mut(kv).zip(self.v.chunks_exact_mut(kv)).zip(self.raw.chunks_exact_mut(raw));
        let rows = heads.zip(cached.skip(first));
        let mut rows: Vec<_> = rows.map(|((q, iq), ((k, v), raw))| AppendedRow { q, iq, k, v, raw }).collect();
        let (rotary, index) = (shape.rotary as usize, iq_width + raw);
        step.split(8 * (2 * q_width + 2 * kv + index) * rows.len(), &mut rows, 1, |first, rows| {
            let mut scratch = step.scratch(shape.head_dim as usize);
            for (row, out) in (first..).zip(rows) {
                step.run(AppendRow {
                    norms: self.norms.each_ref().map(|norm| &**norm),
                    q: &self.q[row * 2 * q_width..(row + 1) * 2 * q_width],
                    kv: &self.kv[row * 2 * kv..(row + 1) * 2 * kv],
                    index: &self.index[row * index..(row + 1) * index],
                    rope: &self.rope[row * rotary..(row + 1) * rotary],
                    eps: shape.eps,
                    scratch: &mut scratch,
                    out,
                });
            }
        });
    }

    fn pool(&mut self, step: &Step<'_>, op: &QsaAppend) {
        let (block, dim) = (op.shape.block as usize, op.shape.index_dim as usize);
        let (done, rotary) = ((op.first / op.shape.block) as usize, op.shape.rotary as usize);
        let mut scratch = step.scratch(2 * dim);
        for (i, pooled) in self.pooled.chunks_exact_mut(dim).skip(done).enumerate() {
            step.run(PoolBlock {
                raw: &self.raw[(done + i) * block * dim..(done + i + 1) * block * dim],
                norm: &self.norms[3],
                rope: &self.block_rope[i * rotary..(i + 1) * rotary],
                eps: op.shape.eps,
                scratch: &mut scratch,
                pooled,
            });
        }
    }

    fn tap(&self, step: &Step<'_>, op: &QsaAppend) {
        let shape = &op.shape;
        let (rows, first, block) = (op.rows.count as usize, op.first as usize, shape.block as usize);
        let (heads, kv, head) = (shape.heads as usize, shape.kv_heads as usize, shape.head_dim as usize);
        let (index_heads, index) = (shape.index_heads as usize, shape.index_dim as usize);
        let load = |cells: &[C]| cells.iter().map(|cell| cell.load()).collect::<Vec<_>>();
        let gate: Vec<f32> = self.q.chunks_exact(head).skip(1).step_by(2).flatten().copied().collect();
        step.tap("q", &[rows, heads, head], &self.q_out);
        step.tap("gate", &[rows, heads, head], &gate);
        step.tap("k", &[rows, kv, head], &load(&self.k[first * kv * head..]));
        step.tap("v", &[rows, kv, head], &load(&self.v[first * kv * head..]));
        step.tap("index_q", &[rows, index_heads, index], &self.index_q_out);
        step.tap("index_raw_k", &[rows, index], &load(&self.raw[first * index..]));
        let pooled = load(&self.pooled[first / block * index..]);
        step.tap("index_pooled", &[pooled.len() / index, index], &pooled);
    }
}

struct AppendedRow<'a, C> {
    q: &'a mut [f32],
    iq: &'a mut [f32],
    k: &'a mut [C],
    v: &'a mut [C],
    raw: &'a mut [C],
}

struct AppendRow<'a, 'o, C> {
    /// Of q, k, index q.
    norms: [&'a [f32]; 4],
    q: &'a [f32],
    kv: &'a [f32],
    index: &'a [f32],
    rope: &'a [f32],
    eps: f32,
    scratch: &'a mut [f32],
    out: &'a mut AppendedRow<'o, C>,
}

impl<C: Cell> Kernel for AppendRow<'_, '_, C> {
    #[inline(always)]
    fn run<A: Arith>(self) {
        let AppendRow { norms, q, kv, index, rope, eps, scratch, out } = self;
        let (head, dim) = (norms[0].len(), norms[2].len());
        for (q, out) in q.chunks_exact(head).step_by(2).zip(out.q.chunks_exact_mut(head)) {
            norm_rope::<A>(q, norms[0], eps, rope, out);
        }
        let (k, v) = kv.split_at(out.k.len());
        for (k, out) in k.chunks_exact(head).zip(out.k.chunks_exact_mut(head)) {
            norm_rope::<A>(k, norms[1], eps, rope, scratch);
            store(scratch, out);
        }
        store(v, out.v);
        for (q, out) in index.chunks_exact(dim).zip(out.iq.chunks_exact_mut(dim)) {
            norm_rope::<A>(q, norms[2], eps, rope, out);
        }
        store(&index[index.len() - dim..], out.raw);
    }
}

#[inline(always)]
fn store<C: Cell>(row: &[f32], out: &mut [C]) {
    for (out, &x) in out.iter_mut().zip(row) {
        *out = C::store(x);
    }
}

/// `out = rope(rms(x) * weight)`; `rope` holds cosine and sine of each angle.
#[inline(always)]
fn norm_rope<A: Arith>(x: &[f32], weight: &[f32], eps: f32, rope: &[f32], out: &mut [f32]) {
    rms_norm::<A>(x, weight, eps, out);
    let (first, second) = out[..rope.len()].split_at_mut(rope.len() / 2);
    for ((a, b), &[cos, sin]) in first.iter_mut().zip(second).zip(rope.as_chunks::<2>().0) {
        (*a, *b) = (*a * cos - *b * sin, *b * cos + *a * sin);
    }
}

struct PoolBlock<'a, C> {
    /// The stored rows of the block.
    raw: &'a [C],
    norm: &'a [f32],
    rope: &'a [f32],
    eps: f32,
    /// Two rows.
    scratch: &'a mut [f32],
    pooled: &'a mut [C],
}

impl<C: Cell> Kernel for PoolBlock<'_, C> {
    #[inline(always)]
    fn run<A: Arith>(self) {
        let PoolBlock { raw, norm, rope, eps, scratch, pooled } = self;
        let (mean, rotated) = scratch.split_at_mut(norm.len());
        mean.fill(0.0);
        for row in raw.chunks_exact(norm.len()) {
            for (mean, cell) in mean.iter_mut().zip(row) {
                *mean += cell.load();
            }
        }
        let count = (raw.len() / norm.len()) as f32;
        for mean in mean.iter_mut() {
            *mean /= count;
        }
        norm_rope::<A>(mean, norm, eps, rope, rotated);
        store(rotated, pooled);
    }
}
