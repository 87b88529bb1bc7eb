//! Owns: tests of the server as its clients see it: a real socket, real words, and replies of a script.

mod basics;
mod messages;
mod messages_stream;
mod messages_turns;
mod ollama;
mod ollama_rows;
mod ollama_wire;
mod page;
mod responses;
mod rig;
mod transport;
