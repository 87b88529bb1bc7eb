//! Owns: the reference backend: every operation of the engine in plain Rust, on threads and autovectorised loops.
//! Refuses: files, policies, and any library that computes.
//! Invariants: a row's result depends on nothing but the row, its state and the weights: not on the rows beside it, the
//! number of threads, or how a pass was split.

mod backend;
mod cell;
mod dot;
mod gemm;
mod math;
mod memory;
mod norm;
mod ops;
mod pool;
mod scratch;
mod simd;
mod step;
mod tap;
mod threads;
mod tuning;
mod weights;

#[cfg(test)]
mod tests;

pub use backend::{Options, Reference};
pub use tap::{Tap, TapData};
