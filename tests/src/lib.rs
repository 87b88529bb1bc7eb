//! Owns: what whole-program tests share: golden sets, the measure of error, models set up for a test.
//! Invariants: NaN and infinity fail every comparison.

pub mod golden;
pub mod measure;
pub mod rig;
pub mod stepwise;
pub mod tapped;
pub mod watch;

pub use golden::{Golden, Tensors};
pub use measure::{Bound, Distance, Table};
pub use rig::{Rig, RigOptions, Taps};
