//! Owns: bringing a layer's experts into slots: pins, misses read piece by piece straight into their slots, counters
//! (engine.md sections 5.1, 5.2 and 5.5).
//! Refuses: choosing experts, and computing with them.
//! Invariants: a record is read in full and found free of NaN and infinities before its expert counts as resident; after
//! a failure the slots of what was not read are free, and the next request starts from a whole table.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ss_backend::{Backend, Pool, SlotWriter};
use ss_checkpoint::{Checkpoint, ExpertFiles, Piece, check_record};

use crate::foresight::Foresight;
use crate::lanes::{Beside, Read};
use crate::lookahead::{Demand, Early, Job, Lookahead, PIECE_LANES};
use crate::ram::RamRecords;
use crate::tickets::Tickets;
use crate::way::{Bounces, Goal, Way};
use crate::{
    Claim, Clock, Error, ExpertCounters, ExpertId, HotExpert, Lane, LaneCounts, Lanes, LookaheadCounters,
    LookaheadOptions, Miss, Mutation, RecordSource, Result, SlotTable, Uses,
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
    /// What is read early.
    pub lookahead: LookaheadOptions,
}

/// The experts that have a slot, and the means to bring others.
pub struct ExpertCache {
    backend: Arc<dyn Backend>,
    checkpoint: Arc<Checkpoint>,
    source: Arc<dyn RecordSource>,
    /// Records in host memory, asked before the disk.
    ram: Option<Arc<RamRecords>>,
    lanes: Lanes,
    bounces: Bounces,
    pool: Pool,
    table: SlotTable,
    /// One entry for each pin that [`ExpertCache::release`] undoes.
    held: Vec<u32>,
    counters: ExpertCounters,
    mutation: Mutation,
    ahead: Lookahead,
    lookahead: LookaheadOptions,
    tickets: Tickets,
    foresight: Foresight,
    /// Since when nobody waits for a record, until the next choice is known.
    rests_since: Option<Instant>,
    uses: Uses,
    /// What is left of the hot set, to be read while slots are free.
    hot: VecDeque<ExpertId>,
}

/// A choice that a forecast expects.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// The expert.
    pub expert: u32,
    /// Its logit, less that of the last choice.
    pub margin: f32,
}

impl ExpertCache {
    /// An empty cache over a new pool of `slots` slots, with lanes of its own.
    ///
    /// # Errors
    /// When the device has no room for the pool.
    pub fn new(backend: Arc<dyn Backend>, checkpoint: Arc<Checkpoint>, slots: u32, lanes: LaneCounts) -> Result<Self> {
        let options = ExpertOptions {
            slots,
            lanes: Lanes::new(lanes),
            source: None,
            mutation: Mutation::None,
            lookahead: LookaheadOptions::default(),
        };
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
        Self::over(backend, checkpoint, None, options)
    }

    /// As [`ExpertCache::with_options`], over records in host memory.
    pub(crate) fn over(
        backend: Arc<dyn Backend>,
        checkpoint: Arc<Checkpoint>,
        ram: Option<Arc<RamRecords>>,
        options: ExpertOptions,
    ) -> Result<Self> {
        let pool = backend.alloc_pool(checkpoint.expert_layout(), options.slots)?;
        let geometry = checkpoint.geometry();
        let layers = geometry.layers.len() as u32 + u32::from(checkpoint.has_mtp());
        let policy = Box::new(Clock::new(options.slots as usize));
        let source = options.source.unwrap_or_else(|| checkpoint.clone());
        let lookahead = options.lookahead.within(options.slots as usize);
        let pieces = Lanes::new(LaneCounts::new(PIECE_LANES, PIECE_LANES)?);
        let records = LaneCounts::new(lookahead.lanes, lookahead.lanes)?.of(Lane::Bulk);
        let bounces = Bounces::default();
        let early = Early { source: source.clone(), ram: ram.clone(), records, pieces, bounces: bounces.clone() };
        Ok(ExpertCache {
            table: SlotTable::new(layers, geometry.experts, options.slots, policy),
            ahead: Lookahead::new(checkpoint.clone(), early),
            bounces,
            lookahead,
            tickets: Tickets::new(checkpoint.expert_layout().bytes),
            foresight: Foresight::default(),
            rests_since: None,
            uses: Uses::new(layers, geometry.experts),
            hot: VecDeque::new(),
            source,
            ram,
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

    /// See [`SlotTable::take_changed`].
    pub fn take_changed(&mut self, layers: impl Iterator<Item = u32>) -> Vec<u32> {
        self.table.take_changed(layers)
    }

    /// Counts a layer's distinct experts as found, where the device looked their slots up by itself.
    pub fn found(&mut self, layer: u32, experts: &[u32]) {
        self.uses.count(layer, experts);
        self.close(layer, experts);
        self.table.touch(layer, experts);
        self.counters.hits += experts.len() as u64;
    }

    /// Holds the slots of experts that the device found, until [`ExpertCache::release`]: for work that names them and is not
    /// submitted yet.
    pub fn hold(&mut self, layer: u32, experts: &[u32]) {
        self.held.extend(self.table.hold(layer, experts));
    }

    /// What was done so far.
    pub fn counters(&self) -> ExpertCounters {
        ExpertCounters { bytes_read: self.counters.bytes_read + self.ahead.bytes_read(), ..self.counters }
    }

    /// Whether forecasts are of use.
    pub fn looks_ahead(&self) -> bool {
        self.lookahead.reads()
    }

    /// What became of records that were read early.
    pub fn early(&self) -> LookaheadCounters {
        self.tickets.counters
    }

    /// Enters what was read early and has landed. The caller answers for it that work which is submitted from here on sees
    /// the table as it then is.
    pub fn admit_early(&mut self) {
        self.tickets.admit(&mut self.table, &mut self.ahead.desk());
        self.warm_on();
    }

    /// How often each expert was used of late.
    pub fn uses(&self) -> &Uses {
        &self.uses
    }

    /// Records of the hot set that were read.
    pub fn warmed(&self) -> u64 {
        self.tickets.warmed
    }

    /// Takes over what was used before: these experts count as used so often, and are read in their order while nobody waits
    /// for a record and slots are free (engine.md 5.9). Nothing is given up for them, and none of them is waited for.
    pub fn warm(&mut self, hot: &[HotExpert]) {
        hot.iter().for_each(|&hot| self.uses.add(hot));
        self.hot = hot.iter().map(|hot| hot.id).collect();
        self.admit_early();
    }

    /// Goes on reading the hot set, a few records at a time.
    fn warm_on(&mut self) {
        while self.tickets.warming() < self.lookahead.reserve.min(self.lookahead.lanes.into()) {
            let Some(id) = self.hot.pop_front() else { return };
            let Some(slot) = self.tickets.open_hot(id, &mut self.table) else { continue };
            if self.issue(id, slot, true).is_err() {
                // Who needs the record will say what is wrong.
                self.tickets.drop(id, &mut self.table);
                self.hot.clear();
                return;
            }
        }
    }

    /// Reads what a forecast expects a layer to choose, unless it is there. The caller answers for it that no unfinished work
    /// names a slot that is not held.
    ///
    /// # Errors
    /// When the device gives no slot, or the system no thread.
    pub fn forecast(&mut self, layer: u32, candidates: &[Candidate]) -> Result<()> {
        let mut issued = 0;
        self.rests_since = Some(Instant::now());
        for Candidate { expert, margin } in self.lookahead.likely(candidates) {
            let id = ExpertId { layer, expert };
            let waiting = self.tickets.waiting();
            if issued == self.lookahead.per_layer || waiting >= self.lookahead.reserve {
                break;
            }
            if !self.tickets.lacks(id, &self.table) {
                continue;
            }
            self.foresight.expect(id, margin);
            if self.lookahead.weigh && !self.foresight.is_worth(margin, waiting, self.lookahead.lanes.into()) {
                continue;
            }
            let Some(slot) = self.tickets.open(id, &mut self.table) else { continue };
            if let Err(error) = self.issue(id, slot, false) {
                self.tickets.drop(id, &mut self.table);
                return Err(error);
            }
            if self.mutation == Mutation::EarlyEntry {
                self.tickets.enter(id, &mut self.table);
            }
            self.tickets.counters.issued += 1;
            issued += 1;
        }
        Ok(())
    }

    fn issue(&mut self, id: ExpertId, slot: u32, hot: bool) -> Result<()> {
        let miss = Miss { id, slot, evicted: false };
        let pieces = self.pieces(self.files(id.layer)?, &miss);
        let writer = self.backend.open_slot(&self.pool, slot)?;
        self.ahead.issue(id, Job { writer, pieces, hot })
    }

    /// Says what a layer has chosen, before any of it is acquired: what was read early for it in vain gives its slot back.
    pub fn close(&mut self, layer: u32, chosen: &[u32]) {
        self.foresight.chose(layer, chosen);
        if let Some(since) = self.rests_since.take() {
            self.foresight.rested(since.elapsed());
        }
        self.tickets.close(layer, chosen, &mut self.table, &mut self.ahead.desk());
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
        self.uses.count(layer, experts);
        self.join(layer, experts);
        let claim = self.table.claim(layer, experts)?;
        let demand = self.demand(&claim);
        self.fill(&claim, lane, demand, || Ok(()))?;
        Ok(self.handed_out(claim.slots, &claim.misses))
    }

    /// As [`ExpertCache::acquire`], with something to do for those that have a slot while the others are read (engine.md
    /// 5.4): `early` gets them as pairs of expert and slot. Returns the pairs that it did not get: all of them, `early` not
    /// being called, when there is nothing to read or nothing to do beside. What a forecast expects of another layer is asked
    /// for behind this layer's own: its reads begin as soon as no record of this layer waits for a lane.
    ///
    /// # Errors
    /// As [`ExpertCache::acquire`] and [`ExpertCache::forecast`], and that of `early`.
    pub fn acquire_beside(
        &mut self,
        layer: u32,
        experts: &[u32],
        lane: Lane,
        forecast: Option<(u32, &[Candidate])>,
        early: impl FnOnce(&[(u32, u32)]) -> ss_backend::Result<()>,
    ) -> Result<Vec<(u32, u32)>> {
        self.uses.count(layer, experts);
        self.close(layer, experts);
        let (joined, wanted): (Vec<u32>, Vec<u32>) =
            experts.iter().partition(|&&expert| self.is_on_its_way(ExpertId { layer, expert }));
        let claim = self.table.claim(layer, &wanted)?;
        let demand = self.demand(&claim);
        if let Some(Err(error)) = forecast.map(|(layer, candidates)| self.forecast(layer, candidates)) {
            self.table.abandon(&claim);
            return Err(error);
        }
        let slots = self.handed_out(claim.slots.clone(), &claim.misses);
        let (mut late, ready): (Vec<_>, Vec<_>) = (wanted.iter().copied().zip(slots))
            .partition(|(expert, _)| claim.misses.iter().any(|miss| miss.id.expert == *expert));
        if ready.is_empty() || (late.is_empty() && joined.is_empty()) {
            late.extend(&ready);
            self.fill(&claim, lane, demand, || Ok(()))?;
        } else {
            self.fill(&claim, lane, demand, || Ok(early(&ready)?))?;
        }
        self.join(layer, &joined);
        if !joined.is_empty() {
            let claim = self.table.claim(layer, &joined)?;
            let demand = self.demand(&claim);
            self.fill(&claim, lane, demand, || Ok(()))?;
            late.extend(joined.into_iter().zip(claim.slots));
        }
        Ok(late)
    }

    /// Whether an expert is being read early; if not, the demand reads it.
    fn is_on_its_way(&mut self, id: ExpertId) -> bool {
        self.tickets.is_on_its_way(id, &mut self.table, &mut self.ahead.desk())
    }

    /// Waits for experts that are being read early, and enters those that can be read.
    fn join(&mut self, layer: u32, experts: &[u32]) {
        for &expert in experts {
            let id = ExpertId { layer, expert };
            if !self.is_on_its_way(id) {
                continue;
            }
            let started = Instant::now();
            let _awake = self.foresight.are_long(1).then(|| self.backend.keep_awake());
            let well = self.ahead.join(id);
            self.counters.waited += started.elapsed();
            self.rests_since = Some(Instant::now());
            self.tickets.joined(id, well, &mut self.table);
        }
    }

    /// Holds back reads that nobody waits for, if a claim has something to read.
    fn demand(&self, claim: &Claim) -> Option<Demand> {
        (!claim.misses.is_empty()).then(|| self.ahead.yield_to_demand())
    }

    /// Reads the misses of a claim, doing something `beside`, and publishes it. The `demand` is over when all have begun.
    fn fill(
        &mut self,
        claim: &Claim,
        lane: Lane,
        demand: Option<Demand>,
        beside: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let misses = claim.misses.len() as u64;
        self.counters.hits += claim.slots.len() as u64 - misses;
        self.counters.misses += misses;
        self.counters.evictions += claim.misses.iter().filter(|miss| miss.evicted).count() as u64;
        match self.read(claim, lane, demand, beside) {
            Ok(bytes) => self.counters.bytes_read += bytes,
            Err(error) => {
                self.table.abandon(claim);
                return Err(error);
            }
        }
        self.counters.records += misses;
        self.table.publish(claim);
        self.held.extend_from_slice(&claim.slots);
        Ok(())
    }

    /// Reads the misses of a claim, doing something `beside`, and gives the bytes.
    fn read(
        &mut self,
        claim: &Claim,
        lane: Lane,
        demand: Option<Demand>,
        beside: impl FnOnce() -> Result<()>,
    ) -> Result<u64> {
        let records = claim.misses.len() as u64;
        if records == 0 {
            return beside().map(|()| 0);
        }
        let (started, mut elsewhere) = (Instant::now(), Duration::ZERO);
        let caller = || {
            let done = beside();
            elsewhere = started.elapsed();
            done
        };
        let long = lane == Lane::Demand && self.foresight.are_long(records);
        let _awake = long.then(|| self.backend.keep_awake());
        let brought = self.bring(&self.pool, &claim.misses, lane, Beside { begun: move || drop(demand), caller });
        // What was done meanwhile is no waiting.
        self.counters.waited += started.elapsed().saturating_sub(elsewhere);
        if lane == Lane::Demand {
            self.foresight.read(records, started.elapsed());
            self.rests_since = Some(Instant::now());
        }
        brought
    }

    /// Undoes the pins of every [`ExpertCache::acquire`] and [`ExpertCache::hold`] since the last release. The caller
    /// answers for it that no unfinished work names the slots.
    pub fn release(&mut self) {
        self.table.release(&self.held);
        self.held.clear();
    }

    /// Reads a layer's distinct experts into slots of another pool of the same layout, one after the other from slot `first`;
    /// the table hears nothing of it. The caller answers for it that no unfinished work names those slots.
    ///
    /// # Errors
    /// The error of the first record that cannot be read or is damaged.
    pub fn stage(&mut self, pool: &Pool, first: u32, layer: u32, experts: &[u32]) -> Result<()> {
        let placed = experts.iter().zip(first..);
        let misses: Vec<Miss> =
            placed.map(|(&expert, slot)| Miss { id: ExpertId { layer, expert }, slot, evicted: true }).collect();
        self.counters.misses += misses.len() as u64;
        let _demand = self.ahead.yield_to_demand();
        let started = Instant::now();
        let read = self.bring(pool, &misses, Lane::Bulk, Beside { begun: || (), caller: || Ok(()) });
        self.counters.waited += started.elapsed();
        self.counters.bytes_read += read?;
        self.counters.records += misses.len() as u64;
        Ok(())
    }

    /// Counts a group of records that was staged and served so many passes, which would have read `spared` more without
    /// one another.
    pub fn served(&mut self, passes: usize, spared: usize) {
        self.counters.groups += 1;
        self.counters.shared_groups += u64::from(passes > 1);
        self.counters.spared += spared as u64;
    }

    /// Reads records into their slots, doing something `beside`, and returns the number of bytes. A record that somebody
    /// waits for is on its way to its slot while others are still being read.
    fn bring(
        &self,
        pool: &Pool,
        misses: &[Miss],
        lane: Lane,
        beside: Beside<impl FnOnce() + Send, impl FnOnce() -> Result<()>>,
    ) -> Result<u64> {
        let mut records = Vec::with_capacity(misses.len());
        for miss in misses.iter().filter(|miss| !self.skips(miss)) {
            records.push((self.backend.open_slot(pool, miss.slot)?, miss));
        }
        let (bytes, left) = (AtomicU64::new(0), AtomicUsize::new(records.len()));
        let read = |(mut writer, miss): (Box<dyn SlotWriter>, &Miss)| -> Result<()> {
            bytes.fetch_add(self.read_record(Goal::of(&mut *writer), miss, lane)?, Ordering::Relaxed);
            writer.finish()?;
            // The last one goes with the work that waits for it.
            let others = left.fetch_sub(1, Ordering::Relaxed) > 1;
            match lane {
                Lane::Demand if others => Ok(self.backend.flush()?),
                Lane::Demand | Lane::Bulk => Ok(()),
            }
        };
        self.lanes.run_beside(lane, records, read, beside)?;
        Ok(bytes.into_inner())
    }

    /// Brings a record from host memory or the disk, and returns the bytes that came from the disk.
    fn read_record(&self, goal: Goal<'_>, miss: &Miss, lane: Lane) -> Result<u64> {
        let way = Way { lanes: &self.lanes, lane, bounces: &self.bounces };
        let read = |into: &mut [u8]| self.read_from(&*self.source, into, miss, lane);
        match &self.ram {
            Some(ram) => ram.bring(miss.id, lane.into(), (way, goal), read),
            None => way.read(goal, read),
        }
    }

    /// Reads a record, all of its pieces at once, and refuses one with a NaN or an infinity, or that is not what was packed.
    fn read_from(&self, source: &dyn RecordSource, into: &mut [u8], miss: &Miss, lane: Lane) -> Result<u64> {
        let files = self.files(miss.id.layer)?;
        let mut reads = Vec::new();
        carve(into, &self.pieces(files, miss), &mut reads)?;
        let bytes = self.lanes.read(lane, source, reads)?;
        check(&self.checkpoint, miss.id, into)?;
        Ok(bytes)
    }

    /// Reads records from `source` into host memory, layer after layer, until it is full; tells bytes done and in all.
    ///
    /// # Errors
    /// The error of the first record that cannot be read or is damaged.
    pub(crate) fn preload(&self, source: &dyn RecordSource, progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
        let Some(ram) = &self.ram else { return Ok(()) };
        let geometry = self.checkpoint.geometry();
        let layers = (0..geometry.layers.len() as u32 + u32::from(self.checkpoint.has_mtp()))
            .filter(|&layer| self.files(layer).is_ok());
        let ids = layers.flat_map(|layer| (0..geometry.experts).map(move |expert| ExpertId { layer, expert }));
        let records: Vec<ExpertId> = ids.take(ram.unused()).collect();
        let bytes = |records: usize| records as u64 * self.pool.layout().bytes;
        for (turn, group) in records.chunks(PRELOAD_GROUP).enumerate() {
            self.lanes.run(Lane::Bulk, group.to_vec(), |id| {
                let miss = Miss { id, slot: ss_backend::NONE, evicted: false };
                ram.keep(id, |into| self.read_from(source, into, &miss, Lane::Bulk)).map(|_| ())
            })?;
            progress(bytes(turn * PRELOAD_GROUP + group.len()), bytes(records.len()));
        }
        Ok(())
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

    fn handed_out(&self, mut slots: Vec<u32>, misses: &[Miss]) -> Vec<u32> {
        if self.mutation == Mutation::MisorderedSlots {
            slots.sort_by_key(|slot| misses.iter().any(|miss| miss.slot == *slot));
        }
        slots
    }
}

/// Records that are read into host memory between two reports of progress.
const PRELOAD_GROUP: usize = 64;

/// Refuses a record with a NaN or an infinity, and a packed one that is not what was packed.
pub(crate) fn check(checkpoint: &Checkpoint, id: ExpertId, record: &[u8]) -> Result<()> {
    let layer = id.layer as usize;
    check_record(checkpoint.expert_layout(), record).map_err(|bad| checkpoint.bad_record(layer, id.expert, bad))?;
    Ok(checkpoint.check_packed(layer, id.expert, record)?)
}

/// Cuts a slot into its pieces, to be read independently of one another.
pub(crate) fn carve<'a>(slot: &'a mut [u8], pieces: &[Piece], reads: &mut Vec<Read<'a>>) -> Result<()> {
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
