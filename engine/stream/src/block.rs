//! Owns: memory for one record outside of any device: aligned for disks, and kept from being paged out where the system
//! allows it.
//! Refuses: what is in it.
//! Invariants: it is allocated once, when it is first written; its bytes begin at a page.

/// Largest page of the systems in use, and a multiple of what direct reads ask for.
const PAGE: usize = 16 << 10;

/// Room for a record.
#[derive(Debug)]
pub(crate) struct Block {
    bytes: usize,
    /// Empty until it is needed; then a page longer than the record.
    memory: Vec<u8>,
    /// Where the record begins in it.
    start: usize,
}

impl Block {
    /// Room for `bytes` bytes, not allocated yet.
    pub fn new(bytes: usize) -> Self {
        Block { bytes, memory: Vec::new(), start: 0 }
    }

    /// Memory that a record of `bytes` bytes takes.
    pub fn footprint(bytes: u64) -> u64 {
        bytes.saturating_add(PAGE as u64)
    }

    /// Whether it is for records of so many bytes.
    pub fn holds(&self, bytes: usize) -> bool {
        self.bytes == bytes
    }

    /// What was written; empty before.
    pub fn bytes(&self) -> &[u8] {
        self.memory.get(self.start..self.start + self.bytes).unwrap_or_default()
    }

    /// Memory to write to; none where the system has no more.
    pub fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        if self.memory.is_empty() {
            self.allocate()?;
        }
        self.memory.get_mut(self.start..self.start + self.bytes)
    }

    fn allocate(&mut self) -> Option<()> {
        let wanted = self.bytes.checked_add(PAGE)?;
        self.memory.try_reserve_exact(wanted).ok()?;
        self.memory.resize(wanted, 0);
        self.start = self.memory.as_ptr().align_offset(PAGE);
        lock::hold(self.bytes());
        Some(())
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        lock::release(self.bytes());
    }
}

#[cfg(unix)]
mod lock {
    use std::sync::atomic::{AtomicBool, Ordering};

    /// Whether the system has refused once: it allows so many bytes, and asking again for each record is in vain.
    static REFUSED: AtomicBool = AtomicBool::new(false);

    /// Asks the system not to page these bytes out; it may refuse.
    pub fn hold(bytes: &[u8]) {
        if REFUSED.load(Ordering::Relaxed) {
            return;
        }
        let start = bytes.as_ptr().cast_mut().cast();
        // SAFETY: the range is one allocation of this process; locking changes no byte of it.
        let held = unsafe { rustix::mm::mlock(start, bytes.len()) };
        REFUSED.fetch_or(held.is_err(), Ordering::Relaxed);
    }

    /// Undoes that before the memory is used for something else.
    pub fn release(bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let start = bytes.as_ptr().cast_mut().cast();
        // SAFETY: the range is one allocation of this process that still exists; unlocking what is not locked does nothing.
        // A refusal leaves the bytes in memory, which harms nobody.
        let _ = unsafe { rustix::mm::munlock(start, bytes.len()) };
    }
}

#[cfg(not(unix))]
mod lock {
    /// Nothing: what keeps memory from being paged out here needs a right that programs lack.
    pub fn hold(_: &[u8]) {}

    /// Nothing was held.
    pub fn release(_: &[u8]) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_allocated_when_it_is_written_and_begins_at_a_page() {
        let mut block = Block::new(10_000);
        assert!(block.bytes().is_empty() && block.memory.is_empty());
        let bytes = block.bytes_mut().unwrap();
        assert_eq!((bytes.len(), bytes.as_ptr().addr() % PAGE), (10_000, 0));
        bytes.fill(7);
        assert_eq!(block.bytes(), [7; 10_000]);
    }

    #[test]
    fn a_block_that_no_memory_holds_is_none() {
        assert!(Block::new(usize::MAX / 2).bytes_mut().is_none());
        assert!(Block::new(usize::MAX).bytes_mut().is_none());
    }
}
