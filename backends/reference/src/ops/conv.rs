//! Owns: the causal depthwise convolution over time of Gated DeltaNet and of the n-gram injection.
//!
//! `out[t, c] = silu(sum_j w[c, j] * x[t - dilation * (kernel - 1 - j), c])`, rows before 0 from the window.
//!
//! Row rule: an output is one sum, taps in ascending j.

use crate::math::silu;
use crate::scratch::Lease;
use crate::simd::{Arith, Kernel};
use crate::step::Step;

/// A convolution over the rows of a pass.
pub struct Conv<'a> {
    /// `[kernel, channels]`.
    pub taps: &'a [f32],
    /// Channels.
    pub channels: usize,
    /// Distance between taps.
    pub dilation: usize,
    /// `[(kernel - 1) * dilation, channels]`: the rows before row 0, oldest first.
    pub before: &'a [f32],
    /// `[rows.., channels]`.
    pub inputs: &'a [f32],
}

/// `[channels, kernel]` as it is stored to `[kernel, channels]`, so that a tap is a run of numbers.
pub fn transposed<'a>(step: &Step<'a>, weight: &[f32], kernel: usize) -> Lease<'a> {
    let mut taps = step.scratch(weight.len());
    for (j, tap) in taps.chunks_exact_mut(weight.len() / kernel).enumerate() {
        for (tap, &w) in tap.iter_mut().zip(weight[j..].iter().step_by(kernel)) {
            *tap = w;
        }
    }
    taps
}

impl Conv<'_> {
    /// Input row `t` of the pass, or of the window where it is negative.
    #[inline(always)]
    fn row(&self, t: isize) -> &[f32] {
        let (from, t) = match usize::try_from(t) {
            Ok(t) => (self.inputs, t),
            Err(_) => (self.before, (self.before.len() / self.channels).wrapping_add_signed(t)),
        };
        &from[t * self.channels..(t + 1) * self.channels]
    }
}

/// Outputs `first..` of a convolution.
pub struct ConvRows<'a> {
    /// The convolution.
    pub conv: &'a Conv<'a>,
    /// First row.
    pub first: usize,
    /// `[rows, channels]`.
    pub out: &'a mut [f32],
}

impl Kernel for ConvRows<'_> {
    #[inline(always)]
    fn run<A: Arith>(self) {
        let ConvRows { conv, first, out } = self;
        let taps = conv.taps.chunks_exact(conv.channels);
        let depth = (taps.len() - 1) * conv.dilation;
        for (i, out) in out.chunks_exact_mut(conv.channels).enumerate() {
            out.fill(0.0);
            for (j, tap) in taps.clone().enumerate() {
                let row = conv.row((first + i + j * conv.dilation) as isize - depth as isize);
                for ((out, &w), &x) in out.iter_mut().zip(tap).zip(row) {
                    *out = A::fma(w, x, *out);
                }
            }
            for x in out.iter_mut() {
                *x = silu::<A>(*x);
            }
        }
    }
}
