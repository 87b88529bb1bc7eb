//! Owns: what can compute: the list, and which of it a run takes.

use std::path::PathBuf;

use serde_json::Value;

use crate::{Place, ss};

/// Software Vulkan, which these tests need.
const ADAPTER: &str = "llvmpipe";

#[test]
fn kernels_in_metal_s_language_are_refused_where_nothing_takes_them() {
    for device in [["--adapter", "llvmpipe"], ["--backend", "reference"], ["--backend", "auto"]] {
        let line = [&["run", "--kernels", "msl", "Hello"][..], &device].concat();
        let refusal = ss(&line).refused(2);
        assert!(refusal.contains("`--kernels msl`") && refusal.contains("`auto`"), "{refusal}");
    }
}

#[test]
fn the_list_names_the_processor_and_every_adapter_and_what_auto_takes() {
    let text = ss(&["devices"]).answer();
    for part in [
        "\n  backend     reference\n",
        "plain Rust on ",
        ADAPTER,
        "wgpu on vulkan",
        "software; used only where `--adapter` names it",
        "Mesa",
        "134.2 MB a binding",
        "binding arrays",
        "pipeline cache",
        "`--backend auto`, the default, takes ",
        "`--arithmetic` is fast",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("kernels"), "{text}");
    assert!(ss(&["devices", "-v"]).answer().contains("in WGSL, none replaced"));
}

#[test]
fn the_list_is_there_as_json() {
    let list: Value = serde_json::from_str(&ss(&["devices", "--json"]).answer()).unwrap();
    let devices = list["devices"].as_array().unwrap();
    assert_eq!(devices[0]["kind"], "reference");
    let adapter = devices.iter().find(|device| device["adapter"].as_str().unwrap().contains(ADAPTER)).unwrap();
    for (field, value) in [("backend", "wgpu"), ("kind", "software"), ("api", "vulkan")] {
        assert_eq!(adapter[field], value);
    }
    for field in ["max_buffer_bytes", "max_binding_bytes", "immediate_bytes", "workgroup_bytes", "workgroup_threads"] {
        assert!(adapter[field].as_u64() > Some(0), "{field}");
    }
    assert!(devices.iter().any(|device| device["adapter"] == list["auto"]));
    assert!(list["auto"].as_str() != adapter["adapter"].as_str(), "software is never taken unasked");
}

#[test]
fn an_adapter_that_is_not_there_is_refused_with_those_that_are() {
    let text = ss(&["run", "--adapter", "no such card", "hi"]).refused(2);
    for part in ["`--adapter`: ", "`no such card`", ADAPTER, "`--backend reference`"] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn the_reference_backend_has_no_adapter() {
    let text = ss(&["run", "--adapter", ADAPTER, "--backend", "reference", "hi"]).refused(2);
    assert_eq!(text, "`--adapter` and `--backend reference` exclude each other; give one of them");
    let run = ss(&["run", "--backend", "reference", "--temperature", "0", "-n", "3", "hi"]);
    assert_eq!(run.env("SS_ADAPTER", "no such card").answer(), "I am Nano\n", "the flag wins over the variable");
}

/// The file of self-test results.
fn verdicts(place: &Place) -> PathBuf {
    place.home().join("state/selftest.json")
}

#[test]
fn the_first_run_on_an_adapter_proves_it_and_the_next_one_knows() {
    let place = Place::new();
    let run = || place.run(["run", "--adapter", ADAPTER, "--temperature", "0", "-n", "3", "hi"]);
    assert_eq!(run().answer(), "I am Nano\n");
    let kept = std::fs::read_to_string(verdicts(&place)).unwrap();
    let list: Value = serde_json::from_str(&kept).unwrap();
    assert_eq!((&list[0]["failure"], &list[0]["whole"]), (&Value::Null, &Value::Bool(false)), "{kept}");
    assert!(place.run(["devices"]).answer().contains("passed in its quick form"));
    let caches = std::fs::read_dir(place.home().join("cache")).unwrap().count();
    assert_eq!(caches, 1, "compiled kernels are kept");
    let failed = kept.replace("\"failure\": null", "\"failure\": \"Route with an error\"");
    std::fs::write(verdicts(&place), failed).unwrap();
    let text = run().refused(4);
    for part in [ADAPTER, "Mesa", "computes wrongly: Route with an error", "`ss selftest`", "`--backend reference`"] {
        assert!(text.contains(part), "{text}");
    }
    assert!(place.run(["devices"]).answer().contains("FAILED: Route with an error"));
}

#[test]
fn a_pipeline_cache_that_is_damaged_changes_nothing() {
    let place = Place::new();
    let test = || place.run(["selftest", "--adapter", ADAPTER, "--operation", "embed"]).answer();
    test();
    let folder = place.home().join("cache");
    let file = std::fs::read_dir(&folder).unwrap().next().unwrap().unwrap().path();
    let whole = std::fs::read(&file).unwrap();
    for damage in [&b"nonsense"[..], &whole[..whole.len() - 1], &[]] {
        std::fs::write(&file, damage).unwrap();
        test();
        assert_eq!(std::fs::read(&file).unwrap().first_chunk(), whole.first_chunk::<8>(), "it is written anew");
    }
}

#[test]
fn the_table_of_a_self_test_has_a_row_for_every_operation() {
    let said = ss(&["selftest", "--quick", "--backend", "reference"]).said();
    assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""));
    for operation in ["Embed", "HcRead", "GdnMix", "QsaAppend, QsaSelect, QsaAttend", "Route", "Combine", "Head"] {
        let row = said.stdout.lines().find(|line| line.starts_with(&format!("{operation} ")));
        assert!(row.is_some_and(|row| row.ends_with(" passed")), "{operation}: {}", said.stdout);
    }
    assert!(said.stdout.contains(" operations passed in "), "{}", said.stdout);
}

#[test]
fn a_self_test_is_there_as_json_and_for_single_operations() {
    let run = ss(&["selftest", "--adapter", ADAPTER, "--operation", "window", "--json"]);
    let report: Value = serde_json::from_str(&run.answer()).unwrap();
    let [row] = &report["operations"].as_array().unwrap()[..] else { panic!("{report}") };
    assert_eq!((&row["operation"], &row["passed"], &report["passed"]), (&"Window".into(), &true.into(), &true.into()));
    assert!(row["cases"].as_u64() > Some(1) && report["device"]["kind"] == "software", "{report}");
    let text = ss(&["selftest", "--operation", "frob", "--adapter", ADAPTER]).refused(2);
    assert!(text.contains("no operation `frob`; there are HcRead, "), "{text}");
}

#[test]
fn a_machine_without_hardware_has_nothing_to_prove_unless_software_is_named() {
    let list: Value = serde_json::from_str(&ss(&["devices", "--json"]).answer()).unwrap();
    if list["devices"].as_array().unwrap().iter().all(|device| device["kind"] != "hardware") {
        let text = ss(&["selftest"]).refused(4);
        assert!(text.contains("no hardware adapter") && text.contains(ADAPTER), "{text}");
    }
}
