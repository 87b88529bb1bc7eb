//! Owns: what a pool of some slots would have found under a policy (engine.md 5.8).
//! Refuses: prompts, which sweep past the pool, and records that are read ahead.
//! Invariants: a pass asks for its experts layer by layer, as the engine does: those that have a slot first, a layer's
//! own held until it is done, in groups where the pool is too small for them together.

use ss_backend::NONE;
use ss_stream::{ExpertId, SlotTable};

use crate::figures::share;
use crate::policy::{NEVER, Ranks, Use};
use crate::{Error, Policy, Result, Trace};

/// What some tokens found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Tokens.
    pub tokens: u64,
    /// Experts that had a slot when their layer asked for them.
    pub hits: u64,
    /// Experts that had none.
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

/// Replays a trace; tells passes done and in all.
///
/// # Errors
/// When a token's experts do not fit the pool.
pub fn simulate(trace: &Trace, policy: Policy, slots: u32, progress: &mut dyn FnMut(u64, u64)) -> Result<Outcome> {
    let choices = trace.shape.choices;
    if slots < choices {
        return Err(Error::TooFewSlots { slots, choices });
    }
    let mut replay = Replay::new(trace, policy, slots);
    // Nobody else asks, and they take as much memory as the trace.
    let nexts = if policy == Policy::Belady { nexts(trace) } else { Vec::new() };
    let half = trace.passes.len() / 2;
    let (mut cold, mut warm) = (Counts::default(), Counts::default());
    for (number, pass) in trace.passes.iter().enumerate() {
        let counts = number >= half || replay.free == 0;
        let before = cold;
        for (layer, experts) in (0..).zip(&pass.experts) {
            replay.ask(layer, experts, &nexts, &mut cold)?;
        }
        cold.tokens += u64::from(pass.rows);
        replay.tokens = cold.tokens;
        if counts {
            warm.tokens += u64::from(pass.rows);
            warm.hits += cold.hits - before.hits;
            warm.misses += cold.misses - before.misses;
        }
        progress(number as u64 + 1, trace.passes.len() as u64);
    }
    Ok(Outcome { policy, slots, cold, warm })
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

/// A pool in the middle of a trace.
struct Replay {
    table: SlotTable,
    ranks: Ranks,
    experts: usize,
    /// Slots that were never filled.
    free: u32,
    /// Turns of layers so far.
    time: u64,
    /// Uses so far.
    uses: usize,
    /// Tokens so far.
    tokens: u64,
}

impl Replay {
    fn new(trace: &Trace, policy: Policy, slots: u32) -> Self {
        let shape = trace.shape;
        let ranks = Ranks::new(policy, slots, (shape.layers * shape.experts) as usize);
        let table = SlotTable::new(shape.layers, shape.experts, slots, ranks.eviction());
        Replay { table, ranks, experts: shape.experts as usize, free: slots, time: 0, uses: 0, tokens: 0 }
    }

    /// A layer asks for its distinct experts.
    fn ask(&mut self, layer: u32, experts: &[u32], nexts: &[u32], counts: &mut Counts) -> Result<()> {
        let table = self.table.layer(layer);
        let resident = |(expert, _): &(u32, usize)| table.get(*expert as usize).is_some_and(|&slot| slot != NONE);
        let uses = experts.iter().copied().zip(self.uses..);
        let (mut asked, missing): (Vec<_>, Vec<_>) = uses.partition(resident);
        asked.extend(missing);
        for group in asked.chunks(self.table.unpinned().max(1)) {
            let wanted: Vec<u32> = group.iter().map(|(expert, _)| *expert).collect();
            let claim = self.table.claim(layer, &wanted)?;
            self.table.publish(&claim);
            for (&(expert, number), &slot) in group.iter().zip(&claim.slots) {
                let id = ExpertId { layer, expert };
                self.ranks.see(Use {
                    record: layer as usize * self.experts + expert as usize,
                    slot,
                    missed: claim.misses.iter().any(|miss| miss.id == id),
                    time: self.time,
                    next: nexts.get(number).copied().unwrap_or(NEVER),
                    token: self.tokens,
                });
            }
            self.free -= claim.misses.iter().filter(|miss| !miss.evicted).count() as u32;
            counts.misses += claim.misses.len() as u64;
            counts.hits += (group.len() - claim.misses.len()) as u64;
            self.table.release(&claim.slots);
        }
        self.time += 1;
        self.uses += experts.len();
        Ok(())
    }
}
