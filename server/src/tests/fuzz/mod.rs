//! Owns: fuzz targets: bodies of every path, the splitters of a reply, the writers of every API's streams.
//! Invariants: a target is a test; `SS_FUZZ_SECONDS` says how long each goes on, `SS_FUZZ_CASE` runs one case.

mod bodies;
mod inside;
mod random;
mod splitters;
mod writers;
