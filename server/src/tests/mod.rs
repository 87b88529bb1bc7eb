//! Owns: tests of the server as its clients see it: a real socket, real words, and replies of a script.

mod basics;
mod fuzz;
mod ollama;
mod ollama_rows;
mod ollama_wire;
mod rig;
