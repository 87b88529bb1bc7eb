//! Owns: why a request could not be answered, in words for a person.

use std::path::PathBuf;

/// The result of a request.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a request could not be answered.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The model could not run.
    #[error(transparent)]
    Model(#[from] ss_model::Error),
    /// The checkpoint lacks something beside its tensors.
    #[error(transparent)]
    Checkpoint(#[from] ss_checkpoint::Error),
    /// Tokenizer, template or stop strings.
    #[error(transparent)]
    Text(#[from] ss_text::TextError),
    /// A reply that could not be held to its constraint.
    #[error("the reply cannot be held to its grammar: {0}")]
    Constraint(String),
    /// A tokenizer of another model.
    #[error(
        "`{path}` has token ids up to {found}, but the model's vocabulary ends at {vocab}; use the tokenizer that came with the model"
    )]
    Vocabulary {
        /// The tokenizer.
        path: PathBuf,
        /// Ids that it uses.
        found: usize,
        /// Ids that the model has.
        vocab: u32,
    },
}
