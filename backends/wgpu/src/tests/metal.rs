//! Owns: what is known of Apple's devices without one: that every kernel can be said in their language, its buffers at the
//! slots that wgpu gives them, and that every pipeline fits all of them.
//! Refuses: limits measured anywhere; they are what Apple and users of its devices say.

use std::collections::{BTreeMap, HashSet};

use naga::AddressSpace;
use naga::back::msl;
use naga::proc::Layouter;
use naga::valid::{Capabilities, ModuleInfo, ValidationFlags, Validator};

use super::kernels::{chain, kernel_of, keys, large, with_units};
use crate::bindings::{Access, Binding, declared};
use crate::device::IMMEDIATE_BYTES;
use crate::registry::{ENTRY, Key, PoolBinding, Side, constants, source};

/// What a family of Apple's GPUs takes (Metal Feature Set Tables).
struct Family {
    name: &'static str,
    /// Threads of a threadgroup.
    threads: u32,
    /// Threadgroup memory.
    threadgroup_bytes: u32,
    /// Threads of a SIMD-group.
    simd: u32,
    /// Buffers of a kernel.
    buffers: usize,
    /// Bytes that are handed to a kernel without a buffer: immediates.
    inline_bytes: u32,
    /// Whether it multiplies matrices of 8 x 8.
    matrices: bool,
    /// Memory of the smallest Mac that has it.
    ram: u64,
}

const fn family(name: &'static str, ram_gb: u64) -> Family {
    Family {
        name,
        threads: 1024,
        threadgroup_bytes: 32 << 10,
        simd: 32,
        buffers: 31,
        inline_bytes: 4096,
        matrices: true,
        ram: ram_gb << 30,
    }
}

const FAMILIES: [Family; 5] = [
    family("M1, Apple7", 8),
    family("M2, Apple8", 8),
    family("M3, Apple9", 8),
    family("M4, Apple9", 16),
    family("M5, Apple10", 16),
];

impl Family {
    /// The longest buffer: half of the memory, as a Mac mini with 8 GB tells (ggml-org/llama.cpp pull request 1706).
    fn buffer_bytes(&self) -> u64 {
        self.ram / 2
    }

    /// What Metal recommends to use at most: two thirds of the memory on Macs with little.
    fn working_set(&self) -> u64 {
        self.ram / 3 * 2
    }

    /// Why a pipeline does not fit, if it does not.
    fn objection(&self, pipeline: &Facts) -> Option<String> {
        let Facts { threads, threadgroup_bytes, slots, subgroup } = *pipeline;
        let takes = |what: &str, count: u64, most: u64| {
            (count > most).then(|| format!("{} has {most} {what}, {count} are needed", self.name))
        };
        takes("threads", threads.into(), self.threads.into())
            .or_else(|| takes("bytes of threadgroup memory", threadgroup_bytes.into(), self.threadgroup_bytes.into()))
            .or_else(|| takes("buffers", slots as u64, self.buffers as u64))
            .or_else(|| takes("bytes of immediates", IMMEDIATE_BYTES.into(), self.inline_bytes.into()))
            .or_else(|| {
                let units = subgroup.filter(|&subgroup| subgroup != self.simd || !self.matrices)?;
                Some(format!("{} has no matrices of SIMD-groups of {units}", self.name))
            })
    }
}

/// What a pipeline asks of a device.
struct Facts {
    threads: u32,
    threadgroup_bytes: u32,
    slots: usize,
    /// Threads of a subgroup, where matrix units multiply.
    subgroup: Option<u32>,
}

/// The oldest language that wgpu may be given: macOS 12. An array of buffers is an argument buffer from 3.0, macOS 13, on.
fn language(key: &Key) -> (u8, u8) {
    if matches!(key.pool, PoolBinding::Array(_)) { (3, 0) } else { (2, 4) }
}

/// The slot of each binding (wgpu-hal, `create_pipeline_layout` of its Metal backend): immediates at 0, then bindings by
/// group and number.
fn slots(mut bindings: Vec<Binding>) -> Vec<(u8, Binding)> {
    bindings.sort_by_key(|binding| (binding.group, binding.index));
    (1..).zip(bindings).collect()
}

/// A kernel in Metal's language, and what it asks for.
fn metal(key: &Key, slots: &[(u8, Binding)]) -> Result<(String, Facts), Box<dyn std::error::Error>> {
    let kernel = kernel_of(key);
    let module = naga::front::wgsl::parse_str(&source(kernel, key))?;
    let info = Validator::new(ValidationFlags::all(), Capabilities::all()).validate(&module)?;
    let constants = constants(kernel, key).into_iter().collect();
    let (module, info) = naga::back::pipeline_constants::process_overrides(&module, &info, None, &constants)?;
    let sizes = slots.len() as u8 + 1;
    let mut resources = msl::EntryPointResources {
        immediates_buffer: Some(0),
        sizes_buffer: Some(sizes),
        ..msl::EntryPointResources::default()
    };
    for (slot, Binding { group, index, access, .. }) in slots {
        let target =
            msl::BindTarget { buffer: Some(*slot), mutable: *access == Access::Write, ..msl::BindTarget::default() };
        resources.resources.insert(naga::ResourceBinding { group: *group, binding: *index }, target);
    }
    let options = msl::Options {
        lang_version: language(key),
        per_entry_point_map: BTreeMap::from([(ENTRY.to_owned(), resources)]),
        fake_missing_bindings: false,
        zero_initialize_workgroup_memory: false,
        force_loop_bounding: false,
        ..msl::Options::default()
    };
    let (text, said) = msl::write_string(&module, &info, &options, &msl::PipelineOptions::default())?;
    for entry in said.entry_point_names {
        entry?;
    }
    let subgroup = key.constants.iter().find(|(name, _)| *name == "SUBGROUP").map(|&(_, threads)| threads);
    let facts = Facts {
        threads: module.entry_points[0].workgroup_size.iter().product(),
        threadgroup_bytes: threadgroup_bytes(&module, &info),
        slots: usize::from(sizes) + 1,
        subgroup,
    };
    Ok((text, facts))
}

/// Workgroup memory that the entry point uses, in whole 16 bytes a variable.
fn threadgroup_bytes(module: &naga::Module, info: &ModuleInfo) -> u32 {
    let mut layouter = Layouter::default();
    layouter.update(module.to_ctx()).unwrap();
    let used = module.global_variables.iter().filter(|(handle, variable)| {
        variable.space == AddressSpace::WorkGroup && !info.get_entry_point(0)[*handle].is_empty()
    });
    used.map(|(_, variable)| layouter[variable.ty].size.next_multiple_of(16)).sum()
}

/// The buffers of a kernel's text: names and slots.
fn placed(text: &str) -> Vec<(&str, u8)> {
    let arguments = text.lines().filter_map(|line| {
        let (declared, slot) = line.split_once(" [[buffer(")?;
        Some((declared.rsplit(' ').next()?, slot.split_once(')')?.0.parse().ok()?))
    });
    arguments.collect()
}

/// Also in the tiles of a GPU, and with the matrix units that Apple's devices have.
#[test]
fn every_kernel_is_said_in_metals_language_and_fits_every_family() {
    let (mut named, mut arrays, mut matrices) = (HashSet::new(), 0, 0);
    for key in keys() {
        let units = with_units(key.clone(), Side::Eight);
        for key in [Some(key.clone()), Some(large(key)), units].into_iter().flatten() {
            let slots = slots(declared(&source(kernel_of(&key), &key)));
            let (text, facts) = metal(&key, &slots).unwrap_or_else(|error| panic!("{key:?}: {}", chain(&*error)));
            assert!(text.contains("kernel void main_"), "{text}");
            let arguments = placed(&text);
            for (name, slot) in &arguments {
                let wanted = match *name {
                    "task" => 0,
                    "_buffer_sizes" => slots.len() as u8 + 1,
                    name => {
                        // naga tells names apart by what it puts behind them.
                        let own = name.trim_end_matches(|c: char| c.is_ascii_digit()).trim_end_matches('_');
                        let binding = slots.iter().find(|(_, binding)| binding.name == own);
                        binding.unwrap_or_else(|| panic!("{key:?}: `{name}` is no binding")).0
                    }
                };
                assert_eq!(*slot, wanted, "{key:?}: `{name}`");
            }
            assert!(arguments.len() > 1, "{text}");
            let objections: Vec<_> = FAMILIES.iter().filter_map(|family| family.objection(&facts)).collect();
            assert!(objections.is_empty(), "{key:?}: {objections:?}");
            #[cfg(feature = "msl")]
            same_slots(&key, &slots);
            arrays += usize::from(language(&key) == (3, 0));
            matrices += usize::from(text.contains("simdgroup_multiply_accumulate"));
            named.insert(key.kernel);
        }
    }
    assert!(named.len() > 30 && arrays > 2 && matrices > 10, "{arrays} arrays, {matrices} matrices: {named:?}");
}

/// The kernels of `msl/` have their buffers where naga, told wgpu's rules, has the WGSL's.
#[cfg(feature = "msl")]
fn same_slots(key: &Key, slots: &[(u8, Binding)]) {
    let Some(said) = crate::msl::said(kernel_of(key), key) else { return };
    for (slot, binding) in slots {
        let line = format!("\n#define AT_{} {slot}\n", binding.name);
        assert!(said.text.contains(&line), "{key:?}: no `{}`", line.trim());
    }
}

#[test]
fn a_pipeline_that_asks_too_much_is_told() {
    let fits = || Facts { threads: 1024, threadgroup_bytes: 32 << 10, slots: 31, subgroup: Some(32) };
    for family in &FAMILIES {
        assert_eq!(family.objection(&fits()), None);
        for too_much in [
            Facts { threads: 1056, ..fits() },
            Facts { threadgroup_bytes: (32 << 10) + 16, ..fits() },
            Facts { slots: 32, ..fits() },
            Facts { subgroup: Some(16), ..fits() },
        ] {
            assert!(family.objection(&too_much).is_some(), "{}", family.name);
        }
    }
}

/// The released model with the fewest slots that engine.md 5.1 recommends.
#[test]
fn the_released_model_fits_the_buffers_and_the_working_set_of_every_family() {
    const RECORD: u64 = 2_764_800;
    const FLOOR: u64 = 640;
    const TRUNK: u64 = 2_920_000_000;
    /// Codes of the head, the largest weight that is bound.
    const HEAD: u64 = 248_320 * 2560 / 2;
    for family in &FAMILIES {
        let largest = (FLOOR * RECORD).max(HEAD);
        assert!(largest <= family.buffer_bytes(), "{}: {largest} bytes in a buffer", family.name);
        assert!(FLOOR * RECORD + TRUNK <= family.working_set(), "{}", family.name);
    }
}
