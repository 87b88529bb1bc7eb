//! Owns: the slot pool in host memory, and the writer that readers on other threads fill a slot through.
//! Invariants: an open slot is locked for writing until its writer is finished or dropped, so an operation that names
//! it is refused instead of reading half a record.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{ArcRwLockWriteGuard, RawRwLock, RwLock};
use ss_backend::{Error, Part, PoolMemory, RecordLayout, Result, SlotWriter, Span};

use crate::memory::{Aligned, Charge, Ledger};
use crate::weights::supported;

/// Slots in host memory.
pub struct HostPool {
    layout: RecordLayout,
    slots: Vec<Arc<RwLock<Aligned<u32>>>>,
    _charge: Charge,
}

impl HostPool {
    /// `slots` zero-filled slots of one layout.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] where there is no room, [`Error::Refused`] when the layout is not one.
    pub fn new(ledger: &Arc<Ledger>, layout: &RecordLayout, slots: u32) -> Result<Self> {
        for (name, part) in [("gate", &layout.gate), ("up", &layout.up), ("down", &layout.down)] {
            if !supported(part.matrix) || !fits(part, layout.bytes) || !layout.bytes.is_multiple_of(RecordLayout::ALIGN)
            {
                return Err(Error::Refused(format!("the `{name}` part of a pool's layout is malformed: {part:?}")));
            }
        }
        let what = format!("{slots} expert slots");
        let _charge = ledger.charge(&what, layout.bytes.saturating_mul(u64::from(slots)))?;
        let slots = Aligned::try_zeros(&what, layout.bytes, slots)?
            .into_iter()
            .map(|words| Arc::new(RwLock::new(words)))
            .collect();
        Ok(HostPool { layout: *layout, slots, _charge })
    }

    /// The words of a slot, if it exists.
    pub fn slot(&self, slot: u32) -> Option<&RwLock<Aligned<u32>>> {
        self.slots.get(slot as usize).map(Arc::as_ref)
    }

    /// Opens a slot; `uploaded` counts its bytes once the record is in.
    ///
    /// # Errors
    /// [`Error::Refused`] when the slot does not exist or is open already.
    pub fn open(&self, slot: u32, uploaded: &Arc<AtomicU64>) -> Result<Writer> {
        let Some(words) = self.slots.get(slot as usize) else {
            return Err(Error::Refused(format!("slot {slot} was opened in a pool of {} slots", self.slots.len())));
        };
        let Some(words) = words.try_write_arc() else {
            return Err(Error::Refused(format!("slot {slot} was opened while it is in use")));
        };
        Ok(Writer { words, uploaded: Arc::clone(uploaded) })
    }
}

/// Whether the pieces have the bytes that the matrix needs, inside a slot.
fn fits(part: &Part, slot: u64) -> bool {
    let inside =
        |span: Span, bytes: u64| span.bytes == bytes && span.offset.checked_add(bytes).is_some_and(|end| end <= slot);
    let sides = part.matrix.scale_bytes();
    inside(part.codes, part.matrix.code_bytes()) && inside(part.scales, sides) && inside(part.biases, sides)
}

impl PoolMemory for HostPool {
    fn layout(&self) -> &RecordLayout {
        &self.layout
    }

    fn slots(&self) -> u32 {
        self.slots.len() as u32
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// The slot itself, locked.
pub struct Writer {
    words: ArcRwLockWriteGuard<RawRwLock, Aligned<u32>>,
    uploaded: Arc<AtomicU64>,
}

impl SlotWriter for Writer {
    fn bytes(&mut self) -> &mut [u8] {
        bytemuck::cast_slice_mut(&mut self.words)
    }

    fn readable(&self) -> bool {
        true
    }

    fn finish(self: Box<Self>) -> Result<()> {
        self.uploaded.fetch_add(4 * self.words.len() as u64, Ordering::Relaxed);
        Ok(())
    }
}
