//! Owns: chunks in the memory of a Vulkan device that the processor writes directly: all of a device's memory where it shares the
//! processor's, or shows the whole of its own behind the bus; wgpu maps no buffer that kernels read (engine.md sections 5.1, 5.5).
//! Refuses: a window that shows a small part of a device's memory.
//! Invariants: what the processor has written before a submission, its kernels see, without a copy; memory is given back when
//! neither a chunk nor a writer has it, before its device goes.

use std::ptr::NonNull;
use std::sync::Arc;

use ash::vk;
use ss_backend::DeviceKind;
use wgpu::hal::api::Vulkan;

use crate::device::Device;
use crate::in_place::{Memory, Sharing};

/// Sharing by way of Vulkan's own memory types.
pub(crate) struct Mapped;

/// What a chunk's memory must be: the device's own, written without any further call.
const WANTED: vk::MemoryPropertyFlags = vk::MemoryPropertyFlags::from_raw(
    vk::MemoryPropertyFlags::DEVICE_LOCAL.as_raw()
        | vk::MemoryPropertyFlags::HOST_VISIBLE.as_raw()
        | vk::MemoryPropertyFlags::HOST_COHERENT.as_raw(),
);

/// The type of memory for chunks among those that `allowed` has a bit for, the driver's first, which it holds to be the quickest;
/// none where the processor sees less than half of the device's own memory.
fn kind(types: &[vk::MemoryType], heaps: &[vk::MemoryHeap], allowed: u32) -> Option<u32> {
    let size = |heap: u32| heaps.get(heap as usize).map_or(0, |heap| heap.size);
    let local = |ty: &&vk::MemoryType| ty.property_flags.contains(vk::MemoryPropertyFlags::DEVICE_LOCAL);
    let largest = types.iter().filter(local).map(|ty| size(ty.heap_index)).max()?;
    let fits = |index: u32, ty: &vk::MemoryType| {
        allowed & 1u32.checked_shl(index).unwrap_or(0) != 0
            && ty.property_flags.contains(WANTED)
            && size(ty.heap_index) >= largest / 2
    };
    (0..).zip(types).find(|(index, ty)| fits(*index, ty)).map(|(index, _)| index)
}

/// Whether an adapter shows the processor its memory.
pub(crate) fn shown(adapter: &wgpu::Adapter) -> bool {
    // SAFETY: the adapter is asked for numbers, and nothing of it is kept.
    let Some(hal) = (unsafe { adapter.as_hal::<Vulkan>() }) else { return false };
    let properties = memory(hal.shared_instance(), hal.raw_physical_device());
    kind(properties.memory_types_as_slice(), properties.memory_heaps_as_slice(), !0).is_some()
}

/// What an instance says of the memory of one of its devices.
fn memory(
    instance: &wgpu::hal::vulkan::InstanceShared,
    device: vk::PhysicalDevice,
) -> vk::PhysicalDeviceMemoryProperties {
    // SAFETY: the device is this instance's.
    unsafe { instance.raw_instance().get_physical_device_memory_properties(device) }
}

/// Memory of a device, mapped as long as it lives.
struct DeviceMemory {
    start: NonNull<u8>,
    bytes: usize,
    readable: bool,
    memory: vk::DeviceMemory,
    /// Keeps the device open.
    device: wgpu::Device,
}

// SAFETY: it is plain memory without an owner among the threads; who may write where is settled by `OpenSlot`.
unsafe impl Send for DeviceMemory {}
// SAFETY: as above.
unsafe impl Sync for DeviceMemory {}

impl Memory for DeviceMemory {
    fn start(&self) -> NonNull<u8> {
        self.start
    }

    fn bytes(&self) -> usize {
        self.bytes
    }

    fn readable(&self) -> bool {
        self.readable
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        // SAFETY: the device is only borrowed.
        if let Some(device) = unsafe { self.device.as_hal::<Vulkan>() } {
            // SAFETY: nobody writes it any more, and no unfinished work reads it; it is unmapped with that.
            unsafe { device.raw_device().free_memory(self.memory, None) };
        }
    }
}

/// A buffer without memory, or with it: given back unless it is taken.
struct Unfinished<'a> {
    device: &'a ash::Device,
    buffer: vk::Buffer,
    memory: vk::DeviceMemory,
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        // SAFETY: both are this one's own or null, which is passed over.
        unsafe {
            self.device.destroy_buffer(self.buffer, None);
            self.device.free_memory(self.memory, None);
        }
    }
}

/// What a chunk is made of.
struct Made {
    buffer: vk::Buffer,
    memory: vk::DeviceMemory,
    start: NonNull<u8>,
}

/// A buffer of so many bytes that kernels read, with memory that is mapped.
fn make(hal: &wgpu::hal::vulkan::Device, bytes: u64) -> Option<Made> {
    let device = hal.raw_device();
    let usage =
        vk::BufferUsageFlags::STORAGE_BUFFER | vk::BufferUsageFlags::TRANSFER_DST | vk::BufferUsageFlags::TRANSFER_SRC;
    let described = vk::BufferCreateInfo::default().size(bytes).usage(usage).sharing_mode(vk::SharingMode::EXCLUSIVE);
    // SAFETY: the description is whole, and the device lives.
    let buffer = unsafe { device.create_buffer(&described, None) }.ok()?;
    let mut unfinished = Unfinished { device, buffer, memory: vk::DeviceMemory::null() };
    // SAFETY: the buffer is the device's.
    let needs = unsafe { device.get_buffer_memory_requirements(buffer) };
    let properties = memory(hal.shared_instance(), hal.raw_physical_device());
    let kind = kind(properties.memory_types_as_slice(), properties.memory_heaps_as_slice(), needs.memory_type_bits)?;
    let wanted = vk::MemoryAllocateInfo::default().allocation_size(needs.size).memory_type_index(kind);
    // SAFETY: the type is one that the buffer takes.
    unfinished.memory = unsafe { device.allocate_memory(&wanted, None) }.ok()?;
    // SAFETY: the memory is new and as large as the buffer needs.
    unsafe { device.bind_buffer_memory(buffer, unfinished.memory, 0) }.ok()?;
    let all = (0, vk::WHOLE_SIZE, vk::MemoryMapFlags::empty());
    // SAFETY: the processor can see this type, and it is mapped once.
    let start = unsafe { device.map_memory(unfinished.memory, all.0, all.1, all.2) }.ok()?;
    let made = Made { buffer, memory: unfinished.memory, start: NonNull::new(start.cast())? };
    std::mem::forget(unfinished);
    Some(made)
}

impl Sharing for Mapped {
    unsafe fn chunk(
        &self,
        device: &Device,
        descriptor: &wgpu::BufferDescriptor<'_>,
    ) -> Option<(wgpu::Buffer, Arc<dyn Memory>)> {
        let Made { buffer, memory, start } = {
            // SAFETY: the device is only borrowed.
            let hal = unsafe { device.raw.as_hal::<Vulkan>() }?;
            make(&hal, descriptor.size)?
        };
        let bytes = usize::try_from(descriptor.size).ok()?;
        // What a driver of hardware maps may be past all caches, and no file can be read straight into it: Linux does not pin it.
        let readable = device.facts.kind == DeviceKind::Software;
        let memory = Arc::new(DeviceMemory { start, bytes, readable, memory, device: device.raw.clone() });
        // SAFETY: the buffer's handle goes to wgpu with this, its memory stays with the caller.
        let raw = unsafe { wgpu::hal::vulkan::Buffer::from_raw(buffer) };
        // SAFETY: it was made by this device with these uses, and is filled with zeros before anything else names it.
        let buffer = unsafe { device.raw.create_buffer_from_hal::<Vulkan>(raw, descriptor) };
        let mut encoder = device.raw.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        encoder.clear_buffer(&buffer, 0, None);
        device.queue.submit([encoder.finish()]);
        // Otherwise what the processor writes first might be cleared after.
        device.wait(None).ok()?;
        Some((buffer, memory))
    }

    fn publish(&self, _: &wgpu::Queue, _: &wgpu::Buffer, _: u64, _: &[u8]) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEVICE: vk::MemoryPropertyFlags = vk::MemoryPropertyFlags::DEVICE_LOCAL;
    const GIB: u64 = 1 << 30;

    fn ty(property_flags: vk::MemoryPropertyFlags, heap_index: u32) -> vk::MemoryType {
        vk::MemoryType { property_flags, heap_index }
    }

    fn heaps(sizes: &[u64]) -> Vec<vk::MemoryHeap> {
        sizes.iter().map(|&size| vk::MemoryHeap { size, flags: vk::MemoryHeapFlags::empty() }).collect()
    }

    #[test]
    fn a_card_that_shows_all_of_its_memory_is_written_in_place() {
        let host = WANTED ^ DEVICE;
        let types = [ty(vk::MemoryPropertyFlags::empty(), 1), ty(DEVICE, 0), ty(host, 1), ty(WANTED, 0)];
        assert_eq!(kind(&types, &heaps(&[16 * GIB, 64 * GIB]), !0), Some(3));
        assert_eq!(kind(&types, &heaps(&[16 * GIB, 64 * GIB]), 0b0111), None, "the buffer does not take it");
    }

    #[test]
    fn a_window_of_a_card_s_memory_is_too_small() {
        let types = [ty(DEVICE, 0), ty(WANTED ^ DEVICE, 1), ty(WANTED, 2)];
        assert_eq!(kind(&types, &heaps(&[16 * GIB, 64 * GIB, GIB / 4]), !0), None);
    }

    #[test]
    fn where_there_is_one_memory_it_is_the_driver_s_first_type() {
        let cached = WANTED | vk::MemoryPropertyFlags::HOST_CACHED;
        let types = [ty(DEVICE, 0), ty(WANTED, 0), ty(cached, 0)];
        assert_eq!(kind(&types, &heaps(&[32 * GIB]), !0), Some(1));
        assert_eq!(kind(&[], &[], !0), None);
    }
}
