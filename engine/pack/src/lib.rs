//! Owns: `ss pack`: writing the packs of a model directory, verifying and repairing them, giving back the space of
//! the originals (engine.md section 5.2).
//! Refuses: the format, which is `ss_checkpoint`'s, and reading packs while a model runs.
//! Invariants: a record counts only after it was read back from the disk; a pack has its name only once it is whole; no byte
//! of an original goes before all of its pack was verified against it.

mod batch;
mod disk;
mod error;
mod fill;
mod job;
mod reclaim;
mod repair;
mod verify;
mod write;

pub use disk::{Disk, SystemDisk};
pub use error::{Error, Result};
pub use job::{Job, Packed, Watch};
pub use reclaim::{Freed, reclaim};
pub use repair::{Damage, repair};
pub use verify::{Verified, verify};
pub use write::pack;
