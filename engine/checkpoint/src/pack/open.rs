//! Owns: a pack on the disk, opened and held against what the model's files ask for.
//! Refuses: packs of other models, of files that have changed, and packs that are not whole.
//! Invariants: a [`PackFile`] has the plan's records and its length; nothing of it is trusted before its checksum matched.

use std::path::Path;

use serde::Serialize;

use super::{Frame, PackHeader, PackKind, PackPlan, PackRecord, Source, checksum, unusable};
use crate::config::present;
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

    /// Refuses a pack that was made from other files than these. A file that was written since counts as another, unless
    /// the originals are `gone`.
    ///
    /// # Errors
    /// [`Error::Pack`] with the file.
    pub fn check_sources(&self, now: &[Source], gone: bool) -> Result<()> {
        let packed = &self.header.sources;
        let other = now.iter().zip(packed).find(|(now, packed)| packed.differs(now));
        let name = match other {
            Some((now, _)) => Some(&now.name),
            None if now.len() != packed.len() => now.iter().chain(packed).last().map(|source| &source.name),
            None => None,
        };
        if let Some(name) = name {
            return Err(unusable(self.file.path(), format!("was made from another {name} than the one beside it")));
        }
        match now.iter().zip(packed).find(|(now, packed)| !gone && packed.was_touched(now)) {
            Some((now, _)) => Err(unusable(self.file.path(), format!("is older than the last change of {}", now.name))),
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
    /// Opens a finished pack of these sources, which will be file number `id`. None where there is none.
    pub fn open(
        dir: &Path,
        plan: PackPlan,
        sources: &[Source],
        gone: bool,
        id: FileId,
    ) -> Result<Option<(OpenPack, PositionedFile)>> {
        let path = dir.join(plan.kind.file_name());
        if !present(&path) {
            return if gone { Err(unusable(&path, "is missing")) } else { Ok(None) };
        }
        let pack = PackFile::open(&path, &plan, Access::Cached)?;
        let gone = gone || pack.header.reclaimed;
        pack.check_sources(sources, gone)?;
        let table = pack.table()?;
        let PackFile { file, frame, .. } = pack;
        let info =
            PackInfo { name: plan.kind.file_name(), bytes: file.len(), records: plan.records(), reclaimed: gone };
        Ok(Some((OpenPack { file: id, plan, info, data_at: frame.data_at(), table }, file)))
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
            Ok(())
        } else {
            Err(self.damaged(path, self.plan.name(record)))
        }
    }

    /// The error for a record or row that is not what was packed.
    pub fn damaged(&self, path: &Path, record: String) -> Error {
        Error::PackedRecord { path: path.to_owned(), record }
    }

    fn sum(&self, record: &PackRecord) -> Option<u64> {
        self.table.get(usize::try_from(record.number).ok()?).copied()
    }
}

/// What to do about a pack that cannot be used: its originals are read, or there is nothing to read.
pub(crate) fn without(error: Error, dir: &Path, kind: PackKind, gone: bool, warnings: &mut Vec<String>) -> Result<()> {
    let problem = match error {
        Error::Pack { path, problem } if gone => return Err(Error::OnlyPack { path, problem, what: kind.what() }),
        error if gone => return Err(error),
        Error::Pack { path, problem } => format!("{} {problem}", path.display()),
        error => error.to_string(),
    };
    let dir = dir.display();
    warnings.push(format!("{problem}; the original weights are read, until `ss pack {dir}` packs them again"));
    Ok(())
}
