//! Whole-program tests; each module holds one promise.

mod disk;
mod dispatches;
mod fast;
mod goldens;
mod invariants;
mod nano;
mod ops;
mod prepared;
mod sequence;
mod structured;
mod traced;
mod words;
