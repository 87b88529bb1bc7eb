//! Owns: every number that was chosen by measuring: AVX2 on two cores of an Intel Xeon (2.3 GHz, 2 MB of second level
//! cache), single operations with 4-bit weights at hidden sizes 2560 and 256.
//! Invariants: none of them changes a bit of any result.

/// Multiply-adds below which one thread does the work alone: a thread multiplies ten in a nanosecond, and handing work
/// over and waiting for it costs several microseconds.
pub const PARALLEL_WORK: u64 = 400_000;

/// Pieces a thread gets of an operation that is split: several, so that slow and fast processors finish together.
pub const PIECES_A_THREAD: usize = 2;

/// Rows that are packed and multiplied at once: 32 rows of 2560 numbers fill a third of a megabyte.
pub const ROW_TILE: usize = 32;

/// Most rows that are multiplied with weights expanded in registers. From three on it is faster to expand a weight row to
/// memory once.
pub const FEW_ROWS: usize = 2;

/// Weight rows that are expanded to memory at once.
pub const FEATURE_TILE: usize = 8;

/// Weight rows and input rows whose sums are in registers at once: six sums of 16 lanes fit the registers of AVX2.
pub const WIDE: usize = 2;
/// See [`WIDE`].
pub const TALL: usize = 3;

/// Multiply-adds that cost as much as one exponential.
pub const EXP_COST: u64 = 16;

/// Threads that a processor is given at most, whatever was asked for.
pub const MOST_THREADS_A_PROCESSOR: usize = 8;
