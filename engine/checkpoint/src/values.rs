//! Owns: the numbers inside tensors: turning them into F32, and looking for what is not finite.
//! Refuses: NaN and infinity among scales, biases and dense numbers; codes cannot be wrong.
//! Invariants: the search for a bad number runs at the speed of memory, since every expert record passes through it.

use std::fmt;

use half::{bf16, f16};
use ss_backend::{Format, Matrix, Part, RecordLayout, Scalar, Span};

/// The numbers of a dense tensor.
pub(crate) fn decode(scalar: Scalar, bytes: &[u8]) -> Vec<f32> {
    match scalar {
        Scalar::Bf16 => bytes.as_chunks().0.iter().map(|c| bf16::from_le_bytes(*c).to_f32()).collect(),
        Scalar::F16 => bytes.as_chunks().0.iter().map(|c| f16::from_le_bytes(*c).to_f32()).collect(),
        Scalar::F32 => bytes.as_chunks().0.iter().map(|c| f32::from_le_bytes(*c)).collect(),
    }
}

/// The place of the first number that is NaN or infinite.
pub(crate) fn first_not_finite(scalar: Scalar, bytes: &[u8]) -> Option<usize> {
    const BF16: u16 = 0x7F80;
    const F16: u16 = 0x7C00;
    const F32: u32 = 0x7F80_0000;
    match scalar {
        Scalar::Bf16 => find(bytes.as_chunks().0, |c| u16::from_le_bytes(*c) & BF16 == BF16),
        Scalar::F16 => find(bytes.as_chunks().0, |c| u16::from_le_bytes(*c) & F16 == F16),
        Scalar::F32 => find(bytes.as_chunks().0, |c| u32::from_le_bytes(*c) & F32 == F32),
    }
}

/// Position of the first item that is bad. Whole runs are tested without a branch, so that the loop vectorises.
fn find<T>(items: &[T], bad: impl Fn(&T) -> bool) -> Option<usize> {
    const RUN: usize = 1024;
    let run = items.chunks(RUN).position(|run| run.iter().fold(false, |any, item| any | bad(item)))?;
    items.iter().skip(run * RUN).position(bad).map(|place| run * RUN + place)
}

/// What the number at a place is called.
pub(crate) fn called(scalar: Scalar, bytes: &[u8], place: usize) -> &'static str {
    let size = scalar.bytes() as usize;
    let one = bytes.get(place * size..(place + 1) * size).unwrap_or_default();
    if decode(scalar, one).first().is_some_and(|value| value.is_infinite()) { "an infinity" } else { "NaN" }
}

/// One of an expert's three projections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Projection {
    /// `[inner, hidden]`, through the SiLU.
    Gate,
    /// `[inner, hidden]`.
    Up,
    /// `[hidden, inner]`.
    Down,
}

/// Which of a weight's tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Values {
    /// The numbers of a dense weight.
    Numbers,
    /// Scales of an affine weight.
    Scales,
    /// Biases of an affine weight.
    Biases,
}

impl Projection {
    /// As in tensor names.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Projection::Gate => "gate_proj",
            Projection::Up => "up_proj",
            Projection::Down => "down_proj",
        }
    }
}

impl Values {
    /// As in tensor names.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Values::Numbers => "weight",
            Values::Scales => "scales",
            Values::Biases => "biases",
        }
    }
}

/// A number in an expert record that is not finite, or a projection that was never filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub struct BadScale {
    /// Which projection.
    pub projection: Projection,
    /// Which of its tensors.
    pub values: Values,
    /// Output.
    pub row: u32,
    /// Group (or input of a dense weight).
    pub column: u32,
    pub(crate) found: &'static str,
}

impl fmt::Display for BadScale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (projection, values) = (self.projection.name(), self.values.name());
        write!(f, "{projection}.{values} has {} at row {}, column {}", self.found, self.row, self.column)
    }
}

/// Looks at every scale and bias (or dense number) of an expert record. A record shorter than its layout is looked at as
/// far as it goes.
pub fn check_record(layout: &RecordLayout, record: &[u8]) -> Result<(), BadScale> {
    let parts = [(Projection::Gate, &layout.gate), (Projection::Up, &layout.up), (Projection::Down, &layout.down)];
    parts.into_iter().try_for_each(|(projection, part)| check_part(projection, part, record))?;
    parts.into_iter().try_for_each(|(projection, part)| check_filled(projection, part, record))
}

/// Refuses a projection whose scales and biases are all zero: what a file that was laid out but never filled looks like.
fn check_filled(projection: Projection, part: &Part, record: &[u8]) -> Result<(), BadScale> {
    let blank = |span: Span| slice(record, span).iter().all(|&byte| byte == 0);
    let found = "nothing but zeros, from the first";
    match part.matrix.format.is_affine() && blank(part.scales) && blank(part.biases) {
        true => Err(BadScale { projection, values: Values::Scales, row: 0, column: 0, found }),
        false => Ok(()),
    }
}

fn check_part(projection: Projection, part: &Part, record: &[u8]) -> Result<(), BadScale> {
    let check = |values: Values, span: Span, scalar: Scalar, columns: u32| {
        let bytes = slice(record, span);
        let Some(place) = first_not_finite(scalar, bytes) else { return Ok(()) };
        let (row, column) = (place as u64 / u64::from(columns.max(1)), place as u64 % u64::from(columns.max(1)));
        let found = called(scalar, bytes, place);
        Err(BadScale { projection, values, row: row as u32, column: column as u32, found })
    };
    let Matrix { cols, format, .. } = part.matrix;
    match format {
        Format::Dense(scalar) => check(Values::Numbers, part.codes, scalar, cols),
        Format::Affine { scale, .. } => {
            check(Values::Scales, part.scales, scale, part.matrix.groups())?;
            check(Values::Biases, part.biases, scale, part.matrix.groups())
        }
    }
}

/// The bytes of a span; fewer where the record ends inside it.
fn slice(record: &[u8], span: Span) -> &[u8] {
    let length = record.len() as u64;
    let begin = span.offset.min(length) as usize;
    let end = span.offset.saturating_add(span.bytes).min(length) as usize;
    record.get(begin..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout() -> RecordLayout {
        let format = Format::Affine { bits: 4, group: 32, scale: Scalar::Bf16 };
        let wide = Matrix { rows: 64, cols: 96, format };
        RecordLayout::new(wide, wide, Matrix { rows: 96, cols: 64, format: Format::Dense(Scalar::F16) })
    }

    #[test]
    fn every_number_of_a_record_is_looked_at_and_codes_are_not() {
        let layout = layout();
        let good = vec![0x11; layout.bytes as usize];
        assert_eq!(check_record(&layout, &good), Ok(()));
        let unfilled = check_record(&layout, &vec![0; layout.bytes as usize]).unwrap_err();
        assert!(unfilled.to_string().contains("gate_proj.scales has nothing but zeros"), "{unfilled}");
        let mut codes = good.clone();
        codes[layout.up.codes.offset as usize..][..layout.up.codes.bytes as usize].fill(0xFF);
        assert_eq!(check_record(&layout, &codes), Ok(()), "any code is a code");

        let bad = |offset: u64, bits: u16| {
            let mut record = good.clone();
            record[offset as usize..][..2].copy_from_slice(&bits.to_le_bytes());
            check_record(&layout, &record).unwrap_err()
        };
        let error = bad(layout.gate.scales.offset, 0x7FC0);
        assert_eq!((error.projection, error.values, error.row, error.column), (Projection::Gate, Values::Scales, 0, 0));
        let error = bad(layout.up.biases.offset + 2 * (3 * 63 + 2), 0xFF80);
        assert_eq!((error.projection, error.values, error.row, error.column), (Projection::Up, Values::Biases, 63, 2));
        assert_eq!(error.to_string(), "up_proj.biases has an infinity at row 63, column 2");
        let error = bad(layout.down.codes.offset + 2 * (64 * 95 + 63), 0x7C01);
        assert_eq!((error.values, error.row, error.column), (Values::Numbers, 95, 63));
        assert!(error.to_string().contains("NaN"));
    }

    #[test]
    fn the_search_finds_a_bad_number_at_every_place() {
        for scalar in [Scalar::Bf16, Scalar::F16, Scalar::F32] {
            let size = scalar.bytes() as usize;
            for place in [0, 1, 1023, 1024, 1500, 2999] {
                let mut bytes = vec![0x3B; 3000 * size];
                assert_eq!(first_not_finite(scalar, &bytes), None);
                bytes[place * size + size - 1] = 0x7F;
                bytes[place * size + size - 2] = 0x80;
                assert_eq!(first_not_finite(scalar, &bytes), Some(place));
            }
        }
    }

    #[test]
    fn numbers_decode_to_their_values() {
        assert_eq!(decode(Scalar::Bf16, &0xC020u16.to_le_bytes()), [-2.5]);
        assert_eq!(decode(Scalar::F16, &0x3555u16.to_le_bytes()), [0.333_251_95]);
        assert_eq!(decode(Scalar::F32, &1.5f32.to_le_bytes()), [1.5]);
    }
}
