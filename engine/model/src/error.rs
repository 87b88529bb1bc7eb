//! Owns: why a pass could not be run, in words for a person.

/// The result of running the model.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a pass could not be run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The checkpoint is damaged or not what it says.
    #[error(transparent)]
    Checkpoint(#[from] ss_checkpoint::Error),
    /// An expert or n-gram row could not be brought in.
    #[error(transparent)]
    Stream(#[from] ss_stream::Error),
    /// The device failed.
    #[error(transparent)]
    Backend(#[from] ss_backend::Error),
    /// Somebody asked to stop.
    #[error("the request was cancelled")]
    Cancelled,
    /// The sequence is longer than the model was made for.
    #[error(
        "the sequence would be {wanted} tokens long, but this model reads at most {limit} (`max_position_embeddings`); shorten the prompt"
    )]
    Context {
        /// Tokens after the pass.
        wanted: u64,
        /// Tokens that the model allows.
        limit: u32,
    },
    /// A token id that the vocabulary does not have.
    #[error("token id {id} is outside the vocabulary of {vocab}")]
    TokenId {
        /// The id.
        id: u32,
        /// Rows of the embedding table.
        vocab: u32,
    },
    /// An earlier pass on this state failed half way.
    #[error("this sequence state was left half-updated by a pass that failed; start again from an earlier fork")]
    TornState,
    /// Numbers that no healthy model gives.
    #[error(
        "{dir}: the model gave numbers that are not finite, so its files are damaged; compare them with the published checksums"
    )]
    NotFinite {
        /// The model directory.
        dir: std::path::PathBuf,
    },
    /// A pass that cannot be run as asked.
    #[error("the pass was asked for {0}; this is a fault in slotstream, please report it")]
    Request(&'static str),
    /// The checkpoint has no draft head.
    #[error("this checkpoint has no draft head: put `mtp.safetensors` beside it or run without drafts")]
    NoDraftHead,
    /// A saved state that does not belong here.
    #[error("the saved sequence state cannot be used: {0}")]
    SavedState(String),
}
