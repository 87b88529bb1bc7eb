//! Owns: the tests of the kernels in `msl/`, whose very text clang compiles for this machine (`tests/msl`).
//! Refuses: to pass without clang.
//! Invariants: each kernel passes the checks that its WGSL twin passes, against the same twin in plain Rust.

mod device;
mod experts;
mod harness;
mod program;
mod prompt;
mod qsa;
