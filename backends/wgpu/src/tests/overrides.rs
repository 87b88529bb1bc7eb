//! Owns: the promises of overrides: another module for a key takes the very bindings, immediates and place of the WGSL.

use ss_backend::Backend;

use super::fixture::{adapter, open_with, shared};
use crate::device::Device;
use crate::overrides::{Override, Replacement};
use crate::registry::{Kernel, Key, Registry};
use crate::selftest::rig::MODES;
use crate::selftest::{self, cases};
use crate::{AdapterFacts, ChunkAccess, Kernels, Options, WgpuBackend, adapters, kernel_overrides};

/// Replaces the embedding by one that writes sevens.
struct Sevens;

const SEVENS: &str = "
    struct Task { first: u32, bound: u32, copies: u32 }
    var<immediate> task: Task;
    @group(0) @binding(0) var<storage, read> ids: array<u32>;
    @group(0) @binding(1) var<storage, read_write> out: array<f32>;
    @group(0) @binding(2) var<storage, read> codes: array<u32>;
    @compute @workgroup_size(128)
    fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
        for (var i = id.y * groups.x * 128u + id.x; i < arrayLength(&out); i += groups.x * groups.y * 128u) {
            out[i] = 7.0 + 0.0 * f32(ids[0] + codes[0] + task.copies);
        }
    }";

impl Override for Sevens {
    fn name(&self) -> &'static str {
        "sevens"
    }

    fn kernels(&self, _: &str) -> Vec<&'static str> {
        Vec::new()
    }

    fn module(&self, device: &Device, _: &Kernel, key: &Key) -> Option<Replacement> {
        let source = wgpu::ShaderSource::Wgsl(SEVENS.into());
        let module = || device.raw.create_shader_module(wgpu::ShaderModuleDescriptor { label: None, source });
        (key.kernel == "embed").then(|| Replacement { module: module(), entry: "main", takes_constants: false })
    }
}

/// Replaces every kernel by text that has no entry point.
struct Empty;

impl Override for Empty {
    fn name(&self) -> &'static str {
        "empty"
    }

    fn kernels(&self, _: &str) -> Vec<&'static str> {
        Vec::new()
    }

    fn module(&self, device: &Device, _: &Kernel, _: &Key) -> Option<Replacement> {
        let source = wgpu::ShaderSource::Wgsl("const NOTHING = 0u;".into());
        let module = device.raw.create_shader_module(wgpu::ShaderModuleDescriptor { label: None, source });
        Some(Replacement { module, entry: "main", takes_constants: false })
    }
}

#[test]
fn an_override_that_does_not_build_leaves_its_kernel_in_place_and_is_told() {
    let changed = open_with(None, ChunkAccess::Array, Registry::with_overrides(vec![Box::new(Empty)]));
    let cases = cases();
    let case = cases.iter().find(|case| case.operation() == "Embed").unwrap();
    let split = selftest::whole(&**case, MODES[0]);
    let outcome = case.run(&changed, MODES[0], &split).unwrap();
    assert_eq!(outcome, case.run(shared(), MODES[0], &split).unwrap());
    assert_eq!(changed.refused_kernels(), ["embed"]);
    assert!(shared().refused_kernels().is_empty());
}

#[test]
fn an_override_runs_in_place_of_its_kernel_and_of_no_other() {
    let changed = open_with(None, ChunkAccess::Array, Registry::with_overrides(vec![Box::new(Sevens)]));
    for case in cases().iter().filter(|case| ["Embed", "Window"].contains(&case.operation())) {
        let split = selftest::whole(&**case, MODES[0]);
        let outcome = case.run(&changed, MODES[0], &split).unwrap();
        if case.operation() == "Window" {
            assert_eq!(outcome, case.run(shared(), MODES[0], &split).unwrap());
            continue;
        }
        for (name, values) in outcome.values {
            let selftest::Values::Numbers(numbers) = values else { panic!("{name} are ids") };
            assert!(numbers.iter().all(|&number| number == 7.0), "{}: {name}", case.shape());
        }
    }
    assert!(changed.counters().dispatches > 0);
}

#[test]
fn metals_kernels_are_named_where_they_run_and_refused_where_they_cannot() {
    let options = |kernels| Options { kernels, ..Options::new(adapter()) };
    assert!(WgpuBackend::open(options(Kernels::Wgsl)).is_ok());
    let Err(refused) = WgpuBackend::open(options(Kernels::Msl)) else { panic!("software Vulkan took Metal's kernels") };
    assert!(refused.to_string().contains("takes no kernels in Metal's language"), "{refused}");
    let here = adapters().into_iter().find(|adapter| adapter.api == "vulkan").unwrap();
    assert_eq!(kernel_overrides(&here), []);
    let there = kernel_overrides(&AdapterFacts { api: "metal", ..here });
    assert_eq!(there.contains(&("experts_in", "msl")), cfg!(feature = "msl"), "{there:?}");
}
