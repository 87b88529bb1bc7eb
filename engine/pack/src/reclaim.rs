//! Owns: giving back the space of weights that are in a pack.
//! Refuses: to begin before all packs were verified, where files cannot have holes, and where a weight file has another
//! name that something else may read it by.
//! Invariants: what says that the originals are gone is on the disk before the first byte goes; headers and all other
//! tensors of the weight files stay as they are.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::Path;

use ss_checkpoint::{Access, Checkpoint, FileId, PackFile, PackPlan, Reclaimed};

use crate::disk::allocated;
use crate::verify::verify;
use crate::{Disk, Error, Job, Result, Verified, Watch};

/// What was given back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Freed {
    /// Bytes of disk space.
    pub bytes: u64,
    /// Weight files that have holes now.
    pub files: usize,
    /// What was verified before.
    pub verified: Vec<Verified>,
}

/// Gives back the space of the originals of all packs that are there, after verifying those.
///
/// # Errors
/// As [`verify`]; [`Error::Busy`], [`Error::NoHoles`] and [`Error::Linked`], all of them with nothing changed. Where the disk fails later,
/// the packs are read, and the next run goes on.
pub fn reclaim(job: &Job<'_>, watch: Watch<'_>) -> Result<Freed> {
    let verified = verify(job, watch)?;
    let checkpoint = job.originals()?;
    let mut plans = job.plans(&checkpoint);
    plans.retain(|plan| verified.iter().any(|pack| pack.kind == plan.kind));
    let files: BTreeSet<FileId> =
        plans.iter().flat_map(|plan| checkpoint.originals(plan.kind)).map(|range| range.file).collect();
    let _held = plans.iter().map(|plan| hold(&job.path(plan.kind))).collect::<Result<Vec<_>>>()?;
    for id in &files {
        refuse_linked(checkpoint.file(*id)?.path())?;
    }
    probe(job.dir, job.disk).map_err(|cause| Error::NoHoles { dir: job.dir.to_owned(), cause })?;
    let held = || -> Result<u64> {
        let one = |id: &FileId| {
            let path = checkpoint.file(*id)?.path();
            allocated(path).map_err(|cause| Error::io(path, "look at the size of the file", cause))
        };
        files.iter().map(one).sum()
    };
    let before = held()?;
    for plan in &plans {
        mark(job, plan)?;
        punch(job, &checkpoint, plan)?;
    }
    Ok(Freed { bytes: before.saturating_sub(held()?), files: files.len(), verified })
}

/// Keeps other processes from giving back the same space, or repairing what is given back.
pub(crate) fn hold(path: &Path) -> Result<File> {
    let file = File::open(path).map_err(|cause| Error::io(path, "open", cause))?;
    // A file system without locks only loses this check.
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => Err(Error::Busy { path: path.to_owned() }),
        _ => Ok(file),
    }
}

/// Refuses a file that is read by another name too.
fn refuse_linked(path: &Path) -> Result<()> {
    let metadata = std::fs::symlink_metadata(path).map_err(|cause| Error::io(path, "look at the file", cause))?;
    #[cfg(unix)]
    let names = std::os::unix::fs::MetadataExt::nlink(&metadata);
    #[cfg(not(unix))]
    let names = 1;
    match metadata.is_symlink() || names > 1 {
        true => Err(Error::Linked { path: path.to_owned() }),
        false => Ok(()),
    }
}

/// Tries on a file of its own whether holes can be made here.
fn probe(dir: &Path, disk: &dyn Disk) -> io::Result<()> {
    /// A block on any file system, and one to make a hole of.
    const BLOCK: u64 = 64 << 10;
    let path = dir.join("reclaim.probe");
    let tried = (|| {
        let file = OpenOptions::new().write(true).create(true).truncate(true).open(&path)?;
        disk.write_at(&file, 0, &vec![1; 2 * BLOCK as usize])?;
        disk.punch(&file, 0, BLOCK)?;
        let bytes = std::fs::read(&path)?;
        let holed = bytes.iter().take(BLOCK as usize).all(|&byte| byte == 0) && bytes.len() as u64 == 2 * BLOCK;
        if holed { Ok(()) } else { Err(io::Error::new(io::ErrorKind::Unsupported, "the file system makes no holes")) }
    })();
    // What is left of it only takes a little room.
    let _ = std::fs::remove_file(&path);
    tried
}

/// Says in the directory and in the pack that the pack alone holds its weights.
fn mark(job: &Job<'_>, plan: &PackPlan) -> Result<()> {
    let path = Reclaimed::path(job.dir);
    let reclaimed = Reclaimed::read(job.dir)?.with(plan.kind);
    let unfinished = path.with_extension("json.part");
    let written = (|| {
        let file = File::create(&unfinished)?;
        job.disk.write_at(&file, 0, &serde_json::to_vec_pretty(&reclaimed)?)?;
        job.disk.sync(&file)?;
        job.disk.rename(&unfinished, &path)
    })();
    written.map_err(|cause| Error::io(&path, "write", cause))?;

    let path = job.path(plan.kind);
    let mut pack = PackFile::open(&path, plan, Access::Cached)?;
    pack.header.reclaimed = true;
    let file = OpenOptions::new().write(true).open(&path).map_err(|cause| Error::io(&path, "open", cause))?;
    job.commit(&mut pack, &file)
}

/// Makes holes of a pack's originals.
fn punch(job: &Job<'_>, checkpoint: &Checkpoint, plan: &PackPlan) -> Result<()> {
    for ranges in checkpoint.originals(plan.kind).chunk_by(|a, b| a.file == b.file) {
        let Some(first) = ranges.first() else { continue };
        let path = checkpoint.file(first.file)?.path();
        let punched = (|| {
            let file = OpenOptions::new().write(true).open(path)?;
            let modified = file.metadata()?.modified()?;
            ranges.iter().try_for_each(|range| job.disk.punch(&file, range.offset, range.bytes))?;
            // What is left is as it was, so that other packs of the file still are.
            file.set_modified(modified)?;
            job.disk.sync(&file)
        })();
        punched.map_err(|cause| Error::io(path, "give back space inside the file", cause))?;
    }
    Ok(())
}
