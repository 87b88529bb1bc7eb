//! Owns: whether two model directories hold the same bytes in the same places, so that a read may go to either.
//! Refuses: by name what differs: a file, its size, a header, a sample of the weights.
//! Invariants: what passes has the same [`FileRange`](crate::FileRange)s; weights are compared by samples only.

use std::path::Path;

use crate::checkpoint::Checkpoint;
use crate::error::{Error, Result, shown};
use crate::file::PositionedFile;

/// Places of a file that are compared.
const SAMPLES: u64 = 16;
/// Bytes compared at each place.
const SAMPLE_BYTES: u64 = 4096;

impl Checkpoint {
    /// Refuses a directory that is no copy of this one. Reads samples of every file, 64 kB each.
    ///
    /// # Errors
    /// [`Error::NotACopy`] with the first difference; [`Error::Io`] where a file cannot be read.
    pub fn check_copy(&self, copy: &Checkpoint) -> Result<()> {
        let differs = |difference: String| Error::NotACopy {
            copy: copy.dir().to_owned(),
            dir: self.dir().to_owned(),
            difference,
        };
        if same_place(self.dir(), copy.dir()) {
            return Err(differs("both are one directory".into()));
        }
        if self.config() != copy.config() {
            return Err(differs("config.json says something else".into()));
        }
        let (own, others) = (self.files(), copy.files());
        for (own, other) in own.iter().zip(others) {
            compare_sizes(own, other).map_err(differs)?;
        }
        // Files are listed in the order of their names, those of a pack last.
        let longer = if own.len() > others.len() { own } else { others };
        if let Some(extra) = longer.get(own.len().min(others.len())) {
            return Err(differs(format!("only one of them reads {}", name(extra))));
        }
        if let Some(tensor) = self.tensors().zip(copy.tensors()).find(|(own, other)| own != other) {
            return Err(differs(format!("the headers differ at tensor {}", shown(&tensor.0.1.stored))));
        }
        if self.tensors().count() != copy.tensors().count() {
            return Err(differs("the headers list other tensors".into()));
        }
        for (own, other) in own.iter().zip(others) {
            if let Some(offset) = first_other_sample(own, other)? {
                return Err(differs(format!("{} holds other bytes from byte {offset} on", name(own))));
            }
        }
        Ok(())
    }
}

fn compare_sizes(own: &PositionedFile, other: &PositionedFile) -> std::result::Result<(), String> {
    if name(own) != name(other) {
        return Err(format!("{} is read there where {} is read here", name(other), name(own)));
    }
    if own.len() != other.len() {
        return Err(format!("{} has {} bytes there and {} here", name(own), other.len(), own.len()));
    }
    Ok(())
}

/// Where the first sample lies that differs between files of one length.
fn first_other_sample(own: &PositionedFile, other: &PositionedFile) -> Result<Option<u64>> {
    let bytes = own.len().min(SAMPLE_BYTES);
    let (mut here, mut there) = (vec![0; bytes as usize], vec![0; bytes as usize]);
    for sample in 0..SAMPLES {
        let offset = (own.len() - bytes).saturating_mul(sample) / (SAMPLES - 1);
        own.read_at(offset, &mut here)?;
        other.read_at(offset, &mut there)?;
        if here != there {
            return Ok(Some(offset));
        }
    }
    Ok(None)
}

fn name(file: &PositionedFile) -> String {
    file.path().file_name().map_or_else(String::new, |name| shown(&name.to_string_lossy()))
}

fn same_place(one: &Path, other: &Path) -> bool {
    matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other)
}
