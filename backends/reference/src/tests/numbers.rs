//! Owns: functions of one number against F64, roundings against the `half` crate, the order of scores.

use super::rig::Random;
use crate::math;
use crate::simd::{Arith, Fused, Plain};

/// Distance of `have` from `want` in units in the last place of an F32 of that size.
fn ulps(have: f32, want: f64) -> f64 {
    let size = (want as f32).abs().max(f32::MIN_POSITIVE);
    let ulp = f64::from(f32::from_bits(size.to_bits() + 1)) - f64::from(size);
    (f64::from(have) - want).abs() / ulp
}

/// Largest error of `f` over the range, in units in the last place; NaN is an error without bound.
fn worst(range: std::ops::Range<f32>, f: impl Fn(f32) -> f32, want: impl Fn(f64) -> f64) -> f64 {
    const STEPS: u32 = 400_000;
    let mut random = Random(1);
    (0..STEPS).fold(0.0, |worst: f64, i| {
        let place = (i as f32 + 0.5 * (1.0 + random.unit())) / STEPS as f32;
        let x = range.start + (range.end - range.start) * place;
        let error = ulps(f(x), want(f64::from(x)));
        if error <= worst { worst } else { error }
    })
}

fn functions_are_close<A: Arith>() {
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    assert!(worst(-87.0..88.7, math::exp::<A>, f64::exp) <= 1.1);
    assert!(worst(-1e-3..1e-3, math::exp::<A>, f64::exp) <= 0.6);
    assert!(worst(-87.0..90.0, math::sigmoid::<A>, sigmoid) <= 2.6);
    assert!(worst(-87.0..90.0, math::silu::<A>, |x| x * sigmoid(x)) <= 2.6);
    assert!(worst(1.0..1e6, math::ln::<A>, f64::ln) <= 3.0);
    assert!(worst(1.0..4.0, math::ln::<A>, f64::ln) <= 3.0);
    assert!(worst(-87.0..100.0, math::softplus::<A>, |x| x.max(0.0) + (-x.abs()).exp().ln_1p()) <= 3.3);
}

#[test]
fn functions_are_within_a_few_units_in_the_last_place() {
    functions_are_close::<Plain>();
    functions_are_close::<Fused>();
}

fn limits_are_kept<A: Arith>() {
    const FAR: [f32; 4] = [89.0, 1e4, f32::MAX, f32::INFINITY];
    for x in FAR {
        assert_eq!(math::exp::<A>(x), f32::INFINITY);
        assert_eq!(math::sigmoid::<A>(x), 1.0);
        assert_eq!(math::silu::<A>(x), x);
        assert_eq!(math::softplus::<A>(x), x);
    }
    for x in FAR.map(|x| -16.0 * x) {
        assert_eq!(math::exp::<A>(x), 0.0);
        assert_eq!(math::sigmoid::<A>(x), 0.0);
        assert_eq!(math::silu::<A>(x), 0.0);
        assert_eq!(math::softplus::<A>(x), 0.0);
    }
    assert_eq!(math::exp::<A>(0.0), 1.0);
    assert!((math::exp::<A>(-100.0) - 3.78e-44).abs() < 2e-45, "subnormal results");
    assert_eq!(math::sigmoid::<A>(0.0), 0.5);
    for f in [math::exp::<A>, math::sigmoid::<A>, math::silu::<A>, math::softplus::<A>] {
        assert!(f(f32::NAN).is_nan() && f(-f32::NAN).is_nan());
    }
}

#[test]
fn functions_keep_their_limits_and_not_a_number_stays_one() {
    limits_are_kept::<Plain>();
    limits_are_kept::<Fused>();
}

/// Every sign and exponent, with the fractions where roundings turn.
fn interesting() -> impl Iterator<Item = f32> {
    let mut random = Random(2);
    let ties = [0u32, 1, 0xfff, 0x1000, 0x1001, 0x2fff, 0x3000, 0x7fff, 0x8000, 0x8001, 0x1_7fff, 0x1_8000, 0x7f_ffff];
    let exponents = (0..512u32).flat_map(move |top| {
        let drawn: [u32; 8] = std::array::from_fn(|_| random.next() as u32 & 0x7f_ffff);
        ties.into_iter().chain(drawn).map(move |fraction| top << 23 | fraction)
    });
    exponents.map(f32::from_bits)
}

#[test]
fn roundings_are_those_of_the_standard() {
    for x in interesting() {
        let (bf16, f16) = (math::bf16_to_f32(math::f32_to_bf16(x)), math::round_to_f16(x));
        if x.is_nan() {
            assert!(bf16.is_nan() && f16.is_nan());
            continue;
        }
        assert_eq!(math::f32_to_bf16(x), half::bf16::from_f32(x).to_bits(), "{x:e}");
        assert_eq!(f16.to_bits(), half::f16::from_f32(x).to_f32().to_bits(), "{x:e}");
    }
    for bits in 0..=u16::MAX {
        let (have, want) = (math::f16_to_f32(bits), half::f16::from_bits(bits).to_f32());
        assert!(have.to_bits() == want.to_bits() || have.is_nan() && want.is_nan(), "{bits:x}");
    }
}

#[test]
fn ranks_order_scores_and_then_indices() {
    let ascending = [f32::NEG_INFINITY, -2.0, -1e-40, 0.0, 1e-40, 2.0, f32::INFINITY];
    assert!(ascending.windows(2).all(|pair| math::rank(pair[0], 0) < math::rank(pair[1], u32::MAX)));
    assert_eq!(math::rank(0.0, 3), math::rank(-0.0, 3));
    assert!(math::rank(1.0, 3) > math::rank(1.0, 4));
    assert_eq!(math::ranked_index(math::rank(-7.5, 123_456)), 123_456);
}
