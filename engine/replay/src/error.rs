//! Owns: why a trace cannot be written, read or replayed, in words for a person.
//! Invariants: a message names the file, what was expected and what to do.

use std::io;
use std::path::{Path, PathBuf};

/// What this crate returns.
pub type Result<T> = std::result::Result<T, Error>;

/// Why there is no trace.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system refused.
    #[error("`{path}` cannot be {action}: {cause}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried, as a participle.
        action: &'static str,
        /// The system's own words.
        cause: io::Error,
    },
    /// A folder, a pipe or a device where a file must be.
    #[error("`{path}` is {found}, expected a file; write the trace into one, as in `ss run --trace-experts trace`")]
    NotAFile {
        /// The path.
        path: PathBuf,
        /// What it is.
        found: &'static str,
    },
    /// A file that a trace would be written over.
    #[error(
        "`{path}` holds something else than a trace, which is not written over; name another file, or remove it first"
    )]
    InTheWay {
        /// The file.
        path: PathBuf,
    },
    /// A trace that somebody else is writing.
    #[error("`{path}` is being written by another run; name another file, or wait for it")]
    Busy {
        /// The file.
        path: PathBuf,
    },
    /// Another kind of file, or a trace of another version.
    #[error("`{path}` is no trace that this program reads ({found}); `ss run --trace-experts FILE` writes one")]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        found: String,
    },
    /// A token that no model can have left.
    #[error("`{path}` is damaged: its token {token} {found}; write it again with `ss run --trace-experts`")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The token, from 0.
        token: u64,
        /// What is wrong with it.
        found: String,
    },
    /// Nothing to replay.
    #[error("`{path}` holds no token of a reply; let `ss run --trace-experts` write a longer one")]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// A trace of version 1, of which lookahead is to be replayed.
    #[error(
        "`{path}` is a trace of version 1, which holds no forecasts, so that lookahead cannot be replayed; write it again \
         with `ss run --trace-experts`"
    )]
    NoForecasts {
        /// The file.
        path: PathBuf,
    },
    /// A token's experts do not fit.
    #[error("a pool of {slots} slots does not hold the {choices} experts of a token's layer; give more with `--slots`")]
    TooFewSlots {
        /// Slots of the pool.
        slots: u32,
        /// Experts a token.
        choices: u32,
    },
    /// The slot table refused.
    #[error(transparent)]
    Stream(#[from] ss_stream::Error),
}

impl Error {
    pub(crate) fn io(path: &Path, action: &'static str, cause: io::Error) -> Self {
        Error::Io { path: path.to_owned(), action, cause }
    }
}
