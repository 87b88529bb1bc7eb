//! Owns: a small model to pack, a disk that dies at a given moment, and what both must hold afterwards.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

use ss_checkpoint::{Checkpoint, OpenOptions, RowForm};
use ss_pack::{Disk, Job, SystemDisk};

/// A copy of the small development model.
pub struct Model(tempfile::TempDir);

impl Model {
    pub fn new() -> Model {
        let copy = tempfile::tempdir().unwrap();
        let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/goldens/dev/model");
        for entry in std::fs::read_dir(model).unwrap() {
            let entry = entry.unwrap();
            std::fs::write(copy.path().join(entry.file_name()), std::fs::read(entry.path()).unwrap()).unwrap();
        }
        Model(copy)
    }

    pub fn packed() -> Model {
        let model = Model::new();
        ss_pack::pack(&model.job(&Dying::never()), &mut |_, _| true).unwrap();
        model
    }

    pub fn dir(&self) -> &Path {
        self.0.path()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir().join(name)
    }

    /// A job of several batches.
    pub fn job<'a>(&'a self, disk: &'a dyn Disk) -> Job<'a> {
        Job { batch_bytes: 1 << 20, ..Job::new(self.dir(), disk) }
    }

    pub fn open(&self) -> ss_checkpoint::Result<Checkpoint> {
        Checkpoint::open(self.dir())
    }

    /// Opens the weights outside of packs.
    pub fn originals(&self) -> Checkpoint {
        Checkpoint::open_with(self.dir(), OpenOptions { packs: false, ..OpenOptions::default() }).unwrap()
    }

    /// What a model that nobody packed holds.
    pub fn contents() -> &'static Contents {
        static CONTENTS: OnceLock<Contents> = OnceLock::new();
        CONTENTS.get_or_init(|| contents(&Model::new().originals()).unwrap())
    }

    /// Names of the packs that reads go to.
    pub fn in_use(&self) -> Vec<&'static str> {
        self.open().unwrap().packs().map(|pack| pack.name).collect()
    }

    pub fn flip(&self, name: &str, offset: u64, bit: u8) {
        let mut bytes = std::fs::read(self.path(name)).unwrap();
        bytes[offset as usize] ^= 1 << bit;
        std::fs::write(self.path(name), bytes).unwrap();
    }
}

/// Every expert's pieces and every n-gram row.
#[derive(PartialEq)]
pub struct Contents {
    experts: Vec<Vec<u8>>,
    rows: Vec<Vec<u8>>,
}

/// Reads a model as the engine does.
pub fn contents(checkpoint: &Checkpoint) -> ss_checkpoint::Result<Contents> {
    let mut experts = Vec::new();
    for layer in 0..=checkpoint.geometry().mtp_layer() {
        let files = checkpoint.experts(layer).unwrap();
        for expert in 0..files.experts {
            let mut slot = vec![0; files.layout.bytes as usize];
            checkpoint.read_expert(layer, expert, &mut slot)?;
            experts.push(slot);
        }
    }
    let form = RowForm::of(checkpoint.ngram_matrix(0).unwrap());
    let mut rows = Vec::new();
    for row in 0..checkpoint.ngram_tables(0).unwrap().rows {
        let mut stored = Vec::new();
        for range in checkpoint.ngram_pieces(0, row)? {
            let mut bytes = vec![0; range.bytes as usize];
            checkpoint.read(range, &mut bytes)?;
            stored.extend(bytes);
        }
        assert_eq!(Some(stored.len() as u64), checkpoint.ngram_stored_bytes(0));
        checkpoint.check_ngram_row(0, row, &stored)?;
        stored.truncate(form.row_bytes as usize);
        rows.push(stored);
    }
    Ok(Contents { experts, rows })
}

/// What a disk that dies keeps of what was not synced.
#[derive(Clone, Copy, Debug)]
pub enum Keeps {
    Everything,
    Nothing,
    EveryOther,
}

/// A disk that fails after a number of operations, or of bytes, and then forgets what was not synced.
pub struct Dying {
    operations: AtomicU64,
    room: AtomicU64,
    failure: io::ErrorKind,
    lies: AtomicBool,
    /// What was there before each write that is not synced.
    before: Mutex<Vec<(File, u64, Vec<u8>)>>,
}

impl Dying {
    /// Works for so many operations.
    pub fn after(operations: u64) -> Dying {
        Dying {
            operations: operations.into(),
            room: u64::MAX.into(),
            failure: io::ErrorKind::Other,
            lies: false.into(),
            before: Mutex::default(),
        }
    }

    /// Works for ever.
    pub fn never() -> Dying {
        Dying::after(u64::MAX)
    }

    /// Takes so many bytes.
    pub fn with_room(bytes: u64) -> Dying {
        Dying { room: bytes.into(), failure: io::ErrorKind::StorageFull, ..Dying::never() }
    }

    /// Loses the bytes of a write and says that it went well.
    pub fn that_lies() -> Dying {
        Dying { lies: true.into(), ..Dying::never() }
    }

    /// The power goes.
    pub fn crash(self, keeps: Keeps) {
        let before = self.before.into_inner().unwrap();
        for (place, (file, offset, bytes)) in before.iter().enumerate().rev() {
            let keep = match keeps {
                Keeps::Everything => true,
                Keeps::Nothing => false,
                Keeps::EveryOther => place % 2 == 0,
            };
            if !keep {
                SystemDisk.write_at(file, *offset, bytes).unwrap();
            }
        }
    }

    fn spend(&self) -> io::Result<()> {
        let spent = self.operations.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        spent.map(|_| ()).map_err(|_| self.failure.into())
    }
}

impl Disk for Dying {
    fn write_at(&self, file: &File, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut old = vec![0; bytes.len()];
        // Past the end there was nothing.
        let _ = std::os::unix::fs::FileExt::read_exact_at(file, &mut old, offset);
        self.before.lock().unwrap().push((file.try_clone()?, offset, old));
        let room = |left: u64| left.checked_sub(bytes.len() as u64);
        let fits = self.room.fetch_update(Ordering::SeqCst, Ordering::SeqCst, room).is_ok();
        // The last write is torn.
        let torn = &bytes[..bytes.len() / 2];
        if !fits {
            SystemDisk.write_at(file, offset, torn)?;
            return Err(self.failure.into());
        }
        if let Err(dead) = self.spend() {
            SystemDisk.write_at(file, offset, torn)?;
            return Err(dead);
        }
        // Only data: a header that is lost shows at once.
        if bytes.len() > 100_000 && self.lies.swap(false, Ordering::SeqCst) {
            return Ok(());
        }
        SystemDisk.write_at(file, offset, bytes)
    }

    fn sync(&self, _: &File) -> io::Result<()> {
        self.spend()?;
        // The machine's own disk is not asked to: it does not crash in this test.
        self.before.lock().unwrap().clear();
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.spend()?;
        std::fs::rename(from, to)
    }

    fn punch(&self, file: &File, offset: u64, bytes: u64) -> io::Result<()> {
        self.spend()?;
        SystemDisk.punch(file, offset, bytes)
    }

    fn free(&self, dir: &Path) -> io::Result<Option<u64>> {
        SystemDisk.free(dir)
    }
}

/// A disk that has no room, and one that makes no holes.
pub struct Poor {
    pub free: u64,
}

impl Disk for Poor {
    fn write_at(&self, file: &File, offset: u64, bytes: &[u8]) -> io::Result<()> {
        SystemDisk.write_at(file, offset, bytes)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        SystemDisk.sync(file)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        SystemDisk.rename(from, to)
    }

    fn punch(&self, _: &File, _: u64, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn free(&self, _: &Path) -> io::Result<Option<u64>> {
        Ok(Some(self.free))
    }
}
