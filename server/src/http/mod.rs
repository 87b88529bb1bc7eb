//! Owns: everything between a socket and a handler: connections, limits, origins and keys, routing, streams (server.md sections
//! 1 to 3).
//! Refuses: any one API's fields.
//! Invariants: nothing in here waits for the engine but a handler that was asked for a reply.

pub mod answer;
pub mod body;
pub mod gate;
pub mod route;
pub mod serve;
pub mod socket;
pub mod stream;
