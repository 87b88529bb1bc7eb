//! Owns: the functions of one number that the model needs, written out, so that no result depends on a system library:
//! exp, sigmoid, silu, softplus; roundings to F16 and BF16; the order of scores.
//! Invariants: errors of at most 3.3 units in the last place (exp: 1.1); NaN in, NaN out; limits at both infinities;
//! every function is free of branches, so that a loop over it fills vector units.

use crate::simd::Arith;

/// Adding it rounds to an integer, which then stands in the low bits.
const ROUNDER: f32 = 12_582_912.0;
/// Above it exp is infinite.
const EXP_HIGHEST: f32 = 89.0;
/// Below it exp is zero.
const EXP_LOWEST: f32 = -104.0;
/// ln 2 in two parts; the first has few bits, so that its products with small integers are exact.
const LN_2_HIGH: f32 = 0.693_359_4;
const LN_2_LOW: f32 = -2.121_944_4e-4;
/// `(e^r - 1 - r) / r^2` on `|r| <= ln 2 / 2`, highest power first.
const EXP_POLYNOMIAL: [f32; 6] = [1.987_569_1e-4, 1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 0.166_666_65, 0.5];

/// `e^x`.
#[inline(always)]
pub fn exp<A: Arith>(x: f32) -> f32 {
    let x = if x > EXP_HIGHEST { EXP_HIGHEST } else { x };
    let x = if x < EXP_LOWEST { EXP_LOWEST } else { x };
    let shifted = A::fma(x, std::f32::consts::LOG2_E, ROUNDER);
    let n = shifted - ROUNDER;
    let r = A::fma(n, -LN_2_LOW, A::fma(n, -LN_2_HIGH, x));
    let mut p = 0.0;
    for c in EXP_POLYNOMIAL {
        p = A::fma(p, r, c);
    }
    let y = A::fma(p * r, r, r) + 1.0;
    // 2^n in two factors: neither leaves the range of an F32 where the product still lies in it.
    let k = shifted.to_bits().wrapping_sub(ROUNDER.to_bits()) as i32;
    let half = k >> 1;
    y * power_of_two(half) * power_of_two(k.wrapping_sub(half))
}

#[inline(always)]
fn power_of_two(k: i32) -> f32 {
    f32::from_bits((k.wrapping_add(127) as u32) << 23)
}

/// `1 / (1 + e^-x)`.
#[inline(always)]
pub fn sigmoid<A: Arith>(x: f32) -> f32 {
    1.0 / (1.0 + exp::<A>(-x))
}

/// `x * sigmoid(x)`; zero at minus infinity.
#[inline(always)]
pub fn silu<A: Arith>(x: f32) -> f32 {
    let numerator = if x < EXP_LOWEST { EXP_LOWEST } else { x };
    numerator / (1.0 + exp::<A>(-x))
}

/// `ln(1 + e^x)`.
#[inline(always)]
pub fn softplus<A: Arith>(x: f32) -> f32 {
    let positive = if x < 0.0 { 0.0 } else { x };
    positive + ln_1p::<A>(exp::<A>(-x.abs()))
}

/// Terms of the series in [`ln_1p`]: the first one left out is below 2^-26 of the sum.
const LN_TERMS: u32 = 9;

/// `ln(1 + u)` for u in 0..=1, as twice the series of artanh at `u / (2 + u)`.
#[inline(always)]
fn ln_1p<A: Arith>(u: f32) -> f32 {
    let s = u / (2.0 + u);
    let square = s * s;
    let mut p = 0.0;
    for k in (0..LN_TERMS).rev() {
        p = A::fma(p, square, 1.0 / (2 * k + 1) as f32);
    }
    2.0 * s * p
}

/// `ln x`, of a finite number that is at least one.
#[inline(always)]
pub fn ln<A: Arith>(x: f32) -> f32 {
    const MANTISSA: u32 = (1 << 23) - 1;
    let bits = x.to_bits();
    let exponent = (bits >> 23) as i32 - 127;
    let rest = f32::from_bits((bits & MANTISSA) | 1.0f32.to_bits()) - 1.0;
    A::fma(exponent as f32, LN_2_HIGH, A::fma(exponent as f32, LN_2_LOW, ln_1p::<A>(rest)))
}

/// The F32 that a BF16 stands for.
#[inline(always)]
pub fn bf16_to_f32(bits: u16) -> f32 {
    f32::from_bits((bits as u32) << 16)
}

/// The nearest BF16, ties to even, by integer arithmetic (engine.md 3.3).
#[inline(always)]
pub fn f32_to_bf16(x: f32) -> u16 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1));
    // A NaN stays one: rounding could carry it into an infinity or past it.
    let nan = (bits | 0x0040_0000) & 0xffff_0000;
    ((if x.is_nan() { nan } else { rounded }) >> 16) as u16
}

/// The F32 that an F16 stands for.
#[inline(always)]
pub fn f16_to_f32(bits: u16) -> f32 {
    const INFINITE: u32 = 0x7c00 << 13;
    const REBIAS: f32 = f32::from_bits((127 + 112) << 23);
    let sign = (bits as u32 & 0x8000) << 16;
    let magnitude = (bits as u32 & 0x7fff) << 13;
    let finite = (f32::from_bits(magnitude) * REBIAS).to_bits();
    let special = magnitude | 0x7f80_0000;
    f32::from_bits((if magnitude >= INFINITE { special } else { finite }) | sign)
}

/// The nearest number that F16 holds, ties to even.
#[inline(always)]
pub fn round_to_f16(x: f32) -> f32 {
    /// Smallest normal F16.
    const NORMAL: f32 = 6.103_515_6e-5;
    /// Half way from the largest F16 to the next power of two.
    const OVERFLOW: f32 = 65520.0;
    let magnitude = x.abs();
    let bits = magnitude.to_bits();
    let normal = f32::from_bits(bits.wrapping_add(0x0fff + ((bits >> 13) & 1)) & !0x1fff);
    // Beside one half the spacing of F32 is that of the subnormal F16.
    let small = (magnitude + 0.5) - 0.5;
    let finite = if magnitude < NORMAL { small } else { normal };
    let rounded = if magnitude >= OVERFLOW { f32::INFINITY } else { finite };
    (if x.is_nan() { x } else { rounded }).copysign(x)
}

/// Sorts scores: a greater key is a greater score, or the same score at a lower index. Both zeros are the same score;
/// NaN has its place by its bits.
#[inline(always)]
pub fn rank(score: f32, index: u32) -> u64 {
    let bits = (score + 0.0).to_bits();
    let ordered = if bits >> 31 == 1 { !bits } else { bits | 0x8000_0000 };
    (u64::from(ordered) << 32) | u64::from(!index)
}

/// The index behind a [`rank`].
#[inline(always)]
pub fn ranked_index(rank: u64) -> u32 {
    !(rank as u32)
}
