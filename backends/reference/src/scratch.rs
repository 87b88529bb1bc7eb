//! Owns: working memory of running operations.
//! Invariants: a lease begins on a cache line, is as long as was asked for and holds anything until it is written.

use std::ops::{Deref, DerefMut};

use parking_lot::Mutex;

use crate::memory::Aligned;

/// Memory that operations borrow and give back.
#[derive(Default)]
pub struct Scratch {
    free: Mutex<Vec<Aligned<f32>>>,
}

impl Scratch {
    /// Working memory for `len` numbers.
    pub fn take(&self, len: usize) -> Lease<'_> {
        let mut store = self.free.lock().pop().unwrap_or_default();
        if store.len() < len {
            store = Aligned::zeros(len);
        }
        Lease { home: self, store, len }
    }
}

/// Borrowed working memory; goes home when it is dropped.
pub struct Lease<'a> {
    home: &'a Scratch,
    store: Aligned<f32>,
    len: usize,
}

impl Deref for Lease<'_> {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        &self.store[..self.len]
    }
}

impl DerefMut for Lease<'_> {
    fn deref_mut(&mut self) -> &mut [f32] {
        &mut self.store[..self.len]
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        self.home.free.lock().push(std::mem::take(&mut self.store));
    }
}
