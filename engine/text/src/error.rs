//! Owns: every way in which text work can fail, each as one sentence for a person.
//! Refuses: nothing.
//! Invariants: a message names the file or the setting, what was expected and what was found.

use std::path::PathBuf;

/// Why a tokenizer, a template, a prompt or a setting was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum TextError {
    /// A file that the model directory must have is not there.
    #[error("{} does not exist: a model directory needs its tokenizer.json beside the weights", path.display())]
    Missing {
        /// The file looked for.
        path: PathBuf,
    },
    /// A file is there and cannot be read.
    #[error("{} cannot be read: {reason}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system or the check said.
        reason: String,
    },
    /// tokenizer.json is broken, or of a kind that this engine does not run.
    #[error("{} is not a tokenizer that this engine can use: {reason}", path.display())]
    Tokenizer {
        /// The file.
        path: PathBuf,
        /// What was expected and what was found.
        reason: String,
    },
    /// The chat template does not parse.
    #[error("{} is not a chat template that this engine can use: {reason}", path.display())]
    Template {
        /// The file.
        path: PathBuf,
        /// What was expected and what was found.
        reason: String,
    },
    /// The template itself refused the conversation with `raise_exception`: its own words, meant for the client.
    #[error("{0}")]
    Refused(String),
    /// The template failed on this conversation.
    #[error("the chat template {} failed on this conversation: {reason}", path.display())]
    Render {
        /// The template's file.
        path: PathBuf,
        /// What failed and at which line.
        reason: String,
    },
    /// The template did more work or wrote more text than the size of the conversation explains.
    #[error("the chat template {} was stopped: it wrote or worked far more than this conversation explains", path.display())]
    Unbounded {
        /// The template's file.
        path: PathBuf,
    },
    /// The conversation uses so many private-use characters that none is left to mark its text with.
    #[error("the conversation uses every character of private-use plane 16: remove some of them")]
    NoMarkLeft,
    /// The tokenizer could not turn a text into ids.
    #[error("{} could not encode the text: {reason}", path.display())]
    Encode {
        /// The tokenizer's file.
        path: PathBuf,
        /// What the tokenizer said.
        reason: String,
    },
    /// More stop strings than are accepted.
    #[error("stop: at most {most} strings are accepted, {found} were given")]
    TooManyStops {
        /// Strings accepted.
        most: usize,
        /// Strings given, empty ones not counted.
        found: usize,
    },
    /// A stop string that is longer than is accepted.
    #[error("stop: a string of {found} bytes was given, at most {most} are accepted")]
    LongStop {
        /// Bytes accepted.
        most: usize,
        /// Bytes given.
        found: usize,
    },
}
