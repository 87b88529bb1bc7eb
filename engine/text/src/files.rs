//! Owns: reading the small files beside a model: tokenizer, template, their configuration.
//! Refuses: what is no regular file, what is larger than it may be, links that lead nowhere.
//! Invariants: never more than the limit is read, whatever the file says of its size.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

use crate::error::TextError;

/// The file's bytes, or nothing when there is no such file.
pub(crate) fn read(path: &Path, most: u64) -> Result<Option<Vec<u8>>, TextError> {
    let unreadable = |reason: String| TextError::Unreadable { path: path.to_owned(), reason };
    // The link itself first: one that leads nowhere is a file that is missing from a download, not one left out.
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        other => other.map_err(|error| unreadable(error.to_string()))?,
    };
    let meta = std::fs::metadata(path).map_err(|error| unreadable(error.to_string()))?;
    // Looked at before it is opened: opening a pipe waits for a writer.
    if !meta.is_file() {
        return Err(unreadable("it must be a regular file".to_owned()));
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|error| unreadable(error.to_string()))?;
    file.take(most.saturating_add(1)).read_to_end(&mut bytes).map_err(|error| unreadable(error.to_string()))?;
    if bytes.len() as u64 > most {
        let found = meta.len().max(bytes.len() as u64);
        return Err(unreadable(format!("it has {found} bytes, at most {most} are expected")));
    }
    Ok(Some(bytes))
}
