//! Owns: the opened device and its queue, its limits and features, and the first fault that it reported.
//! Refuses: adapters that lack what every kernel needs.
//! Invariants: no fault of the driver becomes a panic; it is kept, and each later call returns it as an error.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use parking_lot::Mutex;
use ss_backend::{DeviceFacts, DeviceKind, Error, Result};
use wgpu::Features;

use crate::adapter::{AdapterChoice, AdapterFacts, chosen};
use crate::cache;
use crate::clock::Timed;
use crate::encoding::QUAD_BYTES;
use crate::ledger::{Charge, Ledger};
use crate::registry::{Side, Units};
use crate::tuning::{self, SUBGROUP_OF_16, WIDEST_SUBGROUP};

/// Bytes of immediates that a kernel may take: what WebGPU grants everywhere.
pub(crate) const IMMEDIATE_BYTES: u32 = 64;

/// Ways to and from every buffer, for tests that run kernels elsewhere.
pub(crate) const OPEN: wgpu::BufferUsages = if cfg!(test) {
    wgpu::BufferUsages::COPY_SRC.union(wgpu::BufferUsages::COPY_DST)
} else {
    wgpu::BufferUsages::empty()
};

/// What binding all chunks of a pool at once takes. The index is the same in all of a workgroup, but wgpu's compiler
/// cannot see that through a function's arguments.
pub(crate) const BUFFER_ARRAYS: Features = Features::BUFFER_BINDING_ARRAY
    .union(Features::STORAGE_RESOURCE_BINDING_ARRAY)
    .union(Features::SAMPLED_TEXTURE_AND_STORAGE_BUFFER_ARRAY_NON_UNIFORM_INDEXING);

/// What multiplying with matrix units takes.
const MATRIX_UNITS: Features = Features::EXPERIMENTAL_COOPERATIVE_MATRIX.union(Features::SHADER_F16);

/// What it takes besides on Vulkan and Metal, where `vulkan.rs` and `msl.rs` make modules.
pub(crate) const OWN_MODULES: Features = Features::PASSTHROUGH_SHADERS;

/// Threads of a subgroup of Apple's devices, for which wgpu gives a range.
const METAL_SUBGROUP: u32 = 32;

/// The matrix units of an adapter: those that multiply square matrices which a kernel has a part for, the largest first, if
/// all subgroups are of one size.
fn matrix_units(facts: &AdapterFacts, features: Features) -> Option<Units> {
    let (least, most) = facts.device.subgroup;
    let subgroup = if facts.api == wgpu::Backend::Metal.to_str() { METAL_SUBGROUP } else { least };
    let even = subgroup == most || facts.api == wgpu::Backend::Metal.to_str();
    if !features.contains(MATRIX_UNITS) || !even || subgroup > WIDEST_SUBGROUP {
        return None;
    }
    if facts.api == wgpu::Backend::Vulkan.to_str() && !features.contains(OWN_MODULES) {
        return None;
    }
    let has = |side| subgroup.is_multiple_of(side) && facts.device.matrix_tiles.contains(&(side, side, side));
    let side = match subgroup {
        SUBGROUP_OF_16 if has(16) => Side::Sixteen,
        _ if has(8) => Side::Eight,
        _ => return None,
    };
    Some(Units { side, subgroup })
}

/// An opened device.
pub(crate) struct Device {
    pub(crate) raw: wgpu::Device,
    pub(crate) queue: wgpu::Queue,
    pub(crate) limits: wgpu::Limits,
    pub(crate) facts: DeviceFacts,
    /// The interface through which it is reached.
    pub(crate) api: wgpu::Backend,
    /// Its matrix units, where kernels can use them.
    pub(crate) units: Option<Units>,
    /// What the driver keeps of pipelines, where it does.
    pub(crate) cache: Option<wgpu::PipelineCache>,
    pub(crate) ledger: Arc<Ledger>,
    fault: Arc<Mutex<Option<String>>>,
}

/// A buffer and its place in the count of memory.
pub(crate) struct Block {
    pub(crate) raw: wgpu::Buffer,
    _charge: Charge,
}

impl Drop for Block {
    /// Gives the memory back at once, though a kept bind group may still name the buffer; work submitted before is
    /// finished first.
    fn drop(&mut self) {
        self.raw.destroy();
    }
}

impl Device {
    /// Opens the adapter that `choice` means; `cached` is what [`cache::sealed`] gave for it earlier.
    pub(crate) fn open(choice: &AdapterChoice, cached: Option<&[u8]>, timed: Timed) -> Result<Self> {
        let (adapter, facts) = chosen(choice)?;
        let units = matrix_units(&facts, adapter.features());
        let api = adapter.get_info().backend;
        let (facts, limits) = (facts.device, adapter.limits());
        let wanted = adapter.features() & (BUFFER_ARRAYS | Features::PIPELINE_CACHE | timed.features());
        let wanted = if api == wgpu::Backend::Metal { wanted | adapter.features() & OWN_MODULES } else { wanted };
        // Arrays need all of their features.
        let wanted = if wanted.contains(BUFFER_ARRAYS) { wanted } else { wanted - BUFFER_ARRAYS };
        let wanted = match units {
            Some(_) if api == wgpu::Backend::Vulkan => wanted | MATRIX_UNITS | OWN_MODULES,
            Some(_) => wanted | MATRIX_UNITS,
            None => wanted,
        };
        let experimental_features = match units {
            // SAFETY: what is experimental are matrices, whose kernels load and store them whole inside arrays of their own
            // workgroup and name no other memory, and modules of our own, which `vulkan.rs` makes of checked WGSL.
            Some(_) => unsafe { wgpu::ExperimentalFeatures::enabled() },
            None => wgpu::ExperimentalFeatures::disabled(),
        };
        let descriptor = wgpu::DeviceDescriptor {
            label: Some("slotstream"),
            required_features: Features::IMMEDIATES | wanted,
            required_limits: limits.clone(),
            experimental_features,
            memory_hints: wgpu::MemoryHints::Performance,
            trace: wgpu::Trace::Off,
        };
        let (raw, queue) = pollster::block_on(adapter.request_device(&descriptor)).map_err(|error| {
            Error::Unavailable(format!(
                "the adapter `{}` does not open ({error}); use `--backend reference`",
                facts.device
            ))
        })?;
        let fault = Arc::new(Mutex::new(None));
        let keep = |fault: &Arc<Mutex<Option<String>>>| {
            let fault = Arc::clone(fault);
            move |reason: String| {
                fault.lock().get_or_insert(reason);
            }
        };
        let (uncaptured, lost) = (keep(&fault), keep(&fault));
        raw.on_uncaptured_error(Arc::new(move |error: wgpu::Error| uncaptured(error.to_string())));
        raw.set_device_lost_callback(move |reason, text| lost(format!("{reason:?}: {text}")));
        let cache = cache::open(&raw, cached);
        Ok(Device { raw, queue, limits, facts, api, units, cache, ledger: Arc::default(), fault })
    }

    /// Whether a pool's chunks can be bound all at once.
    pub(crate) fn binds_arrays(&self) -> bool {
        self.raw.features().contains(BUFFER_ARRAYS)
    }

    /// The first fault that the driver reported, if any.
    pub(crate) fn check(&self) -> Result<()> {
        match &*self.fault.lock() {
            None => Ok(()),
            Some(reason) => Err(self.lost(reason)),
        }
    }

    /// Makes a zero-filled buffer of at least `bytes`, in whole quads.
    pub(crate) fn block(&self, what: &str, bytes: u64, usage: wgpu::BufferUsages) -> Result<Block> {
        self.make(what, bytes, usage, false)
    }

    /// Takes over a buffer that was made elsewhere.
    pub(crate) fn adopt(&self, raw: wgpu::Buffer, bytes: u64) -> Block {
        Block { raw, _charge: Charge::new(&self.ledger, bytes) }
    }

    /// Makes a buffer that the processor may fill at once and that copies to others.
    pub(crate) fn mapped(&self, what: &str, bytes: u64) -> Result<Block> {
        self.make(what, bytes, wgpu::BufferUsages::MAP_WRITE | wgpu::BufferUsages::COPY_SRC, true)
    }

    fn make(&self, what: &str, bytes: u64, usage: wgpu::BufferUsages, mapped_at_creation: bool) -> Result<Block> {
        self.check()?;
        let no_room = || Error::OutOfMemory { device: self.facts.device.clone(), what: what.to_owned(), bytes };
        let size = bytes.max(1).next_multiple_of(QUAD_BYTES);
        if size > self.limits.max_buffer_size {
            return Err(no_room());
        }
        let scope = self.raw.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
        let raw =
            self.raw.create_buffer(&wgpu::BufferDescriptor { label: Some(what), size, usage, mapped_at_creation });
        match pollster::block_on(scope.pop()) {
            Some(_) => Err(no_room()),
            None => Ok(Block { raw, _charge: Charge::new(&self.ledger, size) }),
        }
    }

    /// Waits for `index`, or for everything submitted.
    pub(crate) fn wait(&self, index: Option<wgpu::SubmissionIndex>) -> Result<()> {
        self.poll(wgpu::PollType::Wait { submission_index: index, timeout: None })
    }

    /// Waits for `index`, whose end sets `ended` by way of a callback. A GPU is waited for awake at first, since going to sleep
    /// costs more than short work takes.
    pub(crate) fn wait_awake(&self, index: wgpu::SubmissionIndex, ended: &AtomicBool) -> Result<()> {
        let begun = Instant::now();
        // A driver that runs on the processor needs it itself.
        while self.facts.kind == DeviceKind::Hardware && begun.elapsed() < tuning::AWAKE {
            self.collect()?;
            if ended.load(Relaxed) {
                return Ok(());
            }
            std::hint::spin_loop();
        }
        self.wait(Some(index))
    }

    /// Gives back what finished work held, staging buffers above all, without waiting.
    pub(crate) fn collect(&self) -> Result<()> {
        self.poll(wgpu::PollType::Poll)
    }

    fn poll(&self, how: wgpu::PollType) -> Result<()> {
        self.raw.poll(how).map_err(|error| self.lost(&error.to_string()))?;
        self.check()
    }

    fn lost(&self, reason: &str) -> Error {
        Error::Lost { device: self.facts.device.clone(), reason: reason.to_owned() }
    }
}
