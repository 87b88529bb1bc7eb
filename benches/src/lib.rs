//! Owns: what benches share: the small trained model on the reference backend, fast and plain.
//! Invariants: both run the same graph over the same bytes; only the inner loops and the threads differ.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ss_backend::Arithmetic;
use ss_checkpoint::Checkpoint;
use ss_model::{Model, ModelOptions, PassMutation};
use ss_reference::{Options, Reference};
use ss_stream::{PoolGeometry, PoolSize, StoreOptions};

/// How the reference backend computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernels {
    /// Vector units and threads, as a person gets them.
    Fast,
    /// Vector units on one thread.
    OneThread,
    /// The straightforward implementation: one number after the other, on one thread.
    Plain,
}

impl Kernels {
    /// All of them.
    pub const ALL: [Kernels; 3] = [Kernels::Fast, Kernels::OneThread, Kernels::Plain];

    /// Options of the backend.
    pub fn options(self) -> Options {
        let threads = if self == Kernels::Fast { 0 } else { 1 };
        Options { threads, simd: self != Kernels::Plain, ..Options::default() }
    }
}

/// The repository's model directory.
pub fn nano() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/flash-next-nano")
}

/// The same or a copy of it, packed for one, that `SS_MODEL_DIR` names.
fn measured() -> PathBuf {
    std::env::var_os("SS_MODEL_DIR").map_or_else(nano, PathBuf::from)
}

/// The small trained model, ready to run.
///
/// # Panics
/// When it cannot be loaded: a bench has no one to tell.
pub fn model(kernels: Kernels, slots: PoolSize, arithmetic: Arithmetic) -> Model {
    model_over(kernels, slots, arithmetic, |_, _| {})
}

/// The small trained model, over a store that `adjust` has the last word on.
///
/// # Panics
/// As [`model`].
pub fn model_over(
    kernels: Kernels,
    slots: PoolSize,
    arithmetic: Arithmetic,
    adjust: impl FnOnce(&Checkpoint, &mut StoreOptions),
) -> Model {
    let backend = Arc::new(Reference::new(kernels.options()).unwrap_or_else(|e| panic!("{e}")));
    let checkpoint = Arc::new(Checkpoint::open(&measured()).unwrap_or_else(|e| panic!("{e}")));
    let slots = slots.resolve(PoolGeometry::from(checkpoint.geometry())).unwrap_or_else(|e| panic!("{e}"));
    let mut store = StoreOptions::new(slots);
    adjust(&checkpoint, &mut store);
    let options = ModelOptions { store, arithmetic, read_group: 0, mutation: PassMutation::None };
    Model::load(backend, checkpoint, options, &mut |_, _| {}).unwrap_or_else(|e| panic!("{e}"))
}
