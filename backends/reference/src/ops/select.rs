//! Owns: scores of the indexer's blocks and the choice of those a query keeps (architecture.md 7.3).
//!
//! `s[j] = sum_h max(0, index_q[h] . pooled[j]) / sqrt(index_dim)` over the blocks complete for the query; the `topk`
//! largest are kept: descending score, then ascending block.
//!
//! Row rule: a query scores and chooses alone, by its own position.

use ss_backend::op::QsaSelect;
use ss_backend::{NONE, Result, Scalar};

use super::qsa::{bad_scalar, check};
use crate::cell::Cell;
use crate::dot::dot;
use crate::math::{rank, ranked_index};
use crate::simd::{Arith, Kernel};
use crate::step::{Step, volume};

/// What stands in the scores where a block is not complete for the query.
const INCOMPLETE: f32 = -1.0;

/// Scores and kept blocks of a slice of the rows.
pub fn select(step: &Step<'_>, op: &QsaSelect) -> Result<()> {
    match op.cache.scalar {
        Scalar::F32 => run::<f32>(step, op),
        Scalar::Bf16 => run::<u16>(step, op),
        Scalar::F16 => Err(bad_scalar(step, &op.cache)),
    }
}

fn run<C: Cell>(step: &Step<'_>, op: &QsaSelect) -> Result<()> {
    let (shape, rows) = (&op.shape, op.rows.count);
    check(step, shape)?;
    let after = op.first.checked_add(rows).ok_or_else(|| step.refuse("`first` and `rows` overflow"))?;
    if op.slice.checked_add(op.slice_rows).is_none_or(|end| end > rows) {
        let (slice, count) = (op.slice, op.slice_rows);
        return Err(step.refuse(format_args!("`slice` is {count} rows from {slice}, the operation has {rows}")));
    }
    let all = after / shape.block;
    let index_q = step.read::<f32>(&op.index_q, "index_q", volume(&[rows, shape.index_heads, shape.index_dim]))?;
    let pooled = step.read::<C>(&op.cache.pooled, "cache.pooled", volume(&[all, shape.index_dim]))?;
    let mut scores = step.write::<f32>(&op.scores, "scores", volume(&[op.slice_rows, all]))?;
    let mut blocks = step.write::<u32>(&op.blocks, "blocks", volume(&[rows, shape.topk]))?;

    let (slice, count, topk) = (op.slice as usize, op.slice_rows as usize, shape.topk as usize);
    let complete = |row: usize| (op.first as usize + slice + row + 1) / shape.block as usize;
    let width = (shape.index_heads * shape.index_dim) as usize;
    let (all, scored) = (all as usize, step.tapped() || all as usize > topk);
    if scored {
        step.split(scores.len() * width, &mut scores, 1, |first, scores| {
            let index_q = &index_q[slice * width..(slice + count) * width];
            let positions = Positions { first, all, complete: &complete };
            step.run(Scores { positions, index_q, pooled: &*pooled, dim: shape.index_dim as usize, scores });
        });
    }
    let blocks = &mut blocks[slice * topk..(slice + count) * topk];
    step.split(count * all, blocks, topk, |first, blocks| {
        for (row, blocks) in (first..).zip(blocks.chunks_exact_mut(topk)) {
            let scores = if scored { &scores[row * all..(row + 1) * all] } else { &[] };
            keep(scores, complete(row), blocks);
        }
    });
    step.tap("index_scores", &[count, all], &scores);
    step.tap_ids("index_blocks", &[count, topk], blocks);
    Ok(())
}

/// Which scores a kernel computes: `[rows, all]` from the number `first` on.
struct Positions<'a, F> {
    first: usize,
    all: usize,
    /// Blocks complete for a row.
    complete: &'a F,
}

struct Scores<'a, C, F> {
    positions: Positions<'a, F>,
    index_q: &'a [f32],
    pooled: &'a [C],
    dim: usize,
    scores: &'a mut [f32],
}

impl<C: Cell, F: Fn(usize) -> usize> Kernel for Scores<'_, C, F> {
    #[inline(always)]
    fn run<A: Arith>(self) {
        let Scores { positions: Positions { first, all, complete }, index_q, pooled, dim, scores } = self;
        let width = index_q.len() / complete_rows(index_q, dim, first, scores.len(), all);
        let root = (dim as f32).sqrt();
        let _ = (width, root, pooled, scores, complete, index_q);
        let _ = |a: &[f32], b: &[f32]| dot::<A>(a, b);
    }
}
