//! Owns: `ss devices`: what can compute here, as its driver describes it, and what `auto` takes.
//! Refuses: opening anything; what an adapter says is asked, not tried.

use std::fmt::Write as _;
use std::io::Write as _;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use ss_backend::{Arithmetic, Backend, DeviceFacts, DeviceKind};
use ss_reference::Reference;
use ss_wgpu::AdapterFacts;

use crate::args::DevicesArgs;
use crate::device::{Choice, automatic};
use crate::exit::Exit;
use crate::report::bytes;
use crate::verdicts::{Tested, Verdict, Verdicts, Way};

/// Prints the list.
///
/// # Errors
/// When standard output cannot be written.
pub fn devices(args: &DevicesArgs) -> Result<Exit> {
    let reference = Reference::new(ss_reference::Options::default())?.facts().clone();
    let list = List { adapters: ss_wgpu::adapters(), reference, verdicts: Verdicts::open() };
    let text = if args.json { format!("{:#}\n", list.json()) } else { list.text(args.verbose) };
    std::io::stdout().write_all(text.as_bytes()).context("standard output cannot be written")?;
    Ok(Exit::Answered)
}

/// Everything that can compute.
struct List {
    reference: DeviceFacts,
    adapters: Vec<AdapterFacts>,
    verdicts: Verdicts,
}

impl List {
    /// The name of what `auto` takes.
    fn taken(&self) -> &str {
        match automatic(&self.adapters) {
            Choice::Reference => &self.reference.device,
            Choice::Adapter(choice) => {
                ss_wgpu::choose(&self.adapters, &choice).map_or("", |adapter| &adapter.device.device)
            }
        }
    }

    fn text(&self, verbose: bool) -> String {
        let mut text = String::new();
        section(&mut text, &self.reference.device, &reference_rows(&self.reference));
        for adapter in &self.adapters {
            let mut rows = adapter_rows(adapter, verbose);
            rows.push(("self-test", self.proof(adapter)));
            section(&mut text, &adapter.device.device, &rows);
        }
        let _ = writeln!(
            text,
            "`--backend auto`, the default, takes {}; `--arithmetic` is {} unless told otherwise",
            self.taken(),
            Arithmetic::default()
        );
        text
    }

    /// What its self-test said.
    fn proof(&self, adapter: &AdapterFacts) -> String {
        let verdicts: Vec<String> = ways(adapter)
            .filter_map(|way| {
                let said = said(self.verdicts.of(&Tested::of(&adapter.device, way))?);
                Some(match (way.matrix_units, way.own_kernels) {
                    (false, false) => said,
                    (true, false) => format!("with matrix units {said}"),
                    (false, true) => format!("with its own kernels {said}"),
                    (true, true) => format!("with its own kernels and matrix units {said}"),
                })
            })
            .collect();
        match &verdicts[..] {
            [] => "not run yet with this driver and version; the first `ss run` on it runs the quick one".to_string(),
            verdicts => verdicts.join("; "),
        }
    }

    fn json(&self) -> Value {
        let reference = facts_json(&self.reference);
        let adapters = self.adapters.iter().map(|adapter| {
            let mut json = facts_json(&adapter.device);
            json["api"] = json!(adapter.api);
            json["own_memory"] = json!(adapter.own_memory);
            json["in_place"] = json!(adapter.in_place);
            json["working_set_bytes"] = json!(adapter.working_set);
            json["binding_arrays"] = json!(adapter.binding_arrays);
            json["pipeline_cache"] = json!(adapter.cache_name.is_some());
            json["immediate_bytes"] = json!(adapter.immediate_bytes);
            json["workgroup_bytes"] = json!(adapter.workgroup_bytes);
            json["workgroup_threads"] = json!(adapter.workgroup_threads);
            json["lacks"] = json!(adapter.lacks);
            let replaced = ss_wgpu::kernel_overrides(adapter).into_iter();
            json["kernel_overrides"] =
                replaced.map(|(kernel, language)| (kernel.to_string(), json!(language))).collect();
            for way in ways(adapter) {
                let verdict = self.verdicts.of(&Tested::of(&adapter.device, way));
                json[named(way)] = json!(verdict.map(|verdict| {
                    json!({ "passed": verdict.failure.is_none(), "whole": verdict.whole, "failure": verdict.failure })
                }));
            }
            json
        });
        let devices: Vec<Value> = std::iter::once(reference).chain(adapters).collect();
        json!({
            "devices": devices,
            "auto": self.taken(),
            "arithmetic": Arithmetic::default().name(),
            "kernels": ss_wgpu::kernel_count(),
            "version": crate::VERSION,
        })
    }
}

/// The ways in which an adapter may compute.
fn ways(adapter: &AdapterFacts) -> impl Iterator<Item = Way> {
    let own = !ss_wgpu::kernel_overrides(adapter).is_empty();
    let languages = [false, true].into_iter().filter(move |&language| own || !language);
    languages.flat_map(|own_kernels| [false, true].map(|matrix_units| Way { matrix_units, own_kernels }))
}

/// What JSON calls the verdict of a way.
fn named(way: Way) -> &'static str {
    match (way.matrix_units, way.own_kernels) {
        (false, false) => "selftest",
        (true, false) => "selftest_with_matrix_units",
        (false, true) => "selftest_with_own_kernels",
        (true, true) => "selftest_with_own_kernels_and_matrix_units",
    }
}

fn said(verdict: &Verdict) -> String {
    match &verdict.failure {
        Some(failure) => format!("FAILED: {failure}"),
        None if verdict.whole => "passed".to_string(),
        None => "passed in its quick form".to_string(),
    }
}

fn section(text: &mut String, name: &str, rows: &[(&str, String)]) {
    let _ = writeln!(text, "{name}");
    for (name, value) in rows {
        let _ = writeln!(text, "  {name:<12}{value}");
    }
    text.push('\n');
}

fn reference_rows(facts: &DeviceFacts) -> Vec<(&'static str, String)> {
    let threads = match facts.threads {
        1 => "1 thread".to_string(),
        count => format!("{count} threads"),
    };
    vec![("backend", "reference".to_string()), ("kind", format!("plain Rust on {threads}"))]
}

fn adapter_rows(adapter: &AdapterFacts, verbose: bool) -> Vec<(&'static str, String)> {
    let facts = &adapter.device;
    let kind = match facts.kind {
        DeviceKind::Software => "software; used only where `--adapter` names it",
        _ if adapter.own_memory => "hardware with memory of its own",
        _ => "hardware that shares the processor's memory",
    };
    let mut rows = vec![
        ("backend", format!("wgpu on {}", adapter.api)),
        ("kind", kind.to_string()),
        ("driver", facts.driver.clone()),
        ("buffers", format!("up to {}, {} a binding", bytes(facts.max_buffer_bytes), bytes(facts.max_binding_bytes))),
        ("subgroups", range(facts.subgroup)),
        ("F16", yes(facts.f16)),
        ("matrix", tiles(&facts.matrix_tiles)),
        ("uses", uses(adapter)),
    ];
    if let Some(most) = adapter.working_set {
        rows.push(("memory", format!("the driver recommends at most {}", bytes(most))));
    }
    if verbose {
        rows.extend([
            ("workgroups", format!("{} threads, {}", adapter.workgroup_threads, bytes(adapter.workgroup_bytes.into()))),
            ("immediates", format!("{} bytes", adapter.immediate_bytes)),
            ("kernels", format!("{} in WGSL, {}", ss_wgpu::kernel_count(), overrides(adapter))),
        ]);
    }
    if let Some(lacks) = &adapter.lacks {
        rows.push(("no use", format!("it {lacks}")));
    }
    rows
}

fn range((least, most): (u32, u32)) -> String {
    if least == most { least.to_string() } else { format!("{least} to {most}") }
}

fn yes(is: bool) -> String {
    if is { "yes" } else { "no" }.to_string()
}

fn tiles(tiles: &[(u32, u32, u32)]) -> String {
    match tiles {
        [] => "none".to_string(),
        tiles => tiles.iter().map(|(m, n, k)| format!("{m}x{n}x{k}")).collect::<Vec<_>>().join(", "),
    }
}

/// What of an adapter's features is used where it has them.
fn uses(adapter: &AdapterFacts) -> String {
    let features = [
        ("immediates", adapter.lacks.is_none()),
        ("binding arrays", adapter.binding_arrays),
        ("pipeline cache", adapter.cache_name.is_some()),
        ("slots written in place", adapter.in_place),
    ];
    let used: Vec<&str> = features.into_iter().filter_map(|(name, has)| has.then_some(name)).collect();
    if used.is_empty() { "nothing".to_string() } else { used.join(", ") }
}

fn overrides(adapter: &AdapterFacts) -> String {
    let replaced = ss_wgpu::kernel_overrides(adapter);
    let named: Vec<String> = replaced.iter().map(|(kernel, language)| format!("{kernel} ({language})")).collect();
    match &named[..] {
        [] => "none replaced".to_string(),
        named => format!("of which are replaced: {}", named.join(", ")),
    }
}

/// What a device says of itself, as JSON.
pub fn facts_json(facts: &DeviceFacts) -> Value {
    json!({
        "backend": facts.backend,
        "adapter": facts.device,
        "driver": facts.driver,
        "kind": match facts.kind {
            DeviceKind::Hardware => "hardware",
            DeviceKind::Software => "software",
            DeviceKind::Reference => "reference",
        },
        "max_buffer_bytes": facts.max_buffer_bytes,
        "max_binding_bytes": facts.max_binding_bytes,
        "unified": facts.unified,
        "subgroup": [facts.subgroup.0, facts.subgroup.1],
        "f16": facts.f16,
        "matrix_tiles": facts.matrix_tiles.iter().map(|(m, n, k)| [m, n, k]).collect::<Vec<_>>(),
        "threads": facts.threads,
    })
}
