//! Owns: from flags to a model on a device.
//! Invariants: everything that can be refused is refused before anything large is allocated.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Result, bail};
use ss_checkpoint::{Checkpoint, OpenOptions};
use ss_generate::{Engine, Words};
use ss_memory::Machine;
use ss_model::{Model, ModelOptions, PassMutation, read_group_bytes, trunk_bytes, workspace_bytes};
use ss_stream::{
    DiskPace, LaneCounts, LookaheadOptions, MirrorOptions, PoolGeometry, PoolSize, RamOptions, StoreOptions,
};

use crate::args::{BenchArgs, LoadArgs, TierArgs};
use crate::device::{Device, Timing};
use crate::places;
use crate::plan::{Need, check_room, default_slots, read_group};
use crate::progress::Progress;
use crate::terminal;

/// A model that is ready to answer.
pub struct Ready {
    /// The model with its words.
    pub engine: Engine,
    /// What it runs on.
    pub device: Device,
    /// Where it came from.
    pub dir: PathBuf,
    /// Slots of its pool.
    pub slots: u32,
    /// Experts of all main layers.
    pub all_slots: u32,
    /// Whether something was said about it before the answer.
    pub announced: bool,
    /// What is allocated, by what it is for, in bytes.
    pub memory: Vec<(&'static str, u64)>,
    /// Memory of the machine, in bytes.
    pub machine: u64,
}

/// A model directory and an opened device, before anything large is allocated.
pub struct Source<'a> {
    /// What it runs on.
    pub device: Device,
    /// Where it lies.
    pub dir: PathBuf,
    /// What it holds.
    pub checkpoint: Arc<Checkpoint>,
    args: &'a LoadArgs,
    need: Need,
    /// Most prompt tokens that share a read of experts.
    pub read_group: u32,
    /// What they take, where experts stream.
    group_bytes: u64,
    tiers: Tiers,
}

/// What stands between device and disk.
struct Tiers {
    ram: RamOptions,
    /// Whether host memory is filled before anything is asked.
    preload: bool,
    mirror: Option<Arc<Checkpoint>>,
    pace: Option<DiskPace>,
}

impl Tiers {
    fn open(args: &TierArgs, checkpoint: &Checkpoint, options: OpenOptions) -> Result<Self> {
        let copy = |dir: &PathBuf| -> Result<Arc<Checkpoint>> {
            let copy = Checkpoint::open_with(&places::model_dir(dir)?, options)?;
            checkpoint.check_copy(&copy)?;
            Ok(Arc::new(copy))
        };
        let ram = RamOptions { size: args.ram_cache_gb, paced: false };
        let pace = match (args.disk_gbps, args.disk_latency_us) {
            (None, None) => None,
            (gbps, latency) => Some(DiskPace::new(gbps, latency.unwrap_or_default())?),
        };
        Ok(Tiers { ram, preload: false, mirror: args.mirror.as_ref().map(copy).transpose()?, pace })
    }

    /// The second copy, and what is said when one of the two fails.
    fn mirror(&self) -> Option<MirrorOptions> {
        let copy = self.mirror.clone()?;
        let told = |error: &ss_checkpoint::Error| {
            terminal::note(format_args!("note: {error}; everything is read from the other copy from now on"));
        };
        Some(MirrorOptions { copy, told: Arc::new(told) })
    }
}

/// Loads the model that the flags name; `asked` is the size of its pool, `prefill_pass` the most rows of a pass.
///
/// # Errors
/// When the directory holds no usable model, the model does not fit, or the device does not open or computes wrongly.
pub fn load(args: &LoadArgs, asked: Option<PoolSize>, prefill_pass: u32) -> Result<Ready> {
    let mut source = Source::open(args, prefill_pass)?;
    // Reading the weights may take minutes; a model without words is refused before.
    let words = Words::open(&source.checkpoint)?;
    let warnings = source.checkpoint.warnings();
    warnings.iter().for_each(|warning| terminal::note(format_args!("note: {warning}")));
    let announced = args.model.is_none() || !warnings.is_empty();
    let (slots, all_slots) = (source.slots(asked)?, source.pool().all());
    source.device.prove()?;
    let model = source.load(slots)?;
    let (memory, machine) = (source.memory(slots), source.need.machine);
    let engine = Engine::new(model, words);
    Ok(Ready { engine, device: source.device, dir: source.dir, slots, all_slots, announced, memory, machine })
}

impl<'a> Source<'a> {
    /// Opens both.
    ///
    /// # Errors
    /// When the directory holds no model, or the device does not open.
    pub fn open(args: &'a LoadArgs, prefill_pass: u32) -> Result<Self> {
        Self::open_with(args, prefill_pass, Timing::Off)
    }

    /// As [`Source::open`], with or without the device's own clock.
    ///
    /// # Errors
    /// As [`Source::open`].
    pub fn open_with(args: &'a LoadArgs, prefill_pass: u32, timing: Timing) -> Result<Self> {
        let dir = find(args)?;
        let machine = Machine::probe()?.memory();
        let (packs, check_records) = (!args.no_pack, args.check_records);
        let options = OpenOptions { io: args.io, physical_memory: machine, packs, check_records };
        let checkpoint = Arc::new(Checkpoint::open_with(&dir, options)?);
        let tiers = Tiers::open(&args.tiers, &checkpoint, options)?;
        let device = Device::open(&args.device, timing)?;
        let beside = |group| read_group_bytes(checkpoint.geometry(), prefill_pass, group);
        let read_group = read_group(args.read_group, prefill_pass, beside(prefill_pass.saturating_mul(2)), machine);
        let group_bytes = beside(read_group);
        let need = Need {
            trunk: trunk_bytes(&checkpoint),
            slot: checkpoint.expert_layout().bytes,
            workspace: workspace_bytes(checkpoint.geometry(), prefill_pass, checkpoint.has_mtp()),
            row_cache: args.ngram_cache_mb.saturating_mul(1_000_000),
            ram_cache: args.tiers.ram_cache_gb.bytes(&checkpoint),
            machine,
            own_memory: device.has_own_memory(),
        };
        Ok(Source { device, dir, checkpoint, args, need, read_group, group_bytes, tiers })
    }

    /// With what only a measurement asks for.
    ///
    /// # Errors
    /// When it asks for memory or a disk that the other flags do not name.
    pub fn measured(mut self, args: &BenchArgs) -> Result<Self> {
        if args.preload && self.need.ram_cache == 0 {
            bail!("`--preload` has no memory to fill; add `--ram-cache-gb all`, or fewer gigabytes");
        }
        if args.throttle_ram && self.need.ram_cache == 0 {
            bail!("`--throttle-ram` has no memory to slow down; add `--ram-cache-gb all`, or fewer gigabytes");
        }
        if args.throttle_ram && self.tiers.pace.is_none() {
            bail!("`--throttle-ram` has no disk to imitate; add `--disk-gbps` or `--disk-latency-us`");
        }
        self.tiers.preload = args.preload;
        self.tiers.ram.paced = args.throttle_ram;
        Ok(self)
    }

    /// What pool sizes mean here.
    pub fn pool(&self) -> PoolGeometry {
        PoolGeometry::from(self.checkpoint.geometry())
    }

    /// How many slots were asked for; those that memory suggests if nobody says.
    ///
    /// # Errors
    /// When the size is none for this model, or does not fit.
    pub fn slots(&self, asked: Option<PoolSize>) -> Result<u32> {
        let pool = self.pool();
        let slots = match asked {
            Some(size) => size.resolve(pool)?,
            None => default_slots(pool.all(), pool.floor(), &self.need),
        };
        let group_bytes = if slots < pool.all() { self.group_bytes } else { 0 };
        check_room(slots, &Need { workspace: self.need.workspace.saturating_add(group_bytes), ..self.need })?;
        Ok(slots)
    }

    /// What a pool of so many slots and everything beside it take.
    fn memory(&self, slots: u32) -> Vec<(&'static str, u64)> {
        let need = &self.need;
        let group = if slots < self.pool().all() { self.group_bytes } else { 0 };
        vec![
            ("trunk", need.trunk),
            ("expert slots", u64::from(slots) * need.slot),
            ("workspace", need.workspace + group),
            ("n-gram rows", need.row_cache),
            ("experts in host memory", need.ram_cache),
        ]
    }

    /// Loads the trunk, makes a pool and has the device build its kernels.
    ///
    /// # Errors
    /// When a file is damaged, or the device has no room.
    pub fn load(&self, slots: u32) -> Result<Model> {
        let mut store = StoreOptions::new(slots);
        store.lanes = LaneCounts::new(self.args.bulk_lanes, self.args.demand_lanes)?;
        store.row_cache_bytes = self.need.row_cache;
        (store.ram, store.mirror, store.pace) = (self.tiers.ram, self.tiers.mirror(), self.tiers.pace);
        store.lookahead = LookaheadOptions::new(!self.args.lookahead_always, self.args.lookahead_margin);
        store.lookahead.on = !self.args.no_lookahead;
        let (arithmetic, read_group) = (self.args.arithmetic, self.read_group);
        let options = ModelOptions { store, arithmetic, read_group, mutation: PassMutation::None };
        let (backend, checkpoint) = (self.device.backend.clone(), self.checkpoint.clone());
        let mut bar = Progress::loading();
        let mut model = Model::load(backend, checkpoint, options, &mut |done, total| bar.update(done, total))?;
        drop(bar);
        if self.tiers.preload {
            let mut bar = Progress::preloading();
            model.store().preload(&mut |done, total| bar.update(done, total))?;
        }
        let mut bar = Progress::building();
        model.prepare(&mut |done, total| bar.update(done as u64, total as u64))?;
        Ok(model)
    }
}

fn find(args: &LoadArgs) -> Result<PathBuf> {
    if let Some(model) = &args.model {
        return places::model_dir(model);
    }
    let dir = places::shipped_model()?;
    terminal::aside(format_args!("no --model: using {}, a small trained model for trying things out", name(&dir)));
    Ok(dir)
}

/// The last part of a model's path.
pub fn name(dir: &Path) -> String {
    dir.file_name().map_or_else(|| dir.display().to_string(), |name| name.to_string_lossy().into_owned())
}
