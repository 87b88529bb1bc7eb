//! Owns: how an n-gram row is stored in a pack: codes, scales, biases, then a checksum of its own.
//! Refuses: rows whose checksum does not match.
//! Invariants: a stored row never straddles a page, so that it costs one page of the disk.

use ss_backend::Matrix;

use super::plan::checksum;

/// Bytes of a row's own checksum.
const SEAL: u64 = 8;
/// The smallest stored row.
const SMALLEST: u64 = 32;
/// Bytes of the rows that share an entry of the table of checksums.
const BLOCK: u64 = 64 << 10;

/// How the rows of one table are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowForm {
    /// Bytes of a row's codes, scales and biases.
    pub row_bytes: u64,
    /// Bytes of a stored row: a power of two, 128 at the released geometry.
    pub stride: u64,
    /// Rows of a record.
    pub per_record: u64,
}

impl RowForm {
    /// The form of rows of this shape and format; `rows` of the matrix does not matter.
    pub fn of(matrix: Matrix) -> RowForm {
        let row_bytes = Matrix { rows: 1, ..matrix }.bytes();
        let stride = (row_bytes + SEAL).next_power_of_two().max(SMALLEST);
        RowForm { row_bytes, stride, per_record: (BLOCK / stride).max(1) }
    }

    /// Writes the checksum of row number `row` behind its bytes.
    pub fn seal(&self, row: u64, stored: &mut [u8]) {
        let seal = stored.get(..self.row_bytes as usize).map(|bytes| checksum(row, bytes));
        if let (Some(seal), Some(place)) = (seal, stored.last_chunk_mut()) {
            *place = seal.to_le_bytes();
        }
    }

    /// Whether the bytes are those that were stored for row number `row`. A row of a `blank` record, which was never
    /// written because its originals are zeros, is all zeros.
    pub fn holds(&self, row: u64, blank: bool, stored: &[u8]) -> bool {
        if blank {
            return stored.iter().all(|&byte| byte == 0);
        }
        let seal = stored.get(..self.row_bytes as usize).map(|bytes| checksum(row, bytes).to_le_bytes());
        seal.is_some() && seal.as_ref() == stored.last_chunk()
    }
}

#[cfg(test)]
mod tests {
    use ss_backend::{Format, Scalar};

    use super::*;

    fn released() -> RowForm {
        let format = Format::Affine { bits: 4, group: 32, scale: Scalar::Bf16 };
        RowForm::of(Matrix { rows: 20_000_096, cols: 160, format })
    }

    #[test]
    fn a_released_row_takes_128_bytes_and_divides_every_page() {
        assert_eq!(released(), RowForm { row_bytes: 100, stride: 128, per_record: 512 });
        for cols in [32, 96, 512, 1 << 16] {
            let form = RowForm::of(Matrix { rows: 1, cols, format: Format::Dense(Scalar::F32) });
            assert!(form.stride >= form.row_bytes + SEAL && form.stride.is_power_of_two());
            assert!((form.stride * form.per_record).is_multiple_of(super::super::ALIGN));
        }
    }

    #[test]
    fn a_sealed_row_is_known_and_any_flipped_bit_and_any_other_place_is_noticed() {
        let form = released();
        let mut stored = vec![0u8; 128];
        stored[..100].iter_mut().zip(0..).for_each(|(byte, i)| *byte = i);
        form.seal(7, &mut stored);
        assert!(form.holds(7, false, &stored) && !form.holds(8, false, &stored));
        for bit in (0..100 * 8).chain(120 * 8..128 * 8) {
            let mut damaged = stored.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(!form.holds(7, false, &damaged), "bit {bit}");
        }
        assert!(!form.holds(0, false, &[0; 128]), "zeros where something was stored");
        assert!(form.holds(0, true, &[0; 128]) && !form.holds(7, true, &stored));
        assert!(!form.holds(7, false, &stored[..50]));
    }
}
