//! Owns: writing packs, record by record, and going on with one that was left unfinished.
//! Refuses: to begin without room, and to finish where the weights have changed meanwhile.
//! Invariants: a header counts records only after they and their checksums were written, synced and read back; the
//! pack gets its name after the last of them.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;

use rayon::ThreadPool;
use rayon::prelude::*;
use ss_checkpoint::{Access, Checkpoint, Frame, PackFile, PackHeader, PackKind, PackPlan, Source, checksum};

use crate::batch::{Unit, batch};
use crate::disk::allocated;
use crate::fill::fill;
use crate::job::Meter;
use crate::verify::Check;
use crate::{Error, Job, Packed, Result, Watch};

/// Packs a model: writes what is missing, goes on with what is unfinished, leaves alone what is whole.
///
/// # Errors
/// [`Error::NoRoom`] before anything is written, [`Error::Full`] where the room is used up, [`Error::Stopped`]; what is
/// done by then is kept, and the originals are never touched.
pub fn pack(job: &Job<'_>, watch: Watch<'_>) -> Result<Vec<Packed>> {
    let checkpoint = job.originals()?;
    let plans = job.plans(&checkpoint);
    plans.iter().try_for_each(|plan| job.refuse_others(plan.kind))?;
    let threads = job.threads()?;
    let mut meter = Meter::new(watch, &plans);
    let mut packed = Vec::new();
    for plan in &plans {
        let writer = Writer { job, checkpoint: &checkpoint, plan, threads: &threads };
        packed.push(writer.pack(&mut meter)?);
    }
    Ok(packed)
}

struct Writer<'a> {
    job: &'a Job<'a>,
    checkpoint: &'a Checkpoint,
    plan: &'a PackPlan,
    threads: &'a ThreadPool,
}

/// A pack that is not finished.
struct Part {
    pack: PackFile,
    /// The same file, to be written; it holds the lock.
    file: File,
}

impl Writer<'_> {
    fn pack(&self, meter: &mut Meter<'_>) -> Result<Packed> {
        // The original of a pack that alone holds its weights is gone, and opening has found it whole.
        let alone = self.checkpoint.packs().any(|pack| pack.name == self.plan.kind.file_name());
        if alone || self.is_current()? {
            meter.advance(self.plan.bytes());
            return self.packed(0);
        }
        if self.take_over(meter)? {
            return self.packed(0);
        }
        if self.plan.kind == PackKind::Ngram {
            (0..self.plan.sections.len()).try_for_each(|table| self.checkpoint.check_ngram_filled(table))?;
        }
        let mut part = self.part()?;
        let begun = part.pack.header.done;
        if begun == 0 {
            self.check_room()?;
        }
        meter.advance(self.plan.record(begun).map_or(self.plan.bytes(), |record| record.offset));
        while part.pack.header.done < self.plan.records() {
            let (done, records) = (part.pack.header.done, self.plan.records());
            if meter.is_stopped() {
                return Err(Error::Stopped { path: self.job.path(self.plan.kind), done, records });
            }
            let units = batch(self.plan, done, self.job.batch_bytes);
            self.write(&mut part, &units)?;
            meter.advance(units.iter().map(|unit| unit.bytes() as u64).sum());
        }
        self.finish(part)?;
        self.packed(self.plan.records() - begun)
    }

    fn packed(&self, written: u64) -> Result<Packed> {
        let path = self.job.path(self.plan.kind);
        let bytes = std::fs::metadata(&path).map_err(|cause| Error::io(&path, "open", cause))?.len();
        Ok(Packed { kind: self.plan.kind, path, bytes, records: self.plan.records(), written })
    }

    fn sources(&self) -> Result<Vec<Source>> {
        Ok(self.checkpoint.pack_sources(self.plan.kind)?)
    }

    /// The pack that has its name; None where it is missing, or nothing that could be read.
    fn finished(&self) -> Result<Option<PackFile>> {
        let path = self.job.path(self.plan.kind);
        if !path.exists() {
            return Ok(None);
        }
        let opened = PackFile::open(&path, self.plan, Access::Direct).and_then(|pack| pack.table().map(|_| pack));
        match opened {
            Ok(pack) => Ok(Some(pack)),
            Err(ss_checkpoint::Error::Pack { .. }) => Ok(None),
            // What cannot be looked at is not thrown away.
            Err(error) => Err(error.into()),
        }
    }

    /// Whether the pack is there, whole, and made from these files, which nobody touched since.
    fn is_current(&self) -> Result<bool> {
        let (pack, sources) = (self.finished()?, self.sources()?);
        Ok(pack.is_some_and(|pack| pack.check_files(&sources).is_ok() && !pack.is_older(&sources)))
    }

    /// Holds a pack whose weights were written or copied since against them; if they are still the same, it is theirs.
    /// Any other goes, to make room.
    fn take_over(&self, meter: &mut Meter<'_>) -> Result<bool> {
        let (path, begun) = (self.job.path(self.plan.kind), meter.done());
        if let Some(mut pack) = self.finished()? {
            let sources = self.sources()?;
            let fits = pack.check_files(&sources).is_ok();
            if !fits && pack.header.reclaimed {
                let (problem, what) = ("was made from other weight files".into(), self.plan.kind.what());
                return Err(ss_checkpoint::Error::OnlyPack { path, problem, what }.into());
            }
            if fits {
                let check = Check::new(self.job, self.checkpoint, &pack, self.plan)?;
                if check.first_bad(self.threads, meter)?.is_none() {
                    let file = OpenOptions::new().write(true).open(&path);
                    let file = file.map_err(|cause| Error::io(&path, "open", cause))?;
                    pack.header.sources = sources;
                    self.job.commit(&mut pack, &file)?;
                    return Ok(true);
                }
            }
        }
        meter.back_to(begun);
        match std::fs::remove_file(&path) {
            Err(cause) if cause.kind() != io::ErrorKind::NotFound => Err(Error::io(&path, "remove", cause)),
            _ => Ok(false),
        }
    }

    /// The unfinished pack of these weights, or a new one.
    fn part(&self) -> Result<Part> {
        let path = self.job.dir.join(self.plan.kind.part_name());
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let file = file.map_err(|cause| Error::io(&path, "create", cause))?;
        // A file system without locks only loses this check.
        if let Err(TryLockError::WouldBlock) = file.try_lock() {
            return Err(Error::Busy { path });
        }
        let sources = self.sources()?;
        if let Ok(pack) = PackFile::open(&path, self.plan, Access::Direct)
            && pack.header.sources == sources
            && pack.header.done <= self.plan.records()
        {
            return Ok(Part { pack, file });
        }
        let header = PackHeader::new(self.plan, sources);
        let frame = Frame::new(&header, self.plan).ok_or_else(|| Error::Header { path: path.clone() })?;
        let slot = header.encode(&frame, 0).ok_or_else(|| Error::Header { path: path.clone() })?;
        let disk = self.job.disk;
        let begun = (|| {
            file.set_len(0)?;
            file.set_len(frame.data_at() + self.plan.bytes())?;
            disk.write_at(&file, 0, &frame.preamble())?;
            disk.write_at(&file, frame.slot_at(0), &slot)?;
            disk.sync(&file)
        })();
        begun.map_err(|cause| self.failed(0, "begin", cause))?;
        Ok(Part { pack: PackFile::open(&path, self.plan, Access::Direct)?, file })
    }

    /// Refuses to begin where the pack cannot fit. Originals with holes make a pack with holes.
    fn check_room(&self) -> Result<()> {
        let dir = self.job.dir;
        let Ok(Some(free)) = self.job.disk.free(dir) else { return Ok(()) };
        let (mut bytes, mut held) = (0u64, 0u64);
        for source in self.sources()? {
            bytes += source.bytes;
            held += allocated(&dir.join(&source.name)).unwrap_or(source.bytes).min(source.bytes);
        }
        let share = u128::from(self.plan.bytes()) * u128::from(held) / u128::from(bytes.max(1));
        let wanted = u64::try_from(share).unwrap_or(u64::MAX);
        if wanted > free {
            let part = dir.join(self.plan.kind.part_name());
            // Nothing is in it yet.
            let _ = std::fs::remove_file(part);
            return Err(Error::NoRoom { path: self.job.path(self.plan.kind), wanted, free });
        }
        Ok(())
    }

    /// Writes units, makes sure of them, and counts them as done.
    fn write(&self, part: &mut Part, units: &[Unit]) -> Result<()> {
        let done = part.pack.header.done;
        let sums: Vec<Vec<u64>> =
            self.threads.install(|| units.par_iter().map(|unit| self.write_unit(part, unit)).collect::<Result<_>>())?;
        let sums: Vec<u64> = sums.concat();
        let entries: Vec<u8> = sums.iter().flat_map(|sum| sum.to_le_bytes()).collect();
        let entry_at = part.pack.frame.entry_at(done);
        let written = self.job.disk.write_at(&part.file, entry_at, &entries);
        let synced = written.and_then(|()| self.job.disk.sync(&part.file));
        synced.map_err(|cause| self.failed(done, "write", cause))?;

        let mut kept = vec![0; entries.len()];
        part.pack.file.read_at(entry_at, &mut kept)?;
        if kept != entries {
            return Err(self.not_kept(part, "the table of checksums".into()));
        }
        self.threads.install(|| units.par_iter().try_for_each(|unit| self.read_back(part, unit, done, &sums)))?;
        part.pack.header.done = done + sums.len() as u64;
        self.job.commit(&mut part.pack, &part.file).map_err(|error| match error {
            Error::Io { cause, .. } => self.failed(done, "write", cause),
            other => other,
        })
    }

    /// Writes the records of a unit that are not all zeros, and returns the checksums of all, 0 for those that are.
    fn write_unit(&self, part: &Part, unit: &Unit) -> Result<Vec<u64>> {
        let bytes = fill(self.checkpoint, self.plan, unit)?;
        let stride = unit.first.stride as usize;
        let mut sums = Vec::with_capacity(unit.count as usize);
        for (record, stored) in unit.records(&bytes) {
            let blank = stored.iter().all(|&byte| byte == 0);
            sums.push(if blank { 0 } else { checksum(record.number, stored) });
        }
        let mut at = 0;
        for run in sums.chunk_by(|a, b| (*a == 0) == (*b == 0)) {
            let length = run.len() * stride;
            let offset = part.pack.frame.data_at() + unit.first.offset + at as u64;
            if let Some(stored) = bytes.get(at..at + length).filter(|_| run.first() != Some(&0)) {
                let written = self.job.disk.write_at(&part.file, offset, stored);
                written.map_err(|cause| self.failed(part.pack.header.done, "write", cause))?;
            }
            at += length;
        }
        Ok(sums)
    }

    /// Holds what the disk gives back against the checksums of what was written; `sums` begin with record `from`.
    fn read_back(&self, part: &Part, unit: &Unit, from: u64, sums: &[u64]) -> Result<()> {
        let mut bytes = vec![0; unit.bytes()];
        part.pack.file.read_at(part.pack.frame.data_at() + unit.first.offset, &mut bytes)?;
        for (record, stored) in unit.records(&bytes) {
            let sum = sums.get((record.number - from) as usize).copied();
            if !matches(sum, record.number, stored) {
                return Err(self.not_kept(part, self.plan.name(&record)));
            }
        }
        Ok(())
    }

    /// Gives a pack with all records its checksum and its name.
    fn finish(&self, mut part: Part) -> Result<()> {
        let table = part.pack.frame.table(&part.pack.file)?;
        part.pack.header.content = Some(Frame::content(&table));
        self.job.commit(&mut part.pack, &part.file)?;
        if self.sources()? != part.pack.header.sources {
            return Err(Error::Changed { dir: self.job.dir.to_owned() });
        }
        let (from, to) = (part.pack.file.path(), self.job.path(self.plan.kind));
        self.job.disk.rename(from, &to).map_err(|cause| Error::io(&to, "give the finished pack its name", cause))
    }

    fn not_kept(&self, part: &Part, record: String) -> Error {
        Error::NotKept { path: part.pack.file.path().to_owned(), record }
    }

    fn failed(&self, done: u64, action: &'static str, cause: io::Error) -> Error {
        let path = self.job.dir.join(self.plan.kind.part_name());
        match cause.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Error::Full { path, done, records: self.plan.records(), dir: self.job.dir.to_owned() }
            }
            _ => Error::io(&path, action, cause),
        }
    }
}

/// Whether stored bytes are those of a record's entry in the table of checksums.
pub(crate) fn matches(sum: Option<u64>, number: u64, stored: &[u8]) -> bool {
    match sum {
        Some(0) => stored.iter().all(|&byte| byte == 0),
        Some(sum) => sum == checksum(number, stored),
        None => false,
    }
}
