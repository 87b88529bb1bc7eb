//! Owns: the tests of this backend, all on software Vulkan, so that they run on any machine; `SS_ADAPTER` names another.
//! Refuses: to pass where there is no such adapter.
//! Invariants: numbers are compared with an oracle in F64, or by their bits; a NaN fails every comparison.

mod experts;
mod fixture;
mod kernels;
mod memory;
mod metal;
#[cfg(feature = "msl")]
mod msl;
mod oracle;
mod overrides;
mod pulse;
mod rules;
mod slot_writes;
mod timing;
mod top;
mod units;
mod uploads;
