//! Owns: which adapter is opened, and what it says of itself.
//! Refuses: software adapters, unless one is asked for by name (engine.md section 9).
//! Invariants: the choice is a pure function of the adapters' names and kinds, in the driver's order.

use ss_backend::{DeviceFacts, DeviceKind, Error, Result};

/// Which adapter to open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdapterChoice {
    /// The first hardware adapter, discrete ones before others.
    Hardware,
    /// The first adapter whose name holds this text, upper and lower case alike; the only way to a software adapter.
    Named(String),
}

/// What every adapter of this machine says of itself.
pub fn adapters() -> Vec<DeviceFacts> {
    found(&instance()).iter().map(facts).collect()
}

/// The entry to the drivers.
pub(crate) fn instance() -> wgpu::Instance {
    let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
    descriptor.backends = wgpu::Backends::VULKAN | wgpu::Backends::METAL;
    // Validation layers are for developers of drivers; wgpu's own checks do not depend on them.
    descriptor.flags = wgpu::InstanceFlags::empty();
    wgpu::Instance::new(descriptor)
}

/// All adapters, in the driver's order.
pub(crate) fn found(instance: &wgpu::Instance) -> Vec<wgpu::Adapter> {
    pollster::block_on(instance.enumerate_adapters(wgpu::Backends::VULKAN | wgpu::Backends::METAL))
}

/// The adapter that `choice` means.
pub(crate) fn chosen(instance: &wgpu::Instance, choice: &AdapterChoice) -> Result<wgpu::Adapter> {
    let mut adapters = found(instance);
    let candidates: Vec<Candidate> = adapters.iter().map(Candidate::of).collect();
    let index = choose(&candidates, choice)?;
    Ok(adapters.swap_remove(index))
}

/// What the choice depends on.
struct Candidate {
    name: String,
    kind: wgpu::DeviceType,
}

impl Candidate {
    fn of(adapter: &wgpu::Adapter) -> Self {
        let info = adapter.get_info();
        Candidate { name: info.name, kind: info.device_type }
    }
}

fn choose(candidates: &[Candidate], choice: &AdapterChoice) -> Result<usize> {
    let index = match choice {
        AdapterChoice::Named(text) => {
            let wanted = text.to_lowercase();
            candidates.iter().position(|candidate| candidate.name.to_lowercase().contains(&wanted))
        }
        AdapterChoice::Hardware => {
            let discrete = candidates.iter().position(|candidate| candidate.kind == wgpu::DeviceType::DiscreteGpu);
            discrete.or(candidates.iter().position(|candidate| candidate.kind != wgpu::DeviceType::Cpu))
        }
    };
    index.ok_or_else(|| Error::Unavailable(missing(candidates, choice)))
}

/// The sentence for a machine without the wanted adapter.
fn missing(candidates: &[Candidate], choice: &AdapterChoice) -> String {
    let wanted = match choice {
        AdapterChoice::Hardware => "no hardware adapter for Vulkan or Metal was found".to_owned(),
        AdapterChoice::Named(text) => format!("no adapter for Vulkan or Metal has `{text}` in its name"),
    };
    let names: Vec<String> = candidates.iter().map(|candidate| format!("`{}`", candidate.name)).collect();
    let present = if names.is_empty() { "no adapter at all".to_owned() } else { names.join(", ") };
    format!(
        "{wanted} (this machine has {present}); install a driver (`scripts/install-mesa.sh` installs `llvmpipe`, \
         which needs no GPU), or use `--backend reference`"
    )
}

/// What an adapter says of itself.
pub(crate) fn facts(adapter: &wgpu::Adapter) -> DeviceFacts {
    let (info, limits) = (adapter.get_info(), adapter.limits());
    let tiles = adapter.cooperative_matrix_properties().into_iter().filter(|tile| {
        tile.ab_type == wgpu::CooperativeScalarType::F16 && tile.cr_type == wgpu::CooperativeScalarType::F32
    });
    DeviceFacts {
        backend: "wgpu",
        device: info.name,
        driver: format!("{} {}", info.driver, info.driver_info).trim().to_owned(),
        kind: match info.device_type {
            wgpu::DeviceType::Cpu => DeviceKind::Software,
            _ => DeviceKind::Hardware,
        },
        max_buffer_bytes: limits.max_buffer_size,
        max_binding_bytes: limits.max_storage_buffer_binding_size,
        // Records go through staging buffers everywhere.
        unified: false,
        subgroup: (info.subgroup_min_size, info.subgroup_max_size),
        f16: adapter.features().contains(wgpu::Features::SHADER_F16),
        matrix_tiles: tiles.map(|tile| (tile.m_size, tile.n_size, tile.k_size)).collect(),
        threads: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wgpu::DeviceType::{Cpu, DiscreteGpu, IntegratedGpu};

    fn candidates(of: &[(&str, wgpu::DeviceType)]) -> Vec<Candidate> {
        of.iter().map(|&(name, kind)| Candidate { name: name.to_owned(), kind }).collect()
    }

    #[test]
    fn hardware_comes_first_and_discrete_before_integrated() {
        let all = candidates(&[("llvmpipe", Cpu), ("Small", IntegratedGpu), ("Large", DiscreteGpu)]);
        assert_eq!(choose(&all, &AdapterChoice::Hardware).unwrap(), 2);
        assert_eq!(choose(&all[..2], &AdapterChoice::Hardware).unwrap(), 1);
    }

    #[test]
    fn software_is_opened_by_name_only() {
        let all = candidates(&[("llvmpipe (LLVM 15.0.6, 256 bits)", Cpu)]);
        assert_eq!(choose(&all, &AdapterChoice::Named("LLVMpipe".to_owned())).unwrap(), 0);
        let refusal = choose(&all, &AdapterChoice::Hardware).unwrap_err().to_string();
        assert!(refusal.contains("`llvmpipe (LLVM 15.0.6, 256 bits)`"), "{refusal}");
    }

    #[test]
    fn a_missing_adapter_is_told_with_the_next_command() {
        let refusal = choose(&[], &AdapterChoice::Named("llvmpipe".to_owned())).unwrap_err().to_string();
        assert!(refusal.contains("`llvmpipe`") && refusal.contains("scripts/install-mesa.sh"), "{refusal}");
    }
}
