//! Owns: bringing expert records into slots and n-gram rows into rows: the slot table and its eviction, the lanes that
//! read, records in host memory, the cache of n-gram rows, the counters (engine.md sections 5.1, 5.2, 5.7 and 6).
//! Refuses: arithmetic on activations and the order of a pass; the model asks for a layer's experts and gets their slots.
//! Invariants: a slot whose entry names an expert holds that expert's bytes as they are in the file; what a caller gets
//! never depends on the size of a pool or cache, on what was resident, or on the order in which reads end (promise I1).

mod block;
mod counters;
mod decode;
mod desk;
mod error;
mod experts;
mod foresight;
mod lanes;
mod lookahead;
mod mirror;
mod mutation;
mod ngram;
mod policy;
mod ram;
mod rows;
mod size;
mod slots;
mod source;
mod store;
#[cfg(test)]
mod tests;
mod throttle;
mod tickets;
mod uses;
mod way;

pub use counters::{Counters, ExpertCounters, NgramCounters};
pub use desk::Desk;
pub use error::{Error, Result};
pub use experts::{Candidate, ExpertCache, ExpertOptions};
pub use foresight::Foresight;
pub use lanes::{Lane, LaneCounts, Lanes};
pub use lookahead::{LookaheadCounters, LookaheadOptions};
pub use mirror::{MirrorOptions, Told};
pub use mutation::Mutation;
pub use ngram::{NgramOptions, NgramRows, ROW_CACHE_BYTES};
pub use policy::{Clock, Eviction};
pub use ram::{RamCounters, RamOptions, RamSize};
pub use size::{PoolGeometry, PoolSize};
pub use slots::{Claim, ExpertId, Miss, SlotTable};
pub use source::RecordSource;
pub use store::{Store, StoreOptions};
pub use throttle::DiskPace;
pub use tickets::{Ticket, Tickets};
pub use uses::{HotExpert, Uses};
