//! Owns: finding what is damaged in packs, and taking it back so that it is packed again.
//! Refuses: packs that alone hold their weights: there is nothing to pack again from.
//! Invariants: records in front of the first bad one stay; a crash leaves a pack that is not read, or is not finished.

use std::fs::OpenOptions;
use std::path::PathBuf;

use ss_checkpoint::{Access, Checkpoint, PackFile, PackPlan};

use crate::job::Meter;
use crate::reclaim::hold;
use crate::verify::{Check, present};
use crate::{Error, Job, Result, Watch};

/// What was found and taken back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The pack.
    pub path: PathBuf,
    /// Its first bad record.
    pub record: String,
}

/// Reads the packs of a model as [`verify`](crate::verify()) does, and makes those that have a bad record unfinished from
/// that one on, for [`pack`](crate::pack()) to go on with. Packs that are not whole, or not of this model, are left to it.
///
/// # Errors
/// [`Error::NotPacked`] where there is none; the bad record of a pack that nothing can be packed again for;
/// [`Error::Stopped`].
pub fn repair(job: &Job<'_>, watch: Watch<'_>) -> Result<Vec<Damage>> {
    let checkpoint = job.originals()?;
    let plans = present(job, &checkpoint)?;
    let mut meter = Meter::new(watch, &plans);
    let mut damages = Vec::new();
    for plan in &plans {
        damages.extend(take_back(job, &checkpoint, plan, &mut meter)?);
    }
    Ok(damages)
}

fn take_back(job: &Job<'_>, checkpoint: &Checkpoint, plan: &PackPlan, meter: &mut Meter<'_>) -> Result<Option<Damage>> {
    let path = job.path(plan.kind);
    let sources = checkpoint.pack_sources(plan.kind)?;
    let opened = PackFile::open(&path, plan, Access::Direct).and_then(|pack| {
        pack.check_files(&sources)?;
        pack.table().map(|_| pack)
    });
    let pack = match opened {
        Ok(pack) => pack,
        Err(ss_checkpoint::Error::Pack { .. }) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let check = Check::new(job, checkpoint, &pack, plan)?;
    let alone = check.originals.is_none();
    match check.first_bad(&job.threads()?, meter)? {
        None => Ok(None),
        Some(bad) if alone => Err(bad.error),
        Some(bad) => {
            unfinish(job, pack, plan, bad.number)?;
            Ok(Some(Damage { path, record: bad.record }))
        }
    }
}

/// Makes a pack one of which only the records in front of one are done.
fn unfinish(job: &Job<'_>, mut pack: PackFile, plan: &PackPlan, record: u64) -> Result<()> {
    let path = job.path(plan.kind);
    let _held = hold(&path)?;
    let file = OpenOptions::new().write(true).open(&path).map_err(|cause| Error::io(&path, "open", cause))?;
    (pack.header.done, pack.header.content) = (record, None);
    job.commit(&mut pack, &file)?;
    let kept = pack.frame.data_at() + plan.record(record).map_or(plan.bytes(), |record| record.offset);
    // Records of zeros are never written: their place must be a hole again.
    let emptied = file.set_len(kept).and_then(|()| file.set_len(pack.file.len())).and_then(|()| job.disk.sync(&file));
    emptied.map_err(|cause| Error::io(&path, "empty", cause))?;
    let part = job.dir.join(plan.kind.part_name());
    job.disk.rename(&path, &part).map_err(|cause| Error::io(&part, "give the unfinished pack its name", cause))
}
