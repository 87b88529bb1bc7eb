//! Owns: the recurrence of Gated DeltaNet (architecture.md section 6).
//!
//! Per value head, state `S [dv, dk]`: `S = g S`, `d = beta (v - S k)`, `S = S + d k^T`, `y = S q`.
//!
//! Row rule: rows in order, one after the other, nothing chunked (engine.md 3.7f); a replay runs this very code.

use crate::dot::{LANES, Lanes, add_product, dot, padded, sum_lanes};
use crate::simd::{Arith, Kernel};
use crate::step::Step;

/// Inputs of the recurrence over some rows.
#[derive(Clone, Copy)]
pub struct Inputs<'a> {
    /// `[rows, key_heads, key_dim]`, normed.
    pub k: &'a [f32],
    /// `[rows, value_heads, value_dim]`.
    pub v: &'a [f32],
    /// `[rows, value_heads, 2]`, decay then beta.
    pub gates: &'a [f32],
    /// `[rows, key_heads, key_dim]`, normed and scaled; none where no outputs are wanted.
    pub q: Option<&'a [f32]>,
    /// Heads and their widths.
    pub heads: Heads,
}

/// Heads and their widths.
#[derive(Clone, Copy)]
pub struct Heads {
    /// Key heads.
    pub keys: usize,
    /// Value heads.
    pub values: usize,
    /// Width of a key head.
    pub key_dim: usize,
    /// Width of a value head.
    pub value_dim: usize,
}

/// Walks the rows; `y` is `[value_heads, rows, value_dim]`, or empty where no outputs are wanted.
pub fn recur(step: &Step<'_>, inputs: Inputs<'_>, state: &mut [f32], y: &mut [f32]) {
    let Heads { values, key_dim, value_dim, .. } = inputs.heads;
    let mut outputs = y.chunks_exact_mut((y.len() / values).max(1));
    let heads = state.chunks_exact_mut(value_dim * key_dim).enumerate();
    let mut heads: Vec<_> = heads.map(|(head, state)| (head, state, outputs.next().unwrap_or_default())).collect();
    step.split(4 * inputs.v.len() * key_dim, &mut heads, 1, |_, heads| {
        for (head, state, y) in heads {
            step.run(Head { inputs, head: *head, state, y });
        }
    });
}

struct Head<'a> {
    inputs: Inputs<'a>,
    head: usize,
    state: &'a mut [f32],
    y: &'a mut [f32],
}

impl Kernel for Head<'_> {
    #[inline(always)]
    fn run<A: Arith>(self) {
        let Head { inputs: Inputs { k, v, gates, q, heads }, head, state, y } = self;
        let Heads { keys, values, key_dim, value_dim } = heads;
        let key_head = head / (values / keys);
        let mut y = y.chunks_exact_mut(value_dim);
        for (row, gates) in gates.chunks_exact(2 * values).enumerate() {
            let (decay, beta) = (gates[2 * head], gates[2 * head + 1]);
            let key = (row * keys + key_head) * key_dim..(row * keys + key_head + 1) * key_dim;
            let value = &v[(row * values + head) * value_dim..(row * values + head + 1) * value_dim];
            let (k, q) = (&k[key.clone()], q.map(|q| &q[key]));
            let y = y.next().unwrap_or_default();
            for (i, (s, &v)) in state.chunks_exact_mut(key_dim).zip(value).enumerate() {
                let d = beta * (v - decay_and_read::<A>(s, decay, k));
                match (q, y.get_mut(i)) {
                    (Some(q), Some(y)) => *y = add_and_read::<A>(s, d, k, q),
                    _ => add::<A>(s, d, k),
                }
            }
        }
    }
}

/// `s = decay * s`, and then `s . k`.
#[inline(always)]
fn decay_and_read<A: Arith>(s: &mut [f32], decay: f32, k: &[f32]) -> f32 {
    if !A::LANES {
        let mut sum = 0.0;
        for (s, &k) in s.iter_mut().zip(k) {
            *s *= decay;
            sum = A::fma(*s, k, sum);
        }
        return sum;
    }
    let (blocks, tail) = s.as_chunks_mut::<LANES>();
    let (k_blocks, k_tail) = k.as_chunks::<LANES>();
    let mut acc = [0.0; LANES];
    for (s, k) in blocks.iter_mut().zip(k_blocks) {
        *s = scaled(*s, decay);
        add_product::<A>(&mut acc, s, k);
    }
    if !tail.is_empty() {
        let last = scaled(padded(tail), decay);
        add_product::<A>(&mut acc, &last, &padded(k_tail));
        tail.copy_from_slice(&last[..tail.len()]);
    }
    sum_lanes(acc)
}

#[inline(always)]
fn scaled(mut s: Lanes, factor: f32) -> Lanes {
    for s in &mut s {
        *s *= factor;
    }
    s
}

/// `s = s + d k`.
#[inline(always)]
fn add<A: Arith>(s: &mut [f32], d: f32, k: &[f32]) {
    for (s, &k) in s.iter_mut().zip(k) {
        *s = A::fma(d, k, *s);
    }
}

/// [`add`], and then `s . q`.
#[inline(always)]
fn add_and_read<A: Arith>(s: &mut [f32], d: f32, k: &[f32], q: &[f32]) -> f32 {
    if !A::LANES {
        add::<A>(s, d, k);
        return dot::<A>(s, q);
    }
    let (blocks, tail) = s.as_chunks_mut::<LANES>();
    let ((k_blocks, k_tail), (q_blocks, q_tail)) = (k.as_chunks::<LANES>(), q.as_chunks::<LANES>());
    let mut acc = [0.0; LANES];
    for ((s, k), q) in blocks.iter_mut().zip(k_blocks).zip(q_blocks) {
        let mut sum = *s;
        for i in 0..LANES {
            sum[i] = A::fma(d, k[i], sum[i]);
        }
        *s = sum;
        add_product::<A>(&mut acc, &sum, q);
    }
    if !tail.is_empty() {
        add::<A>(tail, d, k_tail);
        add_product::<A>(&mut acc, &padded(tail), &padded(q_tail));
    }
    sum_lanes(acc)
}
