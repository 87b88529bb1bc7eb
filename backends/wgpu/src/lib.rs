//! Owns: the backend that runs on any adapter wgpu can open: Vulkan and Metal (engine.md sections 2.1 and 5.1).
//! Refuses: operations without a kernel in `wgsl/`, by name; a software adapter that was not asked for by name.
//! Invariants: every kernel is row-invariant, and neither the pool's chunks nor how they are bound enter its arithmetic.

mod adapter;
mod ahead;
#[cfg(target_vendor = "apple")]
mod apple;
mod backend;
mod bindings;
mod cache;
mod catalogue;
mod clock;
mod device;
mod encoding;
mod groups;
mod in_place;
mod ledger;
#[cfg(not(target_vendor = "apple"))]
mod mapped;
mod memory;
#[cfg(feature = "msl")]
mod msl;
mod ops;
mod overrides;
#[cfg(any(target_vendor = "apple", test))]
mod own_memory;
mod parts;
mod pool;
mod pulse;
mod registry;
pub mod selftest;
mod staging;
mod tuning;
mod uploads;
mod vulkan;

#[cfg(test)]
mod tests;

pub use adapter::{AdapterChoice, AdapterFacts, adapters, choose};
pub use backend::{Options, WgpuBackend};
pub use catalogue::{kernel_count, kernel_table};
pub use clock::Timed;
pub use in_place::SlotWrites;
pub use ledger::WHOLE;
pub use overrides::{Kernels, kernel_overrides};
pub use pool::ChunkAccess;
