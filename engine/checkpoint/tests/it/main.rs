//! Owns: tests of whole model directories.
//! Refuses: files from outside the repository; what is not in it is written by the tests.
//! Invariants: each test owns a temporary folder; none needs the released checkpoint.

#[cfg(unix)]
mod bad_input;
mod expert_files;
mod fuzz;
mod mirror;
mod models;
mod released;
mod small;
mod variants;
