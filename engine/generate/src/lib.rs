//! Owns: requests: prompt in, reply out; sampling, and the words around the model (engine.md section 7).
//! Refuses: HTTP, terminals, and anything that a device or a file does.
//! Invariants: the n-th draw of a reply depends on the logits, the seed and n alone.

mod engine;
mod error;
mod generation;
mod repetition;
mod sampler;

pub use engine::{Ask, Chat, Engine, Told, Words};
pub use error::{Error, Result};
pub use generation::{DEFAULT_PREFILL_PASS, DEFAULT_READ_GROUP, Finish, Flow, Request, Step, Summary, generate};
pub use sampler::{Sampler, SamplerSettings};
