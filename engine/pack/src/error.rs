//! Owns: why a model cannot be packed, as one sentence for a person.
//! Refuses: nothing; it only words what others refuse.
//! Invariants: a message names the file, what was found, and the next command where there is one.

use std::io;
use std::path::{Path, PathBuf};

/// What this crate returns.
pub type Result<T> = std::result::Result<T, Error>;

/// Why packing, verifying or reclaiming ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The model cannot be read, or a pack is damaged.
    #[error(transparent)]
    Checkpoint(#[from] ss_checkpoint::Error),
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
    /// Too little room to begin with.
    #[error("{path} needs {wanted} bytes, but its disk has {free} free; make room and try again")]
    NoRoom {
        /// The pack.
        path: PathBuf,
        /// Bytes still to be written.
        wanted: u64,
        /// Bytes that are free.
        free: u64,
    },
    /// The room was used up on the way.
    #[error(
        "{path}: the disk is full after {done} of {records} records; make room and run `ss pack {dir}` again, which goes on from there"
    )]
    Full {
        /// The unfinished pack.
        path: PathBuf,
        /// Records that are done.
        done: u64,
        /// All records.
        records: u64,
        /// The model directory.
        dir: PathBuf,
    },
    /// The disk gave back something else than what was written.
    #[error("{path}: the disk did not keep {record}: it gives back other bytes than were written; test this disk")]
    NotKept {
        /// The unfinished pack.
        path: PathBuf,
        /// Which record.
        record: String,
    },
    /// Somebody asked to stop.
    #[error("stopped after {done} of {records} records of {path}")]
    Stopped {
        /// The pack.
        path: PathBuf,
        /// Records that are done.
        done: u64,
        /// All records.
        records: u64,
    },
    /// Another process packs the same directory.
    #[error("{path} is being written by another `ss pack`; wait for it to end")]
    Busy {
        /// The unfinished pack.
        path: PathBuf,
    },
    /// The weights changed while they were packed.
    #[error("{dir}: the weight files changed while they were packed; run `ss pack {dir}` again")]
    Changed {
        /// The model directory.
        dir: PathBuf,
    },
    /// There is no pack.
    #[error("{dir} is not packed; `ss pack {dir}` packs it")]
    NotPacked {
        /// The model directory.
        dir: PathBuf,
    },
    /// Something that is no file has the name of a pack.
    #[error("{path} is {found}, expected a pack; remove it and run `ss pack {dir}` again")]
    NoPack {
        /// What has the name.
        path: PathBuf,
        /// What it is.
        found: &'static str,
        /// The model directory.
        dir: PathBuf,
    },
    /// A whole record that is not the original's.
    #[error(
        "{path}: {record} is not what the weight files hold now; if these are as they should be, run `ss pack --repair {dir}`, which packs it again"
    )]
    Differs {
        /// The pack.
        path: PathBuf,
        /// Which record.
        record: String,
        /// The model directory.
        dir: PathBuf,
    },
    /// Space cannot be given back here.
    #[error("{dir}: space inside files cannot be given back here ({cause}); the weight files were left as they are")]
    NoHoles {
        /// The model directory.
        dir: PathBuf,
        /// The system's own words.
        cause: io::Error,
    },
    /// The originals have another name.
    #[error(
        "{path} is a link, or has another name somewhere; what reads it there would lose its weights, so that nothing was given back: copy the file and try again"
    )]
    Linked {
        /// The weight file.
        path: PathBuf,
    },
    /// A header that does not fit.
    #[error("{path}: the header of a pack of so many files has no room; join some of the weight files")]
    Header {
        /// The pack.
        path: PathBuf,
    },
    /// The system gives no more threads.
    #[error("cannot start {threads} threads to pack with: {cause}")]
    Threads {
        /// Threads asked for.
        threads: usize,
        /// What the system said.
        cause: String,
    },
}

impl Error {
    pub(crate) fn io(path: &Path, action: &'static str, cause: io::Error) -> Self {
        Error::Io { path: path.to_owned(), action, cause }
    }
}
