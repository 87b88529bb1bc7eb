//! Owns: whether two model directories hold the same bytes in the same places, so that a read may go to either.
//! Refuses: by name what differs: a file, its size, a header, a sample of the weights.
//! Invariants: what passes has the same [`FileRange`](crate::FileRange)s; weights are compared by samples only.

use std::path::Path;

use crate::checkpoint::Checkpoint;
use crate::error::{Error, Result, shown};
use crate::file::PositionedFile;
use crate::pack::PackKind;
use crate::sample::blocks;

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
        self.check_packs_alike(copy)?;
        let (own, others) = (self.files(), copy.files());
        for (own, other) in own.iter().zip(others) {
            compare_sizes(own, other).map_err(differs)?;
        }
        // Files are listed in the order of their names.
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

    /// Refuses a copy where only one of the two is read from a pack: their records lie in other places.
    fn check_packs_alike(&self, copy: &Checkpoint) -> Result<()> {
        for kind in PackKind::ALL {
            let reads = |checkpoint: &Checkpoint| checkpoint.packs().any(|pack| pack.name == kind.file_name());
            let (with, without) = match (reads(self), reads(copy)) {
                (true, false) => (self, copy),
                (false, true) => (copy, self),
                _ => continue,
            };
            let (pack, with, without) = (kind.file_name(), with.dir().to_owned(), without.dir().to_owned());
            return Err(Error::UnlikePacks { pack, with, without });
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
    let (mut here, mut there) = (Vec::new(), Vec::new());
    for (offset, bytes) in blocks(0, own.len()) {
        here.resize(bytes, 0);
        there.resize(bytes, 0);
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
