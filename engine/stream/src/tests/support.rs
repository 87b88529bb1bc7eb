//! Owns: what the tests stand on: checkpoints, a device that is plain memory, a disk that fails on demand, random numbers.

use std::any::Any;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ss_backend::{
    Backend, Buffer, Counters, DeviceFacts, DeviceKind, Error, Pool, PoolMemory, Readback, RecordLayout, Result,
    SlotWriter, Submission, Work,
};
use ss_checkpoint::{Checkpoint, FileRange};

use crate::{
    ExpertCache, ExpertId, ExpertOptions, LaneCounts, Lanes, LookaheadOptions, Mutation, RecordSource, Store,
    StoreOptions,
};

pub type Outcome = std::result::Result<(), Box<dyn std::error::Error>>;

/// Where the small checkpoints of the project lie.
pub fn dev_model() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/goldens/dev/model")
}

pub fn dev() -> Arc<Checkpoint> {
    Arc::new(Checkpoint::open(&dev_model()).expect("the dev checkpoint opens"))
}

/// A copy of the dev checkpoint, to be damaged.
pub fn dev_copy() -> io::Result<tempfile::TempDir> {
    let copy = tempfile::tempdir()?;
    for entry in std::fs::read_dir(dev_model())? {
        let entry = entry?;
        std::fs::write(copy.path().join(entry.file_name()), std::fs::read(entry.path())?)?;
    }
    Ok(copy)
}

/// Overwrites bytes of a file.
pub fn patch(path: &Path, offset: u64, bytes: &[u8]) -> io::Result<()> {
    use std::io::{Seek, SeekFrom, Write};
    let mut file = std::fs::OpenOptions::new().write(true).open(path)?;
    file.seek(SeekFrom::Start(offset))?;
    file.write_all(bytes)
}

/// A BF16 NaN, as stored.
pub const NAN: [u8; 2] = 0x7fc0u16.to_le_bytes();

/// Random numbers that are the same in every run (splitmix64).
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut v = self.0;
        v = (v ^ (v >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        v = (v ^ (v >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (v ^ (v >> 31)) % end
    }

    /// `count` distinct numbers below `end`.
    pub fn distinct(&mut self, count: usize, end: u32) -> Vec<u32> {
        let mut all: Vec<u32> = (0..end).collect();
        (0..count.min(all.len())).map(|_| all.swap_remove(self.below(all.len() as u64) as usize)).collect()
    }
}

/// A device that is nothing but slots. Its writers write straight into them, finished or not.
pub struct Device {
    facts: DeviceFacts,
    /// Refuses to open this many slots, then works again.
    pub refuse_open: AtomicU32,
    /// Is lost when the next record is finished.
    pub lose: Arc<AtomicBool>,
    /// Whether what its writers write to is said to be slow to read.
    pub slow_to_read: AtomicBool,
    /// Where its writers' memory begins and ends.
    pub mapped: Mutex<Vec<(usize, usize)>>,
    /// How often it was kept awake.
    pub kept_awake: AtomicU32,
}

impl Device {
    pub fn new() -> Arc<Self> {
        let facts = DeviceFacts {
            backend: "test",
            device: "memory".to_owned(),
            driver: String::new(),
            kind: DeviceKind::Reference,
            max_buffer_bytes: u64::MAX,
            max_binding_bytes: u64::MAX,
            unified: true,
            subgroup: (1, 1),
            f16: false,
            matrix_tiles: Vec::new(),
            threads: 1,
        };
        let (refuse_open, lose) = (AtomicU32::new(0), Arc::default());
        let (slow_to_read, mapped) = (AtomicBool::new(false), Mutex::default());
        let kept_awake = AtomicU32::new(0);
        Arc::new(Device { facts, refuse_open, lose, slow_to_read, mapped, kept_awake })
    }
}

struct Slots {
    layout: RecordLayout,
    slots: Vec<Arc<Mutex<Vec<u8>>>>,
}

impl PoolMemory for Slots {
    fn layout(&self) -> &RecordLayout {
        &self.layout
    }

    fn slots(&self) -> u32 {
        self.slots.len() as u32
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

struct Writer {
    slot: Arc<Mutex<Vec<u8>>>,
    bytes: Vec<u8>,
    lose: Arc<AtomicBool>,
    readable: bool,
}

impl SlotWriter for Writer {
    fn bytes(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    fn readable(&self) -> bool {
        self.readable
    }

    fn finish(self: Box<Self>) -> Result<()> {
        match self.lose.swap(false, Ordering::Relaxed) {
            true => Err(Error::Lost { device: "memory".to_owned(), reason: "test".to_owned() }),
            false => Ok(()),
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        std::mem::swap(&mut *self.slot.lock().unwrap_or_else(PoisonError::into_inner), &mut self.bytes);
    }
}

fn refused<T>() -> Result<T> {
    Err(Error::Refused("not a device for that".to_owned()))
}

impl Backend for Device {
    fn facts(&self) -> &DeviceFacts {
        &self.facts
    }

    fn counters(&self) -> Counters {
        Counters::default()
    }

    fn alloc(&self, _: &str, _: u64) -> Result<Buffer> {
        refused()
    }

    fn upload(&self, _: &Buffer, _: u64, _: &[u8]) -> Result<()> {
        refused()
    }

    fn read_all(&self, _: &mut [Readback<'_>]) -> Result<()> {
        refused()
    }

    fn alloc_pool(&self, layout: &RecordLayout, slots: u32) -> Result<Pool> {
        let slots = (0..slots).map(|_| Arc::new(Mutex::new(vec![0; layout.bytes as usize]))).collect();
        Ok(Pool::new(Slots { layout: *layout, slots }))
    }

    fn open_slot(&self, pool: &Pool, slot: u32) -> Result<Box<dyn SlotWriter>> {
        if self.refuse_open.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok() {
            return refused();
        }
        let slot = pool.memory::<Slots>().and_then(|pool| pool.slots.get(slot as usize));
        let slot = slot.ok_or_else(|| Error::Refused("no such slot".to_owned()))?.clone();
        let bytes = vec![0xa5; pool.layout().bytes as usize];
        let begin = bytes.as_ptr().addr();
        self.mapped.lock().unwrap_or_else(PoisonError::into_inner).push((begin, begin + bytes.len()));
        let readable = !self.slow_to_read.load(Ordering::Relaxed);
        Ok(Box::new(Writer { slot, bytes, lose: self.lose.clone(), readable }))
    }

    fn keep_awake(&self) -> Option<Box<dyn Send>> {
        self.kept_awake.fetch_add(1, Ordering::Relaxed);
        None
    }

    fn submit(&self, _: Work<'_>) -> Result<Submission> {
        refused()
    }

    fn wait(&self, _: Submission) -> Result<()> {
        refused()
    }
}

/// What a disk does with a read.
pub type Fault = dyn FnMut(FileRange) -> Option<ss_checkpoint::Error> + Send;

/// A checkpoint on a disk that fails on demand and takes its time.
pub struct Disk {
    checkpoint: Arc<Checkpoint>,
    fault: Mutex<Box<Fault>>,
    slow: bool,
}

impl Disk {
    pub fn failing(
        checkpoint: &Arc<Checkpoint>,
        fault: impl FnMut(FileRange) -> Option<ss_checkpoint::Error> + Send + 'static,
    ) -> Arc<Self> {
        Arc::new(Disk { checkpoint: checkpoint.clone(), fault: Mutex::new(Box::new(fault)), slow: false })
    }

    /// Reads end in another order than they begin.
    pub fn slow(checkpoint: &Arc<Checkpoint>) -> Arc<Self> {
        Arc::new(Disk { checkpoint: checkpoint.clone(), fault: Mutex::new(Box::new(|_| None)), slow: true })
    }
}

impl RecordSource for Disk {
    fn read(&self, range: FileRange, into: &mut [u8]) -> ss_checkpoint::Result<()> {
        let fault = (self.fault.lock().unwrap_or_else(PoisonError::into_inner))(range);
        if self.slow {
            std::thread::sleep(Duration::from_micros(Random(range.offset).below(800)));
        }
        match fault {
            // A failed read may have written something.
            Some(error) => {
                let half = into.len() / 2;
                into[..half].fill(0xee);
                Err(error)
            }
            None => self.checkpoint.read(range, into),
        }
    }
}

/// A checkpoint that counts what is read straight into the memory of a device's writers, and what is not.
pub struct Watched {
    pub checkpoint: Arc<Checkpoint>,
    pub device: Arc<Device>,
    pub straight: AtomicU32,
    pub elsewhere: AtomicU32,
}

impl RecordSource for Watched {
    fn read(&self, range: FileRange, into: &mut [u8]) -> ss_checkpoint::Result<()> {
        let at = into.as_ptr().addr();
        let mapped = self.device.mapped.lock().unwrap_or_else(PoisonError::into_inner);
        let straight = mapped.iter().any(|(begin, end)| (*begin..*end).contains(&at));
        drop(mapped);
        let count = if straight { &self.straight } else { &self.elsewhere };
        count.fetch_add(1, Ordering::Relaxed);
        self.checkpoint.read(range, into)
    }
}

/// The system's error number `code` (EIO is 5) on the file of a range.
pub fn system_error(checkpoint: &Checkpoint, range: FileRange, code: i32) -> ss_checkpoint::Error {
    let path = checkpoint.file(range.file).map(|file| file.path().to_owned()).unwrap_or_default();
    ss_checkpoint::Error::Io { path, action: "read", cause: io::Error::from_raw_os_error(code) }
}

/// An expert cache over the test device, with its parts at hand.
pub struct Bench {
    pub cache: ExpertCache,
    pub device: Arc<Device>,
    pub checkpoint: Arc<Checkpoint>,
}

#[derive(Clone)]
pub struct Setup {
    pub slots: u32,
    pub lanes: u16,
    pub source: Option<Arc<dyn RecordSource>>,
    pub mutation: Mutation,
}

impl Default for Setup {
    /// The smallest pool of the dev checkpoint.
    fn default() -> Self {
        Setup { slots: 12, lanes: 4, source: None, mutation: Mutation::None }
    }
}

impl Bench {
    pub fn new(checkpoint: &Arc<Checkpoint>, setup: Setup) -> crate::Result<Self> {
        let device = Device::new();
        let options = ExpertOptions {
            slots: setup.slots,
            lanes: Lanes::new(LaneCounts::new(setup.lanes, setup.lanes)?),
            source: setup.source,
            mutation: setup.mutation,
            lookahead: LookaheadOptions::default(),
        };
        let cache = ExpertCache::with_options(device.clone(), checkpoint.clone(), options)?;
        Ok(Bench { cache, device, checkpoint: checkpoint.clone() })
    }

    /// Whether a slot holds an expert's record as it is in the file.
    pub fn holds(&self, slot: u32, id: ExpertId) -> bool {
        holds(&self.cache, &self.checkpoint, slot, id)
    }

    pub fn slot_bytes(&self, slot: u32) -> Vec<u8> {
        slot_bytes(&self.cache, slot)
    }

    /// Every resident expert whose slot does not hold its record.
    pub fn wrong_residents(&self) -> Vec<ExpertId> {
        self.cache.table().residents().filter(|(id, slot)| !self.holds(*slot, *id)).map(|(id, _)| id).collect()
    }

    /// Acquires, and says whether each slot holds the record of the expert in the same place.
    pub fn acquire(&mut self, layer: u32, experts: &[u32]) -> crate::Result<bool> {
        let slots = self.cache.acquire(layer, experts, crate::Lane::Demand)?;
        let pairs = slots.iter().zip(experts);
        Ok(slots.len() == experts.len()
            && pairs.into_iter().all(|(&slot, &expert)| self.holds(slot, ExpertId { layer, expert })))
    }
}

/// A store over the test device, with its parts at hand.
pub struct Stored {
    pub store: Store,
    pub device: Arc<Device>,
    checkpoint: Arc<Checkpoint>,
}

impl Stored {
    pub fn new(checkpoint: &Arc<Checkpoint>, options: StoreOptions) -> crate::Result<Self> {
        let device = Device::new();
        let store = Store::open(device.clone(), checkpoint.clone(), options)?;
        Ok(Stored { store, device, checkpoint: checkpoint.clone() })
    }

    pub fn slot_bytes(&self, slot: u32) -> Vec<u8> {
        slot_bytes(&self.store.experts, slot)
    }

    /// As [`Bench::acquire`].
    pub fn acquire(&mut self, layer: u32, experts: &[u32], lane: crate::Lane) -> crate::Result<bool> {
        let slots = self.store.experts.acquire(layer, experts, lane)?;
        let held = |(&slot, &expert): (&u32, &u32)| {
            holds(&self.store.experts, &self.checkpoint, slot, ExpertId { layer, expert })
        };
        Ok(slots.len() == experts.len() && slots.iter().zip(experts).all(held))
    }
}

fn slot_bytes(cache: &ExpertCache, slot: u32) -> Vec<u8> {
    let slots = cache.pool().memory::<Slots>().expect("a pool of the test device");
    slots.slots[slot as usize].lock().unwrap_or_else(PoisonError::into_inner).clone()
}

pub fn holds(cache: &ExpertCache, checkpoint: &Checkpoint, slot: u32, id: ExpertId) -> bool {
    let layout = *cache.pool().layout();
    let mut record = vec![0; layout.bytes as usize];
    let read = checkpoint.read_expert(id.layer as usize, id.expert, &mut record);
    let found = slot_bytes(cache, slot);
    let same = |span: ss_backend::Span| {
        let piece = span.offset as usize..(span.offset + span.bytes) as usize;
        found[piece.clone()] == record[piece]
    };
    read.is_ok() && layout.pieces().all(same)
}
