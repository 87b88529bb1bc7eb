//! Owns: which packs a checkpoint's reads go to, what a pack of it would hold, and where the originals lie.
//! Refuses: a directory whose originals are gone and whose pack cannot be used.
//! Invariants: what is read never depends on whether it comes from a pack; a pack that cannot be used is told.

use std::collections::BTreeSet;

use super::{Checkpoint, OpenOptions};
use crate::config::present;
use crate::error::{Error, Result};
use crate::file::{Access, FileId, FileRange};
use crate::linear::LinearInfo;
use crate::pack::{
    OpenPack, PackFile, PackInfo, PackKind, PackPlan, PackRecord, Reclaimed, RowForm, Section, Source, damaged,
    unusable, without,
};

impl Checkpoint {
    /// The records that a pack of this model holds; None where the model has nothing of the kind (engine.md 5.2).
    pub fn pack_plan(&self, kind: PackKind) -> Option<PackPlan> {
        let sections: Vec<Section> = match kind {
            PackKind::Experts => {
                let section =
                    |(layer, files): (u32, &crate::ExpertFiles)| Section::experts(layer, files.experts, &files.layout);
                (0..).zip(&self.weights.experts).map(section).collect()
            }
            PackKind::Ngram => {
                let section = |(table, store): (u32, &super::NgramStore)| {
                    let rows = store.shards.iter().map(|shard| u64::from(shard.matrix.rows)).sum();
                    Some(Section::rows(table, rows, store.shards.first()?.matrix))
                };
                (0..).zip(&self.ngram).filter_map(section).collect()
            }
        };
        (!sections.is_empty()).then_some(PackPlan { kind, sections })
    }

    /// Where the originals of a pack lie: ascending, neighbours joined.
    pub fn originals(&self, kind: PackKind) -> Vec<FileRange> {
        let mut ranges: Vec<FileRange> = match kind {
            PackKind::Experts => {
                let files = self.weights.experts.iter();
                let of_all = files.flat_map(|files| (0..files.experts).flat_map(|expert| files.originals(expert)));
                of_all.map(|piece| piece.range).collect()
            }
            PackKind::Ngram => self.table_ranges().collect(),
        };
        ranges.sort_unstable_by_key(|range| (range.file, range.offset));
        let mut joined: Vec<FileRange> = Vec::new();
        for range in ranges {
            match joined.last_mut() {
                Some(last) if last.file == range.file && last.offset + last.bytes == range.offset => {
                    last.bytes += range.bytes;
                }
                _ => joined.push(range),
            }
        }
        joined
    }

    /// What the files of a pack's originals are known by now, with a sample of each.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub fn pack_sources(&self, kind: PackKind) -> Result<Vec<Source>> {
        let originals = self.originals(kind);
        let sampled = |ranges: &[FileRange]| {
            let file = self.file(ranges.first().map_or(FileId(0), |range| range.file))?;
            Source::of(file)?.with_sample(file, ranges)
        };
        originals.chunk_by(|a, b| a.file == b.file).map(sampled).collect()
    }

    /// The same without samples, for which next to nothing is read.
    fn source_stamps(&self, kind: PackKind) -> Result<Vec<Source>> {
        // A tensor lies in one file, so that the first expert's pieces name all files.
        let ranges: Vec<FileRange> = match kind {
            PackKind::Experts => self.weights.experts.iter().flat_map(|f| f.originals(0)).map(|p| p.range).collect(),
            PackKind::Ngram => self.table_ranges().collect(),
        };
        let files: BTreeSet<FileId> = ranges.into_iter().map(|range| range.file).collect();
        files.into_iter().map(|id| Source::of(self.file(id)?)).collect()
    }

    /// The packs that reads go to.
    pub fn packs(&self) -> impl Iterator<Item = &PackInfo> {
        self.packs.iter().map(|pack| &pack.info)
    }

    /// Refuses a record that did not come out of its pack as it went in; anything that is not packed passes. Looked at are
    /// all records where that is asked for, else those that nothing else holds, at their first use
    /// ([`OpenOptions::check_records`]).
    ///
    /// # Errors
    /// [`Error::PackedRecord`] or [`Error::OnlyRecord`] with file, layer and expert.
    pub fn check_packed(&self, layer: usize, expert: u32, record: &[u8]) -> Result<()> {
        let Some(pack) = &self.packs.experts else { return Ok(()) };
        match u32::try_from(layer).ok().and_then(|layer| pack.plan.find(layer, expert.into())) {
            Some(place) if self.check_records || pack.is_unproved(&place) => {
                pack.check(self.path_of_pack(pack), &place, record)
            }
            _ => Ok(()),
        }
    }

    /// What is read to get a row of an injection's table: one piece of a pack, else codes, scales and biases, or dense
    /// numbers. The row's own bytes come first, one piece after the other.
    ///
    /// # Errors
    /// [`Error::NoSuch`] for a row or table that does not exist.
    pub fn ngram_pieces(&self, ple_index: usize, row: u64) -> Result<impl Iterator<Item = FileRange> + use<>> {
        let info = self.ngram_row(ple_index, row)?;
        let pieces = match self.packed_row(ple_index, row) {
            Some((pack, form, record)) => {
                [Some(pack.range(&record, row % form.per_record * form.stride, form.stride)), None, None]
            }
            None => [Some(info.codes), info.scales, info.biases],
        };
        Ok(pieces.into_iter().flatten())
    }

    /// Bytes of a row's pieces together: those of the row, or of a packed row with its checksum.
    pub fn ngram_stored_bytes(&self, ple_index: usize) -> Option<u64> {
        let form = RowForm::of(self.ngram_matrix(ple_index)?);
        Some(if self.packs.ngram.is_some() { form.stride } else { form.row_bytes })
    }

    /// Refuses a row that did not come out of its pack as it went in; a row that is not packed passes.
    ///
    /// # Errors
    /// [`Error::PackedRecord`] or [`Error::OnlyRecord`] with file, table and row.
    pub fn check_ngram_row(&self, ple_index: usize, row: u64, stored: &[u8]) -> Result<()> {
        match self.packed_row(ple_index, row) {
            Some((pack, form, record)) if !form.holds(row, pack.is_blank(&record), stored) => {
                let record = format!("row {row} of n-gram table {ple_index}");
                Err(damaged(self.path_of_pack(pack), record, pack.info.reclaimed))
            }
            _ => Ok(()),
        }
    }

    /// Where the originals of up to `most` rows from `first` on lie, as far as they are in one shard.
    ///
    /// # Errors
    /// [`Error::NoSuch`] for a row or table that does not exist.
    pub fn ngram_run(&self, ple_index: usize, first: u64, most: u32) -> Result<LinearInfo> {
        let found = self.ngram.get(ple_index).and_then(|store| {
            let rows = store.shards.first()?.matrix.rows;
            let shard = store.shards.get(usize::try_from(first.checked_div(rows.into())?).ok()?)?;
            let skip = (first % u64::from(rows)) as u32;
            shard.rows(skip, most.min(rows - skip))
        });
        found.ok_or_else(|| Error::no_such(self.dir(), format!("n-gram row {first} in injection {ple_index}")))
    }

    /// Finds the packs and sends reads to them.
    pub(super) fn open_packs(&mut self, options: &OpenOptions) -> Result<()> {
        let reclaimed = Reclaimed::read(self.dir())?;
        for kind in PackKind::ALL {
            let gone = reclaimed.has(kind) || self.pack_says_gone(kind);
            let Some(plan) = self.pack_plan(kind).filter(|_| options.packs || gone) else { continue };
            let opened = self.open_pack(plan, gone);
            let dir = self.catalogue.dir.clone();
            match opened {
                Ok(Some(pack)) => self.read_from(kind, pack),
                Ok(None) => {}
                Err(error) => without(error, &dir, kind, gone, &mut self.catalogue.warnings)?,
            }
            if gone && !options.packs {
                let (dir, what) = (dir.display(), kind.what());
                self.catalogue
                    .warnings
                    .push(format!("{dir}: the {what} are read from their pack, as the originals are gone"));
            }
        }
        if reclaimed.is_empty() { self.refuse_lost_packs() } else { Ok(()) }
    }

    /// Whether a pack says of itself that its originals are gone, whatever the directory says.
    fn pack_says_gone(&self, kind: PackKind) -> bool {
        let path = self.dir().join(kind.file_name());
        let says = |plan| PackFile::open(&path, &plan, Access::Cached).is_ok_and(|pack| pack.header.reclaimed);
        present(&path) && self.pack_plan(kind).is_some_and(says)
    }

    /// Without the file that says what is gone, a pack that is the only copy is reason to take a missing one for the only copy
    /// of its weights too: what is left of those reads as zeros.
    fn refuse_lost_packs(&self) -> Result<()> {
        let Some(only) = self.packs.iter().find(|pack| pack.info.reclaimed) else { return Ok(()) };
        let lost = PackKind::ALL.into_iter().filter(|&kind| self.pack_plan(kind).is_some());
        match lost.map(|kind| self.dir().join(kind.file_name())).find(|path| !present(path)) {
            None => Ok(()),
            Some(path) => Err(unusable(
                &path,
                format!(
                    "is missing, and {} says that weights were removed from the .safetensors files; put it back, or put {} \
                     back if it was never there",
                    only.info.name,
                    Reclaimed::FILE
                ),
            )),
        }
    }

    /// Opens a finished pack of these weights; None where there is none.
    fn open_pack(&mut self, plan: PackPlan, gone: bool) -> Result<Option<OpenPack>> {
        let path = self.dir().join(plan.kind.file_name());
        if !present(&path) {
            return if gone { Err(unusable(&path, "is missing")) } else { Ok(None) };
        }
        let pack = PackFile::open(&path, &plan, Access::Cached)?;
        let stamps = self.source_stamps(plan.kind)?;
        pack.check_files(&stamps)?;
        // A copy of a model has times of its own. What is gone has nothing to be compared with.
        if !gone && pack.is_older(&stamps) {
            pack.check_samples(&self.pack_sources(plan.kind)?)?;
        }
        let (pack, file) = OpenPack::new(pack, plan, gone, FileId(self.catalogue.files.len()))?;
        self.catalogue.files.push(file);
        Ok(Some(pack))
    }

    fn read_from(&mut self, kind: PackKind, pack: OpenPack) {
        match kind {
            PackKind::Experts => {
                for (layer, files) in (0..).zip(&mut self.weights.experts) {
                    if let Some(first) = pack.plan.find(layer, 0) {
                        files.read_packed(pack.range(&first, 0, first.bytes), first.stride);
                    }
                }
                self.packs.experts = Some(pack);
            }
            PackKind::Ngram => self.packs.ngram = Some(pack),
        }
    }

    fn table_ranges(&self) -> impl Iterator<Item = FileRange> + '_ {
        self.ngram.iter().flat_map(|store| &store.shards).flat_map(LinearInfo::ranges)
    }

    fn packed_row(&self, ple_index: usize, row: u64) -> Option<(&OpenPack, RowForm, PackRecord)> {
        let pack = self.packs.ngram.as_ref()?;
        let form = RowForm::of(self.ngram_matrix(ple_index)?);
        let record = pack.plan.find(u32::try_from(ple_index).ok()?, row / form.per_record)?;
        Some((pack, form, record))
    }

    fn path_of_pack(&self, pack: &OpenPack) -> &std::path::Path {
        self.file(pack.file).map_or(self.dir(), |file| file.path())
    }
}
