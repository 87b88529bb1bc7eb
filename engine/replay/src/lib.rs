//! Owns: traces of the experts that tokens chose and of what was forecast of them: writing them, reading them, making them up,
//! and what a slot pool would have found under a policy, with lookahead and without (engine.md 5.8).
//! Refuses: the model and its device; whoever runs a model hands its choices over.
//! Invariants: the pool is the engine's own slot table, and CLOCK its own policy; the same trace gives the same figures.

mod assembly;
mod error;
mod figures;
mod file;
mod made;
mod policy;
mod reads;
mod simulate;
mod trace;

pub use assembly::Assembly;
pub use error::{Error, Result};
pub use figures::Figures;
pub use file::{TracePlace, TraceReader, TraceWriter};
pub use made::{Made, PERSISTENCE};
pub use policy::Policy;
pub use reads::Pace;
pub use simulate::{Comparison, Counts, Outcome, Tally, compare, simulate};
pub use trace::{Expected, MOST_RECORD_BYTES, NO_EXPERT, Pass, Shape, Token, Trace};
