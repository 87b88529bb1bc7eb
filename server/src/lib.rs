//! Owns: the request model that every way in shares: how a request's words become template options and sampler settings
//! (server.md section 5, chat-template.md section 4). `ss run` uses it today; the HTTP dialects come to stand on it.
//! Refuses: tokens, files, the device.
//! Invariants: a setting that the request names wins; nothing is dropped in silence.

pub mod sampling;
pub mod thinking;

pub use sampling::{Column, SamplingRequest, fresh_seed};
pub use thinking::{Effort, Thinking};
