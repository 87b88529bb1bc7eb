//! Owns: the slot pool: one buffer a chunk, no chunk larger than a kernel can bind (engine.md section 5.1).
//! Refuses: records larger than a binding.
//! Invariants: all chunks but the last hold the same number of slots, so a slot's chunk and offset follow from its
//! number; how chunks are bound changes which kernels run, never what they compute.

use std::any::Any;
use std::collections::HashSet;
use std::num::NonZeroU32;
use std::sync::Arc;

use parking_lot::Mutex;
use ss_backend::pool::PoolMemory;
use ss_backend::{Error, Pool, RecordLayout, Result};

use crate::device::{Block, Device, OPEN};
use crate::encoding::QUAD_BYTES;
use crate::in_place::{Memory, Place, Sharing};
use crate::registry::{PoolBinding, pool_layout};
use crate::staging::Staging;

/// Kernels name a word of a chunk by a u32.
const MOST_ADDRESSABLE_BYTES: u64 = (u32::MAX as u64 + 1) * size_of::<u32>() as u64;

/// How kernels reach the chunks of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChunkAccess {
    /// All chunks in one array of bindings.
    Array,
    /// One dispatch a chunk, for adapters without arrays of buffers.
    OneByOne,
}

/// How many slots go into a chunk, and how many chunks there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChunkPlan {
    pub(crate) slots: u32,
    pub(crate) slots_per_chunk: u32,
}

impl ChunkPlan {
    /// Divides `slots` records of `record` bytes into chunks of at most `limit` bytes; none if a record is larger.
    fn new(record: u64, slots: u32, limit: u64) -> Option<Self> {
        let most = limit.min(MOST_ADDRESSABLE_BYTES).checked_div(record)?;
        let slots_per_chunk = u32::try_from(most).unwrap_or(u32::MAX).min(slots.max(1));
        (slots_per_chunk > 0).then_some(ChunkPlan { slots, slots_per_chunk })
    }

    /// Number of chunks, at least one.
    pub(crate) fn chunks(self) -> u32 {
        self.slots.div_ceil(self.slots_per_chunk).max(1)
    }

    /// Slots of chunk `chunk`.
    fn slots_in(self, chunk: u32) -> u32 {
        (self.slots - (chunk * self.slots_per_chunk).min(self.slots)).min(self.slots_per_chunk)
    }
}

/// A pool of this backend.
pub(crate) struct Chunks {
    layout: RecordLayout,
    pub(crate) plan: ChunkPlan,
    pub(crate) binding: PoolBinding,
    /// One group for an array, else one a chunk.
    pub(crate) groups: Vec<wgpu::BindGroup>,
    pub(crate) staging: Arc<Staging>,
    blocks: Vec<Block>,
    /// Where the chunks lie, if slots are written in place; freed behind the buffers.
    seen: Vec<Arc<dyn Memory>>,
    device: wgpu::Device,
    open: Arc<Mutex<HashSet<u32>>>,
}

/// A slot that nobody else can open while this lives.
pub(crate) struct OpenSlot {
    slot: u32,
    open: Arc<Mutex<HashSet<u32>>>,
}

impl Drop for OpenSlot {
    fn drop(&mut self) {
        self.open.lock().remove(&self.slot);
    }
}

impl Chunks {
    /// Makes a pool; `limit` bounds a chunk further than the device does.
    pub(crate) fn new(
        device: &Device,
        layout: &RecordLayout,
        slots: u32,
        limit: Option<u64>,
        (access, sharing): (ChunkAccess, Option<&dyn Sharing>),
    ) -> Result<Self> {
        let bound = device.limits.max_storage_buffer_binding_size.min(device.limits.max_buffer_size);
        let limit = limit.map_or(bound, |limit| limit.min(bound));
        let plan = ChunkPlan::new(layout.bytes, slots, limit).ok_or_else(|| {
            Error::Unavailable(format!(
                "an expert record of {} bytes does not fit the {limit} bytes that a kernel can bind on `{}`; \
                 use `--backend reference`",
                layout.bytes, device.facts.device
            ))
        })?;
        let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_DST | OPEN;
        let bytes = |chunk| u64::from(plan.slots_in(chunk)) * layout.bytes;
        let shared = sharing.map(|sharing| (0..plan.chunks()).map(|chunk| seen(device, sharing, bytes(chunk), usage)));
        let (blocks, seen) = match shared.and_then(Iterator::collect::<Option<Vec<_>>>) {
            Some(chunks) => chunks.into_iter().unzip(),
            None => {
                let block = |chunk| device.block("expert slots", bytes(chunk), usage);
                ((0..plan.chunks()).map(block).collect::<Result<Vec<_>>>()?, Vec::new())
            }
        };
        let binding = match NonZeroU32::new(plan.chunks()) {
            Some(chunks) if access == ChunkAccess::Array && array_fits(device, chunks) => PoolBinding::Array(chunks),
            _ => PoolBinding::Chunk,
        };
        Ok(Chunks {
            layout: *layout,
            plan,
            binding,
            groups: bind(device, binding, &blocks),
            staging: Arc::new(Staging::new(layout.bytes)),
            blocks,
            seen,
            device: device.raw.clone(),
            open: Arc::default(),
        })
    }

    /// The pool behind a handle of the engine.
    pub(crate) fn of(pool: &Pool) -> Result<&Chunks> {
        pool.memory().ok_or_else(|| Error::Refused("a pool belongs to another backend".to_owned()))
    }

    /// The buffer and the offset in bytes at which a slot lies.
    pub(crate) fn place(&self, slot: u32) -> Result<(&wgpu::Buffer, u64)> {
        let block =
            if slot < self.plan.slots { self.blocks.get((slot / self.plan.slots_per_chunk) as usize) } else { None };
        let block =
            block.ok_or_else(|| Error::Refused(format!("slot {slot} of a pool of {} slots", self.plan.slots)))?;
        Ok((&block.raw, u64::from(slot % self.plan.slots_per_chunk) * self.layout.bytes))
    }

    /// A slot that the processor sees, if it does.
    pub(crate) fn seen_place(&self, slot: u32) -> Option<Place<'_>> {
        let memory = self.seen.get((slot / self.plan.slots_per_chunk) as usize)?;
        let (buffer, offset) = self.place(slot).ok()?;
        Some(Place { memory, buffer, offset, bytes: self.layout.bytes })
    }

    /// All chunks, for tests that run kernels elsewhere.
    #[cfg(all(test, feature = "msl"))]
    pub(crate) fn chunks(&self) -> Vec<wgpu::Buffer> {
        self.blocks.iter().map(|block| block.raw.clone()).collect()
    }

    /// Marks a slot as being written.
    pub(crate) fn open(&self, slot: u32) -> Result<OpenSlot> {
        if !self.open.lock().insert(slot) {
            return Err(Error::Refused(format!("slot {slot} is already open for writing")));
        }
        Ok(OpenSlot { slot, open: Arc::clone(&self.open) })
    }
}

/// A chunk that the processor sees; none where the device has no such memory, or no room in it.
fn seen(
    device: &Device,
    sharing: &dyn Sharing,
    bytes: u64,
    usage: wgpu::BufferUsages,
) -> Option<(Block, Arc<dyn Memory>)> {
    let size = bytes.max(1).next_multiple_of(QUAD_BYTES);
    let descriptor = wgpu::BufferDescriptor { label: Some("expert slots"), size, usage, mapped_at_creation: false };
    // SAFETY: a pool waits for the device before it frees its memory, and nothing else keeps a pool's buffers.
    let (raw, memory) = unsafe { sharing.chunk(device, &descriptor) }?;
    Some((device.adopt(raw, size), memory))
}

impl Drop for Chunks {
    fn drop(&mut self) {
        if !self.seen.is_empty() {
            // A device that is lost looks at nothing any more.
            let _ = self.device.poll(wgpu::PollType::wait_indefinitely());
        }
    }
}

/// Whether the device can bind so many chunks at once, each as quads and as words.
fn array_fits(device: &Device, chunks: NonZeroU32) -> bool {
    device.binds_arrays()
        && 2 * u64::from(chunks.get()) <= u64::from(device.limits.max_binding_array_elements_per_shader_stage)
}

fn bind(device: &Device, binding: PoolBinding, blocks: &[Block]) -> Vec<wgpu::BindGroup> {
    let Some(layout) = pool_layout(device, binding) else { return Vec::new() };
    let group = |resource: wgpu::BindingResource<'_>| {
        device.raw.create_bind_group(&wgpu::BindGroupDescriptor {
            label: Some("expert slots"),
            layout: &layout,
            entries: &[
                wgpu::BindGroupEntry { binding: 0, resource: resource.clone() },
                wgpu::BindGroupEntry { binding: 1, resource },
            ],
        })
    };
    let bindings: Vec<_> = blocks.iter().map(|block| block.raw.as_entire_buffer_binding()).collect();
    match binding {
        PoolBinding::Array(_) => vec![group(wgpu::BindingResource::BufferArray(&bindings))],
        _ => bindings.into_iter().map(|one| group(wgpu::BindingResource::Buffer(one))).collect(),
    }
}

impl PoolMemory for Chunks {
    fn layout(&self) -> &RecordLayout {
        &self.layout
    }

    fn slots(&self) -> u32 {
        self.plan.slots
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_full_but_for_the_last_and_no_larger_than_the_limit() {
        let plan = ChunkPlan::new(100, 10, 350).unwrap();
        assert_eq!((plan.slots_per_chunk, plan.chunks()), (3, 4));
        assert_eq!((0..4).map(|chunk| plan.slots_in(chunk)).collect::<Vec<_>>(), [3, 3, 3, 1]);
    }

    #[test]
    fn a_small_pool_is_one_chunk_of_its_own_size() {
        let plan = ChunkPlan::new(100, 7, 1 << 40).unwrap();
        assert_eq!((plan.slots_per_chunk, plan.chunks(), plan.slots_in(0)), (7, 1, 7));
    }

    #[test]
    fn a_chunk_never_holds_more_than_a_kernel_can_address() {
        let plan = ChunkPlan::new(1 << 20, u32::MAX, u64::MAX).unwrap();
        assert_eq!(u64::from(plan.slots_per_chunk) << 20, MOST_ADDRESSABLE_BYTES);
    }

    #[test]
    fn a_record_larger_than_a_chunk_is_refused() {
        assert_eq!(ChunkPlan::new(100, 7, 99), None);
        assert_eq!(ChunkPlan::new(0, 7, 99), None);
    }
}
