//! Owns: a pack on the disk, opened and held against what the model's files ask for.
//! Refuses: packs of other models, of files that hold something else, and packs that are not whole.
//! Invariants: a [`PackFile`] has the plan's records and its length; nothing of it is trusted before its checksum matched.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

use super::{Frame, PackHeader, PackKind, PackPlan, PackRecord, Source, checksum, unusable};
use crate::error::{Error, Result};
use crate::file::{Access, FileId, FileRange, PositionedFile};

/// A pack that has the form of a model's pack, finished or not.
#[derive(Debug)]
pub struct PackFile {
    /// The file.
    pub file: PositionedFile,
    /// Where its parts lie.
    pub frame: Frame,
    /// What it says about itself.
    pub header: PackHeader,
    /// How often the header was written.
    pub generation: u64,
}

impl PackFile {
    /// Opens a file that should hold the records of a plan.
    ///
    /// # Errors
    /// [`Error::Pack`] with what is wrong with it; [`Error::Io`] where it cannot be read.
    pub fn open(path: &Path, plan: &PackPlan, access: Access) -> Result<PackFile> {
        let file = PositionedFile::open(path, access)?;
        let frame = Frame::read(&file, plan.records())?;
        let (expected, found) = (frame.data_at() + plan.bytes(), file.len());
        let length =
            || unusable(path, format!("has {found} bytes, expected {expected} (truncated, or still being copied)"));
        if found < frame.entry_at(0) {
            return Err(length());
        }
        let (header, generation) = PackHeader::read(&file, &frame)?;
        if header.kind != plan.kind || header.sections != plan.sections {
            return Err(unusable(path, "belongs to another model: its records have other shapes"));
        }
        if expected != found {
            return Err(length());
        }
        Ok(PackFile { file, frame, header, generation })
    }

    /// The checksums of its records, if it is finished.
    ///
    /// # Errors
    /// [`Error::Pack`] where it is not finished, or its table is damaged.
    pub fn table(&self) -> Result<Vec<u64>> {
        let Some(content) = self.header.content else {
            return Err(unusable(self.file.path(), "is not finished"));
        };
        let table = self.frame.table(&self.file)?;
        if Frame::content(&table) != content {
            return Err(unusable(self.file.path(), "has a damaged table of checksums"));
        }
        Ok(table)
    }

    /// Refuses a pack that was made from other files than these: of other lengths, or with other tensors.
    ///
    /// # Errors
    /// [`Error::Pack`] with the file.
    pub fn check_files(&self, now: &[Source]) -> Result<()> {
        let packed = &self.header.sources;
        let other = now.iter().zip(packed).find(|(now, packed)| packed.differs(now));
        let name = match other {
            Some((now, _)) => Some(&now.name),
            None if now.len() != packed.len() => now.iter().chain(packed).last().map(|source| &source.name),
            None => None,
        };
        match name {
            Some(name) => {
                Err(unusable(self.file.path(), format!("was made from another {name} than the one beside it")))
            }
            None => Ok(()),
        }
    }

    /// Whether one of these files was written or copied since, whatever it holds.
    pub fn is_older(&self, now: &[Source]) -> bool {
        now.iter().zip(&self.header.sources).any(|(now, packed)| packed.was_touched(now))
    }

    /// Refuses a pack that was made from other weights than these files hold, by their samples.
    ///
    /// # Errors
    /// [`Error::Pack`] with the file.
    pub fn check_samples(&self, now: &[Source]) -> Result<()> {
        match now.iter().zip(&self.header.sources).find(|(now, packed)| !packed.holds_the_same(now)) {
            Some((now, _)) => {
                Err(unusable(self.file.path(), format!("was made from other weights than {} holds now", now.name)))
            }
            None => Ok(()),
        }
    }
}

/// What there is to say about a pack that is read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PackInfo {
    /// File name.
    pub name: &'static str,
    /// Its length.
    pub bytes: u64,
    /// Records.
    pub records: u64,
    /// Whether the originals are gone.
    pub reclaimed: bool,
}

/// A pack that reads go to.
#[derive(Debug)]
pub(crate) struct OpenPack {
    pub file: FileId,
    pub plan: PackPlan,
    pub info: PackInfo,
    data_at: u64,
    table: Vec<u64>,
    /// A bit for each record that matched its checksum since the pack was opened.
    proved: Vec<AtomicU64>,
}

/// The packs that reads go to.
#[derive(Debug, Default)]
pub(crate) struct Packs {
    pub experts: Option<OpenPack>,
    pub ngram: Option<OpenPack>,
}

impl Packs {
    pub fn iter(&self) -> impl Iterator<Item = &OpenPack> {
        self.experts.iter().chain(&self.ngram)
    }
}

impl OpenPack {
    /// Takes a pack that belongs to the model as file number `id`; `gone` says whether it alone holds its weights.
    pub fn new(pack: PackFile, plan: PackPlan, gone: bool, id: FileId) -> Result<(OpenPack, PositionedFile)> {
        let table = pack.table()?;
        let PackFile { file, frame, .. } = pack;
        let info =
            PackInfo { name: plan.kind.file_name(), bytes: file.len(), records: plan.records(), reclaimed: gone };
        let proved = table.chunks(u64::BITS as usize).map(|_| AtomicU64::new(0)).collect();
        Ok((OpenPack { file: id, plan, info, data_at: frame.data_at(), table, proved }, file))
    }

    /// `bytes` bytes from `skip` on of a record.
    pub fn range(&self, record: &PackRecord, skip: u64, bytes: u64) -> FileRange {
        FileRange { file: self.file, offset: self.data_at + record.offset + skip, bytes }
    }

    /// Whether a record was never written, as its originals are zeros.
    pub fn is_blank(&self, record: &PackRecord) -> bool {
        self.sum(record) == Some(0)
    }

    /// Refuses bytes that are not those of a record.
    pub fn check(&self, path: &Path, record: &PackRecord, bytes: &[u8]) -> Result<()> {
        let packed = bytes.get(..record.bytes as usize).map(|bytes| checksum(record.number, bytes));
        if packed.is_some() && packed == self.sum(record) {
            let (word, bit) = self.proof(record);
            word.map(|word| word.fetch_or(bit, Ordering::Relaxed));
            Ok(())
        } else {
            Err(damaged(path, self.plan.name(record), self.info.reclaimed))
        }
    }

    /// Whether a record that nothing else holds has not matched its checksum yet.
    pub fn is_unproved(&self, record: &PackRecord) -> bool {
        let (word, bit) = self.proof(record);
        self.info.reclaimed && word.is_none_or(|word| word.load(Ordering::Relaxed) & bit == 0)
    }

    /// The word of a record's bit, and the bit in it.
    fn proof(&self, record: &PackRecord) -> (Option<&AtomicU64>, u64) {
        let bits = u64::from(u64::BITS);
        let word = usize::try_from(record.number / bits).ok().and_then(|word| self.proved.get(word));
        (word, 1 << (record.number % bits))
    }

    fn sum(&self, record: &PackRecord) -> Option<u64> {
        self.table.get(usize::try_from(record.number).ok()?).copied()
    }
}

/// The error for a record or row of a pack that is not what was packed; `gone` says whether nothing else holds it.
pub fn damaged(path: &Path, record: String, gone: bool) -> Error {
    let (path, dir) = (path.to_owned(), path.parent().unwrap_or(path).to_owned());
    if gone { Error::OnlyRecord { path, record } } else { Error::PackedRecord { path, record, dir } }
}

/// What to do about a pack that cannot be used: its originals are read, or there is nothing to read.
pub(crate) fn without(error: Error, dir: &Path, kind: PackKind, gone: bool, warnings: &mut Vec<String>) -> Result<()> {
    let dir = dir.display();
    let (problem, then) = match error {
        Error::Pack { path, problem } if gone => return Err(Error::OnlyPack { path, problem, what: kind.what() }),
        error if gone => return Err(error),
        Error::Pack { path, problem } => {
            (format!("{} {problem}", path.display()), format!("until `ss pack {dir}` packs them again"))
        }
        Error::NotAFile { path, found } => (
            format!("{} is {found}, expected a file", path.display()),
            format!("until you remove it and `ss pack {dir}` packs them"),
        ),
        // Nothing is known of what the file holds.
        error => (error.to_string(), "as long as it cannot be read".into()),
    };
    warnings.push(format!("{problem}; the original weights are read, {then}"));
    Ok(())
}
