//! Owns: what all commands of this crate are told, and what they tell.
//! Refuses: nothing.
//! Invariants: a watch that says stop is asked again before any more work is begun.

use std::path::{Path, PathBuf};

use rayon::{ThreadPool, ThreadPoolBuilder};
use ss_checkpoint::{Checkpoint, OpenOptions, PackFile, PackKind, PackPlan};

use crate::{Disk, Error, Result};

/// Threads that read, compute checksums and write: enough to keep a fast disk busy both ways.
const THREADS: usize = 8;

/// Told bytes done and bytes in all; says whether to go on.
pub type Watch<'a> = &'a mut dyn FnMut(u64, u64) -> bool;

/// What to work on.
#[derive(Clone, Copy)]
pub struct Job<'a> {
    /// The model directory.
    pub dir: &'a Path,
    /// Which packs.
    pub kinds: &'a [PackKind],
    /// Where they go.
    pub disk: &'a dyn Disk,
    /// Bytes that are written and verified at a time, and lost by a crash at most.
    pub batch_bytes: u64,
}

/// A pack that is there now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packed {
    /// Which.
    pub kind: PackKind,
    /// The file.
    pub path: PathBuf,
    /// Its length.
    pub bytes: u64,
    /// Its records.
    pub records: u64,
    /// Records that this run wrote; fewer where it went on with an unfinished pack.
    pub written: u64,
}

impl<'a> Job<'a> {
    /// Bytes of a batch unless somebody knows better: a fraction of a second of a fast disk, so that Ctrl-C is heard, and
    /// few enough syncs for the released model not to notice them.
    pub const BATCH: u64 = 256 << 20;

    /// Both packs of a directory, on the machine's own disk.
    pub fn new(dir: &'a Path, disk: &'a dyn Disk) -> Self {
        Job { dir, kinds: &PackKind::ALL, disk, batch_bytes: Self::BATCH }
    }

    /// The model as it is outside of its packs, as far as it is there.
    pub(crate) fn originals(&self) -> Result<Checkpoint> {
        Ok(Checkpoint::open_with(self.dir, OpenOptions { packs: false, ..OpenOptions::default() })?)
    }

    /// The packs that this model can have, of those asked for.
    pub(crate) fn plans(&self, checkpoint: &Checkpoint) -> Vec<PackPlan> {
        PackKind::ALL
            .into_iter()
            .filter(|kind| self.kinds.contains(kind))
            .filter_map(|kind| checkpoint.pack_plan(kind))
            .collect()
    }

    pub(crate) fn path(&self, kind: PackKind) -> PathBuf {
        self.dir.join(kind.file_name())
    }

    /// Refuses a name of a pack, finished or not, that a folder, a pipe or a device has.
    pub(crate) fn refuse_others(&self, kind: PackKind) -> Result<()> {
        for path in [self.path(kind), self.dir.join(kind.part_name())] {
            let Ok(metadata) = std::fs::metadata(&path) else { continue };
            if !metadata.is_file() {
                let found = if metadata.is_dir() { "a directory" } else { "neither a file nor a directory" };
                return Err(Error::NoPack { path, found, dir: self.dir.to_owned() });
            }
        }
        Ok(())
    }

    pub(crate) fn threads(&self) -> Result<ThreadPool> {
        let pool = ThreadPoolBuilder::new().num_threads(THREADS).thread_name(|n| format!("ss-pack-{n}")).build();
        pool.map_err(|cause| Error::Threads { threads: THREADS, cause: cause.to_string() })
    }

    /// Writes a pack's header anew; the one before stays whole until this one is.
    pub(crate) fn commit(&self, pack: &mut PackFile, file: &std::fs::File) -> Result<()> {
        let path = pack.file.path();
        let generation = pack.generation + 1;
        let bytes = pack.header.encode(&pack.frame, generation);
        let bytes = bytes.ok_or_else(|| Error::Header { path: path.to_owned() })?;
        let written = self.disk.write_at(file, pack.frame.slot_at(generation), &bytes);
        written.and_then(|()| self.disk.sync(file)).map_err(|cause| Error::io(path, "write the header", cause))?;
        pack.generation = generation;
        Ok(())
    }
}

/// How far all packs of a job have come.
pub(crate) struct Meter<'w> {
    watch: Watch<'w>,
    done: u64,
    total: u64,
    stopped: bool,
}

impl<'w> Meter<'w> {
    pub fn new(watch: Watch<'w>, plans: &[PackPlan]) -> Self {
        Meter { watch, done: 0, total: plans.iter().map(PackPlan::bytes).sum(), stopped: false }
    }

    /// So many bytes more are done.
    pub fn advance(&mut self, bytes: u64) {
        self.done += bytes;
        self.stopped |= !(self.watch)(self.done, self.total);
    }

    /// Bytes done.
    pub fn done(&self) -> u64 {
        self.done
    }

    /// What was done since then is to be done again.
    pub fn back_to(&mut self, done: u64) {
        self.done = done;
    }

    /// Whether somebody asked to stop.
    pub fn is_stopped(&self) -> bool {
        self.stopped
    }
}
