//! Owns: the handle by which the engine holds device memory.
//! Refuses: views and offsets; operations carry their own.
//! Invariants: a buffer is zero-filled when it is made and freed when its last handle is dropped.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// Device memory as a backend keeps it.
pub trait Memory: Any + Send + Sync {
    /// Size in bytes.
    fn bytes(&self) -> u64;
    /// For the backend that made it.
    fn as_any(&self) -> &dyn Any;
}

/// A piece of device memory; clones name the same memory.
#[derive(Clone)]
pub struct Buffer(Arc<dyn Memory>);

impl Buffer {
    /// Wraps memory that a backend has made.
    pub fn new(memory: impl Memory) -> Self {
        Buffer(Arc::new(memory))
    }

    /// Size in bytes.
    pub fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    /// The backend's own type, if this buffer is one of its.
    pub fn memory<M: Memory>(&self) -> Option<&M> {
        self.0.as_any().downcast_ref()
    }

    /// Whether two handles name the same memory.
    pub fn same(&self, other: &Buffer) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} B)", self.bytes())
    }
}
