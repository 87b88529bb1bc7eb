//! Whole-program tests; each module holds one promise.

mod goldens;
mod invariants;
