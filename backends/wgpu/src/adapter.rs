//! Owns: which adapter is opened, and what it says of itself.
//! Refuses: software adapters, unless one is asked for by name (engine.md section 9).
//! Invariants: the choice is a pure function of what the adapters say, in the driver's order; they are asked once.

use std::sync::LazyLock;

use ss_backend::{DeviceFacts, DeviceKind, Error, Result};
use wgpu::Features;

use crate::device::{BUFFER_ARRAYS, IMMEDIATE_BYTES};

/// Which adapter to open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdapterChoice {
    /// The first hardware adapter that the kernels can run on, discrete ones before others.
    Hardware,
    /// The first adapter whose name holds this text, upper and lower case alike; the only way to a software adapter.
    Named(String),
}

/// What an adapter says of itself, before it is opened.
#[derive(Clone, Debug)]
pub struct AdapterFacts {
    /// What every device says.
    pub device: DeviceFacts,
    /// The interface of its driver: `vulkan` or `metal`.
    pub api: &'static str,
    /// Whether its memory is its own, not the processor's.
    pub own_memory: bool,
    /// Whether it shows the processor its memory, so that records are written where they stay.
    pub in_place: bool,
    /// Bytes that its driver recommends to use at most, where it says: Metal.
    pub working_set: Option<u64>,
    /// Whether all chunks of a pool can be bound at once.
    pub binding_arrays: bool,
    /// Bytes of immediates that a kernel may take.
    pub immediate_bytes: u32,
    /// Bytes of workgroup memory.
    pub workgroup_bytes: u32,
    /// Threads of a workgroup.
    pub workgroup_threads: u32,
    /// A file name for its pipeline cache, if it has one: other devices have other names.
    pub cache_name: Option<String>,
    /// Why the kernels cannot run on it, if they cannot.
    pub lacks: Option<String>,
}

/// What every adapter of this machine says of itself, in the driver's order.
pub fn adapters() -> Vec<AdapterFacts> {
    found().iter().map(facts).collect()
}

/// The adapter of `list` that `choice` means.
///
/// # Errors
/// [`Error::Unavailable`] where there is none, naming those that there are.
pub fn choose<'a>(list: &'a [AdapterFacts], choice: &AdapterChoice) -> Result<&'a AdapterFacts> {
    let index = position(list, choice)?;
    Ok(&list[index])
}

/// All adapters, in the driver's order.
fn found() -> &'static [wgpu::Adapter] {
    static FOUND: LazyLock<Vec<wgpu::Adapter>> = LazyLock::new(|| {
        let backends = wgpu::Backends::VULKAN | wgpu::Backends::METAL;
        let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
        descriptor.backends = backends;
        // Validation layers are for developers of drivers; wgpu's own checks do not depend on them.
        descriptor.flags = wgpu::InstanceFlags::empty();
        pollster::block_on(wgpu::Instance::new(descriptor).enumerate_adapters(backends))
    });
    &FOUND
}

/// The adapter that `choice` means, and what it says of itself.
pub(crate) fn chosen(choice: &AdapterChoice) -> Result<(&'static wgpu::Adapter, AdapterFacts)> {
    let mut list = adapters();
    let index = position(&list, choice)?;
    let facts = list.swap_remove(index);
    match &facts.lacks {
        None => Ok((&found()[index], facts)),
        Some(lacks) => {
            Err(Error::Unavailable(format!("the adapter `{}` {lacks}; use `--backend reference`", facts.device.device)))
        }
    }
}

fn position(list: &[AdapterFacts], choice: &AdapterChoice) -> Result<usize> {
    let index = match choice {
        AdapterChoice::Named(text) => {
            let wanted = text.to_lowercase();
            list.iter().position(|adapter| adapter.device.device.to_lowercase().contains(&wanted))
        }
        AdapterChoice::Hardware => {
            let fits = |adapter: &AdapterFacts| adapter.device.kind == DeviceKind::Hardware && adapter.lacks.is_none();
            let discrete = list.iter().position(|adapter| fits(adapter) && adapter.own_memory);
            discrete.or(list.iter().position(fits))
        }
    };
    index.ok_or_else(|| Error::Unavailable(missing(list, choice)))
}

/// The sentence for a machine without the wanted adapter.
fn missing(list: &[AdapterFacts], choice: &AdapterChoice) -> String {
    let wanted = match choice {
        AdapterChoice::Hardware => "no hardware adapter for Vulkan or Metal was found".to_owned(),
        AdapterChoice::Named(text) => format!("no adapter for Vulkan or Metal has `{text}` in its name"),
    };
    let names: Vec<String> = list
        .iter()
        .map(|adapter| match &adapter.lacks {
            Some(lacks) => format!("`{}`, which {lacks}", adapter.device.device),
            None => format!("`{}`", adapter.device.device),
        })
        .collect();
    let (present, next) = match names.first() {
        None => (
            "no adapter at all".to_owned(),
            "install a driver (`scripts/install-mesa.sh` installs `llvmpipe`, which needs no GPU)",
        ),
        Some(_) => (names.join(", "), "name one of these with `--adapter`"),
    };
    format!("{wanted} (this machine has {present}); {next}, or use `--backend reference`")
}

/// What an adapter says of itself.
fn facts(adapter: &wgpu::Adapter) -> AdapterFacts {
    let (info, limits, features) = (adapter.get_info(), adapter.limits(), adapter.features());
    let tiles = adapter.cooperative_matrix_properties().into_iter().filter(|tile| {
        tile.ab_type == wgpu::CooperativeScalarType::F16 && tile.cr_type == wgpu::CooperativeScalarType::F32
    });
    let immediate_bytes = if features.contains(Features::IMMEDIATES) { limits.max_immediate_size } else { 0 };
    let short = immediate_bytes < IMMEDIATE_BYTES;
    // Metal's own word; how records get into slots elsewhere is asked separately.
    let unified = cfg!(target_vendor = "apple")
        && info.backend == wgpu::Backend::Metal
        && info.device_type == wgpu::DeviceType::IntegratedGpu;
    AdapterFacts {
        api: info.backend.to_str(),
        own_memory: !matches!(info.device_type, wgpu::DeviceType::Cpu | wgpu::DeviceType::IntegratedGpu),
        in_place: unified || shown(adapter),
        working_set: working_set(adapter),
        binding_arrays: features.contains(BUFFER_ARRAYS),
        immediate_bytes,
        workgroup_bytes: limits.max_compute_workgroup_storage_size,
        workgroup_threads: limits.max_compute_invocations_per_workgroup,
        cache_name: wgpu::util::pipeline_cache_key(&info).filter(|_| features.contains(Features::PIPELINE_CACHE)),
        lacks: short
            .then(|| format!("takes {immediate_bytes} bytes of immediates where the kernels need {IMMEDIATE_BYTES}")),
        device: DeviceFacts {
            backend: "wgpu",
            device: info.name,
            driver: format!("{} {}", info.driver, info.driver_info).trim().to_owned(),
            kind: match info.device_type {
                wgpu::DeviceType::Cpu => DeviceKind::Software,
                _ => DeviceKind::Hardware,
            },
            max_buffer_bytes: limits.max_buffer_size,
            max_binding_bytes: limits.max_storage_buffer_binding_size,
            unified,
            subgroup: (info.subgroup_min_size, info.subgroup_max_size),
            f16: features.contains(Features::SHADER_F16),
            matrix_tiles: tiles.map(|tile| (tile.m_size, tile.n_size, tile.k_size)).collect(),
            threads: 0,
        },
    }
}

#[cfg(target_vendor = "apple")]
use crate::apple::working_set;

#[cfg(not(target_vendor = "apple"))]
use crate::mapped::shown;

/// Metal says it by being unified.
#[cfg(target_vendor = "apple")]
fn shown(_: &wgpu::Adapter) -> bool {
    false
}

/// Nobody says so but Metal.
#[cfg(not(target_vendor = "apple"))]
fn working_set(_: &wgpu::Adapter) -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use DeviceKind::{Hardware, Software};

    fn adapter(name: &str, kind: DeviceKind, own_memory: bool) -> AdapterFacts {
        AdapterFacts {
            device: DeviceFacts {
                backend: "wgpu",
                device: name.to_owned(),
                driver: String::new(),
                kind,
                max_buffer_bytes: 0,
                max_binding_bytes: 0,
                unified: false,
                subgroup: (32, 32),
                f16: false,
                matrix_tiles: Vec::new(),
                threads: 0,
            },
            api: "vulkan",
            own_memory,
            in_place: false,
            working_set: None,
            binding_arrays: false,
            immediate_bytes: 0,
            workgroup_bytes: 0,
            workgroup_threads: 0,
            cache_name: None,
            lacks: None,
        }
    }

    fn chosen_name(list: &[AdapterFacts], choice: &AdapterChoice) -> Result<String> {
        choose(list, choice).map(|adapter| adapter.device.device.clone())
    }

    #[test]
    fn hardware_comes_first_and_discrete_before_integrated() {
        let all =
            [adapter("llvmpipe", Software, false), adapter("Small", Hardware, false), adapter("Large", Hardware, true)];
        assert_eq!(chosen_name(&all, &AdapterChoice::Hardware).unwrap(), "Large");
        assert_eq!(chosen_name(&all[..2], &AdapterChoice::Hardware).unwrap(), "Small");
    }

    #[test]
    fn hardware_that_lacks_something_is_passed_over_and_told_by_name() {
        let mut old = adapter("Old", Hardware, true);
        old.lacks = Some("takes 0 bytes of immediates".to_owned());
        let all = [old, adapter("Small", Hardware, false)];
        assert_eq!(chosen_name(&all, &AdapterChoice::Hardware).unwrap(), "Small");
        let refusal = choose(&all[..1], &AdapterChoice::Hardware).unwrap_err().to_string();
        assert!(refusal.contains("`Old`, which takes 0 bytes of immediates"), "{refusal}");
    }

    #[test]
    fn software_is_opened_by_name_only() {
        let all = [adapter("llvmpipe (LLVM 15.0.6, 256 bits)", Software, false)];
        assert!(choose(&all, &AdapterChoice::Named("LLVMpipe".to_owned())).is_ok());
        let refusal = choose(&all, &AdapterChoice::Hardware).unwrap_err().to_string();
        assert!(refusal.contains("`llvmpipe (LLVM 15.0.6, 256 bits)`"), "{refusal}");
    }

    #[test]
    fn a_missing_adapter_is_told_with_the_next_command() {
        let refusal = choose(&[], &AdapterChoice::Named("llvmpipe".to_owned())).unwrap_err().to_string();
        assert!(refusal.contains("`llvmpipe`") && refusal.contains("scripts/install-mesa.sh"), "{refusal}");
    }
}
