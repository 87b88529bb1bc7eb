//! Owns: the [`Backend`] on wgpu: memory, slot writes, submissions and readbacks, in the order they were made.
//! Refuses: operations without a kernel, and memory of other backends, before anything is encoded.
//! Invariants: one submission at a time is encoded; pending slot writes go first in it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use parking_lot::Mutex;
use ss_backend::{
    Backend, Buffer, Counters, DeviceFacts, Error, Pool, RecordLayout, Recorder, Result, SlotWriter, Submission,
};

use crate::adapter::AdapterChoice;
use crate::device::{Block, Device};
use crate::encoding::Encoding;
use crate::groups::Groups;
use crate::memory::Stored;
use crate::pool::{ChunkAccess, Chunks};
use crate::registry::{Pipeline, Registry};
use crate::staging::{self, SlotCopy, Target};
use crate::tuning;
use crate::{ops, overrides};

/// How to open the backend.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which adapter.
    pub adapter: AdapterChoice,
    /// Bytes of a pool chunk, where it shall be smaller than the device allows.
    pub chunk_bytes: Option<u64>,
    /// How kernels reach the chunks; `Array` falls back to `OneByOne` where the device takes no arrays of buffers.
    pub chunk_access: ChunkAccess,
    /// Whether prompt products of the fast profile take F16 inputs; none: where the adapter multiplies matrices of them
    /// (engine.md 3.5).
    pub f16_inputs: Option<bool>,
    /// Most bytes of a binding, where it shall be smaller than the device allows.
    pub binding_bytes: Option<u64>,
}

impl Options {
    /// The widest chunks and the fewest dispatches that the adapter allows.
    pub fn new(adapter: AdapterChoice) -> Self {
        Options { adapter, chunk_bytes: None, chunk_access: ChunkAccess::Array, f16_inputs: None, binding_bytes: None }
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
    pub(crate) groups: Groups,
    pub(crate) scratch: Scratch,
    /// Zeros between operations: each puts back what it counts.
    pub(crate) tickets: Scratch,
    /// Whether prompt products of the fast profile take F16 inputs.
    pub(crate) f16_inputs: bool,
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

/// A buffer for numbers that only one operation needs; operations run in order, so one is enough for all.
#[derive(Default)]
pub(crate) struct Scratch(Mutex<Scratches>);

#[derive(Default)]
struct Scratches {
    block: Option<Block>,
    /// Too small now, but named by steps that are not submitted yet.
    outgrown: Vec<Block>,
}

impl Scratch {
    /// A buffer of at least `bytes` bytes.
    pub(crate) fn at_least(&self, device: &Device, bytes: u64) -> Result<wgpu::Buffer> {
        let mut held = self.0.lock();
        if let Some(block) = held.block.as_ref().filter(|block| block.raw.size() >= bytes) {
            return Ok(block.raw.clone());
        }
        let block = device.block("scratch", bytes, wgpu::BufferUsages::STORAGE)?;
        let raw = block.raw.clone();
        let outgrown = held.block.replace(block);
        held.outgrown.extend(outgrown);
        Ok(raw)
    }

    /// After submission: frees what is outgrown.
    fn submitted(&self) {
        self.0.lock().outgrown.clear();
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
    pub(crate) from: wgpu::Buffer,
    pub(crate) from_offset: u64,
    pub(crate) to: wgpu::Buffer,
    pub(crate) to_offset: u64,
    pub(crate) bytes: u64,
}

/// A kernel with everything it takes.
pub(crate) struct Dispatch {
    pub(crate) pipeline: Arc<Pipeline>,
    pub(crate) arguments: wgpu::BindGroup,
    /// The pool's group, where the kernel has one.
    pub(crate) pool: Option<wgpu::BindGroup>,
    /// At most [`IMMEDIATE_BYTES`](crate::device::IMMEDIATE_BYTES) of them.
    pub(crate) immediates: Vec<u32>,
    /// Workgroups.
    pub(crate) grid: [u32; 3],
}

impl WgpuBackend {
    /// Opens an adapter.
    ///
    /// # Errors
    /// [`Error::Unavailable`] where there is no such adapter, or it lacks something that is needed.
    pub fn open(options: Options) -> Result<Self> {
        Self::with_registry(options, Registry::with_overrides(overrides::all()))
    }

    pub(crate) fn with_registry(options: Options, registry: Registry) -> Result<Self> {
        let mut device = Device::open(&options.adapter)?;
        let most = &mut device.limits.max_storage_buffer_binding_size;
        *most = options.binding_bytes.map_or(*most, |bytes| bytes.min(*most));
        let f16_inputs = options.f16_inputs.unwrap_or(!device.facts.matrix_tiles.is_empty());
        let (groups, scratch, tickets) = (Groups::default(), Scratch::default(), Scratch::default());
        let shared = Shared { device, registry, groups, scratch, tickets, f16_inputs, queue: Mutex::default() };
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
        self.scratch.submitted();
        self.tickets.submitted();
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
        pass.set_pipeline(&self.pipeline.raw);
        pass.set_bind_group(0, &self.arguments, &[]);
        if let Some(pool) = &self.pool {
            pass.set_bind_group(1, pool, &[]);
        }
        pass.set_immediates(0, bytemuck::cast_slice(&self.immediates));
        let [x, y, z] = self.grid;
        pass.dispatch_workgroups(x, y, z);
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
            let (shared, arithmetic) = (&*self.shared, work.arithmetic());
            ops::encode(&mut Encoding { shared, arithmetic, site: *site, op: ops::name(op), steps: &mut steps }, op)?;
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
