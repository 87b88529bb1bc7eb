//! Owns: what a device says of itself, and what it has done so far.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// What kind of device runs the operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceKind {
    /// A GPU.
    Hardware,
    /// A GPU driver that runs on the processor.
    Software,
    /// The reference backend, in plain Rust.
    Reference,
}

/// What a device says of itself. Sizes in bytes.
#[derive(Clone, Debug)]
pub struct DeviceFacts {
    /// Name of the backend: `reference` or `wgpu`.
    pub backend: &'static str,
    /// Name of the device, as its driver gives it.
    pub device: String,
    /// Driver and version; empty for the reference backend.
    pub driver: String,
    /// What kind of device it is.
    pub kind: DeviceKind,
    /// Largest single buffer.
    pub max_buffer_bytes: u64,
    /// Largest part of a buffer that one operation can see.
    pub max_binding_bytes: u64,
    /// Whether processor and device share memory, so that readers write straight into slots.
    pub unified: bool,
    /// Smallest and largest subgroup.
    pub subgroup: (u32, u32),
    /// Whether shaders can compute in F16.
    pub f16: bool,
    /// Tiles of the matrix units (m, n, k) with F16 inputs and F32 sums; empty without.
    pub matrix_tiles: Vec<(u32, u32, u32)>,
    /// Threads of the reference backend; 0 elsewhere.
    pub threads: usize,
}

/// What a kernel took so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelTime {
    /// How often it was started.
    pub calls: u64,
    /// From the end of what ran before it to its own.
    pub time: Duration,
}

/// What a device has done since it was opened.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    /// Kernels started; for the reference backend, operations run.
    pub dispatches: u64,
    /// Submissions.
    pub submissions: u64,
    /// Readbacks.
    pub readbacks: u64,
    /// Bytes uploaded, slots included.
    pub uploaded_bytes: u64,
    /// Bytes of device memory in use now, pools included.
    pub memory_bytes: u64,
    /// Largest value of `memory_bytes` so far.
    pub peak_memory_bytes: u64,
    /// Time from handing work over until it was seen to be finished.
    pub in_flight: Duration,
    /// Time spent encoding while nothing was in flight.
    pub encoding: Duration,
    /// Time on the device by stage; empty where the device keeps none.
    pub stages: BTreeMap<&'static str, Duration>,
    /// Time on the device by kernel, within that of the stages; empty where kernels are not timed.
    pub kernels: BTreeMap<Arc<str>, KernelTime>,
}
