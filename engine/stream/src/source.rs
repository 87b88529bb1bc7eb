//! Owns: the one way in which this crate's readers reach a file: a range, read in full or not at all.
//! Refuses: knowing what the bytes are.
//! Invariants: a read that returns `Ok` has filled the whole destination.

use ss_checkpoint::{Checkpoint, FileRange};

/// Where bytes come from: the checkpoint, or in tests a disk that fails.
pub trait RecordSource: Send + Sync {
    /// Reads a range into `into`, which has its length.
    ///
    /// # Errors
    /// An error that names the file, when it cannot be read or ends early.
    fn read(&self, range: FileRange, into: &mut [u8]) -> ss_checkpoint::Result<()>;
}

impl RecordSource for Checkpoint {
    fn read(&self, range: FileRange, into: &mut [u8]) -> ss_checkpoint::Result<()> {
        Checkpoint::read(self, range, into)
    }
}
