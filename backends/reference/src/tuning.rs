//! Owns: every number that was chosen by measuring.
//! Invariants: none of them changes a bit of any result.

/// Multiply-adds below which one thread does the work alone: handing work over and waiting for it costs about as much.
pub const PARALLEL_WORK: u64 = 400_000;

/// Pieces a thread gets of an operation that is split: several, so that slow and fast processors finish together.
pub const PIECES_A_THREAD: usize = 2;

/// Rows that are packed and multiplied at once: 32 rows of 2560 numbers fill a third of a megabyte.
pub const ROW_TILE: usize = 32;

/// Weight rows that are expanded at once when several rows are multiplied.
pub const FEATURE_TILE: usize = 8;

/// Multiply-adds that cost as much as one exponential.
pub const EXP_COST: u64 = 16;
