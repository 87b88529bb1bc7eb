//! Owns: reading packs whole, against their checksums and against the originals that are there.
//! Refuses: to write.
//! Invariants: of several bad records the first is told.

use std::path::PathBuf;

use rayon::ThreadPool;
use rayon::prelude::*;
use ss_checkpoint::{Access, Checkpoint, PackFile, PackKind, PackPlan, PackRecord, damaged};

use crate::batch::{Unit, batch};
use crate::fill::fill;
use crate::job::Meter;
use crate::write::matches;
use crate::{Error, Job, Result, Watch};

/// A pack that is as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// Which.
    pub kind: PackKind,
    /// The file.
    pub path: PathBuf,
    /// Its length.
    pub bytes: u64,
    /// Its records.
    pub records: u64,
    /// Whether it was held against the originals; they may be gone.
    pub against_originals: bool,
}

/// Reads the packs of a model, all of them.
///
/// # Errors
/// [`Error::NotPacked`] where there is none; the first record that is not what was packed, or not what the originals hold;
/// [`Error::Stopped`].
pub fn verify(job: &Job<'_>, watch: Watch<'_>) -> Result<Vec<Verified>> {
    let checkpoint = job.originals()?;
    let plans = present(job, &checkpoint)?;
    let threads = job.threads()?;
    let mut meter = Meter::new(watch, &plans);
    let one = |plan: &PackPlan| {
        let path = job.path(plan.kind);
        let pack = PackFile::open(&path, plan, Access::Direct)?;
        pack.check_files(&checkpoint.pack_sources(plan.kind)?)?;
        let check = Check::new(job, &checkpoint, &pack, plan)?;
        match check.first_bad(&threads, &mut meter)? {
            Some(bad) => Err(bad.error),
            None => {
                let (bytes, records, against_originals) = (pack.file.len(), plan.records(), check.originals.is_some());
                Ok(Verified { kind: plan.kind, path, bytes, records, against_originals })
            }
        }
    };
    plans.iter().map(one).collect()
}

/// The plans of the packs that are there.
pub(crate) fn present(job: &Job<'_>, checkpoint: &Checkpoint) -> Result<Vec<PackPlan>> {
    let mut plans = job.plans(checkpoint);
    plans.retain(|plan| job.path(plan.kind).exists());
    plans.iter().try_for_each(|plan| job.refuse_others(plan.kind))?;
    if plans.is_empty() { Err(Error::NotPacked { dir: job.dir.to_owned() }) } else { Ok(plans) }
}

/// Whether a pack alone holds its weights.
pub(crate) fn is_alone(checkpoint: &Checkpoint, kind: PackKind) -> bool {
    checkpoint.packs().any(|pack| pack.name == kind.file_name())
}

/// A record that is not what it should be.
pub(crate) struct Bad {
    /// Its number.
    pub number: u64,
    /// Which record, as people say.
    pub record: String,
    /// What is wrong with it.
    pub error: Error,
}

/// Holds a finished pack against its checksums, and against the originals that are there.
pub(crate) struct Check<'a> {
    job: &'a Job<'a>,
    /// The model outside of the pack, where it is still there.
    pub originals: Option<&'a Checkpoint>,
    pack: &'a PackFile,
    plan: &'a PackPlan,
    table: Vec<u64>,
}

impl<'a> Check<'a> {
    /// Of a pack that is finished.
    pub fn new(job: &'a Job<'a>, checkpoint: &'a Checkpoint, pack: &'a PackFile, plan: &'a PackPlan) -> Result<Self> {
        let originals = (!is_alone(checkpoint, plan.kind)).then_some(checkpoint);
        Ok(Check { job, originals, pack, plan, table: pack.table()? })
    }

    /// Reads the pack whole, or up to the first record that is bad.
    pub fn first_bad(&self, threads: &ThreadPool, meter: &mut Meter<'_>) -> Result<Option<Bad>> {
        let (mut next, records) = (0, self.plan.records());
        while next < records {
            if meter.is_stopped() {
                return Err(Error::Stopped { path: self.pack.file.path().to_owned(), done: next, records });
            }
            let units = batch(self.plan, next, self.job.batch_bytes);
            let bad = threads.install(|| units.par_iter().find_map_first(|unit| self.bad_of(unit).transpose()));
            if let Some(bad) = bad {
                return bad.map(Some);
            }
            next += units.iter().map(|unit| unit.count).sum::<u64>();
            meter.advance(units.iter().map(|unit| unit.bytes() as u64).sum());
        }
        Ok(None)
    }

    /// The first bad record of a unit.
    fn bad_of(&self, unit: &Unit) -> Result<Option<Bad>> {
        let path = self.pack.file.path();
        let bad = |record: &PackRecord, error: &dyn Fn(String) -> Error| {
            let name = self.plan.name(record);
            Ok(Some(Bad { number: record.number, error: error(name.clone()), record: name }))
        };
        let mut bytes = vec![0; unit.bytes()];
        self.pack.file.read_at(self.pack.frame.data_at() + unit.first.offset, &mut bytes)?;
        for (record, stored) in unit.records(&bytes) {
            if !matches(self.table.get(record.number as usize).copied(), record.number, stored) {
                return bad(&record, &|name| damaged(path, name, self.originals.is_none()).into());
            }
        }
        let Some(originals) = self.originals else { return Ok(None) };
        let expected = fill(originals, self.plan, unit)?;
        for ((record, stored), (_, expected)) in unit.records(&bytes).zip(unit.records(&expected)) {
            if stored != expected {
                let differs = |record| Error::Differs { path: path.to_owned(), record, dir: self.job.dir.to_owned() };
                return bad(&record, &differs);
            }
        }
        Ok(None)
    }
}
