//! Owns: the flags that put host memory and a second copy between device and disk: answers do not depend on them.

use std::fs;

use serde_json::Value;

use crate::{Place, Run, nano, stats};

const ASK: [&str; 11] = [
    "run",
    "--temperature",
    "0",
    "--slots",
    "smallest",
    "--arithmetic",
    "exact",
    "--backend",
    "reference",
    "-n8",
    "What is the capital of Japan?",
];

fn ask(place: &Place, more: &[&str]) -> Value {
    stats(place, &[&ASK[..], &["--model", &nano().to_string_lossy()], more].concat())
}

fn run(place: &Place, command: &[&str], more: &[&str]) -> Run {
    place.run([command, &["--model", &nano().to_string_lossy()], more].concat())
}

#[test]
fn answers_are_the_same_through_host_memory_and_from_two_copies() {
    let place = Place::new();
    place.copy_of_nano();
    let plain = ask(&place, &[]);
    assert_eq!((&plain["ram_hits"], &plain["ram_bytes"]), (&0.into(), &0.into()));
    for more in [
        &["--ram-cache-gb", "all"][..],
        &["--ram-cache-gb", "0.003"],
        &["--mirror", "copy"],
        &["--mirror", "copy", "--ram-cache-gb", "0.003", "--disk-gbps", "1", "--disk-latency-us", "20"],
    ] {
        let report = ask(&place, more);
        assert_eq!(report["output_ids"], plain["output_ids"], "{more:?}");
        let kept = more.contains(&"--ram-cache-gb");
        assert_eq!(report["ram_hits"].as_u64() > Some(0), kept, "{more:?}: {}", report["ram_hits"]);
        assert_eq!(report["ram_evictions"].as_u64() > Some(0), more.contains(&"0.003"), "{more:?}");
    }
    let said = run(&place, &ASK, &["--ram-cache-gb", "all"]).said();
    assert!(said.stderr.contains(" from host memory, peak memory "), "{}", said.stderr);
}

#[test]
fn a_directory_that_is_no_copy_is_refused_by_what_differs() {
    let place = Place::new();
    let dir = place.copy_of_nano();
    fs::remove_file(dir.join("mtp.safetensors")).unwrap();
    let text = run(&place, &ASK, &["--mirror", "copy"]).refused(2);
    assert!(text.starts_with("copy is not a copy of ") && text.contains("reads mtp.safetensors"), "{text}");
    let text = run(&place, &ASK, &["--mirror", "nowhere"]).refused(2);
    assert!(text.contains("there is no model `nowhere`"), "{text}");
}

#[test]
fn a_measurement_fills_memory_first_and_slows_it_down_on_request() {
    let place = Place::new();
    let measure = |more: &[&str]| -> Value {
        let test = ["bench", "--backend", "reference", "--slots", "smallest", "-p0", "-n2", "-r1", "--json"];
        serde_json::from_str(&run(&place, &test, more).answer()).unwrap()
    };
    let kept = ["--ram-cache-gb", "all", "--preload"];
    let row = &measure(&kept)["rows"][0];
    assert!(row["ram_bytes_per_token"].as_f64() > Some(1000.0), "{row}");
    // Three megabytes a second: the records of a token take far longer than its arithmetic.
    let slow = [&kept[..], &["--throttle-ram", "--disk-gbps", "0.003"]].concat();
    let slowed = &measure(&slow)["rows"][0];
    // Records that are read early may be on their way when the test begins or ends.
    let most = 2.0 * 3e6 / slowed["ram_bytes_per_token"].as_f64().unwrap();
    assert!(slowed["tokens_per_second"].as_f64().unwrap() <= most, "{slowed}");
}

#[test]
fn flags_that_lack_their_other_half_are_refused() {
    let place = Place::new();
    for (more, says) in [
        (&["--preload"][..], "add `--ram-cache-gb all`"),
        (&["--throttle-ram", "--ram-cache-gb", "all"], "add `--disk-gbps`"),
        (&["--throttle-ram", "--disk-gbps", "1"], "add `--ram-cache-gb all`"),
        (&["--ram-cache-gb", "auto"], "expected gigabytes, as 8 or 0.5, or all"),
        (&["--disk-gbps", "0"], "expected a number from 0.001 to 1000"),
        (&["--disk-gbps", "2000"], "expected a number from 0.001 to 1000"),
    ] {
        let text = run(&place, &["bench", "--backend", "reference", "-p0", "-n1", "-r1"], more).refused(2);
        assert!(text.contains(says), "{more:?}: {text}");
    }
}
