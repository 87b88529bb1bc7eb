//! Owns: what a weight file is known by, to tell whether a pack was made from it.
//! Refuses: to read all weights: length, header and either the time of the last change or a sample have to do.
//! Invariants: two files with the same header hold the same tensors at the same places; a copy of a file, which has a time
//! of its own, has the same sample.

use std::path::Path;
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};

use super::checksum;
use crate::error::{Error, Result};
use crate::file::{FileRange, PositionedFile};
use crate::header::header_bytes;
use crate::sample::blocks;

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
    /// Checksum of a sample of what was packed of it; None where nobody needed it.
    pub sample: Option<u64>,
}

impl Source {
    /// What a file is known by now, but for the sample.
    pub(crate) fn of(file: &PositionedFile) -> Result<Source> {
        let path = file.path();
        let modified = std::fs::metadata(path).and_then(|metadata| metadata.modified());
        let modified = modified.map_err(|cause| Error::io(path, "look at the age of the file", cause))?;
        let since = modified.duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(Source {
            name: name(path),
            bytes: file.len(),
            header: checksum(0, &header_bytes(file)?),
            modified: u64::try_from(since.as_nanos()).unwrap_or(u64::MAX),
            sample: None,
        })
    }

    /// The same with a sample of these ranges of the file.
    pub(crate) fn with_sample(self, file: &PositionedFile, ranges: &[FileRange]) -> Result<Source> {
        let (mut sum, mut block) = (0, Vec::new());
        for (offset, bytes) in ranges.iter().flat_map(|range| blocks(range.offset, range.bytes)) {
            block.resize(bytes, 0);
            file.read_at(offset, &mut block)?;
            sum = checksum(sum, &block);
        }
        Ok(Source { sample: Some(sum), ..self })
    }

    /// Whether it is another file: tensors elsewhere, or of another length.
    pub fn differs(&self, now: &Source) -> bool {
        (&self.name, self.bytes, self.header) != (&now.name, now.bytes, now.header)
    }

    /// Whether it was written or copied since, whatever it holds.
    pub fn was_touched(&self, now: &Source) -> bool {
        self.modified != now.modified
    }

    /// Whether it is known to hold the same, by the sample.
    pub fn holds_the_same(&self, now: &Source) -> bool {
        self.sample.is_some() && self.sample == now.sample
    }
}

fn name(path: &Path) -> String {
    path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}
