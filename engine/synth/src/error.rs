//! Owns: every way in which a checkpoint cannot be made, as one sentence for a person.
//! Refuses: nothing; it only words what others refuse.
//! Invariants: a message names the file or the flag, what was expected, what was found, and what to do.

use std::io;
use std::path::{Path, PathBuf};

/// What this crate returns.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a checkpoint cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused.
    #[error("{path}: cannot {action}: {cause}")]
    Io {
        /// File or folder.
        path: PathBuf,
        /// What was tried, as a verb phrase.
        action: &'static str,
        /// The system's own words.
        cause: io::Error,
    },
    /// The configuration is none that the engine supports.
    #[error(transparent)]
    Checkpoint(#[from] ss_checkpoint::Error),
    /// A configuration that is not JSON, or not an object with a text part.
    #[error(
        "{path} is no configuration of this model ({found}): `--geometry` takes released, nano-like or a config.json"
    )]
    Config {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        found: String,
    },
    /// Too few ids for bytes and control tokens.
    #[error("text_config.vocab_size must be at least {needed}, for 256 bytes and the control tokens, found {found}")]
    Vocabulary {
        /// Ids needed.
        needed: u32,
        /// Ids there are.
        found: u32,
    },
    /// Something is there already.
    #[error("{path} is {found}, expected a new or empty directory: name another one, or remove it first")]
    Occupied {
        /// The directory.
        path: PathBuf,
        /// What it is.
        found: &'static str,
    },
    /// The disk has no room.
    #[error(
        "{path}: {:.3} GB would be written, beside {:.3} of holes, and {:.3} are free on that disk; free some, or write fewer layers with `--layers N`",
        *needed as f64 * 1e-9, *holes as f64 * 1e-9, *free as f64 * 1e-9
    )]
    NoRoom {
        /// The directory.
        path: PathBuf,
        /// Bytes that would be written.
        needed: u64,
        /// Bytes that are free.
        free: u64,
        /// Bytes that take no room.
        holes: u64,
    },
    /// Somebody asked to stop.
    #[error("stopped; what was written is removed")]
    Cancelled,
}

impl Error {
    pub(crate) fn io(path: &Path, action: &'static str, cause: io::Error) -> Self {
        Error::Io { path: path.to_owned(), action, cause }
    }
}
