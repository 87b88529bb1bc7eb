//! Owns: the text model, from token ids to logits (architecture.md), as a graph of backend operations over a sequence
//! state, with experts and n-gram rows brought in by the stream.
//! Refuses: text, sampling, drafts' policy; and any device but through the `Backend` trait.
//! Invariants: I1 and I2 of engine.md section 1: neither residency nor pass size changes a bit.

mod cancel;
mod choice;
mod decoder;
mod draft;
mod drive;
mod error;
mod graph;
mod groups;
mod model;
mod rewind;
mod ride;
pub mod rope;
mod rows;
mod saved;
pub mod shapes;
mod shared;
mod state;
mod sweep;
mod trace;
pub mod weights;
mod workspace;

pub use cancel::Cancel;
pub use choice::{Likeliest, LogitSettings};
pub use decoder::Decoder;
pub use draft::DraftSource;
pub use error::{Error, Result};
pub use model::{Model, ModelOptions, Output, Pass, PassMutation, Want, Watcher};
pub use rewind::Recording;
pub use rope::Position;
pub use shared::Prompt;
pub use state::{State, StateTensor, Timeline};
pub use trace::{Trace, TracedPass};
pub use weights::{Progress, trunk_bytes};
pub use workspace::{read_group_bytes, workspace_bytes};
