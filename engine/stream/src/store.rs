//! Owns: everything of a checkpoint that is read while the model runs: its experts and its n-gram rows, over shared lanes.
//! Refuses: the trunk, which is loaded once.
//! Invariants: there is one [`NgramRows`] for each layer that has a table, in the order of `Geometry::ple`.

use std::sync::Arc;

use ss_backend::Backend;
use ss_checkpoint::Checkpoint;

use crate::{
    Counters, ExpertCache, ExpertOptions, LaneCounts, Lanes, Mutation, NgramCounters, NgramOptions, NgramRows,
    ROW_CACHE_BYTES, RecordSource, Result,
};

/// How a [`Store`] is made.
#[derive(Clone)]
pub struct StoreOptions {
    /// Slots of the pool.
    pub slots: u32,
    /// How many reads may be in flight.
    pub lanes: LaneCounts,
    /// Bytes of the row caches of all tables together.
    pub row_cache_bytes: u64,
    /// Test support: where bytes come from, if not from the checkpoint.
    pub source: Option<Arc<dyn RecordSource>>,
    /// Test support: a deliberate fault.
    pub mutation: Mutation,
}

impl StoreOptions {
    /// A pool of `slots` slots, and the defaults for the rest.
    pub fn new(slots: u32) -> Self {
        StoreOptions {
            slots,
            lanes: LaneCounts::default(),
            row_cache_bytes: ROW_CACHE_BYTES,
            source: None,
            mutation: Mutation::None,
        }
    }
}

/// What the model reads while it runs.
pub struct Store {
    /// Expert records.
    pub experts: ExpertCache,
    /// Rows of the n-gram tables.
    pub ngrams: Vec<NgramRows>,
}

impl Store {
    /// Makes the pool and the caches, all of them empty. Nothing is read.
    ///
    /// # Errors
    /// When the device has no room for the pool.
    pub fn open(backend: Arc<dyn Backend>, checkpoint: Arc<Checkpoint>, options: StoreOptions) -> Result<Self> {
        let StoreOptions { slots, lanes, row_cache_bytes, source, mutation } = options;
        let lanes = Lanes::new(lanes);
        let tables = checkpoint.geometry().ple.len();
        let rows = NgramOptions {
            cache_bytes: row_cache_bytes / tables.max(1) as u64,
            lanes: lanes.clone(),
            source: source.clone(),
            mutation,
        };
        let rows_of = |table| NgramRows::new(checkpoint.clone(), table, rows.clone());
        let ngrams = (0..tables).map(rows_of).collect::<Result<_>>()?;
        let experts = ExpertOptions { slots, lanes, source, mutation };
        Ok(Store { experts: ExpertCache::with_options(backend, checkpoint, experts)?, ngrams })
    }

    /// What was done so far.
    pub fn counters(&self) -> Counters {
        let ngrams = self.ngrams.iter().map(NgramRows::counters).fold(NgramCounters::default(), NgramCounters::plus);
        Counters { experts: self.experts.counters(), ngrams }
    }
}
