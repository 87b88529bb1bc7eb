//! Owns: bringing a layer's experts into slots: pins, misses read piece by piece straight into their slots, counters
//! (engine.md sections 5.1, 5.2 and 5.5).
//! Refuses: choosing experts, and computing with them.
//! Invariants: a record is read in full and found free of NaN and infinities before its expert counts as resident; after
//! a failure the slots of what was not read are free, and the next request starts from a whole table.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use ss_backend::{Backend, Pool, SlotWriter};
use ss_checkpoint::{Checkpoint, ExpertFiles, Piece, check_record};

use crate::lanes::Read;
use crate::{
    Claim, Clock, Error, ExpertCounters, Lane, LaneCounts, Lanes, Miss, Mutation, RecordSource, Result, SlotTable,
};

/// How an [`ExpertCache`] is made.
#[derive(Clone)]
pub struct ExpertOptions {
    /// Slots of the pool.
    pub slots: u32,
    /// Who reads.
    pub lanes: Lanes,
    /// Test support: where bytes come from, if not from the checkpoint.
    pub source: Option<Arc<dyn RecordSource>>,
    /// Test support: a deliberate fault.
    pub mutation: Mutation,
}

/// The experts that have a slot, and the means to bring others.
pub struct ExpertCache {
    backend: Arc<dyn Backend>,
    checkpoint: Arc<Checkpoint>,
    source: Arc<dyn RecordSource>,
    lanes: Lanes,
    pool: Pool,
    table: SlotTable,
    /// One entry for each pin that [`ExpertCache::release`] undoes.
    held: Vec<u32>,
    counters: ExpertCounters,
    mutation: Mutation,
}

impl ExpertCache {
    /// An empty cache over a new pool of `slots` slots, with lanes of its own.
    ///
    /// # Errors
    /// When the device has no room for the pool.
    pub fn new(backend: Arc<dyn Backend>, checkpoint: Arc<Checkpoint>, slots: u32, lanes: LaneCounts) -> Result<Self> {
        let options = ExpertOptions { slots, lanes: Lanes::new(lanes), source: None, mutation: Mutation::None };
        Self::with_options(backend, checkpoint, options)
    }

    /// An empty cache over a new pool.
    ///
    /// # Errors
    /// As [`ExpertCache::new`].
    pub fn with_options(
        backend: Arc<dyn Backend>,
        checkpoint: Arc<Checkpoint>,
        options: ExpertOptions,
    ) -> Result<Self> {
        let pool = backend.alloc_pool(checkpoint.expert_layout(), options.slots)?;
        let geometry = checkpoint.geometry();
        let layers = geometry.layers.len() as u32 + u32::from(checkpoint.has_mtp());
        let policy = Box::new(Clock::new(options.slots as usize));
        Ok(ExpertCache {
            table: SlotTable::new(layers, geometry.experts, options.slots, policy),
            source: options.source.unwrap_or_else(|| checkpoint.clone()),
            backend,
            checkpoint,
            lanes: options.lanes,
            pool,
            held: Vec::new(),
            counters: ExpertCounters::default(),
            mutation: options.mutation,
        })
    }

    /// The pool that the slots belong to.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Which expert lies where.
    pub fn table(&self) -> &SlotTable {
        &self.table
    }

    /// The layers whose slots have changed since the last call, ascending.
    pub fn take_changed(&mut self) -> BTreeSet<u32> {
        self.table.take_changed()
    }

    /// Counts a layer's distinct experts as found, where the device looked their slots up by itself.
    pub fn found(&mut self, layer: u32, experts: &[u32]) {
        self.table.touch(layer, experts);
        self.counters.hits += experts.len() as u64;
    }

    /// What was done so far.
    pub fn counters(&self) -> ExpertCounters {
        self.counters
    }

    /// Splits a layer's distinct experts into groups that can be acquired one after the other, each released before the
    /// next: those with a slot first, at most as many in a group as there are slots that no one holds.
    pub fn groups(&self, layer: u32, experts: &[u32]) -> Vec<Vec<u32>> {
        let table = self.table.layer(layer);
        let resident = |expert: &u32| table.get(*expert as usize).is_some_and(|&slot| slot != ss_backend::NONE);
        let (mut ordered, missing): (Vec<u32>, Vec<u32>) = experts.iter().partition(|&expert| resident(expert));
        ordered.extend(missing);
        ordered.chunks(self.table.unpinned().max(1)).map(<[u32]>::to_vec).collect()
    }

    /// Pins the slots of a layer's distinct experts, reading those that have none, and returns a slot each in the order of
    /// `experts`. `layer` is the number of main layers for the draft layer.
    ///
    /// # Errors
    /// The error of the first record that cannot be read, is damaged, or has no slot. Nothing of this call is pinned then,
    /// and none of its misses is resident.
    pub fn acquire(&mut self, layer: u32, experts: &[u32], lane: Lane) -> Result<Vec<u32>> {
        let claim = self.table.claim(layer, experts)?;
        let misses = claim.misses.len() as u64;
        self.counters.hits += experts.len() as u64 - misses;
        self.counters.misses += misses;
        self.counters.evictions += claim.misses.iter().filter(|miss| miss.evicted).count() as u64;
        if misses > 0 {
            let started = Instant::now();
            let brought = self.bring(layer, &claim.misses, lane);
            self.counters.waited += started.elapsed();
            match brought {
                Ok(bytes) => self.counters.bytes_read += bytes,
                Err(error) => {
                    self.table.abandon(&claim);
                    return Err(error);
                }
            }
            self.counters.records += misses;
        }
        self.table.publish(&claim);
        self.held.extend_from_slice(&claim.slots);
        Ok(self.handed_out(claim))
    }

    /// Undoes the pins of every [`ExpertCache::acquire`] since the last release. The caller answers for it that no
    /// unfinished work names the slots.
    pub fn release(&mut self) {
        self.table.release(&self.held);
        self.held.clear();
    }

    /// Reads records into their slots and returns the number of bytes.
    fn bring(&self, layer: u32, misses: &[Miss], lane: Lane) -> Result<u64> {
        let files = self.files(layer)?;
        let misses: Vec<Miss> = misses.iter().copied().filter(|miss| !self.skips(miss)).collect();
        let mut writers = Vec::with_capacity(misses.len());
        for miss in &misses {
            writers.push(self.backend.open_slot(&self.pool, miss.slot)?);
        }
        let mut reads = Vec::new();
        for (writer, miss) in writers.iter_mut().zip(&misses) {
            carve(writer.bytes(), &self.pieces(files, miss), &mut reads)?;
        }
        let bytes = self.lanes.read(lane, &*self.source, reads)?;
        self.check(&mut writers, &misses, lane)?;
        for writer in writers {
            writer.finish()?;
        }
        Ok(bytes)
    }

    /// Refuses records with a NaN or an infinity.
    fn check(&self, writers: &mut [Box<dyn SlotWriter>], misses: &[Miss], lane: Lane) -> Result<()> {
        let layout = self.pool.layout();
        let records = writers.iter_mut().zip(misses).collect();
        self.lanes.run(lane, records, |(writer, miss): (&mut Box<dyn SlotWriter>, &Miss)| {
            check_record(layout, writer.bytes())
                .map_err(|bad| self.checkpoint.bad_record(miss.id.layer as usize, miss.id.expert, bad).into())
        })
    }

    /// Where a layer's records lie, if they can share the pool.
    fn files(&self, layer: u32) -> Result<&ExpertFiles> {
        let files = self.checkpoint.experts(layer as usize);
        let files = files.ok_or_else(|| Error::Fault(format!("layer {layer}, which has no experts")))?;
        if files.layout == *self.pool.layout() {
            Ok(files)
        } else {
            Err(Error::ForeignLayout { dir: self.checkpoint.dir().to_owned(), layer })
        }
    }

    fn pieces(&self, files: &ExpertFiles, miss: &Miss) -> Vec<Piece> {
        let mut pieces: Vec<Piece> = files.pieces(miss.id.expert).collect();
        if self.mutation == Mutation::SwapPieces && miss.evicted {
            swap_first_twins(&mut pieces);
        }
        pieces
    }

    fn skips(&self, miss: &Miss) -> bool {
        self.mutation == Mutation::StaleSlot && miss.evicted
    }

    fn handed_out(&self, claim: Claim) -> Vec<u32> {
        let mut slots = claim.slots;
        if self.mutation == Mutation::MisorderedSlots {
            slots.sort_by_key(|slot| claim.misses.iter().any(|miss| miss.slot == *slot));
        }
        slots
    }
}

/// Cuts a slot into its pieces, to be read independently of one another.
fn carve<'a>(slot: &'a mut [u8], pieces: &[Piece], reads: &mut Vec<Read<'a>>) -> Result<()> {
    let slot_bytes = slot.len();
    let (mut rest, mut at) = (slot, 0);
    for piece in pieces {
        let cut = cut(rest, piece.span.offset.checked_sub(at), piece.span.bytes);
        let Some((into, tail)) = cut.filter(|(into, _)| into.len() as u64 == piece.range.bytes) else {
            return Err(Error::Fault(format!("a record whose pieces do not fit a slot of {slot_bytes} bytes")));
        };
        reads.push(Read { range: piece.range, into });
        (rest, at) = (tail, piece.span.offset + piece.span.bytes);
    }
    Ok(())
}

/// The `bytes` bytes after a gap, and what follows them.
fn cut(rest: &mut [u8], gap: Option<u64>, bytes: u64) -> Option<(&mut [u8], &mut [u8])> {
    let (_, rest) = rest.split_at_mut_checked(usize::try_from(gap?).ok()?)?;
    rest.split_at_mut_checked(usize::try_from(bytes).ok()?)
}

/// [`Mutation::SwapPieces`].
fn swap_first_twins(pieces: &mut [Piece]) {
    if let Some((first, others)) = pieces.split_first_mut()
        && let Some(twin) = others.iter_mut().find(|other| other.range.bytes == first.range.bytes)
    {
        std::mem::swap(&mut first.range, &mut twin.range);
    }
}
