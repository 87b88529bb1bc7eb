//! Owns: the [`Backend`] on wgpu: memory, slot writes, submissions and readbacks, in the order they were made.
//! Refuses: operations without a kernel, and memory of other backends, before anything is encoded.
//! Invariants: one submission at a time is encoded; pending slot writes go first in it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use parking_lot::Mutex;
use ss_backend::{
    Arithmetic, Backend, Buffer, Counters, DeviceFacts, Error, Op, Pool, RecordLayout, Recorder, Result, Site,
    SlotWriter, Submission,
};

use crate::adapter::AdapterChoice;
use crate::device::{Block, Device};
use crate::experts;
use crate::memory::Stored;
use crate::pipeline::{Kernel, Registry};
use crate::pool::{ChunkAccess, Chunks};
use crate::staging::{self, SlotCopy, Target};
use crate::tuning;

/// How to open the backend.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which adapter.
    pub adapter: AdapterChoice,
    /// Bytes of a pool chunk, where it shall be smaller than the device allows.
    pub chunk_bytes: Option<u64>,
    /// How kernels reach the chunks; `Array` falls back to `OneByOne` where the device takes no arrays of buffers.
    pub chunk_access: ChunkAccess,
}

impl Options {
    /// The widest chunks and the fewest dispatches that the adapter allows.
    pub fn new(adapter: AdapterChoice) -> Self {
        Options { adapter, chunk_bytes: None, chunk_access: ChunkAccess::Array }
    }
}

/// A device that wgpu has opened.
pub struct WgpuBackend {
    shared: Arc<Shared>,
    options: Options,
}

/// What slot writers share with their backend.
pub(crate) struct Shared {
    pub(crate) device: Device,
    pub(crate) registry: Registry,
    pub(crate) scratch: Scratch,
    queue: Mutex<Queue>,
}

/// What waits for the next submission, and the submissions that nobody has waited for.
#[derive(Default)]
struct Queue {
    slots: Vec<SlotCopy>,
    uploaded: u64,
    last: u64,
    unfinished: BTreeMap<u64, wgpu::SubmissionIndex>,
}

/// A buffer for the permuted inputs of one operation; operations run in order, so one is enough for all.
#[derive(Default)]
pub(crate) struct Scratch(Mutex<Option<Arc<Block>>>);

impl Scratch {
    /// A buffer of at least `bytes` bytes.
    pub(crate) fn at_least(&self, device: &Device, bytes: u64) -> Result<Arc<Block>> {
        let mut held = self.0.lock();
        match &*held {
            Some(block) if block.raw.size() >= bytes => Ok(Arc::clone(block)),
            _ => {
                let block = Arc::new(device.block("permuted inputs", bytes, wgpu::BufferUsages::STORAGE)?);
                *held = Some(Arc::clone(&block));
                Ok(block)
            }
        }
    }
}

/// One step of a submission, checked and bound.
pub(crate) enum Step {
    /// A kernel.
    Dispatch(Dispatch),
    /// A copy between buffers.
    Copy(BufferCopy),
}

/// A copy that was found to fit both buffers.
pub(crate) struct BufferCopy {
    from: wgpu::Buffer,
    from_offset: u64,
    to: wgpu::Buffer,
    to_offset: u64,
    bytes: u64,
}

/// A kernel with everything it takes.
pub(crate) struct Dispatch {
    pub(crate) kernel: Arc<Kernel>,
    /// The pool's group, where the kernel has one.
    pub(crate) pool: Option<wgpu::BindGroup>,
    pub(crate) arguments: wgpu::BindGroup,
    /// At most [`IMMEDIATE_BYTES`](crate::device::IMMEDIATE_BYTES) of them.
    pub(crate) immediates: Vec<u32>,
    /// Workgroups.
    pub(crate) grid: (u32, u32),
}

impl WgpuBackend {
    /// Opens an adapter.
    ///
    /// # Errors
    /// [`Error::Unavailable`] where there is no such adapter, or it lacks something that is needed.
    pub fn open(options: Options) -> Result<Self> {
        Self::with_registry(options, Registry::default())
    }

    pub(crate) fn with_registry(options: Options, registry: Registry) -> Result<Self> {
        let device = Device::open(&options.adapter)?;
        let shared = Shared { device, registry, scratch: Scratch::default(), queue: Mutex::default() };
        Ok(WgpuBackend { shared: Arc::new(shared), options })
    }

    #[cfg(test)]
    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }
}

impl Shared {
    /// Queues a filled staging buffer for the next submission.
    pub(crate) fn write_slot(&self, copy: SlotCopy) -> Result<()> {
        self.device.ledger.uploaded.fetch_add(copy.bytes(), Relaxed);
        let mut queue = self.queue.lock();
        queue.slots.push(copy);
        if queue.slots.len() >= tuning::MOST_PENDING_SLOTS {
            self.flush(&mut queue, &[])?;
        }
        Ok(())
    }

    /// Submits single steps, past the operations.
    #[cfg(test)]
    pub(crate) fn run(&self, steps: &[Step]) -> Result<Submission> {
        self.flush(&mut self.queue.lock(), steps)
    }

    /// Submits pending slot writes, then `steps`.
    fn flush(&self, queue: &mut Queue, steps: &[Step]) -> Result<Submission> {
        let mut encoder = self.device.raw.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        let slots = std::mem::take(&mut queue.slots);
        slots.iter().for_each(|copy| copy.encode(&mut encoder));
        encode(&mut encoder, steps);
        let index = self.device.queue.submit([encoder.finish()]);
        slots.into_iter().for_each(SlotCopy::recycle);
        self.device.collect()?;

        self.device.ledger.submissions.fetch_add(1, Relaxed);
        let dispatches = steps.iter().filter(|step| matches!(step, Step::Dispatch(_))).count() as u64;
        self.device.ledger.dispatches.fetch_add(dispatches, Relaxed);
        queue.uploaded = 0;
        queue.last += 1;
        queue.unfinished.insert(queue.last, index);
        Ok(Submission(queue.last))
    }

    /// Drops submissions up to `last` from the list: they are finished.
    fn forget(&self, last: u64) {
        self.queue.lock().unfinished.retain(|&submission, _| submission > last);
    }

    /// Checks and binds one operation.
    fn steps(&self, arithmetic: Arithmetic, site: Site, op: &Op, steps: &mut Vec<Step>) -> Result<()> {
        match op {
            Op::ExpertsIn(op) => experts::gate_up(self, arithmetic, op, steps),
            Op::ExpertsOut(op) => experts::down(self, arithmetic, op, steps),
            Op::Copy(op) if op.from.same(&op.to) => {
                Err(Error::Refused(format!("a copy at `{site}` within one buffer")))
            }
            Op::Copy(op) => {
                steps.push(Step::Copy(BufferCopy {
                    from: Stored::of(&op.from)?.range(op.from_offset, op.bytes)?.clone(),
                    from_offset: op.from_offset,
                    to: Stored::of(&op.to)?.range(op.to_offset, op.bytes)?.clone(),
                    to_offset: op.to_offset,
                    bytes: op.bytes,
                }));
                Ok(())
            }
            _ => Err(Error::Unavailable(format!(
                "the wgpu backend has no kernel yet for an operation of `{site}`; use `--backend reference`"
            ))),
        }
    }
}

/// Records `steps`, dispatches that follow one another in one pass.
fn encode(encoder: &mut wgpu::CommandEncoder, steps: &[Step]) {
    for run in steps.chunk_by(|a, b| matches!((a, b), (Step::Dispatch(_), Step::Dispatch(_)))) {
        if let [Step::Copy(copy)] = run {
            encoder.copy_buffer_to_buffer(&copy.from, copy.from_offset, &copy.to, copy.to_offset, copy.bytes);
            continue;
        }
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        for step in run {
            if let Step::Dispatch(dispatch) = step {
                dispatch.encode(&mut pass);
            }
        }
    }
}

impl Dispatch {
    fn encode(&self, pass: &mut wgpu::ComputePass<'_>) {
        pass.set_pipeline(&self.kernel.pipeline);
        if let Some(pool) = &self.pool {
            pass.set_bind_group(0, pool, &[]);
        }
        pass.set_bind_group(self.kernel.group, &self.arguments, &[]);
        pass.set_immediates(0, bytemuck::cast_slice(&self.immediates));
        pass.dispatch_workgroups(self.grid.0, self.grid.1, 1);
    }
}

impl Backend for WgpuBackend {
    fn facts(&self) -> &DeviceFacts {
        &self.shared.device.facts
    }

    fn counters(&self) -> Counters {
        self.shared.device.ledger.counters()
    }

    fn alloc(&self, label: &str, bytes: u64) -> Result<Buffer> {
        Ok(Buffer::new(Stored::new(&self.shared.device, label, bytes)?))
    }

    fn upload(&self, target: &Buffer, offset: u64, bytes: &[u8]) -> Result<()> {
        let device = &self.shared.device;
        let raw = Stored::of(target)?.range(offset, bytes.len() as u64)?;
        let mut queue = self.shared.queue.lock();
        device.queue.write_buffer(raw, offset, bytes);
        device.ledger.uploaded.fetch_add(bytes.len() as u64, Relaxed);
        queue.uploaded += bytes.len() as u64;
        if queue.uploaded >= tuning::MOST_PENDING_BYTES {
            self.shared.flush(&mut queue, &[])?;
            device.wait(None)?;
        }
        device.check()
    }

    fn read(&self, source: &Buffer, offset: u64, into: &mut [u8]) -> Result<()> {
        let (device, bytes) = (&self.shared.device, into.len() as u64);
        let raw = Stored::of(source)?.range(offset, bytes)?;
        if into.is_empty() {
            return Ok(());
        }
        let block = device.block("readback", bytes, wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST)?;
        let mut encoder = device.raw.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        encoder.copy_buffer_to_buffer(raw, offset, &block.raw, 0, bytes);
        let last = {
            let queue = self.shared.queue.lock();
            device.queue.submit([encoder.finish()]);
            queue.last
        };
        // Whether it worked is seen when the range is asked for.
        block.raw.map_async(wgpu::MapMode::Read, .., |_| ());
        device.wait(None)?;
        self.shared.forget(last);
        let view = block.raw.get_mapped_range(..).map_err(|error| Error::Refused(error.to_string()))?;
        into.copy_from_slice(&view);
        device.ledger.readbacks.fetch_add(1, Relaxed);
        Ok(())
    }

    fn alloc_pool(&self, layout: &RecordLayout, slots: u32) -> Result<Pool> {
        let Options { chunk_bytes, chunk_access, .. } = self.options;
        Ok(Pool::new(Chunks::new(&self.shared.device, layout, slots, chunk_bytes, chunk_access)?))
    }

    fn open_slot(&self, pool: &Pool, slot: u32) -> Result<Box<dyn SlotWriter>> {
        let chunks = Chunks::of(pool)?;
        let (buffer, offset) = chunks.place(slot)?;
        let target = Target { buffer: buffer.clone(), offset, _open: chunks.open(slot)? };
        staging::writer(&self.shared, &chunks.staging, target)
    }

    fn submit(&self, work: Recorder) -> Result<Submission> {
        self.shared.device.check()?;
        // Held throughout, since the scratch buffer is shared and submissions are ordered.
        let mut queue = self.shared.queue.lock();
        let mut steps = Vec::new();
        for (site, op) in work.steps() {
            self.shared.steps(work.arithmetic(), *site, op, &mut steps)?;
        }
        self.shared.flush(&mut queue, &steps)
    }

    fn wait(&self, submission: Submission) -> Result<()> {
        let index = self.shared.queue.lock().unfinished.get(&submission.0).cloned();
        // What is no longer listed was seen to finish before.
        if let Some(index) = index {
            self.shared.device.wait(Some(index))?;
            self.shared.forget(submission.0);
        }
        self.shared.device.check()
    }
}
