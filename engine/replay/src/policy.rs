//! Owns: which slot a pool gives up, by policy (engine.md 5.8).
//! Refuses: the pool's own rules; what is held is never asked about.
//! Invariants: CLOCK is the engine's own; a ranking gives up the slot of the least worth, of equal ones the one that was
//! used the longest ago.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use parking_lot::Mutex;
use ss_stream::{Clock, Eviction};

/// Tokens after which a use counts half in [`Policy::Popularity`].
const HALF_LIFE: f64 = 64.0;

/// The next use of a record that is not used again.
pub(crate) const NEVER: u32 = u32::MAX;

/// A policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Policy {
    /// The engine's: a hand walks the slots, and spares one that was used since its last visit.
    Clock,
    /// The slot that was used the longest ago.
    Lru,
    /// The slot with the fewest uses since its record was read.
    Lfu,
    /// The record with the fewest uses ever, a use counting half after 64 tokens.
    Popularity,
    /// The record that is used again the furthest in the future: the fewest misses that any policy can have.
    Belady,
}

impl Policy {
    /// All of them.
    pub const ALL: [Policy; 5] = [Policy::Clock, Policy::Lru, Policy::Lfu, Policy::Popularity, Policy::Belady];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Policy::Clock => "clock",
            Policy::Lru => "lru",
            Policy::Lfu => "lfu",
            Policy::Popularity => "popularity",
            Policy::Belady => "belady",
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Policy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Policy::ALL.into_iter().find(|policy| policy.name() == text).ok_or_else(|| {
            let names = Policy::ALL.map(Policy::name).join(", ");
            format!("expected one of {names}")
        })
    }
}

/// What a slot is worth: the least goes first.
type Worth = (u64, u64);

/// Slots by worth.
#[derive(Default)]
struct Order {
    slots: BTreeSet<(Worth, u32)>,
    /// `[slots]`: none for slots without a rank.
    worths: Vec<Option<Worth>>,
}

impl Order {
    fn set(&mut self, slot: u32, worth: Option<Worth>) {
        let Some(known) = self.worths.get_mut(slot as usize) else { return };
        if let Some(old) = std::mem::replace(known, worth) {
            self.slots.remove(&(old, slot));
        }
        self.slots.extend(worth.map(|worth| (worth, slot)));
    }
}

/// The order of a ranking, as the slot table sees it. What a use is worth is known to the [`Ranks`].
struct Ranked(Arc<Mutex<Order>>);

impl Eviction for Ranked {
    fn touch(&mut self, _: u32) {}

    fn forget(&mut self, slot: u32) {
        self.0.lock().set(slot, None);
    }

    fn victim(&mut self, may_go: &dyn Fn(u32) -> bool) -> Option<u32> {
        let mut order = self.0.lock();
        let victim = order.slots.iter().map(|&(_, slot)| slot).find(|&slot| may_go(slot))?;
        order.set(victim, None);
        Some(victim)
    }
}

/// A use of a record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Use {
    pub record: usize,
    pub slot: u32,
    /// Whether its record was just read.
    pub missed: bool,
    /// Uses of layers before this one; one after the other.
    pub time: u64,
    /// When it is used next, or [`NEVER`].
    pub next: u32,
    /// Tokens before this one.
    pub token: u64,
}

/// What uses are worth under a policy.
pub(crate) struct Ranks {
    policy: Policy,
    order: Arc<Mutex<Order>>,
    /// `[slots]`: uses since the record was read.
    uses: Vec<u64>,
    /// `[records]`: logarithm of the decayed uses, to the base 2, all of them as of token 0.
    popularity: Vec<f64>,
}

impl Ranks {
    pub fn new(policy: Policy, slots: u32, records: usize) -> Self {
        let order = Order { slots: BTreeSet::new(), worths: vec![None; slots as usize] };
        Ranks {
            policy,
            order: Arc::new(Mutex::new(order)),
            uses: vec![0; slots as usize],
            popularity: vec![f64::NEG_INFINITY; records],
        }
    }

    /// What a slot table of so many slots asks.
    pub fn eviction(&self) -> Box<dyn Eviction> {
        match self.policy {
            Policy::Clock => Box::new(Clock::new(self.uses.len())),
            _ => Box::new(Ranked(self.order.clone())),
        }
    }

    /// Takes a use in.
    pub fn see(&mut self, used: Use) {
        let (slot, record) = (used.slot as usize, used.record);
        let worth = match self.policy {
            // It asks nobody.
            Policy::Clock => return,
            Policy::Lru => used.time,
            Policy::Lfu => self.uses.get_mut(slot).map_or(0, |uses| {
                *uses = if used.missed { 1 } else { *uses + 1 };
                *uses
            }),
            Policy::Popularity => self.popularity.get_mut(record).map_or(0, |known| {
                // Instead of letting all counts fade, later uses weigh more: the order is the same.
                let now = used.token as f64 / HALF_LIFE;
                let most = known.max(now);
                *known = most + ((*known - most).exp2() + (now - most).exp2()).log2();
                // It is never negative, so that its bits are in its order.
                known.to_bits()
            }),
            Policy::Belady => u64::from(NEVER - used.next),
        };
        self.order.lock().set(used.slot, Some((worth, used.time)));
    }
}
