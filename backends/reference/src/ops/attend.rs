//! Owns: softmax attention over the kept blocks and the open tail, and its output gate (architecture.md 7.4).
//!
//! `p = softmax(q . k / sqrt(head_dim))` over the kept tokens, `out = (sum p v) * sigmoid(gate)`.
//!
//! Row rule: a query walks its own tokens in ascending order: kept blocks, then the tail. Heads that share a key head
//! read a key once, which changes no sum.

use std::ops::Range;

use ss_backend::op::QsaAttend;
use ss_backend::{Result, Scalar};

use super::qsa::{bad_scalar, check};
use crate::cell::Cell;
use crate::dot::{dot, sum};
use crate::math::{exp, sigmoid};
use crate::simd::{Arith, Kernel};
use crate::step::{Read, Step, Write, volume};

/// Attention.
pub fn attend(step: &Step<'_>, op: &QsaAttend) -> Result<()> {
    match op.cache.scalar {
        Scalar::F32 => Views::<f32>::new(step, op)?.run(step, op),
        Scalar::Bf16 => Views::<u16>::new(step, op)?.run(step, op),
        Scalar::F16 => return Err(bad_scalar(step, &op.cache)),
    }
    Ok(())
}

struct Views<'a, C> {
    q: Read<'a, f32>,
    gate: Read<'a, f32>,
    k: Read<'a, C>,
    v: Read<'a, C>,
    blocks: Read<'a, u32>,
    out: Write<'a, f32>,
}

impl<'a, C: Cell> Views<'a, C> {
    fn new(step: &Step<'_>, op: &'a QsaAttend) -> Result<Self> {
        let (shape, rows) = (&op.shape, op.rows.count);
        check(step, shape)?;
        let after = op.first.checked_add(rows).ok_or_else(|| step.refuse("`first` and `rows` overflow"))?;
        let cached = volume(&[after, shape.kv_heads, shape.head_dim]);
        let views = Views {
            q: step.read(&op.q, "q", volume(&[rows, shape.heads, shape.head_dim]))?,
            gate: step.read(&op.gate, "gate", volume(&[rows, shape.heads, 2, shape.head_dim]))?,
            k: step.read(&op.cache.k, "cache.k", cached)?,
            v: step.read(&op.cache.v, "cache.v", cached)?,
            blocks: step.read(&op.blocks, "blocks", volume(&[rows, shape.topk]))?,
            out: step.write(&op.out, "out", volume(&[rows, shape.heads, shape.head_dim]))?,
        };
        for (row, blocks) in views.blocks.chunks_exact(shape.topk as usize).enumerate() {
            if !well_formed(blocks, complete(op, row)) {
                return Err(step.refuse(format_args!("`blocks` of row {row} are not an ascending choice: {blocks:?}")));
            }
        }
        Ok(views)
    }

    fn run(mut self, step: &Step<'_>, op: &QsaAttend) {
        let shape = &op.shape;
        let (head, kv, topk) = (shape.head_dim as usize, shape.kv_heads as usize, shape.topk as usize);
        let group = shape.heads as usize / kv * head;
        let longest = (topk + 1) * shape.block as usize;
        let work = 2 * self.out.len() * longest.min((op.first as usize) + op.rows.count as usize);
        step.split(work, &mut self.out, group, |first, out| {
            for (i, out) in (first..).zip(out.chunks_exact_mut(group)) {
                let (row, kv_head) = (i / kv, i % kv);
                let tokens = Tokens::new(op, row, &self.blocks[row * topk..(row + 1) * topk]);
                let mut scratch = step.scratch(group / head * tokens.count() + CHUNK * head);
                step.run(Group {
                    tokens,
                    q: &self.q[i * group..(i + 1) * group],
                    k: &self.k[kv_head * head..],
                    v: &self.v[kv_head * head..],
                    head,
                    stride: kv * head,
                    scratch: &mut scratch,
                    out,
                });
            }
        });
        step.tap("attn", &[op.rows.count as usize, shape.heads as usize, head], &self.out);
        let width = shape.heads as usize * head;
        step.split(16 * self.out.len(), &mut self.out, width, |first, out| {
            step.run(OutputGate { gate: &self.gate[first * 2 * width..], head, out });
        });
    }
}

/// Blocks complete for a row.
fn complete(op: &QsaAttend, row: usize) -> usize {
    (op.first as usize + row + 1) / op.shape.block as usize
}

/// Whether `blocks` lists as many complete blocks as a query keeps, ascending.
fn well_formed(blocks: &[u32], complete: usize) -> bool {
    let kept = &blocks[..complete.min(blocks.len())];
    kept.is_sorted_by(|a, b| a < b) && kept.last().is_none_or(|&last| (last as usize) < complete)
}

/// Tokens that a query attends to, ascending.
struct Tokens<'a> {
    blocks: &'a [u32],
    block: usize,
    tail: Range<usize>,
}

impl<'a> Tokens<'a> {
    fn new(op: &QsaAttend, row: usize, blocks: &'a [u32]) -> Self {
        let (complete, block) = (complete(op, row), op.shape.block as usize);
        let tail = complete * block..op.first as usize + row + 1;
        Tokens { blocks: &blocks[..complete.min(blocks.len())], block, tail }
    }

    fn count(&self) -> usize {
        self.blocks.len() * self.block + self.tail.len()
    }

    /// The token at a place of the list.
    #[inline(always)]
    fn at(&self, i: usize) -> usize {
        match self.blocks.get(i / self.block) {
            Some(&block) => block as usize * self.block + i % self.block,
            None => self.tail.start + (i - self.blocks.len() * self.block),
        }
    }
}

/// Tokens whose values are added at once.
const CHUNK: usize = 4;

/// One query row of the heads that share a key head.
struct Group<'a, C> {
    tokens: Tokens<'a>,
    /// `[heads, head_dim]`.
    q: &'a [f32],
    /// Rows `stride` apart.
    k: &'a [C],
    v: &'a [C],
    head: usize,
    stride: usize,
    /// Logits of all heads, then [`CHUNK`] rows.
    scratch: &'a mut [f32],
    out: &'a mut [f32],
}

impl<C: Cell> Kernel for Group<'_, C> {
    #[inline(always)]
    fn run<A: Arith>(self) {
        let Group { tokens, q, k, v, head, stride, scratch, out } = self;
        let count = tokens.count();
        let (logits, rows) = scratch.split_at_mut(q.len() / head * count);
        let scale = 1.0 / (head as f32).sqrt();
        for i in 0..count {
            let start = tokens.at(i) * stride;
            let key = C::row(&k[start..start + head], rows);
            for (q, logits) in q.chunks_exact(head).zip(logits.chunks_exact_mut(count)) {
                logits[i] = dot::<A>(q, key) * scale;
            }
        }
        out.fill(0.0);
        for logits in logits.chunks_exact_mut(count) {
            softmax::<A>(logits);
        }
        for start in (0..count).step_by(CHUNK) {
            let end = count.min(start + CHUNK);
            for (i, row) in (start..end).zip(rows.chunks_exact_mut(head)) {
                let first = tokens.at(i) * stride;
                for (x, cell) in row.iter_mut().zip(&v[first..first + head]) {
                    *x = cell.load();
                }
            }
            for (p, out) in logits.chunks_exact(count).zip(out.chunks_exact_mut(head)) {
                add_values::<A>(&p[start..end], rows, out);
            }
        }
    }
}

/// `out += sum p[i] * rows[i]`, in order.
#[inline(always)]
fn add_values<A: Arith>(p: &[f32], rows: &[f32], out: &mut [f32]) {
    for (&p, row) in p.iter().zip(rows.chunks_exact(out.len())) {
        for (out, &v) in out.iter_mut().zip(row) {
            *out = A::fma(p, v, *out);
        }
    }
}

/// Softmax in place.
#[inline(always)]
pub fn softmax<A: Arith>(x: &mut [f32]) {
    let mut largest = f32::NEG_INFINITY;
    for &x in &*x {
        largest = if x > largest { x } else { largest };
    }
    for x in x.iter_mut() {
        *x = exp::<A>(*x - largest);
    }
    let total = sum::<A>(x);
    for x in x.iter_mut() {
        *x /= total;
    }
}

/// `out *= sigmoid(gate)`; `gate` is `[rows, heads, 2, head_dim]`, its second halves count.
struct OutputGate<'a> {
    gate: &'a [f32],
    head: usize,
    out: &'a mut [f32],
}

impl Kernel for OutputGate<'_> {
    #[inline(always)]
    fn run<A: Arith>(self) {
        let gates = self.gate.chunks_exact(self.head).skip(1).step_by(2);
        for (gate, out) in gates.zip(self.out.chunks_exact_mut(self.head)) {
            for (out, &gate) in out.iter_mut().zip(gate) {
                *out *= sigmoid::<A>(gate);
            }
        }
    }
}
