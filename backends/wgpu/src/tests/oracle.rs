//! Owns: the experts in F64, straight from the formulas of checkpoint.md section 3 and architecture.md section 8.

use ss_backend::{Format, Part, Scalar};

use super::fixture::{Half, Shape};

/// Number `index` of scales or biases stored as `scale`.
fn number(bytes: &[u8], scale: Scalar, index: usize) -> f64 {
    let at = &bytes[index * scale.bytes() as usize..];
    match scale {
        Scalar::Bf16 => half::bf16::from_le_bytes([at[0], at[1]]).to_f64(),
        Scalar::F16 => half::f16::from_le_bytes([at[0], at[1]]).to_f64(),
        Scalar::F32 => f64::from(f32::from_le_bytes([at[0], at[1], at[2], at[3]])),
    }
}

/// What is multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Numbers {
    /// Inputs and weights as they are.
    Stored,
    /// Both rounded to F16 (engine.md 3.5), weights from what they are in F32.
    RoundedToF16,
}

impl Numbers {
    fn seen(self, x: f64) -> f64 {
        match self {
            Numbers::Stored => x,
            Numbers::RoundedToF16 => half::f16::from_f32(x as f32).to_f64(),
        }
    }
}

/// `W x` of one projection of a record.
fn product(record: &[u8], part: &Part, x: &[f32], numbers: Numbers) -> Vec<f64> {
    let Format::Affine { bits: 4, group, scale } = part.matrix.format else { panic!("not 4-bit: {part:?}") };
    let (columns, group) = (part.matrix.cols as usize, group as usize);
    let (codes, scales) = (&record[part.codes.offset as usize..], &record[part.scales.offset as usize..]);
    let biases = &record[part.biases.offset as usize..];
    let weight = |o: usize, c: usize| {
        let code = codes[(o * columns + c) / 2] >> (4 * (c % 2)) & 15;
        let index = o * (columns / group) + c / group;
        numbers.seen(number(scales, scale, index) * f64::from(code) + number(biases, scale, index))
    };
    let row = |o| x.iter().enumerate().map(|(c, &x)| weight(o, c) * numbers.seen(f64::from(x))).sum();
    (0..part.matrix.rows as usize).map(row).collect()
}

/// What one half of an expert makes of one row of inputs.
pub(super) fn expert(half: Half, shape: Shape, record: &[u8], x: &[f32], numbers: Numbers) -> Vec<f64> {
    let layout = shape.layout();
    match half {
        Half::Out => product(record, &layout.down, x, numbers),
        Half::In => {
            let [gate, up] = [&layout.gate, &layout.up].map(|part| product(record, part, x, numbers));
            gate.into_iter().zip(up).map(|(g, u)| g / (1.0 + (-g).exp()) * u).collect()
        }
    }
}

/// Whether a number is neither infinite nor NaN, by its bits.
pub(super) fn is_finite(bits: u32) -> bool {
    const EXPONENT: u32 = 0x7f80_0000;
    bits & EXPONENT != EXPONENT
}

/// Root of the mean squared error, relative to that of `wanted`; infinite if any number is not finite.
pub(super) fn error(got: &[f32], wanted: &[f64]) -> f64 {
    assert_eq!(got.len(), wanted.len());
    if !got.iter().all(|number| is_finite(number.to_bits())) {
        return f64::INFINITY;
    }
    let miss: f64 = got.iter().zip(wanted).map(|(&got, wanted)| (f64::from(got) - wanted).powi(2)).sum();
    (miss / wanted.iter().map(|wanted| wanted.powi(2)).sum::<f64>()).sqrt()
}
