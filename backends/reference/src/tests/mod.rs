//! Owns: the proof of every operation against a straightforward F64 oracle, and of the row rule, on all tiers, thread
//! counts, profiles and forms.
//! Invariants: NaN fails every comparison; a case is run through the backend as the engine runs it.

mod cases;
mod gdn;
mod hyper;
mod memory;
mod moe;
mod numbers;
mod ple;
mod qsa;
mod rig;
mod rules;
mod top;
