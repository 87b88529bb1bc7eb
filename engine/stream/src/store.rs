//! Owns: everything of a checkpoint that is read while the model runs: its experts and its n-gram rows, over shared lanes.
//! Refuses: the trunk, which is loaded once.
//! Invariants: there is one [`NgramRows`] for each layer that has a table, in the order of `Geometry::ple`.

use std::sync::Arc;

use ss_backend::Backend;
use ss_checkpoint::Checkpoint;

use crate::mirror::Mirrored;
use crate::ram::RamRecords;
use crate::throttle::{Throttle, Throttled};
use crate::{
    Counters, DiskPace, ExpertCache, ExpertOptions, LaneCounts, Lanes, LookaheadOptions, MirrorOptions, Mutation,
    NgramCounters, NgramOptions, NgramRows, ROW_CACHE_BYTES, RamCounters, RamOptions, RecordSource, Result,
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
    /// What is read early.
    pub lookahead: LookaheadOptions,
    /// What is kept in host memory.
    pub ram: RamOptions,
    /// A second copy of the checkpoint.
    pub mirror: Option<MirrorOptions>,
    /// The disk to imitate; each of two copies lies on one of its own.
    pub pace: Option<DiskPace>,
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
            lookahead: LookaheadOptions::default(),
            ram: RamOptions::default(),
            mirror: None,
            pace: None,
        }
    }
}

/// What the model reads while it runs.
pub struct Store {
    /// Expert records.
    pub experts: ExpertCache,
    /// Rows of the n-gram tables.
    pub ngrams: Vec<NgramRows>,
    ram: Option<Arc<RamRecords>>,
    /// Where bytes come from at full speed.
    unpaced: Arc<dyn RecordSource>,
}

impl Store {
    /// Makes the pool and the caches, all of them empty. Nothing is read but a sample of the n-gram tables.
    ///
    /// # Errors
    /// When the device has no room for the pool, or an n-gram table was never filled.
    pub fn open(backend: Arc<dyn Backend>, checkpoint: Arc<Checkpoint>, options: StoreOptions) -> Result<Self> {
        let StoreOptions { slots, lanes, row_cache_bytes, source, mutation, lookahead, ram, mirror, pace } = options;
        let lanes = Lanes::new(lanes);
        let first = source.unwrap_or_else(|| checkpoint.clone());
        let Sources { paced, unpaced, throttle } = Sources::new(first, mirror, pace);
        let ram = RamRecords::open(ram, &checkpoint, throttle, mutation).map(Arc::new);
        let tables = checkpoint.geometry().ple.len();
        let rows = NgramOptions {
            cache_bytes: row_cache_bytes / tables.max(1) as u64,
            lanes: lanes.clone(),
            source: Some(paced.clone()),
            mutation,
        };
        let rows_of = |table| NgramRows::new(checkpoint.clone(), table, rows.clone());
        let ngrams = (0..tables).map(rows_of).collect::<Result<_>>()?;
        let experts = ExpertOptions { slots, lanes, source: Some(paced), mutation, lookahead };
        let experts = ExpertCache::over(backend, checkpoint, ram.clone(), experts)?;
        Ok(Store { experts, ngrams, ram, unpaced })
    }

    /// Reads records into the host memory that is unused, layer after layer and at full speed; tells bytes done and in all.
    ///
    /// # Errors
    /// The error of the first record that cannot be read or is damaged.
    pub fn preload(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
        self.experts.preload(&*self.unpaced, progress)
    }

    /// What was done so far.
    pub fn counters(&self) -> Counters {
        let ngrams = self.ngrams.iter().map(NgramRows::counters).fold(NgramCounters::default(), NgramCounters::plus);
        let ram = self.ram.as_ref().map_or_else(RamCounters::default, |ram| ram.counters());
        Counters { experts: self.experts.counters(), early: self.experts.early(), ram, ngrams }
    }
}

/// Where bytes come from.
struct Sources {
    /// At the speed of the disk that is imitated, if one is.
    paced: Arc<dyn RecordSource>,
    /// At full speed.
    unpaced: Arc<dyn RecordSource>,
    /// The pace of the disk that the first copy lies on.
    throttle: Option<Arc<Throttle>>,
}

impl Sources {
    fn new(first: Arc<dyn RecordSource>, mirror: Option<MirrorOptions>, pace: Option<DiskPace>) -> Self {
        let unpaced = joined(first.clone(), mirror.clone());
        let Some(pace) = pace else { return Sources { paced: unpaced.clone(), unpaced, throttle: None } };
        let throttle = Throttle::new(pace);
        let slow = |source, throttle| -> Arc<dyn RecordSource> { Arc::new(Throttled { source, throttle }) };
        let mirror = mirror.map(|m| MirrorOptions { copy: slow(m.copy, Throttle::new(pace)), told: m.told });
        Sources { paced: joined(slow(first, throttle.clone()), mirror), unpaced, throttle: Some(throttle) }
    }
}

/// A source and its second copy as one.
fn joined(first: Arc<dyn RecordSource>, mirror: Option<MirrorOptions>) -> Arc<dyn RecordSource> {
    match mirror {
        Some(mirror) => Arc::new(Mirrored::new(first, mirror)),
        None => first,
    }
}
