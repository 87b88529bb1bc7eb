//! Owns: kernels with matrix units in Vulkan's language.
//! Refuses: kernels without them, which wgpu says right.
//! Invariants: indices are checked, those into buffers by the driver, and loops are not bounded, as in modules that wgpu makes; what threads of a workgroup share
//! is told as shared.
//!
//! Matrix units need Vulkan's memory model, in which a barrier orders only accesses that say that they are shared. wgpu turns
//! the model on and does not say so of any (gfx-rs/wgpu issue 8805), so that a driver may move them across barriers.

mod shared;

#[cfg(test)]
pub(crate) use shared::tests;

use std::collections::HashMap;

use naga::ShaderStage;
use naga::back::pipeline_constants::process_overrides;
use naga::back::spv::{self, BindingInfo, ZeroInitializeWorkgroupMemoryMode};
use naga::proc::{BoundsCheckPolicies, BoundsCheckPolicy};
use naga::valid::{Capabilities, ValidationFlags, Validator};

use crate::device::Device;
use crate::registry::{ENTRY, Key, PoolBinding};

/// What Vulkan 1.1 takes.
const LANGUAGE: (u8, u8) = (1, 3);

/// Group of the slot pool.
const POOL_GROUP: u32 = 1;

/// Whether a kernel multiplies with matrix units.
pub(crate) fn has_units(source: &str) -> bool {
    source.contains("enable wgpu_cooperative_matrix;")
}

/// A module of the words of [`lowered`].
pub(crate) fn module(device: &Device, key: &Key, words: &[u32]) -> wgpu::ShaderModule {
    // Only Metal asks how large a workgroup is.
    let entry = wgpu::PassthroughShaderEntryPoint { name: ENTRY.into(), workgroup_size: (0, 0, 0) };
    let descriptor = wgpu::ShaderModuleDescriptorPassthrough {
        label: Some(key.kernel),
        entry_points: vec![entry].into(),
        spirv: Some(words.into()),
        ..Default::default()
    };
    // SAFETY: the words are naga's for a module that it found valid, with checked indices, and wgpu turns on
    // robust access to buffers; loops end, as `registry.rs` says of
    // all kernels; what was added only tells drivers less that they may take for granted.
    unsafe { device.raw.create_shader_module_passthrough(descriptor) }
}

/// A kernel's words, its constants written in.
///
/// # Errors
/// Why naga refuses it.
pub(crate) fn lowered(source: &str, key: &Key, constants: Vec<(String, f64)>) -> Result<Vec<u32>, String> {
    let text = |error: &dyn std::error::Error| {
        let causes = std::iter::successors(Some(error), |error| error.source());
        causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
    };
    let parsed = naga::front::wgsl::parse_str(source).map_err(|error| text(&error))?;
    let info = Validator::new(ValidationFlags::all(), Capabilities::all()).validate(&parsed).map_err(|e| text(&e))?;
    let constants: HashMap<String, f64> = constants.into_iter().collect();
    let entry = (ShaderStage::Compute, ENTRY);
    let (module, info) = process_overrides(&parsed, &info, Some(entry), &constants.into_iter().collect())
        .map_err(|error| text(&error))?;
    let words = spv::write_vec(&module, &info, &options(key.pool), None).map_err(|error| text(&error))?;
    shared::told(&words).ok_or_else(|| format!("kernel {} has words that are no module", key.kernel))
}

/// Bindings keep their groups and numbers; the pool's arrays are as long as its chunks are many.
fn options(pool: PoolBinding) -> spv::Options<'static> {
    let mut binding_map = spv::BindingMap::default();
    if let PoolBinding::Array(chunks) = pool {
        // As quads and as words.
        for binding in 0..2 {
            let binding_array_size = Some(chunks.get());
            let info = BindingInfo { descriptor_set: POOL_GROUP, binding, binding_array_size };
            binding_map.insert(naga::ResourceBinding { group: POOL_GROUP, binding }, info);
        }
    }
    let checked = BoundsCheckPolicy::Restrict;
    spv::Options {
        lang_version: LANGUAGE,
        flags: spv::WriterFlags::empty(),
        fake_missing_bindings: true,
        binding_map,
        bounds_check_policies: BoundsCheckPolicies {
            index: checked,
            // The device checks: wgpu turns on the driver's robust access, and a pool's arrays have no length to ask for.
            buffer: BoundsCheckPolicy::Unchecked,
            image_load: checked,
            binding_array: BoundsCheckPolicy::Unchecked,
        },
        zero_initialize_workgroup_memory: ZeroInitializeWorkgroupMemoryMode::None,
        force_loop_bounding: false,
        ..spv::Options::default()
    }
}
