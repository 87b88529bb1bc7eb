//! Owns: the mapped buffers through which records reach their slots where memory is not unified (engine.md 5.1, 5.5).
//! Refuses: nothing; the slot was checked when it was opened.
//! Invariants: a buffer is either mapped and free, mapped and held by one writer, or unmapped with its copy pending or
//! submitted; it is mapped again only when that copy is finished.

use std::sync::Arc;

use parking_lot::Mutex;
use ss_backend::{Error, Result, SlotWriter};

use crate::backend::Shared;
use crate::device::{Block, Device};
use crate::pool::OpenSlot;

/// The free buffers of one pool, each as large as a record.
pub(crate) struct Staging {
    bytes: u64,
    free: Mutex<Vec<Block>>,
}

/// A copy from a filled buffer to a slot, on its way to the next submission.
pub(crate) struct SlotCopy {
    from: Block,
    to: wgpu::Buffer,
    offset: u64,
    ring: Arc<Staging>,
}

/// Where a slot lies.
pub(crate) struct Target {
    pub(crate) buffer: wgpu::Buffer,
    pub(crate) offset: u64,
    /// Keeps others out until the writer ends.
    pub(crate) _open: OpenSlot,
}

/// A mapped buffer in the hands of a reader.
struct Writer {
    /// The view is dropped before its buffer is unmapped; both are taken out when the writer ends.
    mapped: Option<(wgpu::BufferViewMut, Block)>,
    target: Target,
    ring: Arc<Staging>,
    shared: Arc<Shared>,
}

impl Staging {
    /// An empty ring; buffers are made when none is free.
    pub(crate) fn new(bytes: u64) -> Self {
        Staging { bytes, free: Mutex::default() }
    }

    fn take(&self, device: &Device) -> Result<Block> {
        if let Some(block) = self.free.lock().pop() {
            return Ok(block);
        }
        device.mapped("slot staging", self.bytes)
    }
}

/// Opens a writer for the slot that `target` names.
pub(crate) fn writer(shared: &Arc<Shared>, ring: &Arc<Staging>, target: Target) -> Result<Box<dyn SlotWriter>> {
    let block = ring.take(&shared.device)?;
    let view = block.raw.get_mapped_range_mut(..).map_err(|error| Error::Refused(error.to_string()))?;
    let writer = Writer { mapped: Some((view, block)), target, ring: Arc::clone(ring), shared: Arc::clone(shared) };
    Ok(Box::new(writer))
}

impl SlotWriter for Writer {
    fn bytes(&mut self) -> &mut [u8] {
        let Some((view, _)) = &mut self.mapped else { return &mut [] };
        let (start, length) = (view.slice(..).as_raw_element_ptr(), view.len());
        // SAFETY: `start` is the beginning of `length` mapped bytes, zero-filled or written before. They stay mapped
        // while the view lives, and the borrow of `self` keeps it alive and unshared.
        unsafe { std::slice::from_raw_parts_mut(start.as_ptr().cast::<u8>(), length) }
    }

    /// Never: wgpu does not say of mapped memory what it is, and a driver may give memory of the device.
    fn readable(&self) -> bool {
        false
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        let Some((view, from)) = self.mapped.take() else { return Ok(()) };
        drop(view);
        from.raw.unmap();
        let Target { buffer, offset, .. } = &self.target;
        self.shared.write_slot(SlotCopy { from, to: buffer.clone(), offset: *offset, ring: Arc::clone(&self.ring) })
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // Not finished: the reader failed, and the buffer is still mapped.
        if let Some((view, block)) = self.mapped.take() {
            drop(view);
            self.ring.free.lock().push(block);
        }
    }
}

impl SlotCopy {
    /// Bytes of the record.
    pub(crate) fn bytes(&self) -> u64 {
        self.ring.bytes
    }

    /// Records the copy.
    pub(crate) fn encode(&self, encoder: &mut wgpu::CommandEncoder) {
        encoder.copy_buffer_to_buffer(&self.from.raw, 0, &self.to, self.offset, self.ring.bytes);
    }

    /// After submission: gives the buffer back to its ring once the copy is finished.
    pub(crate) fn recycle(self) {
        let SlotCopy { from, ring, .. } = self;
        let raw = from.raw.clone();
        raw.map_async(wgpu::MapMode::Write, .., move |mapped| {
            // A buffer that cannot be mapped belongs to a lost device; the next call says so.
            if mapped.is_ok() {
                ring.free.lock().push(from);
            }
        });
    }
}
