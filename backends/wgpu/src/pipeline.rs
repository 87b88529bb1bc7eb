//! Owns: the kernel registry: which source, layout and constants make up each kernel, and the pipelines built so far.
//! Refuses: layouts guessed from a shader; an override in another language must find the same bindings.
//! Invariants: a key holds weight shape, form and pool binding, never rows (engine.md 3.7h); a pipeline is built once.

use std::borrow::Cow;
use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use parking_lot::Mutex;
use ss_backend::{Error, Result};

use crate::device::{Device, IMMEDIATE_BYTES};

/// A kernel family: one entry point, called `main`, in one file of `wgsl/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Family {
    /// `permute_inputs.wgsl`
    PermuteInputs,
    /// `experts_gate_up_affine4.wgsl`
    ExpertsGateUp,
    /// `experts_down_affine4.wgsl`
    ExpertsDown,
}

/// How the kernel sees the slot pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum PoolBinding {
    /// Not at all.
    None,
    /// One chunk.
    Chunk,
    /// This many chunks in one array.
    Array(NonZeroU32),
}

/// Everything that a pipeline depends on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) family: Family,
    pub(crate) pool: PoolBinding,
    /// Override constants by name.
    pub(crate) constants: Vec<(&'static str, u32)>,
}

/// What a shader does with a storage buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Read,
    Write,
}

impl Family {
    /// Bindings of the group that holds inputs and outputs, in order.
    fn uses(self) -> &'static [Use] {
        match self {
            Family::PermuteInputs => &[Use::Read, Use::Write],
            Family::ExpertsGateUp | Family::ExpertsDown => &[Use::Read, Use::Read, Use::Write],
        }
    }

    /// The WGSL source: the pool's functions, what the family shares, and the kernel.
    pub(crate) fn source(self, pool: PoolBinding) -> String {
        let access = match pool {
            PoolBinding::None => "",
            PoolBinding::Chunk => include_str!("../../../wgsl/pool_chunk.wgsl"),
            PoolBinding::Array(_) => include_str!("../../../wgsl/pool_array.wgsl"),
        };
        let experts = include_str!("../../../wgsl/experts_affine4.wgsl");
        let (shared, kernel) = match self {
            Family::PermuteInputs => ("", include_str!("../../../wgsl/permute_inputs.wgsl")),
            Family::ExpertsGateUp => (experts, include_str!("../../../wgsl/experts_gate_up_affine4.wgsl")),
            Family::ExpertsDown => (experts, include_str!("../../../wgsl/experts_down_affine4.wgsl")),
        };
        [access, shared, kernel].join("\n")
    }
}

/// A kernel, ready to be dispatched.
pub(crate) struct Kernel {
    pub(crate) pipeline: wgpu::ComputePipeline,
    /// Layout of the group that holds inputs and outputs.
    pub(crate) arguments: wgpu::BindGroupLayout,
    /// Number of that group: after the pool's, if there is one.
    pub(crate) group: u32,
}

/// The pipelines built so far.
#[derive(Default)]
pub(crate) struct Registry {
    built: Mutex<HashMap<Key, Arc<Kernel>>>,
    /// Replaces text in every source, to prove that the tests notice.
    #[cfg(test)]
    pub(crate) mutation: Option<(&'static str, &'static str)>,
}

impl Registry {
    /// The kernel of this key, built if it is new.
    pub(crate) fn kernel(&self, device: &Device, key: Key) -> Result<Arc<Kernel>> {
        let mut built = self.built.lock();
        if let Some(kernel) = built.get(&key) {
            return Ok(Arc::clone(kernel));
        }
        let kernel = Arc::new(build(device, &key, self.source(&key))?);
        built.insert(key, Arc::clone(&kernel));
        Ok(kernel)
    }

    #[cfg(not(test))]
    fn source(&self, key: &Key) -> String {
        key.family.source(key.pool)
    }

    #[cfg(test)]
    fn source(&self, key: &Key) -> String {
        let source = key.family.source(key.pool);
        self.mutation.map_or(source.clone(), |(from, to)| source.replace(from, to))
    }
}

/// Layout of the group that holds the pool: each chunk as quads and as words.
pub(crate) fn pool_layout(device: &Device, pool: PoolBinding) -> Option<wgpu::BindGroupLayout> {
    let count = match pool {
        PoolBinding::None => return None,
        PoolBinding::Chunk => None,
        PoolBinding::Array(chunks) => Some(chunks),
    };
    Some(layout(device, &[(Use::Read, count), (Use::Read, count)]))
}

fn layout(device: &Device, bindings: &[(Use, Option<NonZeroU32>)]) -> wgpu::BindGroupLayout {
    let entry = |(binding, &(access, count)): (u32, &(Use, Option<NonZeroU32>))| wgpu::BindGroupLayoutEntry {
        binding,
        visibility: wgpu::ShaderStages::COMPUTE,
        ty: wgpu::BindingType::Buffer {
            ty: wgpu::BufferBindingType::Storage { read_only: access == Use::Read },
            has_dynamic_offset: false,
            min_binding_size: None,
        },
        count,
    };
    let entries: Vec<_> = (0..).zip(bindings).map(entry).collect();
    device.raw.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor { label: None, entries: &entries })
}

fn build(device: &Device, key: &Key, source: String) -> Result<Kernel> {
    let label = format!("{:?}", key.family);
    let pool = pool_layout(device, key.pool);
    let arguments = layout(device, &key.family.uses().iter().map(|&access| (access, None)).collect::<Vec<_>>());
    let groups: Vec<_> = pool.iter().chain([&arguments]).map(Some).collect();
    let constants: Vec<(&str, f64)> = key.constants.iter().map(|&(name, value)| (name, f64::from(value))).collect();

    let internal = device.raw.push_error_scope(wgpu::ErrorFilter::Internal);
    let invalid = device.raw.push_error_scope(wgpu::ErrorFilter::Validation);
    let module = device.raw.create_shader_module(wgpu::ShaderModuleDescriptor {
        label: Some(&label),
        source: wgpu::ShaderSource::Wgsl(Cow::Owned(source)),
    });
    let pipeline_layout = device.raw.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
        label: Some(&label),
        bind_group_layouts: &groups,
        immediate_size: IMMEDIATE_BYTES,
    });
    let pipeline = device.raw.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: Some(&label),
        layout: Some(&pipeline_layout),
        module: &module,
        entry_point: Some("main"),
        compilation_options: wgpu::PipelineCompilationOptions {
            constants: &constants,
            // Every kernel writes its workgroup memory before it reads it.
            zero_initialize_workgroup_memory: false,
        },
        cache: None,
    });
    let invalid = pollster::block_on(invalid.pop());
    match invalid.or(pollster::block_on(internal.pop())) {
        Some(error) => Err(Error::Refused(format!("kernel {label} with {:?} does not build: {error}", key.constants))),
        None => Ok(Kernel { pipeline, group: u32::from(pool.is_some()), arguments }),
    }
}
