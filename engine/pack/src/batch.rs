//! Owns: cutting the records of a plan into batches, and batches into units of work for a thread.
//! Refuses: nothing.
//! Invariants: units come in record order and lie inside a section; together they are each record once.

use ss_checkpoint::{PackPlan, PackRecord};

/// Bytes that a thread reads, checks and writes in one go.
const UNIT: u64 = 4 << 20;

/// Neighbouring records of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unit {
    /// The first of them.
    pub first: PackRecord,
    /// How many.
    pub count: u64,
}

impl Unit {
    /// Bytes with padding.
    pub fn bytes(&self) -> usize {
        (self.count * self.first.stride) as usize
    }

    /// The records, each with its bytes out of the unit's.
    pub fn records<'b>(&self, bytes: &'b [u8]) -> impl Iterator<Item = (PackRecord, &'b [u8])> + use<'b> {
        let Unit { first, .. } = *self;
        (0..).zip(bytes.chunks_exact(first.stride as usize)).map(move |(i, stored)| {
            let record = PackRecord {
                number: first.number + i,
                place: first.place + i,
                left: first.left - i,
                offset: first.offset + i * first.stride,
                ..first
            };
            (record, stored.get(..first.bytes as usize).unwrap_or(stored))
        })
    }
}

/// The units from record `from` on that hold `bytes` bytes, or the last ones.
pub(crate) fn batch(plan: &PackPlan, from: u64, bytes: u64) -> Vec<Unit> {
    let (mut units, mut next, mut left) = (Vec::new(), from, bytes);
    while let Some(first) = plan.record(next) {
        let most = UNIT.min(left) / first.stride;
        let count = most.max(1).min(first.left);
        units.push(Unit { first, count });
        next += count;
        left = left.saturating_sub(count * first.stride);
        if left == 0 {
            break;
        }
    }
    units
}
