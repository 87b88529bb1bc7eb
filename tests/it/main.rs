//! Whole-program tests; each module holds one promise.

mod fast;
mod goldens;
mod invariants;
mod nano;
mod sequence;
mod words;
