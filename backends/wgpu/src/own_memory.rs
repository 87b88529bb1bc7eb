//! Owns: memory of this process that a device sees as a buffer, so that a reader writes a record straight into its slot where
//! memory is unified (engine.md sections 5.1 and 5.5).
//! Refuses: how a device is made to see it; that is the system's, behind [`Sharing`].
//! Invariants: one writer at a time has a slot; the memory is there for as long as the device may look at it.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::Arc;

use ss_backend::{Error, Result, SlotWriter};

use crate::backend::Shared;
use crate::pool::OpenSlot;

/// Largest page of the systems in use; a device is given whole ones.
pub(crate) const PAGE: usize = 16 << 10;

/// How a device is made to see memory of this process.
pub(crate) trait Sharing: Send + Sync {
    /// A buffer over that memory; none where the device takes none.
    ///
    /// # Safety
    /// The memory must be there until the buffer is gone and no work names it.
    unsafe fn buffer(
        &self,
        device: &wgpu::Device,
        memory: &OwnMemory,
        descriptor: &wgpu::BufferDescriptor<'_>,
    ) -> Option<wgpu::Buffer>;

    /// Has the device see what was written from byte `offset` on: nothing, where it sees the same memory.
    fn publish(&self, queue: &wgpu::Queue, buffer: &wgpu::Buffer, offset: u64, bytes: &[u8]);
}

/// Whole pages, zeros at first.
pub(crate) struct OwnMemory {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: it is plain memory without an owner among the threads; who may write where is settled by `OpenSlot`.
unsafe impl Send for OwnMemory {}
// SAFETY: as above.
unsafe impl Sync for OwnMemory {}

impl OwnMemory {
    /// At least `bytes` bytes; none where the system has no room.
    pub(crate) fn new(bytes: u64) -> Option<Self> {
        let bytes = usize::try_from(bytes).ok()?.max(1).checked_next_multiple_of(PAGE)?;
        let layout = Layout::from_size_align(bytes, PAGE).ok()?;
        // SAFETY: the layout is not empty.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some(OwnMemory { start, layout })
    }

    /// Its first byte.
    #[cfg(any(target_vendor = "apple", test))]
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Its bytes, whole pages.
    pub(crate) fn bytes(&self) -> usize {
        self.layout.size()
    }

    /// Where `bytes` bytes from `offset` on begin, if they are its own.
    fn at(&self, offset: u64, bytes: u64) -> Option<NonNull<u8>> {
        let end = offset.checked_add(bytes)?;
        let offset = usize::try_from(offset).ok().filter(|_| end <= self.bytes() as u64)?;
        // SAFETY: the offset lies in this allocation.
        Some(unsafe { self.start.add(offset) })
    }
}

impl Drop for OwnMemory {
    fn drop(&mut self) {
        // SAFETY: it was allocated with this layout, once.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}

/// A slot in the hands of a reader.
pub(crate) struct Writer {
    /// Holds what `start` points to.
    _memory: Arc<OwnMemory>,
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

/// A slot of a chunk that lies in memory of our own.
pub(crate) struct Place<'a> {
    pub(crate) memory: &'a Arc<OwnMemory>,
    pub(crate) buffer: &'a wgpu::Buffer,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

/// Opens a writer of a slot.
pub(crate) fn writer(shared: &Arc<Shared>, place: &Place<'_>, open: OpenSlot) -> Result<Box<dyn SlotWriter>> {
    let Place { memory, buffer, offset, bytes } = *place;
    let start =
        memory.at(offset, bytes).ok_or_else(|| Error::Refused("a slot past the end of its chunk".to_owned()))?;
    let (memory, buffer, shared) = (memory.clone(), buffer.clone(), shared.clone());
    Ok(Box::new(Writer { _memory: memory, start, bytes, offset, buffer, shared, _open: open }))
}

impl SlotWriter for Writer {
    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: these bytes of `memory`, which lives as long as this, are nobody else's: the slot is open once, and the engine
        // answers for it that no unfinished work names it. They were zeros at first.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes as usize) }
    }

    fn readable(&self) -> bool {
        true
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

    #[test]
    fn memory_comes_in_whole_pages_of_zeros_and_a_range_lies_in_it_or_nowhere() {
        let memory = OwnMemory::new(PAGE as u64 + 1).unwrap();
        assert_eq!((memory.bytes(), memory.start().addr().get() % PAGE), (2 * PAGE, 0));
        // SAFETY: the memory is all of this length, and nobody writes it.
        let bytes = unsafe { std::slice::from_raw_parts(memory.start().as_ptr(), memory.bytes()) };
        assert!(bytes.iter().all(|&byte| byte == 0));
        let end = memory.bytes() as u64;
        assert_eq!(memory.at(end - 4, 4).map(|at| at.addr().get()), Some(memory.start().addr().get() + 2 * PAGE - 4));
        assert_eq!(memory.at(end - 4, 5), None);
        assert_eq!(memory.at(u64::MAX, 2), None);
        assert!(OwnMemory::new(0).is_some_and(|memory| memory.bytes() == PAGE), "a device is given no empty memory");
        assert!(OwnMemory::new(u64::MAX).is_none());
    }
}
