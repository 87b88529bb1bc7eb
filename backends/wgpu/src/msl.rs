//! Owns: the kernels in Metal's own language that replace WGSL ones on Apple's devices (engine.md 2.1, `msl/`).
//! Refuses: keys that a kernel in `msl/` has no code for, and devices that are not reached through Metal: the WGSL stays.
//! Invariants: buffers have the places that wgpu gives to the bindings which the WGSL declares; every constant of the WGSL
//! is a macro of the same name, since Metal's text is compiled as it stands.

use std::borrow::Cow;
use std::fmt::Write;

use ss_backend::Format;

use crate::bindings::{Binding, declared};
use crate::device::{Device, OWN_MODULES};
use crate::overrides::{Override, Replacement};
use crate::registry::{Inputs, Kernel, Key, Part, PoolBinding, Product, Side, Units, WeightKey, constants, source};
use crate::tuning;

/// Names a file of `msl/`.
macro_rules! part {
    ($file:literal) => {
        Part { file: $file, text: include_str!(concat!("../../../msl/", $file)) }
    };
}

const NUMBERS: Part = part!("numbers.metal");
const AFFINE: Part = part!("affine.metal");
const CELLS: Part = part!("cells.metal");
const ATTENDED: Part = part!("attended.metal");
const GEMM: Part = part!("gemm.metal");
const SLOT: Part = part!("slot.metal");
const SWIGLU: Part = part!("swiglu.metal");

/// A kernel of `msl/`.
struct Metal {
    /// The WGSL kernel that it replaces, and its entry point.
    kernel: &'static str,
    /// What it is made of, in order, the entry point last.
    parts: &'static [&'static Part],
    /// Threads of a threadgroup, those of the WGSL.
    threads: u32,
}

/// Threads of `gemm.metal`.
const GEMM_THREADS: u32 = 256;

/// All of them.
const KERNELS: &[Metal] = &[
    experts("experts_in", &[&NUMBERS, &AFFINE, &SLOT, &SWIGLU, &part!("experts_in.metal")]),
    experts("experts_in_alike", &[&NUMBERS, &AFFINE, &SLOT, &SWIGLU, &part!("experts_in_alike.metal")]),
    experts("experts_out", &[&NUMBERS, &AFFINE, &SLOT, &part!("experts_out.metal")]),
    experts_prompt("experts_in_prompt", &[&NUMBERS, &AFFINE, &SLOT, &GEMM, &part!("experts_in_prompt.metal")]),
    experts_prompt("experts_out_prompt", &[&NUMBERS, &AFFINE, &SLOT, &GEMM, &part!("experts_out_prompt.metal")]),
    Metal {
        kernel: "qsa_scores",
        parts: &[&NUMBERS, &CELLS, &part!("qsa_scores.metal")],
        threads: tuning::THREADS.value,
    },
    Metal { kernel: "qsa_topk", parts: &[&NUMBERS, &part!("qsa_topk.metal")], threads: tuning::ROW_THREADS.value },
    Metal {
        kernel: "qsa_attend",
        parts: &[&NUMBERS, &CELLS, &ATTENDED, &part!("qsa_attend.metal")],
        threads: tuning::ROW_THREADS.value,
    },
    Metal {
        kernel: "qsa_attend_units_8",
        parts: &[&NUMBERS, &CELLS, &ATTENDED, &part!("qsa_attend_units_8.metal")],
        threads: tuning::THREADS.value,
    },
];

const fn experts_prompt(kernel: &'static str, parts: &'static [&'static Part]) -> Metal {
    Metal { kernel, parts, threads: GEMM_THREADS }
}

const fn experts(kernel: &'static str, parts: &'static [&'static Part]) -> Metal {
    Metal { kernel, parts, threads: tuning::THREADS.value }
}

/// A kernel said in Metal's language.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) text: String,
    /// Name of the entry point.
    pub(crate) entry: &'static str,
    /// Threads of a threadgroup.
    pub(crate) threads: u32,
}

/// The WGSL kernels that have one, and the files that it is made of.
pub(crate) fn list() -> impl Iterator<Item = (&'static str, Vec<&'static str>)> {
    KERNELS.iter().map(|metal| (metal.kernel, metal.parts.iter().map(|part| part.file).collect()))
}

/// What replaces a kernel with this key on Metal; none where nothing does.
pub(crate) fn said(kernel: &Kernel, key: &Key) -> Option<Said> {
    let metal = KERNELS.iter().find(|metal| metal.kernel == key.kernel)?;
    if !key.weights.iter().all(|weight| weight.matrix.format.is_affine() && multiplied(kernel, weight)) {
        return None;
    }
    let values = constants(kernel, key);
    let bindings = declared(&source(kernel, key));
    let mut text = HEAD.to_owned();
    // A small tile needs no more threads than it has outputs.
    let tile = key.weights.first().map_or(metal.threads, |weight| weight.spread().tile());
    let threads = match kernel.product {
        Product::Walk => tile.next_multiple_of(SIMD_GROUP).min(metal.threads),
        _ => metal.threads,
    };
    define(&mut text, "THREADS", threads);
    for (name, value) in values.into_iter().filter(|(name, _)| name != "THREADS") {
        define(&mut text, &name, value as u32);
    }
    for (name, weight) in kernel.weights.iter().zip(&key.weights) {
        let spread = weight.spread();
        let bits = if let Format::Affine { bits, .. } = weight.matrix.format { bits } else { 0 };
        define(&mut text, &format!("{name}_BITS"), bits);
        define(&mut text, &format!("{name}_TILE"), spread.tile());
        define(&mut text, &format!("{name}_SPAN"), spread.tile() / weight.outputs.map_or(1, |(count, _)| count));
        define(&mut text, &format!("{name}_IN_SLOT"), u32::from(weight.place.is_some()));
    }
    define(&mut text, "POOL_IS_ARRAY", u32::from(matches!(key.pool, PoolBinding::Array(_))));
    for (slot, binding) in (FIRST_SLOT..).zip(in_order(bindings)) {
        // Without a sign that it has none: an attribute takes it.
        let _ = writeln!(text, "#define AT_{} {slot}", binding.name);
    }
    metal.parts.iter().for_each(|part| text.push_str(part.text));
    Some(Said { text, entry: metal.kernel, threads })
}

/// Whether a weight is multiplied as the kernels here do it: a prompt form rounds to F16, with Apple's matrix units, in tiles of
/// its own size (`gemm.metal`).
fn multiplied(kernel: &Kernel, weight: &WeightKey) -> bool {
    const UNITS: Inputs = Inputs::Units(Units { side: Side::Eight, subgroup: 32 });
    kernel.product != Product::Gemm || (weight.inputs == UNITS && weight.tile == tuning::UNITS_LOW_TILE)
}

/// Threads of a SIMD-group.
const SIMD_GROUP: u32 = 32;

/// What Metal's compiler is told first: nothing that follows may change what its own library means.
const HEAD: &str = "#include <metal_stdlib>\nusing namespace metal;\n";

/// The buffer behind the immediates, which wgpu puts at 0 (wgpu-hal, `create_pipeline_layout` of its Metal backend).
pub(crate) const FIRST_SLOT: u32 = 1;

/// Bindings in the order of their slots: by group, then by number; an array of buffers takes one slot.
fn in_order(mut bindings: Vec<Binding>) -> Vec<Binding> {
    bindings.sort_by_key(|binding| (binding.group, binding.index));
    bindings
}

fn define(text: &mut String, name: &str, value: u32) {
    let _ = writeln!(text, "#define {name} {value}u");
}

/// Replaces kernels on devices that are reached through Metal.
pub(crate) struct Msl;

impl Override for Msl {
    fn name(&self) -> &'static str {
        "msl"
    }

    fn kernels(&self, api: &str) -> Vec<&'static str> {
        if api == wgpu::Backend::Metal.to_str() { list().map(|(kernel, _)| kernel).collect() } else { Vec::new() }
    }

    fn module(&self, device: &Device, kernel: &Kernel, key: &Key) -> Option<Replacement> {
        if device.api != wgpu::Backend::Metal || !device.raw.features().contains(OWN_MODULES) {
            return None;
        }
        let said = said(kernel, key)?;
        let entry = wgpu::PassthroughShaderEntryPoint { name: said.entry.into(), workgroup_size: (said.threads, 1, 1) };
        let descriptor = wgpu::ShaderModuleDescriptorPassthrough {
            label: Some(key.kernel),
            entry_points: Cow::Owned(vec![entry]),
            msl: Some(said.text.into()),
            ..Default::default()
        };
        // SAFETY: wgpu checks nothing of this text. Its kernels read and write inside the buffers that the WGSL would, at
        // most as far; tests run the same text under AddressSanitizer with buffers of exactly their sizes.
        let module = unsafe { device.raw.create_shader_module_passthrough(descriptor) };
        Some(Replacement { module, takes_constants: false, entry: said.entry })
    }
}
