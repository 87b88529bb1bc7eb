//! Owns: tests of packing a whole model directory: crashes, full disks, damage, swapped weights, space given back.
//! Refuses: models from outside the repository.
//! Invariants: each test packs a copy of its own; what it expects is the original's bytes, never the packer's word.

// Disks that fail are made of calls that only these systems have.
#![cfg(unix)]

mod crash;
mod damage;
mod pack;
mod reclaim;
mod repair;
mod support;
