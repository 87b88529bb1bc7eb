//! Owns: what takes Metal itself: what it says of a GPU and wgpu does not, and buffers over memory of this process.
//! Refuses: anything that another system has, too.
//!
//! Type-checked only; it has not run on a Mac yet.

use std::sync::Arc;

use objc2_metal::{MTLDevice, MTLResourceOptions};
use wgpu::hal::api::Metal;

use crate::adapter::{AdapterChoice, chosen};
use crate::device::Device;
use crate::in_place::{Memory, Sharing};
use crate::own_memory::OwnMemory;

/// Bytes that the driver recommends to use at most, together with everything else that uses the GPU.
pub(crate) fn working_set(adapter: &wgpu::Adapter) -> Option<u64> {
    // SAFETY: the adapter is asked for a number, and nothing of it is kept.
    let metal = unsafe { adapter.as_hal::<Metal>() }?;
    Some(metal.raw_device().recommendedMaxWorkingSetSize()).filter(|&bytes| bytes > 0)
}

/// How an adapter sees memory of this process, if it shares it.
pub(crate) fn sharing(choice: &AdapterChoice) -> Option<Box<dyn Sharing>> {
    let (_, facts) = chosen(choice).ok()?;
    facts.device.unified.then(|| Box::new(Unified) as Box<dyn Sharing>)
}

/// Processor and GPU see the same memory, and what one writes the other reads.
struct Unified;

impl Sharing for Unified {
    unsafe fn chunk(
        &self,
        device: &Device,
        descriptor: &wgpu::BufferDescriptor<'_>,
    ) -> Option<(wgpu::Buffer, Arc<dyn Memory>)> {
        let memory = OwnMemory::new(descriptor.size)?;
        let raw = {
            // SAFETY: the device is asked for a buffer, and nothing of it is kept.
            let metal = unsafe { device.raw.as_hal::<Metal>() }?;
            let (start, bytes, options) =
                (memory.start().cast(), memory.bytes(), MTLResourceOptions::StorageModeShared);
            // SAFETY: these are whole pages, and the caller answers for their life.
            unsafe {
                metal.raw_device().newBufferWithBytesNoCopy_length_options_deallocator(start, bytes, options, None)
            }?
        };
        // SAFETY: it has at least so many bytes.
        let raw = unsafe { wgpu::hal::metal::Device::buffer_from_raw(raw, descriptor.size) };
        // SAFETY: it was made by this device, is whole, and its memory was zeros before.
        let buffer = unsafe { device.raw.create_buffer_from_hal::<Metal>(raw, descriptor) };
        Some((buffer, Arc::new(memory)))
    }

    fn publish(&self, _: &wgpu::Queue, _: &wgpu::Buffer, _: u64, _: &[u8]) {}
}
