//! Owns: reading packs whole, against their checksums and against the originals that are there.
//! Refuses: to write.
//! Invariants: of several bad records the first is told.

use std::path::PathBuf;

use rayon::ThreadPool;
use rayon::prelude::*;
use ss_checkpoint::{Access, Checkpoint, PackFile, PackKind, PackPlan};

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
    /// Whether the weight files were written or copied since, so that the pack is not read until `ss pack` takes it over.
    pub touched: bool,
}

/// Reads the packs of a model, all of them.
///
/// # Errors
/// [`Error::NotPacked`] where there is none; the first record that is not what was packed, or not what the originals hold;
/// [`Error::Stopped`].
pub fn verify(job: &Job<'_>, watch: Watch<'_>) -> Result<Vec<Verified>> {
    let checkpoint = job.originals()?;
    let plans: Vec<PackPlan> = job.plans(&checkpoint).into_iter().filter(|plan| job.path(plan.kind).exists()).collect();
    if plans.is_empty() {
        return Err(Error::NotPacked { dir: job.dir.to_owned() });
    }
    let threads = job.threads()?;
    let mut meter = Meter::new(watch, &plans);
    let one = |plan: &PackPlan| {
        let path = job.path(plan.kind);
        let pack = PackFile::open(&path, plan, Access::Direct)?;
        let sources = checkpoint.pack_sources(plan.kind)?;
        pack.check_sources(&sources, true)?;
        verify_pack(job, &checkpoint, &pack, plan, &threads, &mut meter)?;
        let against_originals = !is_alone(&checkpoint, plan.kind);
        let touched = against_originals && pack.check_sources(&sources, false).is_err();
        let (bytes, records) = (pack.file.len(), plan.records());
        Ok(Verified { kind: plan.kind, path, bytes, records, against_originals, touched })
    };
    plans.iter().map(one).collect()
}

/// Whether a pack alone holds its weights.
pub(crate) fn is_alone(checkpoint: &Checkpoint, kind: PackKind) -> bool {
    checkpoint.packs().any(|pack| pack.name == kind.file_name())
}

/// Reads a pack whole.
pub(crate) fn verify_pack(
    job: &Job<'_>,
    checkpoint: &Checkpoint,
    pack: &PackFile,
    plan: &PackPlan,
    threads: &ThreadPool,
    meter: &mut Meter<'_>,
) -> Result<()> {
    let originals = (!is_alone(checkpoint, plan.kind)).then_some(checkpoint);
    let check = Check { job, originals, pack, plan, table: pack.table()? };
    let mut next = 0;
    while next < plan.records() {
        if meter.is_stopped() {
            return Err(Error::Stopped { path: pack.file.path().to_owned(), done: next, records: plan.records() });
        }
        let units = batch(plan, next, job.batch_bytes);
        let bad = threads.install(|| units.par_iter().find_map_first(|unit| check.unit(unit).err()));
        if let Some(error) = bad {
            return Err(error);
        }
        next += units.iter().map(|unit| unit.count).sum::<u64>();
        meter.advance(units.iter().map(|unit| unit.bytes() as u64).sum());
    }
    Ok(())
}

struct Check<'a> {
    job: &'a Job<'a>,
    /// The model outside of the pack, where it is still there.
    originals: Option<&'a Checkpoint>,
    pack: &'a PackFile,
    plan: &'a PackPlan,
    table: Vec<u64>,
}

impl Check<'_> {
    fn unit(&self, unit: &Unit) -> Result<()> {
        let path = self.pack.file.path();
        let mut bytes = vec![0; unit.bytes()];
        self.pack.file.read_at(self.pack.frame.data_at() + unit.first.offset, &mut bytes)?;
        for (record, stored) in unit.records(&bytes) {
            if !matches(self.table.get(record.number as usize).copied(), record.number, stored) {
                let record = self.plan.name(&record);
                return Err(ss_checkpoint::Error::PackedRecord { path: path.to_owned(), record }.into());
            }
        }
        let Some(originals) = self.originals else { return Ok(()) };
        let expected = fill(originals, self.plan, unit)?;
        for ((record, stored), (_, expected)) in unit.records(&bytes).zip(unit.records(&expected)) {
            if stored != expected {
                let (record, dir) = (self.plan.name(&record), self.job.dir.to_owned());
                return Err(Error::Differs { path: path.to_owned(), record, dir });
            }
        }
        Ok(())
    }
}
