//! Owns: requests in words: the model that every way in shares (`ss run` uses it too), the three HTTP dialects over it, and the
//! server that speaks them without ever waiting where it should not (server.md).
//! Refuses: the device, and files but those that it is given.
//! Invariants: a setting that the request names wins; nothing is dropped in silence; one reply is made at a time, and nothing
//! else waits for it.

pub mod api;
pub mod app;
pub mod conversation;
pub mod describe;
pub mod engine;
pub mod flow;
pub mod http;
pub mod hub;
pub mod page;
pub mod prepare;
pub mod real;
pub mod refusal;
pub mod request;
pub mod sampling;
pub mod scripted;
pub mod shape;
pub mod snapshot;
pub mod thinking;

pub use sampling::{Column, SamplingRequest, fresh_seed};
pub use thinking::{Effort, Thinking};

#[cfg(test)]
mod tests;
