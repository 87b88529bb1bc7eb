//! Owns: this crate's tests that need files or a device: real small checkpoints, a device of plain memory, disks that fail.

mod experts;
mod failures;
mod hot;
mod lanes;
mod mirror;
mod ngram;
mod packed;
mod protocol;
mod ram;
mod slots;
mod store;
mod support;
mod throttle;
mod way;
