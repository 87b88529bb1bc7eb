//! Owns: the small file that says which weights are left in a pack only.
//! Refuses: a file that says something it does not know.
//! Invariants: it is on the disk before the first byte of an original is given back.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::PackKind;
use crate::config::{present, read_small};
use crate::error::{Error, Result};

/// Which packs hold weights whose originals are gone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reclaimed {
    /// For whoever opens the file.
    about: String,
    /// Those packs.
    packs: Vec<PackKind>,
}

impl Reclaimed {
    /// The file's name in the model directory.
    pub const FILE: &str = "reclaimed.json";

    /// What the file of a directory says; nothing is gone where there is none.
    pub fn read(dir: &Path) -> Result<Reclaimed> {
        let path = Self::path(dir);
        if !present(&path) {
            return Ok(Reclaimed::default());
        }
        serde_json::from_slice(&read_small(&path)?)
            .map_err(|cause| Error::Json { path: path.clone(), cause: cause.to_string() })
    }

    /// Where it lies.
    pub fn path(dir: &Path) -> PathBuf {
        dir.join(Self::FILE)
    }

    /// Whether the originals of a pack are gone.
    pub fn has(&self, kind: PackKind) -> bool {
        self.packs.contains(&kind)
    }

    /// Whether nothing is known to be gone.
    pub fn is_empty(&self) -> bool {
        self.packs.is_empty()
    }

    /// The same with one more pack.
    #[must_use]
    pub fn with(mut self, kind: PackKind) -> Reclaimed {
        "the weights of these packs were removed from the .safetensors files; keep the packs"
            .clone_into(&mut self.about);
        self.packs.retain(|&other| other != kind);
        self.packs.push(kind);
        self
    }
}
