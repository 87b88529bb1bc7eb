//! Owns: small uploads on their way: bytes in a ring that processor and device see, and the copies that the next submission makes
//! of them. wgpu makes and frees a buffer for each write, which costs more than all else about it.
//! Refuses: what is large, and what there is no room for at the moment; wgpu writes that.
//! Invariants: copies are made in the order of their uploads, before anything else of their submission; bytes stay until that is
//! finished.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::device::{Block, Device};
use crate::encoding::QUAD_BYTES;
use crate::in_place::{Memory, Sharing, at};
use crate::tuning::{MOST_SMALL_BYTES, RING_BYTES};

/// The ring.
pub(crate) struct Ring {
    block: Block,
    memory: Arc<dyn Memory>,
    device: wgpu::Device,
    /// Bytes that were ever taken, and those of them that are free again.
    taken: u64,
    freed: u64,
    /// Copies that no submission has made yet.
    pending: Vec<Copy>,
    /// Submissions that are not known to be finished, and the bytes that were taken up to them.
    sent: VecDeque<(u64, u64)>,
}

impl Drop for Ring {
    fn drop(&mut self) {
        // A device that is lost looks at nothing any more.
        let _ = self.device.poll(wgpu::PollType::wait_indefinitely());
    }
}

/// A copy from the ring.
struct Copy {
    from: u64,
    to: wgpu::Buffer,
    offset: u64,
    bytes: u64,
}

impl Ring {
    /// A ring, where processor and device share memory.
    pub(crate) fn new(device: &Device, sharing: &dyn Sharing) -> Option<Self> {
        let usage = wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
        let descriptor =
            wgpu::BufferDescriptor { label: Some("uploads"), size: RING_BYTES, usage, mapped_at_creation: false };
        // SAFETY: both go together, when the device has finished everything.
        let (raw, memory) = unsafe { sharing.chunk(device, &descriptor) }?;
        let block = device.adopt(raw, RING_BYTES);
        Some(Ring {
            block,
            memory,
            device: device.raw.clone(),
            taken: 0,
            freed: 0,
            pending: Vec::new(),
            sent: VecDeque::new(),
        })
    }

    /// Takes an upload, unless it is too large or there is no room; submissions up to `finished` are.
    pub(crate) fn put(
        &mut self,
        (to, offset): (&wgpu::Buffer, u64),
        bytes: &[u8],
        finished: u64,
        hand_on: impl FnOnce(&wgpu::Buffer, u64),
    ) -> bool {
        let Some(from) = self.take(bytes.len() as u64, finished) else { return false };
        let Some(place) = at(&*self.memory, from, bytes.len() as u64) else { return false };
        // SAFETY: the place has so many bytes, and no unfinished copy reads them.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), place.as_ptr(), bytes.len()) };
        hand_on(&self.block.raw, from);
        self.pending.push(Copy { from, to: to.clone(), offset, bytes: bytes.len() as u64 });
        true
    }

    /// Where so many bytes lie that nobody needs any more.
    fn take(&mut self, bytes: u64, finished: u64) -> Option<u64> {
        while let Some((_, up_to)) = self.sent.pop_front_if(|(number, _)| *number <= finished) {
            self.freed = up_to;
        }
        let size = bytes.next_multiple_of(QUAD_BYTES);
        let place = self.taken % RING_BYTES;
        // What does not fit before the end begins at the beginning.
        let skipped = if place + size > RING_BYTES { RING_BYTES - place } else { 0 };
        let taken = self.taken + skipped + size;
        if bytes > MOST_SMALL_BYTES || taken - self.freed > RING_BYTES {
            return None;
        }
        self.taken = taken;
        Some((taken - size) % RING_BYTES)
    }

    /// Whether copies wait for a submission.
    pub(crate) fn is_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Records the copies, which a submission of this number makes, or one before it.
    pub(crate) fn encode(&mut self, encoder: &mut wgpu::CommandEncoder, number: u64) {
        for Copy { from, to, offset, bytes } in self.pending.drain(..) {
            encoder.copy_buffer_to_buffer(&self.block.raw, from, &to, offset, bytes);
        }
        self.sent.push_back((number, self.taken));
    }
}
