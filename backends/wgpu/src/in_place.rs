//! Owns: slots that are written where they lie: memory that the processor writes and a device sees as a buffer (engine.md
//! sections 5.1 and 5.5).
//! Refuses: how memory comes to be seen by both; that is the system's, behind [`Sharing`].
//! Invariants: one writer at a time has a slot; the memory is there for as long as the device may look at it.

use std::ptr::NonNull;
use std::sync::Arc;

use ss_backend::{Error, Result, SlotWriter};

use crate::backend::Shared;
use crate::device::Device;
use crate::pool::OpenSlot;

/// How records get into slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotWrites {
    /// Straight into the slot where the device shows its memory to the processor, else as `Staged`.
    InPlace,
    /// Through a mapped buffer and a copy.
    Staged,
}

/// Memory that processor and device see.
pub(crate) trait Memory: Send + Sync {
    /// Its first byte.
    fn start(&self) -> NonNull<u8>;

    /// Its bytes.
    fn bytes(&self) -> usize;

    /// Whether it may be read, and read into, like any other memory.
    fn readable(&self) -> bool;
}

/// How memory comes to be seen by both.
pub(crate) trait Sharing: Send + Sync {
    /// A buffer, and memory of at least its size behind it, zeros at first; none where there is none of that kind.
    ///
    /// # Safety
    /// Whoever takes both keeps the memory until the buffer is gone and no work names it.
    unsafe fn chunk(
        &self,
        device: &Device,
        descriptor: &wgpu::BufferDescriptor<'_>,
    ) -> Option<(wgpu::Buffer, Arc<dyn Memory>)>;

    /// Has the device see what was written from byte `offset` on: nothing, where it sees the same memory.
    fn publish(&self, queue: &wgpu::Queue, buffer: &wgpu::Buffer, offset: u64, bytes: &[u8]);
}

/// Where `bytes` bytes from `offset` on begin, if they are the memory's own.
pub(crate) fn at(memory: &dyn Memory, offset: u64, bytes: u64) -> Option<NonNull<u8>> {
    let end = offset.checked_add(bytes)?;
    let offset = usize::try_from(offset).ok().filter(|_| end <= memory.bytes() as u64)?;
    // SAFETY: the offset lies in this memory.
    Some(unsafe { memory.start().add(offset) })
}

/// A slot in the hands of a reader.
struct Writer {
    memory: Arc<dyn Memory>,
    start: NonNull<u8>,
    bytes: u64,
    offset: u64,
    buffer: wgpu::Buffer,
    shared: Arc<Shared>,
    /// Keeps others out until the writer ends.
    _open: OpenSlot,
}

// SAFETY: the bytes are this writer's alone while it lives, and its memory may be written by any thread.
unsafe impl Send for Writer {}

/// A slot of a chunk that the processor sees.
pub(crate) struct Place<'a> {
    pub(crate) memory: &'a Arc<dyn Memory>,
    pub(crate) buffer: &'a wgpu::Buffer,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

/// Opens a writer of a slot.
pub(crate) fn writer(shared: &Arc<Shared>, place: &Place<'_>, open: OpenSlot) -> Result<Box<dyn SlotWriter>> {
    let Place { memory, buffer, offset, bytes } = *place;
    let start =
        at(&**memory, offset, bytes).ok_or_else(|| Error::Refused("a slot past the end of its chunk".to_owned()))?;
    let (memory, buffer, shared) = (memory.clone(), buffer.clone(), shared.clone());
    Ok(Box::new(Writer { memory, start, bytes, offset, buffer, shared, _open: open }))
}

impl SlotWriter for Writer {
    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: these bytes of `memory`, which lives as long as this, are nobody else's: the slot is open once, and the engine
        // answers for it that no unfinished work names it. They were zeros at first.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes as usize) }
    }

    fn readable(&self) -> bool {
        self.memory.readable()
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        self.shared.device.ledger.uploaded.fetch_add(self.bytes, std::sync::atomic::Ordering::Relaxed);
        let (shared, buffer, offset) = (self.shared.clone(), self.buffer.clone(), self.offset);
        if let Some(sharing) = &shared.sharing {
            sharing.publish(&shared.device.queue, &buffer, offset, self.bytes());
        }
        shared.device.check()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::own_memory::{OwnMemory, PAGE};

    #[test]
    fn a_range_lies_in_its_memory_or_nowhere() {
        let memory = OwnMemory::new(PAGE as u64 + 1).unwrap();
        let end = memory.bytes() as u64;
        assert_eq!(at(&memory, end - 4, 4).map(|at| at.addr().get()), Some(memory.start().addr().get() + 2 * PAGE - 4));
        assert_eq!(at(&memory, end - 4, 5), None);
        assert_eq!(at(&memory, u64::MAX, 2), None);
    }
}
