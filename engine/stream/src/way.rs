//! Owns: the way of a record's bytes to memory of a device: straight, by way of ordinary memory where the device's can only be
//! written quickly, or copied from host memory (engine.md sections 5.2 and 5.7).
//! Refuses: where the bytes come from.
//! Invariants: a device's memory that is slow to read is never read; what is checked is what arrives.

use std::sync::Arc;

use parking_lot::Mutex;
use ss_backend::SlotWriter;

use crate::block::Block;
use crate::{Error, Lane, Lanes, Result};

/// Where a record goes.
pub(crate) struct Goal<'a> {
    bytes: &'a mut [u8],
    /// Whether it can be read and checked there.
    readable: bool,
}

impl<'a> Goal<'a> {
    /// The memory of a slot's writer.
    pub fn of(writer: &'a mut dyn SlotWriter) -> Self {
        let readable = writer.readable();
        Goal { bytes: writer.bytes(), readable }
    }

    /// Bytes of the record.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }
}

/// Ordinary memory for records on their way, as much as were on it at once; clones share it.
#[derive(Clone, Default)]
pub(crate) struct Bounces(Arc<Mutex<Vec<Block>>>);

/// Who carries a record.
#[derive(Clone, Copy)]
pub(crate) struct Way<'a> {
    pub lanes: &'a Lanes,
    pub lane: Lane,
    pub bounces: &'a Bounces,
}

impl Way<'_> {
    /// Has a record read to its goal with `read`, which checks what it has read and returns the bytes that came from the disk.
    pub fn read(&self, goal: Goal<'_>, read: impl FnOnce(&mut [u8]) -> Result<u64>) -> Result<u64> {
        if goal.readable {
            return read(goal.bytes);
        }
        let mut block = self.bounces.take(goal.len());
        let done = match block.bytes_mut() {
            Some(bytes) => read(bytes).and_then(|read| self.copy(bytes, goal).map(|()| read)),
            // The system has no more memory: slow is better than not at all.
            None => read(goal.bytes),
        };
        self.bounces.give(block);
        done
    }

    /// Copies a record that is in host memory to its goal.
    pub fn copy(&self, record: &[u8], goal: Goal<'_>) -> Result<()> {
        if record.len() != goal.len() {
            return Err(Error::Fault("a record of another length than its place in host memory".to_owned()));
        }
        self.lanes.copy(self.lane, record, goal.bytes)
    }
}

impl Bounces {
    fn take(&self, bytes: usize) -> Block {
        self.0.lock().pop().filter(|block| block.holds(bytes)).unwrap_or_else(|| Block::new(bytes))
    }

    fn give(&self, block: Block) {
        self.0.lock().push(block);
    }
}
