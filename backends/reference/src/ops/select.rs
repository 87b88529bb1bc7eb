//! Owns: scores of the indexer's blocks and the choice of those a query keeps (architecture.md 7.3).
//!
//! `s[j] = sum_h max(0, index_q[h] . pooled[j]) / sqrt(index_dim)` over the blocks complete for the query; the `topk`
//! largest are kept: descending score, then ascending block.
//!
//! Row rule: a query scores and chooses alone, by its own position.

use ss_backend::op::{QsaSelect, QsaShape};
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
    let (all, width) = (all as usize, (shape.index_heads * shape.index_dim) as usize);
    let visible = (op.first + op.slice + 1) as usize;
    // A query that keeps everything needs no scores, unless somebody wants to see them.
    let unscored = if step.tapped() { 0 } else { topk };
    if all > unscored {
        let index_q = &index_q[slice * width..(slice + count) * width];
        step.split(scores.len() * width, &mut scores, 1, |first, scores| {
            let mut scratch = step.scratch(shape.index_dim as usize);
            let scratch = &mut *scratch;
            step.run(Scores { shape, visible, unscored, index_q, pooled: &pooled, first, all, scratch, scores });
        });
    }
    let blocks = &mut blocks[slice * topk..(slice + count) * topk];
    step.split(4 * count * all, blocks, topk, |first, blocks| {
        for (row, blocks) in (first..).zip(blocks.chunks_exact_mut(topk)) {
            keep(&scores[row * all..], (visible + row) / shape.block as usize, blocks);
        }
    });
    step.tap("index_scores", &[count, all], &scores);
    step.tap_ids("index_blocks", &[count, topk], blocks);
    Ok(())
}

/// The numbers from `first` on of the scores `[rows, all]`.
struct Scores<'a, C> {
    shape: &'a QsaShape,
    /// Tokens that row 0 sees.
    visible: usize,
    /// Rows with this many blocks or fewer are left out.
    unscored: usize,
    index_q: &'a [f32],
    pooled: &'a [C],
    first: usize,
    all: usize,
    /// One pooled row.
    scratch: &'a mut [f32],
    scores: &'a mut [f32],
}

impl<C: Cell> Kernel for Scores<'_, C> {
    #[inline(always)]
    fn run<A: Arith>(self) {
        let Scores { shape, visible, unscored, index_q, pooled, first, all, scratch, scores } = self;
        let dim = shape.index_dim as usize;
        let (width, root) = (shape.index_heads as usize * dim, (dim as f32).sqrt());
        let (mut at, mut rest) = (first, scores);
        while !rest.is_empty() {
            let (row, start) = (at / all, at % all);
            let (segment, next) = rest.split_at_mut((all - start).min(rest.len()));
            let complete = (visible + row) / shape.block as usize;
            let queries = &index_q[row * width..(row + 1) * width];
            let wanted = if complete > unscored { segment.len() } else { 0 };
            for (j, score) in (start..).zip(&mut segment[..wanted]) {
                *score = INCOMPLETE;
                if j < complete {
                    let key = C::row(&pooled[j * dim..(j + 1) * dim], scratch);
                    let mut sum = 0.0;
                    for query in queries.chunks_exact(dim) {
                        sum += positive(dot::<A>(query, key));
                    }
                    *score = sum / root;
                }
            }
            at += segment.len();
            rest = next;
        }
    }
}

/// `max(0, x)`; NaN stays.
#[inline(always)]
fn positive(x: f32) -> f32 {
    if x < 0.0 { 0.0 } else { x }
}

/// The best of the first `complete` scores, ascending, then [`NONE`].
fn keep(scores: &[f32], complete: usize, blocks: &mut [u32]) {
    let topk = blocks.len();
    blocks.fill(NONE);
    if complete <= topk {
        for (block, j) in blocks.iter_mut().zip(0..complete as u32) {
            *block = j;
        }
        return;
    }
    let mut ranks: Vec<u64> = scores[..complete].iter().zip(0..).map(|(&score, j)| rank(score, j)).collect();
    ranks.select_nth_unstable_by(topk - 1, |a, b| b.cmp(a));
    for (block, &rank) in blocks.iter_mut().zip(&ranks) {
        *block = ranked_index(rank);
    }
    blocks.sort_unstable();
}
