//! Owns: what a pool of some slots would have found under a policy, with and without records that are read early on
//! forecasts, and how long it would have waited (engine.md 5.6, 5.8).
//! Refuses: prompts, which sweep past the pool, and the time that forecasts themselves take.
//! Invariants: a pass asks for its experts layer by layer, as the engine does: those that have a slot first, a layer's
//! own held until the next has chosen, in groups where the pool is too small for them together. Slots, tickets and the desk
//! of early reads are the engine's own, and what has landed is entered where the engine enters it. Time has no say in what is
//! found where nothing is read early.

use std::time::Duration;

use ss_backend::NONE;
use ss_stream::{Candidate, ExpertId, Foresight, LookaheadCounters, LookaheadOptions, SlotTable, Tickets};

use crate::figures::share;
use crate::policy::{NEVER, Ranks, Use};
use crate::reads::Reads;
use crate::{Error, Pace, Policy, Result, Trace};

/// What some tokens found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Tokens.
    pub tokens: u64,
    /// Experts that had a slot when their layer asked for them.
    pub hits: u64,
    /// Experts that had none, and that nothing had begun to read.
    pub misses: u64,
}

impl Counts {
    /// Share of the experts that had a slot.
    pub fn hit_rate(&self) -> f64 {
        share(self.hits, self.hits + self.misses)
    }

    /// Bytes that a token read, on the average, of records of so many bytes.
    pub fn bytes_a_token(&self, record_bytes: u64) -> f64 {
        share(self.misses, self.tokens) * record_bytes as f64
    }
}

/// What a replay came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The policy.
    pub policy: Policy,
    /// Slots of the pool.
    pub slots: u32,
    /// All tokens, the pool being empty at first.
    pub cold: Counts,
    /// The tokens behind the warm-up: those after the one that filled the pool, and at least the second half.
    pub warm: Counts,
}

/// What some tokens found, what was read early for them, and what they took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// What they found; experts that were still being read are neither hits nor misses.
    pub counts: Counts,
    /// What became of records that were read early. Its bytes are records.
    pub early: LookaheadCounters,
    /// Time from the first choice of the first token to that behind the last.
    pub took: Duration,
}

impl Tally {
    /// Records that were read early and not chosen.
    pub fn in_vain(&self) -> u64 {
        self.early.wasted_bytes
    }

    /// So many a token.
    pub fn a_token(&self, count: u64) -> f64 {
        share(count, self.counts.tokens)
    }

    /// Microseconds that a token takes.
    pub fn us_a_token(&self) -> f64 {
        1e6 * self.took.as_secs_f64() / self.counts.tokens.max(1) as f64
    }

    /// What came since `earlier`.
    fn since(self, earlier: Self) -> Self {
        let (now, before) = (self.counts, earlier.counts);
        Tally {
            counts: Counts {
                tokens: now.tokens - before.tokens,
                hits: now.hits - before.hits,
                misses: now.misses - before.misses,
            },
            early: self.early.since(earlier.early),
            took: self.took - earlier.took,
        }
    }
}

/// The same tokens without lookahead and with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Comparison {
    /// The policy.
    pub policy: Policy,
    /// Slots of the pool.
    pub slots: u32,
    /// Nothing was read early.
    pub off: Tally,
    /// What forecasts expected was.
    pub on: Tally,
}

impl Comparison {
    /// Tokens a second with lookahead, for one without.
    pub fn rate(&self) -> f64 {
        self.off.took.as_secs_f64() / self.on.took.as_secs_f64()
    }
}

/// Replays a trace; tells passes done and in all.
///
/// # Errors
/// When a token's experts do not fit the pool.
pub fn simulate(trace: &Trace, policy: Policy, slots: u32, progress: &mut dyn FnMut(u64, u64)) -> Result<Outcome> {
    let off = LookaheadOptions { on: false, ..LookaheadOptions::default() };
    let mut replay = Replay::new(trace, policy, slots, (Pace::default(), off))?;
    let warm = replay.run(None, progress)?;
    Ok(Outcome { policy, slots, cold: replay.tally().counts, warm: warm.counts })
}

/// Replays a trace at a pace without lookahead, then with it; tells passes done and in all. The tokens that count are those
/// behind the warm-up without lookahead, see [`Outcome::warm`].
///
/// # Errors
/// As [`simulate`].
pub fn compare(
    trace: &Trace,
    policy: Policy,
    slots: u32,
    (pace, lookahead): (Pace, LookaheadOptions),
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Comparison> {
    let passes = trace.passes.len() as u64;
    let mut off = Replay::new(trace, policy, slots, (pace, LookaheadOptions { on: false, ..lookahead }))?;
    let without = off.run(None, &mut |done, _| progress(done, 2 * passes))?;
    let mut on = Replay::new(trace, policy, slots, (pace, lookahead))?;
    let with = on.run(off.warm_from, &mut |done, _| progress(passes + done, 2 * passes))?;
    Ok(Comparison { policy, slots, off: without, on: with })
}

/// For each use in order, when the same record is used next: the number of that layer's turn, or [`NEVER`].
fn nexts(trace: &Trace) -> Vec<u32> {
    let (experts, layers) = (trace.shape.experts as usize, u64::from(trace.shape.layers));
    let mut coming = vec![NEVER; layers as usize * experts];
    let mut nexts = Vec::new();
    let turns = trace.passes.iter().flat_map(|pass| pass.experts.iter().enumerate());
    for (turn, (layer, chosen)) in turns.enumerate().collect::<Vec<_>>().into_iter().rev() {
        for &expert in chosen.iter().rev() {
            let coming = &mut coming[layer * experts + expert as usize];
            nexts.push(std::mem::replace(coming, u32::try_from(turn).unwrap_or(NEVER)));
        }
    }
    nexts.reverse();
    nexts
}

/// What a layer is expected to choose.
type Expected<'a> = Option<(u32, &'a [Candidate])>;

/// A layer whose router has chosen.
struct Turn<'a> {
    layer: u32,
    /// Distinct experts, ascending.
    experts: &'a [u32],
    /// Those that were read early for it.
    early: Vec<u32>,
}

/// A pool in the middle of a trace.
struct Replay<'t> {
    trace: &'t Trace,
    table: SlotTable,
    ranks: Ranks,
    /// See [`nexts`].
    nexts: Vec<u32>,
    lookahead: LookaheadOptions,
    tickets: Tickets,
    foresight: Foresight,
    /// Since when nobody waits for a record, until the next choice.
    rests_since: Option<Duration>,
    reads: Reads,
    pace: Pace,
    now: Duration,
    /// Slots of the layer that is running.
    held: Vec<u32>,
    counts: Counts,
    /// Slots that were never filled, while nothing is read early.
    free: u32,
    /// The pass that counting began with.
    warm_from: Option<usize>,
    /// Turns of layers so far.
    time: u64,
    /// Uses so far.
    uses: usize,
}

impl<'t> Replay<'t> {
    fn new(trace: &'t Trace, policy: Policy, slots: u32, (pace, lookahead): (Pace, LookaheadOptions)) -> Result<Self> {
        let shape = trace.shape;
        if slots < shape.choices {
            return Err(Error::TooFewSlots { slots, choices: shape.choices });
        }
        let ranks = Ranks::new(policy, slots, (shape.layers * shape.experts) as usize);
        let lookahead = lookahead.within(slots as usize);
        Ok(Replay {
            trace,
            table: SlotTable::new(shape.layers, shape.experts, slots, ranks.eviction()),
            ranks,
            // Nobody else asks, and they take as much memory as the trace.
            nexts: if policy == Policy::Belady { nexts(trace) } else { Vec::new() },
            lookahead,
            // Records of one byte: bytes that were wasted are records.
            tickets: Tickets::new(1),
            foresight: Foresight::default(),
            rests_since: None,
            reads: Reads::new(pace, lookahead.lanes.into()),
            pace,
            now: Duration::ZERO,
            held: Vec::new(),
            counts: Counts::default(),
            free: slots,
            warm_from: None,
            time: 0,
            uses: 0,
        })
    }

    /// What all tokens so far came to.
    fn tally(&self) -> Tally {
        Tally { counts: self.counts, early: self.tickets.counters, took: self.now }
    }

    /// Replays all passes, and gives what those came to that count: all from `from` on, or behind the warm-up.
    fn run(&mut self, from: Option<usize>, progress: &mut dyn FnMut(u64, u64)) -> Result<Tally> {
        let passes = &self.trace.passes;
        let mut before = Tally::default();
        for (number, pass) in passes.iter().enumerate() {
            let counts = from.map_or(number >= passes.len() / 2 || self.free == 0, |from| number >= from);
            if counts && self.warm_from.is_none() {
                (self.warm_from, before) = (Some(number), self.tally());
            }
            for (layer, experts) in (0..).zip(&pass.experts) {
                let next = pass.expected.get(layer as usize + 1);
                self.layer(layer, experts, next.map(|next| (layer + 1, &next[..])))?;
            }
            self.counts.tokens += u64::from(pass.rows);
            progress(number as u64 + 1, passes.len() as u64);
        }
        Ok(self.tally().since(before))
    }

    /// A layer has chosen its distinct experts; brings them, and lets it run until the next has chosen.
    fn layer(&mut self, layer: u32, experts: &[u32], expected: Expected<'_>) -> Result<()> {
        self.reads.until(self.now);
        self.release();
        self.admit();
        let (misses, joined) = (self.counts.misses, self.tickets.counters.joined);
        let groups = self.groups(layer, experts);
        let early = |expert: &u32| self.tickets.open.contains_key(&ExpertId { layer, expert: *expert });
        let turn = Turn { layer, experts, early: experts.iter().copied().filter(early).collect() };
        self.foresight.chose(layer, experts);
        if let Some(since) = self.rests_since.take() {
            self.foresight.rested(self.now - since);
        }
        self.tickets.close(layer, experts, &mut self.table, &mut self.reads.desk);
        if let [group] = &groups[..] {
            self.bring(&turn, group, expected)?;
        } else {
            // What was read in vain has given its slots back.
            for group in self.groups(layer, experts) {
                self.release();
                self.join(layer, &group);
                self.claim(&turn, &group, None)?;
            }
            self.claim(&turn, &[], expected)?;
        }
        // What has landed meanwhile is there for the next router.
        self.admit();
        let others = (self.counts.misses - misses) + (self.tickets.counters.joined - joined);
        self.counts.hits += experts.len() as u64 - others;
        self.now += self.pace.layer;
        self.time += 1;
        self.uses += experts.len();
        Ok(())
    }

    fn release(&mut self) {
        self.table.release(&self.held);
        self.held.clear();
    }

    fn admit(&mut self) {
        self.tickets.admit(&mut self.table, &mut self.reads.desk);
    }

    /// A layer's experts in groups that fit the pool, those that have a slot first.
    fn groups(&self, layer: u32, experts: &[u32]) -> Vec<Vec<u32>> {
        let table = self.table.layer(layer);
        let resident = |expert: &u32| table.get(*expert as usize).is_some_and(|&slot| slot != NONE);
        let (mut asked, missing): (Vec<u32>, Vec<u32>) = experts.iter().partition(|&expert| resident(expert));
        asked.extend(missing);
        asked.chunks(self.table.unpinned().max(1)).map(<[u32]>::to_vec).collect()
    }

    /// Brings all experts of a layer: what nobody reads first, then what is on its way.
    fn bring(&mut self, turn: &Turn<'_>, experts: &[u32], expected: Expected<'_>) -> Result<()> {
        let layer = turn.layer;
        let (joined, wanted): (Vec<u32>, Vec<u32>) =
            experts.iter().partition(|&&expert| self.is_on_its_way(ExpertId { layer, expert }));
        self.claim(turn, &wanted, expected)?;
        self.join(layer, &joined);
        self.claim(turn, &joined, None)
    }

    fn is_on_its_way(&mut self, id: ExpertId) -> bool {
        self.tickets.is_on_its_way(id, &mut self.table, &mut self.reads.desk)
    }

    /// Waits for those of a layer's experts that are being read early.
    fn join(&mut self, layer: u32, experts: &[u32]) {
        for &expert in experts {
            let id = ExpertId { layer, expert };
            if self.is_on_its_way(id) {
                self.now = self.reads.join(self.now, id);
                self.rests_since = Some(self.now);
                self.tickets.joined(id, true, &mut self.table);
            }
        }
    }

    /// Gives experts slots and reads those that have none; what is expected of another layer is asked for behind them.
    fn claim(&mut self, turn: &Turn<'_>, experts: &[u32], expected: Expected<'_>) -> Result<()> {
        let claim = self.table.claim(turn.layer, experts)?;
        if let Some((layer, candidates)) = expected.filter(|_| self.lookahead.reads()) {
            self.forecast(layer, candidates);
        }
        let begun = self.now;
        self.now = self.reads.demand(begun, claim.misses.len());
        if !claim.misses.is_empty() {
            self.foresight.read(claim.misses.len() as u64, self.now - begun);
            self.rests_since = Some(self.now);
        }
        self.table.publish(&claim);
        for (&expert, &slot) in experts.iter().zip(&claim.slots) {
            let missed = turn.early.contains(&expert) || claim.misses.iter().any(|miss| miss.id.expert == expert);
            self.see(turn, expert, (slot, missed));
        }
        self.counts.misses += claim.misses.len() as u64;
        self.free = self.free.saturating_sub(claim.misses.iter().filter(|miss| !miss.evicted).count() as u32);
        self.held.extend(claim.slots);
        Ok(())
    }

    /// Has the policy know of a use of a slot, and whether its record was just read.
    fn see(&mut self, turn: &Turn<'_>, expert: u32, (slot, missed): (u32, bool)) {
        let place = turn.experts.binary_search(&expert).unwrap_or_default();
        self.ranks.see(Use {
            record: turn.layer as usize * self.trace.shape.experts as usize + expert as usize,
            slot,
            missed,
            time: self.time,
            next: self.nexts.get(self.uses + place).copied().unwrap_or(NEVER),
            token: self.counts.tokens,
        });
    }

    /// Asks for what a forecast expects, unless it is there.
    fn forecast(&mut self, layer: u32, candidates: &[Candidate]) {
        let mut issued = 0;
        self.rests_since = Some(self.now);
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
            if self.tickets.open(id, &mut self.table).is_some() {
                self.reads.desk.issue(id, ());
                self.tickets.counters.issued += 1;
                issued += 1;
            }
        }
    }
}
