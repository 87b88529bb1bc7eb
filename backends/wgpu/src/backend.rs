//! Owns: the [`Backend`] on wgpu: memory, slot writes, submissions and readbacks, in the order they were made.
//! Refuses: operations without a kernel, and memory of other backends, before anything is encoded.
//! Invariants: one submission at a time is encoded; pending slot writes go first in it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use parking_lot::Mutex;
use ss_backend::{
    Backend, Buffer, Counters, DeviceFacts, DeviceKind, Encoded, Error, Pool, Readback, RecordLayout, Result,
    SlotWriter, Steps, Submission, Wanted, Work,
};

use crate::adapter::AdapterChoice;
use crate::ahead::{Ahead, copy_out, map};
use crate::clock::{Clock, Timed};
use crate::device::{Block, Device, OPEN};
#[cfg(all(test, feature = "msl"))]
use crate::encoding::View;
use crate::encoding::{Encoding, GRID_BYTES, MOST_DECIDED};
use crate::groups::Groups;
use crate::in_place::{self, Sharing, SlotWrites};
use crate::memory::Stored;
use crate::pool::{ChunkAccess, Chunks};
use crate::pulse::Pulse;
use crate::registry::{Inputs, Kernel, Key, Pipeline, Registry};
use crate::staging::{self, SlotCopy, Target};
use crate::tuning::{self, GemmTile, LARGE_TILE, SMALL_TILE};
use crate::uploads::Ring;
use crate::{Kernels, ops, overrides};

/// How to open the backend.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which adapter.
    pub adapter: AdapterChoice,
    /// Bytes of a pool chunk, where it shall be smaller than the device allows.
    pub chunk_bytes: Option<u64>,
    /// How kernels reach the chunks; `Array` falls back to `OneByOne` where the device takes no arrays of buffers.
    pub chunk_access: ChunkAccess,
    /// Whether prompt products of the fast profile use matrix units where the device has them (engine.md 3.5). The
    /// device proves them with a self-test of its own.
    pub matrix_units: bool,
    /// Whether they round to F16 without matrix units too. It costs accuracy and gains nothing: for tests.
    pub f16_inputs: bool,
    /// Whether adapters without a GPU multiply prompt rows in the tiles of a GPU, which takes them seconds to compile: for tests.
    pub large_tiles: bool,
    /// Whether the device is kept from slowing down while a reply waits for records.
    pub keep_awake: bool,
    /// How records get into slots.
    pub slot_writes: SlotWrites,
    /// Most bytes of a binding, where it shall be smaller than the device allows.
    pub binding_bytes: Option<u64>,
    /// Which kernels run: the WGSL ones, or those that replace some of them.
    pub kernels: Kernels,
    /// What [`WgpuBackend::pipeline_cache`] gave for this adapter earlier; damaged bytes count as none.
    pub pipeline_cache: Option<Vec<u8>>,
    /// Whether each submission is waited for and its time on the device counted, under [`WHOLE`](crate::WHOLE) among the
    /// stages and, where each kernel is timed, by kernel too; for benches.
    pub timed: Timed,
}

impl Options {
    /// The widest chunks and the fewest dispatches that the adapter allows.
    pub fn new(adapter: AdapterChoice) -> Self {
        Options {
            adapter,
            chunk_bytes: None,
            chunk_access: ChunkAccess::Array,
            matrix_units: false,
            f16_inputs: false,
            large_tiles: false,
            keep_awake: false,
            slot_writes: SlotWrites::InPlace,
            binding_bytes: None,
            kernels: Kernels::Auto,
            pipeline_cache: None,
            timed: Timed::Nothing,
        }
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
    /// Workgroups of each dispatch, where one decides about others.
    pub(crate) grids: Scratch,
    /// What prompt products of the fast profile multiply.
    pub(crate) rounded: Inputs,
    /// Rows and outputs of a workgroup of prompt products.
    pub(crate) tile: GemmTile,
    /// How slots are written in place, where they are.
    pub(crate) sharing: Option<Box<dyn Sharing>>,
    /// Where the device is kept awake.
    pub(crate) pulse: Option<Pulse>,
    clock: Option<Clock>,
    /// Free clocks of work that is encoded ahead.
    clocks: Mutex<Vec<Clock>>,
    /// Free buffers for readbacks to land in, each as large as the largest it served.
    readbacks: Mutex<Vec<Block>>,
    pub(crate) queue: Mutex<Queue>,
}

/// What waits for the next submission, and the submissions that nobody has waited for.
#[derive(Default)]
pub(crate) struct Queue {
    pub(crate) slots: Vec<SlotCopy>,
    /// Where small uploads wait, if processor and device share memory.
    pub(crate) ring: Option<Ring>,
    pub(crate) uploaded: u64,
    pub(crate) last: u64,
    /// Submissions up to this one are known to be finished.
    pub(crate) finished: u64,
    pub(crate) unfinished: BTreeMap<u64, wgpu::SubmissionIndex>,
}

impl Queue {
    /// Records the copies of small uploads that wait.
    pub(crate) fn encode_uploads(&mut self, encoder: &mut wgpu::CommandEncoder) {
        if let Some(ring) = self.ring.as_mut().filter(|ring| ring.is_pending()) {
            ring.encode(encoder, self.last + 1);
        }
    }

    /// The same as commands of their own, if some wait.
    fn uploads(&mut self, device: &wgpu::Device) -> Option<wgpu::CommandBuffer> {
        self.ring.as_ref().filter(|ring| ring.is_pending())?;
        let mut encoder = device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        self.encode_uploads(&mut encoder);
        Some(encoder.finish())
    }

    /// Whether something waits for a submission that is no command.
    pub(crate) fn is_pending(&self) -> bool {
        !self.slots.is_empty() || self.ring.as_ref().is_some_and(Ring::is_pending)
    }
}

/// A buffer for numbers that only one operation needs; operations run in order, so one is enough for all.
pub(crate) struct Scratch {
    usage: wgpu::BufferUsages,
    held: Mutex<Scratches>,
}

#[derive(Default)]
struct Scratches {
    block: Option<Arc<Block>>,
    /// Too small now, but named by steps that are not submitted yet.
    outgrown: Vec<Arc<Block>>,
}

impl Scratch {
    fn new(usage: wgpu::BufferUsages) -> Self {
        Scratch { usage, held: Mutex::default() }
    }

    /// A buffer of at least `bytes` bytes.
    pub(crate) fn at_least(&self, device: &Device, bytes: u64) -> Result<wgpu::Buffer> {
        let mut held = self.held.lock();
        if let Some(block) = held.block.as_ref().filter(|block| block.raw.size() >= bytes) {
            return Ok(block.raw.clone());
        }
        let block = device.block("scratch", bytes, self.usage)?;
        let raw = block.raw.clone();
        let outgrown = held.block.replace(Arc::new(block));
        held.outgrown.extend(outgrown);
        Ok(raw)
    }

    /// Everything that steps encoded just now may name.
    pub(crate) fn held(&self) -> Vec<Arc<Block>> {
        let held = self.held.lock();
        held.block.iter().chain(&held.outgrown).cloned().collect()
    }

    /// After submission: frees what is outgrown.
    pub(crate) fn submitted(&self) {
        self.held.lock().outgrown.clear();
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
    /// Whether it may take the workgroups of all dispatches after it.
    pub(crate) decides: Option<Decision>,
    /// What it was made of, for tests that run kernels elsewhere.
    #[cfg(all(test, feature = "msl"))]
    pub(crate) made_of: MadeOf,
}

/// What a dispatch is made of.
#[cfg(all(test, feature = "msl"))]
pub(crate) struct MadeOf {
    pub(crate) kernel: &'static Kernel,
    pub(crate) key: Key,
    pub(crate) views: Vec<View>,
    /// The chunks of the pool that it sees.
    pub(crate) chunks: Vec<wgpu::Buffer>,
}

/// What a kernel is told that decides about the dispatches after it.
pub(crate) struct Decision {
    /// Where in its immediates the range of those dispatches goes.
    pub(crate) range_at: usize,
}

impl WgpuBackend {
    /// Opens an adapter.
    ///
    /// # Errors
    /// [`Error::Unavailable`] where there is no such adapter, or it lacks something that is needed.
    pub fn open(options: Options) -> Result<Self> {
        let kernels = options.kernels;
        let backend = Self::with_registry(options, Registry::with_overrides(overrides::wanted(kernels)))?;
        if kernels == Kernels::Msl && !backend.uses_own_kernels() {
            let device = &backend.shared.device.facts.device;
            return Err(Error::Unavailable(format!("`{device}` takes no kernels in Metal's language")));
        }
        Ok(backend)
    }

    pub(crate) fn with_registry(options: Options, registry: Registry) -> Result<Self> {
        let sharing = match options.slot_writes {
            SlotWrites::InPlace => sharing(&options.adapter),
            SlotWrites::Staged => None,
        };
        Self::with(options, registry, sharing)
    }

    /// With a way of its own to have the device and the processor see the same memory.
    pub(crate) fn with(mut options: Options, registry: Registry, sharing: Option<Box<dyn Sharing>>) -> Result<Self> {
        let mut device = Device::open(&options.adapter, options.pipeline_cache.take().as_deref(), options.timed)?;
        let most = &mut device.limits.max_storage_buffer_binding_size;
        *most = options.binding_bytes.map_or(*most, |bytes| bytes.min(*most));
        let storage = wgpu::BufferUsages::STORAGE | OPEN;
        let rounded = match device.units.filter(|_| options.matrix_units) {
            Some(units) => Inputs::Units(units),
            None if options.f16_inputs => Inputs::F16,
            None => Inputs::F32,
        };
        let software = device.facts.kind == DeviceKind::Software;
        let tile = if software && !options.large_tiles { SMALL_TILE } else { LARGE_TILE };
        let ring = sharing.as_deref().and_then(|sharing| Ring::new(&device, sharing));
        let shared = Shared {
            pulse: options.keep_awake.then(Pulse::new),
            sharing,
            clock: Clock::new(&device)?,
            device,
            registry,
            groups: Groups::default(),
            scratch: Scratch::new(storage),
            tickets: Scratch::new(storage),
            grids: Scratch::new(storage | wgpu::BufferUsages::INDIRECT | wgpu::BufferUsages::COPY_DST),
            rounded,
            tile,
            clocks: Mutex::default(),
            readbacks: Mutex::default(),
            queue: Mutex::new(Queue { ring, ..Queue::default() }),
        };
        Ok(WgpuBackend { shared: Arc::new(shared), options })
    }

    /// How many pipelines were built since it was opened.
    pub fn pipelines(&self) -> usize {
        self.shared.registry.count()
    }

    /// Whether kernels in the device's own language replace some of the WGSL.
    pub fn uses_own_kernels(&self) -> bool {
        let api = self.shared.device.api.to_str();
        overrides::wanted(self.options.kernels).iter().any(|replacement| !replacement.kernels(api).is_empty())
    }

    /// Kernels in the device's own language that did not build, so that the WGSL runs in their place.
    pub fn refused_kernels(&self) -> Vec<&'static str> {
        self.shared.registry.refused()
    }

    /// Whether prompt products of the fast profile round to F16.
    pub fn takes_f16_inputs(&self) -> bool {
        self.shared.rounded != Inputs::F32
    }

    /// Whether they multiply with matrix units.
    pub fn uses_matrix_units(&self) -> bool {
        matches!(self.shared.rounded, Inputs::Units(_))
    }

    pub(crate) fn device(&self) -> &Device {
        &self.shared.device
    }

    /// Before anything else has it.
    #[cfg(all(test, feature = "msl"))]
    pub(crate) fn shared_mut(&mut self) -> &mut Shared {
        Arc::get_mut(&mut self.shared).expect("a device that is in use")
    }

    #[cfg(test)]
    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }
}

#[cfg(target_vendor = "apple")]
use crate::apple::sharing;

/// Vulkan's memory says of itself whether the processor sees it.
#[cfg(not(target_vendor = "apple"))]
fn sharing(_: &AdapterChoice) -> Option<Box<dyn Sharing>> {
    Some(Box::new(crate::mapped::Mapped))
}

impl Shared {
    /// Turns operations into steps, or only puts their kernels down.
    pub(crate) fn encode(
        &self,
        work: Work<'_>,
        steps: &mut Vec<Step>,
        mut wanted: Option<&mut Vec<(&'static Kernel, Key)>>,
    ) -> Result<()> {
        for (site, op) in work.steps {
            let (arithmetic, wanted) = (work.arithmetic, wanted.as_deref_mut());
            let mut encoding = Encoding { shared: self, arithmetic, site: *site, op: op.name(), steps, wanted };
            ops::encode(&mut encoding, op)?;
        }
        Ok(())
    }

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

    /// Has the next submission write into a buffer, in the order in which it is asked to.
    pub(crate) fn write(&self, queue: &mut Queue, (to, offset): (&wgpu::Buffer, u64), bytes: &[u8]) {
        let raw = &self.device.queue;
        if let (Some(ring), Some(sharing)) = (&mut queue.ring, &self.sharing) {
            let hand_on = |ring: &wgpu::Buffer, at: u64| sharing.publish(raw, ring, at, bytes);
            if ring.put((to, offset), bytes, queue.finished, hand_on) {
                return;
            }
            // wgpu's own writes go before all commands.
            if ring.is_pending() {
                self.submit_buffers(queue, Vec::new());
            }
        }
        raw.write_buffer(to, offset, bytes);
    }

    /// Submits single steps, past the operations.
    #[cfg(test)]
    pub(crate) fn run(&self, steps: &[Step]) -> Result<Submission> {
        self.flush(&mut self.queue.lock(), steps)
    }

    /// Submits pending slot writes, then `steps`.
    fn flush(&self, queue: &mut Queue, steps: &[Step]) -> Result<Submission> {
        let started = Instant::now();
        let dispatches = || steps.iter().filter_map(Step::dispatch);
        let grids = self.grids_of(dispatches())?;
        let buffer = grids.is_some().then(|| self.grids_buffer()).transpose()?;
        if let (Some(grids), Some(buffer)) = (&grids, &buffer) {
            self.write(queue, (buffer, 0), bytemuck::cast_slice(grids));
        }
        let count = dispatches().count() as u32;
        // Without a kernel there is nothing to mark.
        let clock = self.clock.as_ref().filter(|_| count > 0);
        let mut encoder = self.device.raw.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        encode(&mut encoder, steps, Series { first: 0, dispatches: count, grids: buffer.as_ref() }, clock);
        if let Some(clock) = clock {
            clock.resolve(&mut encoder, count);
        }
        let commands = encoder.finish();
        self.device.ledger.encoded(started);
        let started = Instant::now();
        let (number, _) = self.submit_buffers(queue, vec![commands]);
        self.scratch.submitted();
        self.tickets.submitted();
        self.device.collect()?;
        if let Some(clock) = clock {
            self.device.ledger.timed(&clock.measure(&self.device, count)?, &clock.labels(dispatches()));
            self.device.ledger.flew(started);
        }
        self.device.ledger.dispatches.fetch_add(u64::from(count), Relaxed);
        Ok(Submission(number))
    }

    /// The workgroups of every dispatch if one of them decides about others.
    pub(crate) fn grids_of<'a>(
        &self,
        dispatches: impl Iterator<Item = &'a Dispatch> + Clone,
    ) -> Result<Option<Vec<[u32; 3]>>> {
        if dispatches.clone().all(|dispatch| dispatch.decides.is_none()) {
            return Ok(None);
        }
        let grids: Vec<[u32; 3]> = dispatches.map(|dispatch| dispatch.grid).collect();
        match grids.len() {
            count if count > MOST_DECIDED => {
                Err(Error::Refused(format!("{count} dispatches after a lookup, at most {MOST_DECIDED} are possible")))
            }
            _ => Ok(Some(grids)),
        }
    }

    /// Where the workgroups of dispatches lie that others decide about.
    pub(crate) fn grids_buffer(&self) -> Result<wgpu::Buffer> {
        self.grids.at_least(&self.device, MOST_DECIDED as u64 * GRID_BYTES)
    }

    /// A buffer that `bytes` bytes can be read back through.
    pub(crate) fn take_readback(&self, bytes: u64) -> Result<Block> {
        match self.readbacks.lock().pop().filter(|block| block.raw.size() >= bytes) {
            Some(block) => Ok(block),
            None => self.device.block("readback", bytes, wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST),
        }
    }

    /// Gives such a buffer back.
    pub(crate) fn give_readback(&self, block: Block) {
        self.readbacks.lock().push(block);
    }

    /// A clock for work of its own, where work is timed and there is something to mark.
    pub(crate) fn take_clock(&self, dispatches: u32) -> Result<Option<Clock>> {
        if self.clock.is_none() || dispatches == 0 {
            return Ok(None);
        }
        match self.clocks.lock().pop() {
            Some(clock) => Ok(Some(clock)),
            None => Clock::new(&self.device),
        }
    }

    /// Gives such a clock back.
    pub(crate) fn give_clock(&self, clock: Clock) {
        self.clocks.lock().push(clock);
    }

    /// Drops submissions up to `last` from the list: they are finished.
    pub(crate) fn forget(&self, last: u64) {
        let mut queue = self.queue.lock();
        queue.unfinished.retain(|&submission, _| submission > last);
        queue.finished = queue.finished.max(last);
    }
}

impl Step {
    /// The kernel, where it is one.
    pub(crate) fn dispatch(&self) -> Option<&Dispatch> {
        match self {
            Step::Dispatch(dispatch) => Some(dispatch),
            Step::Copy(_) => None,
        }
    }
}

/// The dispatches that steps belong to.
#[derive(Clone, Copy)]
pub(crate) struct Series<'a> {
    /// The number of the first.
    pub(crate) first: u32,
    /// All of them, other parts included.
    pub(crate) dispatches: u32,
    /// Where their workgroups lie, if one decides about others.
    pub(crate) grids: Option<&'a wgpu::Buffer>,
}

/// Records `steps`, dispatches that follow one another in one pass, and returns the number of the next dispatch.
pub(crate) fn encode(
    encoder: &mut wgpu::CommandEncoder,
    steps: &[Step],
    series: Series<'_>,
    clock: Option<&Clock>,
) -> u32 {
    let Series { first: mut number, dispatches, grids } = series;
    for run in steps.chunk_by(|a, b| matches!((a, b), (Step::Dispatch(_), Step::Dispatch(_)))) {
        if let [Step::Copy(copy)] = run {
            encoder.copy_buffer_to_buffer(&copy.from, copy.from_offset, &copy.to, copy.to_offset, copy.bytes);
            continue;
        }
        let length = run.len() as u32;
        let timestamp_writes =
            clock.and_then(|clock| clock.writes(number == 0, number + length == dispatches, dispatches));
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor { label: None, timestamp_writes });
        for step in run {
            if let Step::Dispatch(dispatch) = step {
                dispatch.encode(&mut pass, Place { number, dispatches, grids });
                if let Some(clock) = clock {
                    clock.behind(&mut pass, number, dispatches);
                }
                number += 1;
            }
        }
    }
    number
}

/// Where a dispatch stands in its submission.
struct Place<'a> {
    number: u32,
    dispatches: u32,
    grids: Option<&'a wgpu::Buffer>,
}

impl Dispatch {
    fn encode(&self, pass: &mut wgpu::ComputePass<'_>, place: Place<'_>) {
        pass.set_pipeline(&self.pipeline.raw);
        pass.set_bind_group(0, &self.arguments, &[]);
        if let Some(pool) = &self.pool {
            pass.set_bind_group(1, pool, &[]);
        }
        let mut immediates = self.immediates.clone();
        if let Some(range) = self.decides.as_ref().and_then(|d| immediates.get_mut(d.range_at..d.range_at + 2)) {
            range.copy_from_slice(&[place.number + 1, place.dispatches]);
        }
        pass.set_immediates(0, bytemuck::cast_slice(&immediates));
        match place.grids {
            // What decides writes the grids, and a buffer is not written and read by one dispatch.
            Some(grids) if self.decides.is_none() => {
                pass.dispatch_workgroups_indirect(grids, u64::from(place.number) * GRID_BYTES);
            }
            _ => {
                let [x, y, z] = self.grid;
                pass.dispatch_workgroups(x, y, z);
            }
        }
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
        self.shared.write(&mut queue, (raw, offset), bytes);
        device.ledger.uploaded.fetch_add(bytes.len() as u64, Relaxed);
        queue.uploaded += bytes.len() as u64;
        if queue.uploaded >= tuning::MOST_PENDING_BYTES {
            self.shared.flush(&mut queue, &[])?;
            device.wait(None)?;
        }
        device.check()
    }

    fn read_all(&self, parts: &mut [Readback<'_>]) -> Result<()> {
        let device = &self.shared.device;
        let wanted: Vec<Wanted> = parts.iter().map(Readback::wanted).collect();
        let bytes: u64 = wanted.iter().map(|wanted| wanted.bytes).sum();
        if bytes == 0 {
            return Ok(());
        }
        let mut encoder = device.raw.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        let block = self.shared.take_readback(bytes)?;
        // What is refused here takes no upload with it.
        copy_out(&mut encoder, &wanted, &block)?;
        let (last, index) = {
            let mut queue = self.shared.queue.lock();
            let uploads = queue.uploads(&device.raw);
            (queue.last, device.queue.submit(uploads.into_iter().chain([encoder.finish()])))
        };
        let landed = Arc::default();
        map(&block, bytes, &landed);
        let started = Instant::now();
        device.wait_awake(index, &landed)?;
        device.ledger.flew(started);
        self.shared.forget(last);
        let read = self.shared.read_out(block, bytes)?;
        let mut rest = &read[..];
        for part in parts {
            let (these, after) = rest.split_at(part.into.len());
            part.into.copy_from_slice(these);
            rest = after;
        }
        Ok(())
    }

    fn alloc_pool(&self, layout: &RecordLayout, slots: u32) -> Result<Pool> {
        let Options { chunk_bytes, chunk_access, .. } = self.options;
        let how = (chunk_access, self.shared.sharing.as_deref());
        Ok(Pool::new(Chunks::new(&self.shared.device, layout, slots, chunk_bytes, how)?))
    }

    fn open_slot(&self, pool: &Pool, slot: u32) -> Result<Box<dyn SlotWriter>> {
        let chunks = Chunks::of(pool)?;
        if let Some(place) = chunks.seen_place(slot) {
            return in_place::writer(&self.shared, &place, chunks.open(slot)?);
        }
        let (buffer, offset) = chunks.place(slot)?;
        let target = Target { buffer: buffer.clone(), offset, _open: chunks.open(slot)? };
        staging::writer(&self.shared, &chunks.staging, target)
    }

    fn keep_awake(&self) -> Option<Box<dyn Send>> {
        self.shared.pulse.as_ref()?.hold(&self.shared.device)
    }

    fn flush(&self) -> Result<()> {
        let mut queue = self.shared.queue.lock();
        if !queue.slots.is_empty() {
            self.shared.submit_buffers(&mut queue, Vec::new());
        }
        self.shared.device.check()
    }

    fn prepare(&self, work: &[Work<'_>], progress: Steps<'_>) -> Result<()> {
        self.shared.device.check()?;
        let mut wanted = Vec::new();
        {
            let _queue = self.shared.queue.lock();
            work.iter().try_for_each(|work| self.shared.encode(*work, &mut Vec::new(), Some(&mut wanted)))?;
        }
        self.shared.registry.build_all(&self.shared.device, wanted, progress)
    }

    fn submit(&self, work: Work<'_>) -> Result<Submission> {
        self.shared.device.check()?;
        // Held throughout, since the scratch buffer is shared and submissions are ordered.
        let mut queue = self.shared.queue.lock();
        let mut steps = Vec::new();
        self.shared.encode(work, &mut steps, None)?;
        self.shared.flush(&mut queue, &steps)
    }

    fn encode(&self, parts: &[Work<'_>], reads: &[Wanted]) -> Result<Encoded> {
        Ok(Encoded::new(self.shared.encode_ahead(parts, reads)?))
    }

    fn advance(&self, work: &mut Encoded) -> Result<()> {
        self.shared.hand_over(work.work::<Ahead>()?, 1)
    }

    fn launch(&self, work: &mut Encoded) -> Result<()> {
        let work = work.work::<Ahead>()?;
        self.shared.hand_over(work, work.left())
    }

    fn land(&self, work: Encoded) -> Result<Vec<u8>> {
        self.shared.land(work.into_work::<Ahead>()?)
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
