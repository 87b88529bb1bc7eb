//! Owns: requests: prompt in, reply out; sampling, and the words around the model (engine.md section 7).
//! Refuses: HTTP, terminals, and anything that a device or a file does.
//! Invariants: the n-th draw of a reply depends on the logits, the seed and n alone.

mod constraint;
mod engine;
mod error;
mod generation;
mod logprobs;
mod repetition;
mod sampler;
mod words;

pub use constraint::Constraint;
pub use engine::{Ask, Engine, TokenTold, Told};
pub use error::{Error, Result};
pub use generation::{DEFAULT_PREFILL_PASS, DEFAULT_READ_GROUP, Drawn, Finish, Flow, Request, Step, Summary, generate};
pub use logprobs::{IdLogprob, MAX_TOP_LOGPROBS, PromptLogprob};
pub use sampler::{Sampler, SamplerSettings};
pub use words::{Chat, Words};
