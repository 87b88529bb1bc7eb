//! Owns: turning the stored bytes of one row into F32 numbers (checkpoint.md section 3, engine.md section 3.1).
//! Refuses: rows with a NaN or an infinity.
//! Invariants: the numbers depend on the bytes alone: `scale * code + bias`, one multiplication and one addition in F32.

use half::{bf16, f16};
use ss_checkpoint::{Format, Matrix, Scalar};

/// Decodes a row of `matrix.cols` numbers from its record, codes, scales and biases one after the other, into `out`.
/// Returns whether all of them are finite; bytes that are not there count as NaN.
#[must_use]
pub(crate) fn decode_row(matrix: Matrix, record: &[u8], out: &mut [f32]) -> bool {
    match matrix.format {
        Format::Dense(scalar) => (0..).zip(out.iter_mut()).for_each(|(i, out)| *out = number(scalar, record, i)),
        Format::Affine { bits, group, scale } => {
            let (codes, rest) = split(record, matrix.code_row_bytes());
            let (scales, biases) = split(rest, matrix.scale_row_bytes());
            for (g, out) in out.chunks_mut(group as usize).enumerate() {
                let (factor, offset) = (number(scale, scales, g), number(scale, biases, g));
                for (i, out) in (g * group as usize..).zip(out) {
                    *out = factor * f32::from(code(bits, codes, i)) + offset;
                }
            }
        }
    }
    out.iter().all(|number| number.is_finite())
}

/// The first `bytes` bytes and the others.
fn split(record: &[u8], bytes: u64) -> (&[u8], &[u8]) {
    record.split_at_checked(bytes as usize).unwrap_or((record, &[]))
}

/// The `i`-th number of a row of scalars.
fn number(scalar: Scalar, bytes: &[u8], i: usize) -> f32 {
    match scalar {
        Scalar::Bf16 => word(bytes, i).map(|b| bf16::from_le_bytes(b).to_f32()),
        Scalar::F16 => word(bytes, i).map(|b| f16::from_le_bytes(b).to_f32()),
        Scalar::F32 => word(bytes, i).map(f32::from_le_bytes),
    }
    .unwrap_or(f32::NAN)
}

fn word<const N: usize>(bytes: &[u8], i: usize) -> Option<[u8; N]> {
    bytes.get(i * N..)?.first_chunk().copied()
}

/// The `i`-th code: two a byte, lower half first, or one a byte.
fn code(bits: u32, codes: &[u8], i: usize) -> u8 {
    let per_byte = (u8::BITS / bits) as usize;
    let byte = codes.get(i / per_byte).copied().unwrap_or(0);
    (byte >> (bits as usize * (i % per_byte))) & (u8::MAX >> (u8::BITS - bits))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn affine(bits: u32, cols: u32) -> Matrix {
        Matrix { rows: 1, cols, format: Format::Affine { bits, group: 32, scale: Scalar::Bf16 } }
    }

    fn bf16_bytes(numbers: &[f32]) -> Vec<u8> {
        numbers.iter().flat_map(|&n| bf16::from_f32(n).to_le_bytes()).collect()
    }

    #[test]
    fn four_bit_codes_come_lowest_first_and_each_group_has_its_scale() {
        let words = [0x7654_3210u32, 0xfedc_ba98, 0, 0xffff_ffff, 0x0000_0001, 0, 0, 0x8000_0000];
        let mut record: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        record.extend(bf16_bytes(&[0.5, -2.0]));
        record.extend(bf16_bytes(&[-1.0, 3.0]));
        let mut out = [0.0; 64];
        assert!(decode_row(affine(4, 64), &record, &mut out));
        let code = |i: usize| ((words[i / 8] >> (4 * (i % 8))) & 15) as f32;
        for (i, &found) in out.iter().enumerate() {
            let expected = if i < 32 { 0.5 * code(i) - 1.0 } else { -2.0 * code(i) + 3.0 };
            assert_eq!(found, expected, "number {i}");
        }
    }

    #[test]
    fn numbers_are_not_rounded_to_bf16() {
        let (scale, bias) = (1.0 + 1.0 / 128.0, -1000.0);
        let mut record = vec![0xff; 16];
        record.extend(bf16_bytes(&[scale]));
        record.extend(bf16_bytes(&[bias]));
        let mut out = [0.0; 32];
        assert!(decode_row(affine(4, 32), &record, &mut out));
        assert_eq!(out[31], scale * 15.0 + bias);
        assert_ne!(out[31], bf16::from_f32(out[31]).to_f32());
    }

    #[test]
    fn eight_bit_codes_and_dense_rows_of_every_scalar_are_read() {
        let mut record: Vec<u8> = (0..32).map(|i| 255 - i).collect();
        record.extend(bf16_bytes(&[2.0]));
        record.extend(bf16_bytes(&[1.0]));
        let mut out = [0.0; 32];
        assert!(decode_row(affine(8, 32), &record, &mut out));
        assert_eq!((out[0], out[31]), (511.0, 449.0));

        let dense = |scalar| Matrix { rows: 1, cols: 2, format: Format::Dense(scalar) };
        let mut out = [0.0; 2];
        assert!(decode_row(dense(Scalar::Bf16), &bf16_bytes(&[1.5, -2.0]), &mut out));
        assert_eq!(out, [1.5, -2.0]);
        let halves: Vec<u8> = [0.25f32, 9.0].iter().flat_map(|&n| f16::from_f32(n).to_le_bytes()).collect();
        assert!(decode_row(dense(Scalar::F16), &halves, &mut out));
        assert_eq!(out, [0.25, 9.0]);
        let singles: Vec<u8> = [0.1f32, -0.3].iter().flat_map(|n| n.to_le_bytes()).collect();
        assert!(decode_row(dense(Scalar::F32), &singles, &mut out));
        assert_eq!(out, [0.1, -0.3]);
    }

    #[test]
    fn a_row_with_a_number_that_is_none_is_refused() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for (scale, bias) in [(bad, 0.0), (1.0, bad)] {
                let mut record = vec![0; 16];
                record.extend(bf16_bytes(&[scale]));
                record.extend(bf16_bytes(&[bias]));
                assert!(!decode_row(affine(4, 32), &record, &mut [0.0; 32]), "scale {scale}, bias {bias}");
            }
            let dense = Matrix { rows: 1, cols: 2, format: Format::Dense(Scalar::Bf16) };
            assert!(!decode_row(dense, &bf16_bytes(&[0.0, bad]), &mut [0.0; 2]));
        }
        assert!(!decode_row(affine(4, 32), &[0; 19], &mut [0.0; 32]), "a byte short");
    }
}
