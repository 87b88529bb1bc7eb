//! Owns: every way in which a model directory can be wrong, as one sentence for a person.
//! Refuses: nothing; it only words what others refuse.
//! Invariants: a message names the file, then the tensor or field, what was expected and what was found; text taken from a
//! file is shortened and escaped, so that a hostile name cannot break the line or the terminal.

use std::io;
use std::path::{Path, PathBuf};

/// What this crate returns.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a model directory cannot be used, or a read failed.
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
    /// A folder, a device or a pipe where a file must be.
    #[error("{path} is {found}, expected a file")]
    NotAFile {
        /// The path.
        path: PathBuf,
        /// What it is.
        found: &'static str,
    },
    /// A file where the model directory must be.
    #[error("{path} is not a directory, expected the folder that holds config.json and the .safetensors files")]
    NotADirectory {
        /// The path.
        path: PathBuf,
    },
    /// A file that must be there is not.
    #[error("{path} is missing: {needed}")]
    Missing {
        /// Where it was looked for.
        path: PathBuf,
        /// What it is for and what to do.
        needed: &'static str,
    },
    /// A JSON file larger than any honest one.
    #[error("{path} has {bytes} bytes, expected at most {limit}")]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its size.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// Not JSON.
    #[error("{path} is not valid JSON: {cause}")]
    Json {
        /// The file.
        path: PathBuf,
        /// What the parser said, with line and column.
        cause: String,
    },
    /// A field of a JSON file has a value that cannot be used.
    #[error("{path}: {field} must be {expected}, found {found}")]
    Field {
        /// The file.
        path: PathBuf,
        /// The field with its parents, e.g. `text_config.hidden_size`.
        field: String,
        /// What is supported.
        expected: String,
        /// What is there.
        found: String,
    },
    /// Another architecture's configuration.
    #[error(
        "{path}: model_type is {found}, expected \"qwen4_exp\": this program runs Qwen3.8-Flash-Next checkpoints only"
    )]
    WrongModel {
        /// The configuration.
        path: PathBuf,
        /// Its model type.
        found: String,
    },
    /// A safetensors file whose header is not one.
    #[error("{path}: the safetensors header {problem}")]
    Header {
        /// The file.
        path: PathBuf,
        /// What is wrong, continuing the sentence.
        problem: String,
    },
    /// A tensor that is not what the configuration says.
    #[error("{path}: tensor {tensor} must have {expected}, found {found}")]
    Tensor {
        /// The file that holds it.
        path: PathBuf,
        /// Its name in the file.
        tensor: String,
        /// Type, shape or value that was expected.
        expected: String,
        /// What was found.
        found: String,
    },
    /// A tensor that no file holds.
    #[error("{path}: tensor {tensor} is missing, expected {expected}")]
    Absent {
        /// The model directory, or the file that should hold the tensor.
        path: PathBuf,
        /// The tensor's name.
        tensor: String,
        /// Type and shape, or why it must exist.
        expected: String,
    },
    /// The file ended, or shrank, before the bytes that its header promises.
    #[error(
        "{path}: the file ends early: expected {wanted} bytes at offset {offset}, found {found} (truncated, or still being copied)"
    )]
    Short {
        /// The file.
        path: PathBuf,
        /// First byte wanted.
        offset: u64,
        /// Bytes wanted.
        wanted: u64,
        /// Bytes that are there.
        found: u64,
    },
    /// A NaN or an infinity among the weights.
    #[error("{path}: tensor {tensor} must have finite values, found {found} at {place}: the file is damaged")]
    NotFinite {
        /// The file.
        path: PathBuf,
        /// The tensor's name in the file.
        tensor: String,
        /// Where in the tensor.
        place: String,
        /// NaN or an infinity.
        found: &'static str,
    },
    /// A pack that cannot be used.
    #[error("{path} {problem}; pack the model again with `ss pack`")]
    Pack {
        /// The pack.
        path: PathBuf,
        /// What is wrong, continuing the sentence.
        problem: String,
    },
    /// A pack that cannot be used, where nothing else holds the weights.
    #[error(
        "{path} {problem}, and nothing else holds the {what} of this model since `ss pack --reclaim` gave the space of the originals back; fetch the model again"
    )]
    OnlyPack {
        /// The pack.
        path: PathBuf,
        /// What is wrong, continuing the sentence.
        problem: String,
        /// What it holds.
        what: &'static str,
    },
    /// A packed record whose checksum does not match.
    #[error(
        "{path}: {record} is not what was packed: the file is damaged; run `ss pack --repair {dir}`, which packs it again"
    )]
    PackedRecord {
        /// The pack.
        path: PathBuf,
        /// Which record or row.
        record: String,
        /// The model directory.
        dir: PathBuf,
    },
    /// A packed record whose checksum does not match, where nothing else holds it.
    #[error(
        "{path}: {record} is not what was packed: the file is damaged, and nothing else holds it since `ss pack --reclaim` gave the space of the originals back; fetch the model again"
    )]
    OnlyRecord {
        /// The pack.
        path: PathBuf,
        /// Which record or row.
        record: String,
    },
    /// An n-gram table of zeros.
    #[error(
        "{path}: tensor {tensor} holds nothing but zeros, as where `ss pack --reclaim` has given its space back; put ngram.pack and reclaimed.json back beside it, or fetch the model again"
    )]
    Blank {
        /// The file.
        path: PathBuf,
        /// The tensor's name in the file.
        tensor: String,
    },
    /// The caller's memory has another size than what it asked for.
    #[error("{path}: a read of {wanted} bytes was given room for {room}")]
    Room {
        /// The file or model directory.
        path: PathBuf,
        /// Bytes to be read.
        wanted: u64,
        /// Bytes of the buffer.
        room: u64,
    },
    /// A second copy of a model that is none.
    #[error("{copy} is not a copy of {dir}: {difference}; copy {dir} again, or leave `--mirror` out")]
    NotACopy {
        /// The directory that should be a copy.
        copy: PathBuf,
        /// The model directory.
        dir: PathBuf,
        /// What differs, as a clause.
        difference: String,
    },
    /// A second copy that is packed where the first is not, or the other way round.
    #[error("only {with} is read from its {pack}, {without} is not; run `ss pack {without}`, or leave `--mirror` out")]
    UnlikePacks {
        /// The pack's name.
        pack: &'static str,
        /// The directory that has it.
        with: PathBuf,
        /// The directory that lacks it, or whose pack cannot be used.
        without: PathBuf,
    },
    /// Asked for something that this checkpoint does not have.
    #[error("{path}: there is no {what} in this model")]
    NoSuch {
        /// The model directory.
        path: PathBuf,
        /// What was asked for.
        what: String,
    },
}

impl Error {
    pub(crate) fn io(path: &Path, action: &'static str, cause: io::Error) -> Self {
        Error::Io { path: path.to_owned(), action, cause }
    }

    pub(crate) fn header(path: &Path, problem: impl Into<String>) -> Self {
        Error::Header { path: path.to_owned(), problem: problem.into() }
    }

    pub(crate) fn no_such(path: &Path, what: impl Into<String>) -> Self {
        Error::NoSuch { path: path.to_owned(), what: what.into() }
    }
}

/// Longest piece of a file's own text that a message repeats, in characters.
const SHOWN: usize = 160;

/// Text from a file, fit for a message: what is not printable is escaped, long text is cut.
pub(crate) fn shown(text: &str) -> String {
    let mut out = String::new();
    for char in text.chars().take(SHOWN) {
        match char {
            '"' | '\'' | '\\' => out.push(char),
            other => out.extend(other.escape_debug()),
        }
    }
    if text.chars().nth(SHOWN).is_some() {
        out.push_str("...");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::shown;

    #[test]
    fn hostile_names_cannot_leave_the_line() {
        assert_eq!(shown("a \"b\" c"), "a \"b\" c");
        assert_eq!(shown("\n\u{1b}[2J\u{202e}"), "\\n\\u{1b}[2J\\u{202e}");
        assert_eq!(shown(&"x".repeat(1000)).len(), 163);
    }
}
