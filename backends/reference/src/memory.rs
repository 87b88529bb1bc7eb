//! Owns: device memory as the reference backend keeps it, and the count of its bytes.
//! Refuses: raw pointers; every view is a checked cast of a locked vector.
//! Invariants: a buffer that is read is not written at the same time: the lock says so instead of waiting.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use ss_backend::{Error, Memory, Result};

/// Name of the device in errors.
pub const DEVICE: &str = "reference";

/// Bytes in use, their peak and their limit.
pub struct Ledger {
    limit: u64,
    now: AtomicU64,
    peak: AtomicU64,
}

impl Ledger {
    /// A ledger that refuses to go over `limit` bytes.
    pub fn new(limit: u64) -> Self {
        Ledger { limit, now: AtomicU64::new(0), peak: AtomicU64::new(0) }
    }

    /// Bytes in use.
    pub fn now(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    /// Most bytes ever in use.
    pub fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }

    /// Books `bytes` for `what`.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] over the limit.
    pub fn charge(self: &Arc<Self>, what: &str, bytes: u64) -> Result<Charge> {
        let raised = |now: u64| now.checked_add(bytes).filter(|&sum| sum <= self.limit);
        match self.now.fetch_update(Ordering::Relaxed, Ordering::Relaxed, raised) {
            Ok(before) => {
                self.peak.fetch_max(before + bytes, Ordering::Relaxed);
                Ok(Charge { ledger: Arc::clone(self), bytes })
            }
            Err(_) => Err(out_of_memory(what, bytes)),
        }
    }
}

fn out_of_memory(what: &str, bytes: u64) -> Error {
    Error::OutOfMemory { device: DEVICE.into(), what: what.into(), bytes }
}

/// Bytes that are booked until this is dropped.
pub struct Charge {
    ledger: Arc<Ledger>,
    bytes: u64,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.ledger.now.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// `count` vectors of zeros, `bytes` each rounded up to a whole word, once the system has shown that it has the room.
///
/// # Errors
/// [`Error::OutOfMemory`] where it has not.
pub fn zeroed(what: &str, bytes: u64, count: u32) -> Result<Vec<Vec<u32>>> {
    let words = usize::try_from(bytes.div_ceil(4)).ok();
    let total = words.and_then(|words| words.checked_mul(count as usize));
    let total = total.ok_or_else(|| out_of_memory(what, bytes.saturating_mul(u64::from(count))))?;
    // Zeroed pages come from the system on first use, but only an explicit reservation can fail politely.
    let room = Vec::<u32>::new().try_reserve_exact(total);
    room.map_err(|_| out_of_memory(what, bytes.saturating_mul(u64::from(count))))?;
    Ok((0..count).map(|_| vec![0; total / count as usize]).collect())
}

/// A buffer in host memory.
pub struct HostBuffer {
    /// The buffer's words, little-endian; the last is padded.
    pub words: RwLock<Vec<u32>>,
    /// What it is for.
    pub label: String,
    bytes: u64,
    _charge: Charge,
}

impl HostBuffer {
    /// A zero-filled buffer.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] where there is no room.
    pub fn new(ledger: &Arc<Ledger>, label: &str, bytes: u64) -> Result<Self> {
        let _charge = ledger.charge(label, bytes.div_ceil(4).saturating_mul(4))?;
        let words = RwLock::new(zeroed(label, bytes, 1)?.pop().unwrap_or_default());
        Ok(HostBuffer { words, label: label.into(), bytes, _charge })
    }
}

impl Memory for HostBuffer {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
