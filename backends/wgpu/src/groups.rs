//! Owns: the bind groups made so far, since making one costs as much as a dispatch.
//! Invariants: a group is found by the layout and the buffers it was made for; the list is dropped when it grows too
//! long, and buffers that are freed give their memory back at once all the same.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::device::Device;
use crate::encoding::View;
use crate::registry::Pipeline;

/// Groups kept: a decode step of the released model uses 640.
const MOST_GROUPS: usize = 4096;

/// The bind groups made so far.
#[derive(Default)]
pub(crate) struct Groups(Mutex<HashMap<(wgpu::BindGroupLayout, Vec<View>), wgpu::BindGroup>>);

impl Groups {
    /// The group of a pipeline's arguments over these buffers.
    pub(crate) fn group(&self, device: &Device, pipeline: &Arc<Pipeline>, views: &[&View]) -> wgpu::BindGroup {
        let key = (pipeline.arguments.clone(), views.iter().map(|&view| view.clone()).collect());
        let mut made = self.0.lock();
        if let Some(group) = made.get(&key) {
            return group.clone();
        }
        let entries: Vec<_> = (0..).zip(views).map(entry).collect();
        let group = device.raw.create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout: &pipeline.arguments,
            entries: &entries,
        });
        if made.len() >= MOST_GROUPS {
            made.clear();
        }
        made.insert(key, group.clone());
        group
    }
}

fn entry<'a>((binding, view): (u32, &'a &View)) -> wgpu::BindGroupEntry<'a> {
    wgpu::BindGroupEntry {
        binding,
        resource: wgpu::BindingResource::Buffer(wgpu::BufferBinding {
            buffer: &view.buffer,
            offset: view.offset,
            size: wgpu::BufferSize::new(view.bytes),
        }),
    }
}
