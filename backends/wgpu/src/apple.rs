//! Owns: what Metal says of a GPU and wgpu does not.
//! Refuses: anything that another system has, too.
//!
//! Type-checked only; it has not run on a Mac yet.

use objc2_metal::MTLDevice;

/// Bytes that the driver recommends to use at most, together with everything else that uses the GPU.
pub(crate) fn working_set(adapter: &wgpu::Adapter) -> Option<u64> {
    // SAFETY: the adapter is asked for a number, and nothing of it is kept.
    let metal = unsafe { adapter.as_hal::<wgpu::hal::api::Metal>() }?;
    Some(metal.raw_device().recommendedMaxWorkingSetSize()).filter(|&bytes| bytes > 0)
}
