//! Owns: this crate's tests that need files or a device: real small checkpoints, a device of plain memory, disks that fail.

mod experts;
mod failures;
mod ngram;
mod slots;
mod store;
mod support;
