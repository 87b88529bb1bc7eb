//! Owns: from flags to a model on a device.
//! Invariants: everything that can be refused is refused before anything large is allocated.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
use ss_backend::Backend;
use ss_checkpoint::{Checkpoint, OpenOptions};
use ss_generate::{Engine, Words};
use ss_memory::Machine;
use ss_model::{Model, ModelOptions, PassMutation, trunk_bytes, workspace_bytes};
use ss_reference::{Options, Reference};
use ss_stream::{LaneCounts, PoolGeometry, PoolSize, StoreOptions};

use crate::args::{BackendChoice, LoadArgs};
use crate::places;
use crate::plan::{Need, check_room, default_slots};
use crate::progress::Progress;
use crate::terminal;

/// A model that is ready to answer.
pub struct Ready {
    /// The model with its words.
    pub engine: Engine,
    /// Where it came from.
    pub dir: PathBuf,
    /// Slots of its pool.
    pub slots: u32,
    /// Experts of all main layers.
    pub all_slots: u32,
    /// Whether something was said about it before the answer.
    pub announced: bool,
}

/// Loads the model that the flags name; `prefill_pass` is the most rows of a pass.
///
/// # Errors
/// When the directory holds no usable model, or the model does not fit.
pub fn load(args: &LoadArgs, prefill_pass: u32) -> Result<Ready> {
    let dir = find(args)?;
    let machine = Machine::probe()?.memory();
    let checkpoint = Arc::new(Checkpoint::open_with(&dir, OpenOptions { io: args.io, physical_memory: machine })?);
    // Reading the weights may take minutes; a model without words is refused before.
    let words = Words::open(&checkpoint)?;
    checkpoint.warnings().iter().for_each(|warning| terminal::note(format_args!("note: {warning}")));
    let (slots, all_slots) = slots(args, &checkpoint, prefill_pass, machine)?;
    let mut store = StoreOptions::new(slots);
    store.lanes = LaneCounts::new(args.bulk_lanes, args.demand_lanes)?;
    store.row_cache_bytes = args.ngram_cache_mb.saturating_mul(1_000_000);
    let mut bar = Progress::loading();
    let options = ModelOptions { store, arithmetic: args.arithmetic, mutation: PassMutation::None };
    let model = Model::load(backend(args)?, checkpoint, options, &mut |done, total| bar.update(done, total))?;
    drop(bar);
    let announced = args.model.is_none() || !model.checkpoint().warnings().is_empty();
    Ok(Ready { engine: Engine::new(model, words), dir, slots, all_slots, announced })
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

fn slots(args: &LoadArgs, checkpoint: &Checkpoint, prefill_pass: u32, machine: u64) -> Result<(u32, u32)> {
    let geometry = checkpoint.geometry();
    let pool = PoolGeometry::from(geometry);
    let need = Need {
        trunk: trunk_bytes(checkpoint),
        slot: checkpoint.expert_layout().bytes,
        workspace: workspace_bytes(geometry, prefill_pass, checkpoint.has_mtp()),
        row_cache: args.ngram_cache_mb.saturating_mul(1_000_000),
        machine,
    };
    let asked: Option<PoolSize> = args.slots.or(args.experts_per_layer);
    let slots = match asked {
        Some(size) => size.resolve(pool)?,
        None => default_slots(pool.all(), pool.floor(), &need),
    };
    check_room(slots, &need)?;
    Ok((slots, pool.all()))
}

fn backend(args: &LoadArgs) -> Result<Arc<dyn Backend>> {
    match args.backend {
        BackendChoice::Auto | BackendChoice::Reference => {
            Ok(Arc::new(Reference::new(Options { threads: args.threads.into(), ..Options::default() })?))
        }
    }
}
