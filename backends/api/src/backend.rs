//! Owns: the trait that every device implements.
//! Refuses: graphs and policies; a backend runs the operations it is handed, in order.
//! Invariants: `upload`, slot writes and submissions take effect in the order they were made.

use crate::ahead::Listed;
use crate::{Buffer, Counters, DeviceFacts, Encoded, Pool, RecordLayout, Result, SlotWriter, Wanted, Work};

/// Names work that was handed to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Submission(pub u64);

/// A part of a buffer on its way to the host.
pub struct Readback<'a> {
    /// Where it lies.
    pub source: &'a Buffer,
    /// First byte, a multiple of 4.
    pub offset: u64,
    /// Where it goes; its length, a multiple of 4, says how much.
    pub into: &'a mut [u8],
}

impl Readback<'_> {
    /// The same part, for work that is encoded before there is a place for it.
    pub fn wanted(&self) -> Wanted {
        Wanted { source: self.source.clone(), offset: self.offset, bytes: self.into.len() as u64 }
    }
}

/// Told how far something that takes long has come: steps done, and steps in all.
pub type Steps<'a> = &'a mut dyn FnMut(usize, usize);

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
    fn read(&self, source: &Buffer, offset: u64, into: &mut [u8]) -> Result<()> {
        self.read_all(&mut [Readback { source, offset, into }])
    }

    /// Reads several parts after all submitted work, in one round trip.
    ///
    /// # Errors
    /// When a range does not fit its buffer, or the device is lost.
    fn read_all(&self, parts: &mut [Readback<'_>]) -> Result<()>;

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

    /// Starts what slot writers have finished, so that it is under way while others still write. Submissions do so anyway.
    ///
    /// # Errors
    /// When the device is lost.
    fn flush(&self) -> Result<()> {
        Ok(())
    }

    /// Keeps the device from slowing down until what this gives is dropped: while a reply waits for records, and the device has
    /// nothing to do. It changes no result; a backend whose device does not slow down, or may, does nothing.
    fn keep_awake(&self) -> Option<Box<dyn Send>> {
        None
    }

    /// Builds whatever these operations will need, so that their first submission does not wait for it. Nothing runs.
    ///
    /// # Errors
    /// As [`Backend::submit`].
    fn prepare(&self, work: &[Work<'_>], progress: Steps<'_>) -> Result<()> {
        let _ = (work, progress);
        Ok(())
    }

    /// Hands recorded operations to the device, to run in order. A [`Route`](crate::op::Route) with a lookup that finds a
    /// choice without a slot is the last to have an effect: the host reads the control block, brings the expert, and
    /// submits what comes after that operation once more (engine.md 5.3).
    ///
    /// # Errors
    /// When an operation names memory of another backend, is out of range, or the device is lost.
    fn submit(&self, work: Work<'_>) -> Result<Submission>;

    /// Encodes operations that are handed over later, in parts that may go one by one, and what is read behind the last.
    /// A router that finds a choice without a slot ends all parts, as in [`Backend::submit`]. Contents of buffers are those of
    /// the time when the work runs. The buffers that it names must outlive it.
    ///
    /// # Errors
    /// As [`Backend::submit`]; also when a span does not fit its buffer.
    fn encode(&self, parts: &[Work<'_>], reads: &[Wanted]) -> Result<Encoded> {
        Ok(Encoded::new(Listed::new(parts, reads)))
    }

    /// Hands the next part to the device.
    ///
    /// # Errors
    /// When the work is another backend's, or the device is lost.
    fn advance(&self, work: &mut Encoded) -> Result<()> {
        work.work::<Listed>()?.advance(self)
    }

    /// Hands everything that is left to the device, as one submission.
    ///
    /// # Errors
    /// As [`Backend::advance`].
    fn launch(&self, work: &mut Encoded) -> Result<()> {
        work.work::<Listed>()?.launch(self)
    }

    /// Waits for work that was launched, and gives what was to be read, one span after the other.
    ///
    /// # Errors
    /// When the work is another backend's or was not launched, or the device is lost.
    fn land(&self, work: Encoded) -> Result<Vec<u8>> {
        work.into_work::<Listed>()?.land(self)
    }

    /// Waits until a submission and all before it are finished.
    ///
    /// # Errors
    /// When the device is lost.
    fn wait(&self, submission: Submission) -> Result<()>;
}
