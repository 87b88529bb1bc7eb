//! Owns: device memory as the reference backend keeps it, and the count of its bytes.
//! Refuses: raw pointers; every view is a checked cast of a locked vector.
//! Invariants: a buffer that is read is not written at the same time: the lock says so instead of waiting.

use std::any::Any;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytemuck::Zeroable;
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

/// Bytes of a cache line, and of the widest vector register: a load that straddles two lines costs twice.
const LINE: usize = 64;

/// Zeros that begin on a cache line. They come from the system lazily, page by page.
#[derive(Default)]
pub struct Aligned<T> {
    store: Vec<T>,
    start: usize,
    len: usize,
}

impl<T: Zeroable + Clone> Aligned<T> {
    /// `len` zeros; the process ends where the system has no room.
    pub fn zeros(len: usize) -> Self {
        let store = vec![T::zeroed(); len + LINE / size_of::<T>()];
        let start = store.as_ptr().align_offset(LINE).min(store.len() - len);
        Aligned { store, start, len }
    }

    /// `count` times `bytes` bytes, each rounded up to a whole number, once the system has shown that it has the room.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] where it has not.
    pub fn try_zeros(what: &str, bytes: u64, count: u32) -> Result<Vec<Self>> {
        let refused = || out_of_memory(what, bytes.saturating_mul(u64::from(count)));
        let len = usize::try_from(bytes.div_ceil(size_of::<T>() as u64)).map_err(|_| refused())?;
        let padded = len.checked_add(LINE / size_of::<T>()).and_then(|len| len.checked_mul(count as usize));
        // Only an explicit reservation can fail politely.
        Vec::<T>::new().try_reserve_exact(padded.ok_or_else(refused)?).map_err(|_| refused())?;
        Ok((0..count).map(|_| Self::zeros(len)).collect())
    }
}

impl<T> Deref for Aligned<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.store[self.start..self.start + self.len]
    }
}

impl<T> DerefMut for Aligned<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.store[self.start..self.start + self.len]
    }
}

/// A buffer in host memory.
pub struct HostBuffer {
    /// The buffer's words, little-endian; the last is padded.
    pub words: RwLock<Aligned<u32>>,
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
        let words = RwLock::new(Aligned::try_zeros(label, bytes, 1)?.pop().unwrap_or_default());
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
