//! Owns: the trait that every device implements.
//! Refuses: graphs and policies; a backend runs the operations it is handed, in order.
//! Invariants: `upload`, slot writes and submissions take effect in the order they were made.

use crate::{Buffer, Counters, DeviceFacts, Pool, RecordLayout, Recorder, Result, SlotWriter};

/// Names work that was handed to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Submission(pub u64);

/// A device (engine.md section 2.1).
pub trait Backend: Send + Sync {
    /// What the device is.
    fn facts(&self) -> &DeviceFacts;

    /// What it has done so far.
    fn counters(&self) -> Counters;

    /// Makes a zero-filled buffer; `label` names it in errors and tools.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory) where there is no room.
    fn alloc(&self, label: &str, bytes: u64) -> Result<Buffer>;

    /// Writes `bytes` at byte `offset`, before any work submitted later. `offset` and length are multiples of 4.
    ///
    /// # Errors
    /// When the range does not fit the buffer, or the device is lost.
    fn upload(&self, target: &Buffer, offset: u64, bytes: &[u8]) -> Result<()>;

    /// Reads `into.len()` bytes from byte `offset` after all submitted work. `offset` and length are multiples of 4.
    ///
    /// # Errors
    /// When the range does not fit the buffer, or the device is lost.
    fn read(&self, source: &Buffer, offset: u64, into: &mut [u8]) -> Result<()>;

    /// Makes a pool of `slots` slots for records of this layout.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory) where there is no room.
    fn alloc_pool(&self, layout: &RecordLayout, slots: u32) -> Result<Pool>;

    /// Opens a slot for one record. The caller answers for it that no unfinished work names the slot.
    ///
    /// # Errors
    /// When the slot does not exist or is in use.
    fn open_slot(&self, pool: &Pool, slot: u32) -> Result<Box<dyn SlotWriter>>;

    /// Hands recorded operations to the device, to run in order.
    ///
    /// # Errors
    /// When an operation names memory of another backend, is out of range, or the device is lost.
    fn submit(&self, work: Recorder) -> Result<Submission>;

    /// Waits until a submission and all before it are finished.
    ///
    /// # Errors
    /// When the device is lost.
    fn wait(&self, submission: Submission) -> Result<()>;
}
