//! Owns: everything between text and token ids: the tokenizer, the chat template, and the reading of a reply while it is
//! written (chat-template.md; server.md section 5).
//! Refuses: tokenizers that are not byte-level, and templates that fail or grow without bound.
//! Invariants: only a template's own text makes control tokens; a reply read in pieces equals the reply read whole.

mod detokenizer;
mod error;
mod files;
mod guard;
mod python_json;
mod reply;
mod search;
mod steps;
mod stops;
mod template;
mod thinking;
mod tokenizer;
mod tools;
mod values;
mod vocabulary;

pub use detokenizer::Detokenizer;
pub use error::TextError;
pub use guard::Prompt;
pub use reply::{Call, Ending, Event, Reply, ReplyOptions, ReplyParser};
pub use stops::{MAX_STOP_BYTES, MAX_STOPS, Stops};
pub use template::Template;
pub use thinking::{Thinking, Thought};
pub use tokenizer::{AddedTokens, Tokenizer};
pub use tools::{ToolSplitter, TurnError};
pub use values::{ToolSchemas, ValueKind};
pub use vocabulary::SpecialTokens;
