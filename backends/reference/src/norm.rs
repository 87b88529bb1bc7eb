//! Owns: RMS norm (architecture.md section 3) and the sums behind it.
//!
//! `rms(x) = x / sqrt(mean(x^2) + eps)`, in F32.
//!
//! Row rule: a statistic is one [`dot`] over its own numbers.

use crate::dot::dot;
use crate::simd::{Arith, Kernel};

/// `1 / sqrt(mean(x^2) + eps)`.
#[inline(always)]
pub fn inverse_rms<A: Arith>(x: &[f32], eps: f32) -> f32 {
    1.0 / (dot::<A>(x, x) / x.len() as f32 + eps).sqrt()
}

/// `out = rms(x) * weight`.
#[inline(always)]
pub fn rms_norm<A: Arith>(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    let factor = inverse_rms::<A>(x, eps);
    for ((out, &x), &weight) in out.iter_mut().zip(x).zip(weight) {
        *out = x * factor * weight;
    }
}

/// Norms of rows, one statistic for each group of a row.
pub struct GroupNorm<'a> {
    /// Whole rows.
    pub x: &'a [f32],
    /// One factor a number of a row.
    pub weight: &'a [f32],
    /// Numbers in a group.
    pub group: usize,
    /// Added to the mean square.
    pub eps: f32,
    /// As long as `x`.
    pub out: &'a mut [f32],
}

impl Kernel for GroupNorm<'_> {
    #[inline(always)]
    fn run<A: Arith>(self) {
        let GroupNorm { x, weight, group, eps, out } = self;
        let weights = weight.chunks_exact(group).cycle();
        for ((x, weight), out) in x.chunks_exact(group).zip(weights).zip(out.chunks_exact_mut(group)) {
            rms_norm::<A>(x, weight, eps, out);
        }
    }
}
