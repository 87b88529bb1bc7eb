//! Owns: what a weight file is known by, to tell whether a pack was made from it.
//! Refuses: to read weights: length, header and time of the last change have to do.
//! Invariants: two files with the same header hold the same tensors at the same places.

use std::path::Path;
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};

use super::checksum;
use crate::error::{Error, Result};
use crate::file::PositionedFile;
use crate::header::header_bytes;

/// A weight file that records were packed from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// Its name in the model directory.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// Checksum of its safetensors header.
    pub header: u64,
    /// When it was last changed, in nanoseconds since 1970.
    pub modified: u64,
}

impl Source {
    /// What a file is known by now.
    pub fn of(file: &PositionedFile) -> Result<Source> {
        let path = file.path();
        let modified = std::fs::metadata(path).and_then(|metadata| metadata.modified());
        let modified = modified.map_err(|cause| Error::io(path, "look at the age of the file", cause))?;
        let since = modified.duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(Source {
            name: name(path),
            bytes: file.len(),
            header: checksum(0, &header_bytes(file)?),
            modified: u64::try_from(since.as_nanos()).unwrap_or(u64::MAX),
        })
    }

    /// Whether it is another file: tensors elsewhere, or of another length.
    pub fn differs(&self, now: &Source) -> bool {
        (&self.name, self.bytes, self.header) != (&now.name, now.bytes, now.header)
    }

    /// Whether it was written since, whatever to.
    pub fn was_touched(&self, now: &Source) -> bool {
        self.modified != now.modified
    }
}

fn name(path: &Path) -> String {
    path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}
