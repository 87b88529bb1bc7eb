//! Owns: the reference backend as the engine sees it: memory, the queue, counters.
//! Refuses: being asynchronous; a submission is finished when `submit` returns.
//! Invariants: uploads, submissions and reads happen one after the other, in the order they were made; slots are filled
//! beside them, which their locks make safe.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use ss_backend::{
    Backend, Buffer, Counters, DeviceFacts, DeviceKind, Error, Memory, Pool, Readback, RecordLayout, Result,
    SlotWriter, Stage, Submission, Work,
};

use crate::memory::{HostBuffer, Ledger};
use crate::ops::{self, Then};
use crate::pool::HostPool;
use crate::scratch::Scratch;
use crate::simd::Tier;
use crate::step::{Machine, Step};
use crate::tap::Tap;
use crate::threads::Threads;

/// How the backend is set up.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Threads that compute; 0 for one a processor.
    pub threads: usize,
    /// Most bytes of buffers and pools, if there is a limit.
    pub memory_limit: Option<u64>,
    /// Vector units; without, the plain twin runs.
    pub simd: bool,
    /// Stand in for a device with matrix units: inputs of prompt products are rounded to F16 in the fast profile
    /// (engine.md 3.5). A processor gains nothing by it.
    pub f16_inputs: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options { threads: 0, memory_limit: None, simd: true, f16_inputs: false }
    }
}

/// The plain-Rust backend.
pub struct Reference {
    facts: DeviceFacts,
    machine: Machine,
    ledger: Arc<Ledger>,
    uploaded: Arc<AtomicU64>,
    /// Held while work runs or bytes move.
    queue: Mutex<()>,
    progress: Mutex<Progress>,
}

#[derive(Default)]
struct Progress {
    dispatches: u64,
    submissions: u64,
    readbacks: u64,
    stages: BTreeMap<Stage, Duration>,
}

impl Reference {
    /// Opens the backend.
    ///
    /// # Errors
    /// [`Error::Unavailable`] where the system gives no threads.
    pub fn new(options: Options) -> Result<Self> {
        let (threads, tier) = (Threads::new(options.threads)?, Tier::detect(options.simd));
        let limit = options.memory_limit.unwrap_or(isize::MAX as u64);
        let facts = DeviceFacts {
            backend: "reference",
            device: format!("{} processor, {}", std::env::consts::ARCH, tier.name()),
            driver: String::new(),
            kind: DeviceKind::Reference,
            max_buffer_bytes: limit,
            max_binding_bytes: limit,
            unified: true,
            subgroup: (1, 1),
            f16: false,
            matrix_tiles: Vec::new(),
            threads: threads.count(),
        };
        Ok(Reference {
            facts,
            machine: Machine { threads, tier, f16_inputs: options.f16_inputs, scratch: Scratch::default(), tap: None },
            ledger: Arc::new(Ledger::new(limit)),
            uploaded: Arc::new(AtomicU64::new(0)),
            queue: Mutex::new(()),
            progress: Mutex::new(Progress::default()),
        })
    }

    /// The same backend with an observer of the numbers inside operations.
    pub fn with_tap(mut self, tap: Tap) -> Self {
        self.machine.tap = Some(tap);
        self
    }

    fn host<'a>(&self, buffer: &'a Buffer) -> Result<&'a HostBuffer> {
        buffer.memory().ok_or_else(|| Error::Refused("a buffer of another backend was named".into()))
    }
}

/// Words of a range of bytes, if it fits the buffer.
fn words(buffer: &HostBuffer, offset: u64, bytes: usize) -> Result<std::ops::Range<usize>> {
    let size = buffer.bytes().next_multiple_of(4);
    let fits = offset.checked_add(bytes as u64).is_some_and(|end| end <= size);
    if !fits || !offset.is_multiple_of(4) || !bytes.is_multiple_of(4) {
        let label = &buffer.label;
        return Err(Error::Refused(format!("{bytes} bytes at byte {offset} of the {size} of buffer `{label}`")));
    }
    let first = (offset / 4) as usize;
    Ok(first..first + bytes / 4)
}

impl Backend for Reference {
    fn facts(&self) -> &DeviceFacts {
        &self.facts
    }

    fn counters(&self) -> Counters {
        let progress = self.progress.lock();
        Counters {
            dispatches: progress.dispatches,
            submissions: progress.submissions,
            readbacks: progress.readbacks,
            uploaded_bytes: self.uploaded.load(Ordering::Relaxed),
            memory_bytes: self.ledger.now(),
            peak_memory_bytes: self.ledger.peak(),
            in_flight: progress.stages.values().sum(),
            encoding: Duration::ZERO,
            stages: progress.stages.iter().map(|(stage, time)| (stage.name(), *time)).collect(),
            kernels: BTreeMap::new(),
        }
    }

    fn alloc(&self, label: &str, bytes: u64) -> Result<Buffer> {
        HostBuffer::new(&self.ledger, label, bytes).map(Buffer::new)
    }

    fn upload(&self, target: &Buffer, offset: u64, bytes: &[u8]) -> Result<()> {
        let _queue = self.queue.lock();
        let host = self.host(target)?;
        let range = words(host, offset, bytes.len())?;
        bytemuck::cast_slice_mut(&mut host.words.write()[range]).copy_from_slice(bytes);
        self.uploaded.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    fn read_all(&self, parts: &mut [Readback<'_>]) -> Result<()> {
        let _queue = self.queue.lock();
        for Readback { source, offset, into } in parts {
            let host = self.host(source)?;
            let range = words(host, *offset, into.len())?;
            into.copy_from_slice(bytemuck::cast_slice(&host.words.read()[range]));
        }
        self.progress.lock().readbacks += 1;
        Ok(())
    }

    fn alloc_pool(&self, layout: &RecordLayout, slots: u32) -> Result<Pool> {
        HostPool::new(&self.ledger, layout, slots).map(Pool::new)
    }

    fn open_slot(&self, pool: &Pool, slot: u32) -> Result<Box<dyn SlotWriter>> {
        let Some(host) = pool.memory::<HostPool>() else {
            return Err(Error::Refused("a pool of another backend was named".into()));
        };
        Ok(Box::new(host.open(slot, &self.uploaded)?))
    }

    fn submit(&self, work: Work<'_>) -> Result<Submission> {
        let _queue = self.queue.lock();
        let mut stages = BTreeMap::<Stage, Duration>::new();
        let mut started = Instant::now();
        let mut ran = 0;
        for (site, op) in work.steps {
            let step = Step { machine: &self.machine, arithmetic: work.arithmetic, site: *site, op: op.name() };
            let then = ops::run(&step, op)?;
            ran += 1;
            let now = Instant::now();
            *stages.entry(site.stage).or_default() += now - started;
            started = now;
            if then == Then::Halt {
                break;
            }
        }
        let mut progress = self.progress.lock();
        progress.dispatches += ran;
        progress.submissions += 1;
        stages.into_iter().for_each(|(stage, time)| *progress.stages.entry(stage).or_default() += time);
        Ok(Submission(progress.submissions))
    }

    fn wait(&self, _submission: Submission) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
impl Reference {
    /// Splits every operation over the threads, however small.
    pub fn split_everything(&mut self) {
        self.machine.threads.worth = 0;
    }
}
