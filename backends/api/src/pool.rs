//! Owns: the handle of the slot pool and the way bytes enter a slot (engine.md sections 5.1 and 5.5).
//! Refuses: residency; which expert lies in which slot is the stream's business.
//! Invariants: a slot that is open for writing is named by no submitted work, and the backend says so if it is.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use crate::{RecordLayout, Result};

/// A slot pool as a backend keeps it: S slots of one layout, in as many chunks as the device's limits need.
pub trait PoolMemory: Any + Send + Sync {
    /// Where the pieces of a record lie inside a slot.
    fn layout(&self) -> &RecordLayout;
    /// Number of slots.
    fn slots(&self) -> u32;
    /// For the backend that made it.
    fn as_any(&self) -> &dyn Any;
}

/// A slot pool; clones name the same pool.
#[derive(Clone)]
pub struct Pool(Arc<dyn PoolMemory>);

impl Pool {
    /// Wraps a pool that a backend has made.
    pub fn new(pool: impl PoolMemory) -> Self {
        Pool(Arc::new(pool))
    }

    /// Where the pieces of a record lie inside a slot.
    pub fn layout(&self) -> &RecordLayout {
        self.0.layout()
    }

    /// Number of slots.
    pub fn slots(&self) -> u32 {
        self.0.slots()
    }

    /// Bytes of all slots.
    pub fn bytes(&self) -> u64 {
        self.layout().bytes * u64::from(self.slots())
    }

    /// The backend's own type, if this pool is one of its.
    pub fn memory<M: PoolMemory>(&self) -> Option<&M> {
        self.0.as_any().downcast_ref()
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pool({} slots of {} B)", self.slots(), self.layout().bytes)
    }
}

/// Memory that a reader fills with one record: the slot itself where memory is unified, staging elsewhere.
pub trait SlotWriter: Send {
    /// The record's bytes in slot order, `layout().bytes` of them; contents undefined until written.
    fn bytes(&mut self) -> &mut [u8];
    /// Whether they can be read as quickly as other memory. What a device maps for writing often cannot: an H200 is written at
    /// 14 GB/s and read at 4 to 30 MB/s.
    fn readable(&self) -> bool;
    /// Hands the record over; it is in its slot before any work submitted later.
    ///
    /// # Errors
    /// When the device is lost or out of memory.
    fn finish(self: Box<Self>) -> Result<()>;
}
