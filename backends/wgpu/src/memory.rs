//! Owns: the buffers that the engine holds, as this backend keeps them.
//! Refuses: buffers of another backend, and ranges that leave a buffer or are no multiple of 4.
//! Invariants: what passes [`Stored::range`] is accepted by the device.

use ss_backend::buffer::Memory;
use ss_backend::{Buffer, Error, Result};

use crate::device::{Block, Device};

/// A buffer of this backend.
pub(crate) struct Stored {
    pub(crate) block: Block,
    bytes: u64,
}

impl Stored {
    /// Makes a zero-filled buffer.
    pub(crate) fn new(device: &Device, label: &str, bytes: u64) -> Result<Self> {
        use wgpu::BufferUsages as Usage;
        let block = device.block(label, bytes, Usage::STORAGE | Usage::COPY_SRC | Usage::COPY_DST)?;
        Ok(Stored { block, bytes })
    }

    /// The wgpu buffer behind a handle of the engine.
    pub(crate) fn of(buffer: &Buffer) -> Result<&Stored> {
        buffer.memory().ok_or_else(|| Error::Refused("a buffer belongs to another backend".to_owned()))
    }

    /// Checks that `bytes` bytes from `offset` lie in the buffer, on word boundaries.
    pub(crate) fn range(&self, offset: u64, bytes: u64) -> Result<&wgpu::Buffer> {
        let aligned =
            offset.is_multiple_of(wgpu::COPY_BUFFER_ALIGNMENT) && bytes.is_multiple_of(wgpu::COPY_BUFFER_ALIGNMENT);
        let inside = offset.checked_add(bytes).is_some_and(|end| end <= self.bytes);
        if aligned && inside {
            return Ok(&self.block.raw);
        }
        Err(Error::Refused(format!(
            "{bytes} bytes from byte {offset} of a buffer of {} bytes, where both must be multiples of 4",
            self.bytes
        )))
    }
}

impl Memory for Stored {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}
