//! Owns: memory of this process in whole pages, as a device takes it for a buffer where memory is unified (engine.md sections
//! 5.1 and 5.5).
//! Refuses: how a device is made to see it.
//! Invariants: zeros at first; it lies in one place until it is dropped.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

use crate::in_place::Memory;

/// Largest page of the systems in use; a device is given whole ones.
pub(crate) const PAGE: usize = 16 << 10;

/// Whole pages.
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
}

impl Memory for OwnMemory {
    fn start(&self) -> NonNull<u8> {
        self.start
    }

    fn bytes(&self) -> usize {
        self.layout.size()
    }

    fn readable(&self) -> bool {
        true
    }
}

impl Drop for OwnMemory {
    fn drop(&mut self) {
        // SAFETY: it was allocated with this layout, once.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_comes_in_whole_pages_of_zeros() {
        let memory = OwnMemory::new(PAGE as u64 + 1).unwrap();
        assert_eq!((memory.bytes(), memory.start().addr().get() % PAGE), (2 * PAGE, 0));
        // SAFETY: the memory is all of this length, and nobody writes it.
        let bytes = unsafe { std::slice::from_raw_parts(memory.start().as_ptr(), memory.bytes()) };
        assert!(bytes.iter().all(|&byte| byte == 0));
        assert!(OwnMemory::new(0).is_some_and(|memory| memory.bytes() == PAGE), "a device is given no empty memory");
        assert!(OwnMemory::new(u64::MAX).is_none());
    }
}
