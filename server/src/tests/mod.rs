//! Owns: tests of the server as its clients see it: a real socket, real words, and replies of a script.

mod basics;
mod chat_rows;
mod chat_stream;
mod completions;
mod fuzz;
mod hub;
mod messages;
mod messages_stream;
mod messages_turns;
mod models;
mod ollama;
mod ollama_rows;
mod ollama_wire;
mod openai_wire;
mod page;
mod real;
mod responses;
mod rig;
mod seen;
mod transport;
