//! Owns: what memory this machine has, how much of it could be taken, how pressed for it the system is, and what this process
//! has used at most (engine.md sections 8.2 to 8.6).
//! Refuses: deciding what to spend; this crate measures.
//! Invariants: every figure is in bytes and comes from the system; one that cannot be had is an error, never a guess.

#[cfg(target_vendor = "apple")]
mod apple;
mod available;
#[cfg(any(target_os = "linux", test))]
mod cgroup;
mod error;
mod machine;
mod peak;

pub use available::{Pressure, pressure, reclaimable_bytes};
pub use error::{Error, Result};
pub use machine::{Machine, system_release};
pub use peak::{Peak, process_peak_bytes};
