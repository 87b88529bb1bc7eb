//! Owns: where the bytes of a weight lie in the files: codes, scales, biases.
//! Refuses: nothing; a [`LinearInfo`] is made only for tensors that were checked.
//! Invariants: each range holds exactly the bytes that the [`Matrix`] asks for.

use ss_backend::Matrix;

use crate::file::FileRange;

/// A weight `[rows, cols]` in the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinearInfo {
    /// Shape and format.
    pub matrix: Matrix,
    /// Codes, or dense numbers.
    pub codes: FileRange,
    /// Scales of an affine weight.
    pub scales: Option<FileRange>,
    /// Biases of an affine weight.
    pub biases: Option<FileRange>,
}

impl LinearInfo {
    /// The `count` rows from `first` on; None past the end. Reads of single rows (embedding, n-gram) go this way.
    pub fn rows(&self, first: u32, count: u32) -> Option<LinearInfo> {
        let matrix = Matrix { rows: count, ..self.matrix };
        let skip = |row_bytes: u64| u64::from(first).checked_mul(row_bytes);
        let part = |range: Option<FileRange>, skip: u64, bytes: u64| match range {
            Some(range) => range.part(skip, bytes).map(Some),
            None => Some(None),
        };
        let codes = self.codes.part(skip(matrix.code_row_bytes())?, matrix.code_bytes())?;
        let (scale_skip, scale_bytes) = (skip(matrix.scale_row_bytes())?, matrix.scale_bytes());
        Some(LinearInfo {
            matrix,
            codes,
            scales: part(self.scales, scale_skip, scale_bytes)?,
            biases: part(self.biases, scale_skip, scale_bytes)?,
        })
    }

    /// Codes, scales, biases; absent ones left out.
    pub fn ranges(&self) -> impl Iterator<Item = FileRange> + use<> {
        [Some(self.codes), self.scales, self.biases].into_iter().flatten()
    }
}

/// A weight in memory, bytes as stored: what a device is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinearData {
    /// Shape and format.
    pub matrix: Matrix,
    /// Codes, or dense numbers.
    pub codes: Vec<u8>,
    /// Scales; empty for a dense weight.
    pub scales: Vec<u8>,
    /// Biases; empty for a dense weight.
    pub biases: Vec<u8>,
}
