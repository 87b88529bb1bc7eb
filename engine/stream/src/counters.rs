//! Owns: what the stream has done so far, for the statistics of a run.
//! Invariants: counts only grow; what a failed request read is not counted, that it asked is.

use std::time::Duration;

use crate::{LookaheadCounters, RamCounters};

/// Experts asked for, by layer and pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExpertCounters {
    /// Experts that had a slot when they were asked for.
    pub hits: u64,
    /// Experts that had none.
    pub misses: u64,
    /// Experts that lost their slot to another.
    pub evictions: u64,
    /// Records read into a slot and published.
    pub records: u64,
    /// Bytes read from files.
    pub bytes_read: u64,
    /// Groups of records that were read for passes of a prompt and not kept.
    pub groups: u64,
    /// Those of them that served more than one pass.
    pub shared_groups: u64,
    /// Records that passes did not read, because they shared a group.
    pub spared: u64,
    /// Time that callers waited for records, checks included.
    pub waited: Duration,
}

/// Rows of n-gram tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NgramCounters {
    /// Rows asked for, repetitions included.
    pub rows: u64,
    /// Rows that needed no read of their own: cached, or read for another place of the same call.
    pub hits: u64,
    /// Rows read.
    pub misses: u64,
    /// Cached rows given up for others.
    pub evictions: u64,
    /// Positioned reads; neighbouring rows share one.
    pub reads: u64,
    /// Bytes read from files, those between neighbours included.
    pub bytes_read: u64,
    /// Rows that were read while the device worked, and were there when it came to them.
    pub early: u64,
    /// Time that callers waited for rows.
    pub waited: Duration,
}

impl ExpertCounters {
    /// What was done since `earlier`.
    pub fn since(self, earlier: Self) -> Self {
        ExpertCounters {
            hits: self.hits - earlier.hits,
            misses: self.misses - earlier.misses,
            evictions: self.evictions - earlier.evictions,
            records: self.records - earlier.records,
            bytes_read: self.bytes_read - earlier.bytes_read,
            groups: self.groups - earlier.groups,
            shared_groups: self.shared_groups - earlier.shared_groups,
            spared: self.spared - earlier.spared,
            waited: self.waited.saturating_sub(earlier.waited),
        }
    }
}

impl NgramCounters {
    /// What was done since `earlier`.
    pub fn since(self, earlier: Self) -> Self {
        NgramCounters {
            rows: self.rows - earlier.rows,
            hits: self.hits - earlier.hits,
            misses: self.misses - earlier.misses,
            evictions: self.evictions - earlier.evictions,
            reads: self.reads - earlier.reads,
            bytes_read: self.bytes_read - earlier.bytes_read,
            early: self.early - earlier.early,
            waited: self.waited.saturating_sub(earlier.waited),
        }
    }

    /// The sum of two tables' counters.
    pub fn plus(self, other: Self) -> Self {
        NgramCounters {
            rows: self.rows + other.rows,
            hits: self.hits + other.hits,
            misses: self.misses + other.misses,
            evictions: self.evictions + other.evictions,
            reads: self.reads + other.reads,
            bytes_read: self.bytes_read + other.bytes_read,
            early: self.early + other.early,
            waited: self.waited + other.waited,
        }
    }
}

/// Everything that the stream has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Expert records.
    pub experts: ExpertCounters,
    /// Those read early.
    pub early: LookaheadCounters,
    /// Those that came from host memory.
    pub ram: RamCounters,
    /// Rows of all n-gram tables.
    pub ngrams: NgramCounters,
}

impl Counters {
    /// What was done since `earlier`.
    pub fn since(self, earlier: Self) -> Self {
        Counters {
            experts: self.experts.since(earlier.experts),
            early: self.early.since(earlier.early),
            ram: self.ram.since(earlier.ram),
            ngrams: self.ngrams.since(earlier.ngrams),
        }
    }

    /// Bytes read from files for records and rows.
    pub fn bytes_read(&self) -> u64 {
        self.experts.bytes_read + self.ngrams.bytes_read
    }
}
