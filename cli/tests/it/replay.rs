//! Owns: traces and hot sets as a person meets them: written beside an answer, replayed, taken up at the next start.

use std::path::PathBuf;

use serde_json::Value;

use crate::{Place, ss};

const QUESTION: [&str; 4] = ["run", "--temperature", "0", "How do I make tea?"];

/// A trace of an answer, and the answer.
fn traced(place: &Place) -> (PathBuf, String) {
    let file = place.path("trace");
    let flags = ["--slots", "25%", "--trace-experts", "trace"];
    (file, place.run([&QUESTION[..], &flags[..]].concat()).answer())
}

#[test]
fn a_trace_is_written_beside_the_same_answer_and_replayed_as_a_table() {
    let place = Place::new();
    let (file, answer) = traced(&place);
    assert_eq!(answer, ss(&QUESTION).answer());
    let text = place.run(["replay", "trace"]).answer();
    // The id that ends the reply is not fed.
    assert!(text.starts_with("trace: 8 layers of 64 experts, 6 a token, "), "{text}");
    assert!(text.contains(" 52 reply tokens, 18 of prompts left out\n"), "{text}");
    for policy in ["clock", "lru", "lfu", "popularity", "belady"] {
        assert!(text.contains(policy), "{text}");
    }
    for pool in ["51 (10 %)", "128 (25 %)", "256 (50 %)", "384 (75 %)"] {
        let row = text.lines().find(|line| line.contains(pool)).unwrap_or_else(|| panic!("{pool}: {text}"));
        assert_eq!(row.matches(" % ").count(), 5, "{row}");
    }
    // A run that was killed leaves part of a token.
    let bytes = std::fs::read(&file).unwrap();
    std::fs::write(&file, &bytes[..bytes.len() - 7]).unwrap();
    let cut = place.run(["replay", "trace"]).answer();
    assert!(cut.contains(" 51 reply tokens, 18 of prompts left out, cut in the middle of the next\n"), "{cut}");
}

#[test]
fn a_replay_as_json_has_every_figure_and_takes_pools_and_policies() {
    let line =
        ["replay", "--synthetic", "nano-like", "--tokens", "60", "--slots", "floor,200", "--policy", "clock,belady"];
    let json: Value = serde_json::from_str(&ss(&[&line[..], &["--json"]].concat()).answer()).unwrap();
    for (field, value) in [("layers", 8), ("experts", 64), ("choices", 6), ("tokens", 60), ("prompt_rows", 0)] {
        assert_eq!(json[field], value, "{field}");
    }
    let outcomes = json["outcomes"].as_array().unwrap();
    let pairs: Vec<_> =
        outcomes.iter().map(|o| (o["slots"].as_u64().unwrap(), o["policy"].as_str().unwrap())).collect();
    assert_eq!(pairs, [(128, "clock"), (128, "belady"), (200, "clock"), (200, "belady")]);
    for outcome in outcomes {
        assert_eq!(outcome["cold"]["hits"].as_u64().unwrap() + outcome["cold"]["misses"].as_u64().unwrap(), 60 * 48);
        assert!(outcome["hit_rate"].as_f64().unwrap() > 0.0 && outcome["bytes_a_token"].as_f64().unwrap() > 0.0);
    }
    let again = ss(&[&line[..], &["--json", "--record-bytes", "1"]].concat()).answer();
    let again: Value = serde_json::from_str(&again).unwrap();
    assert_eq!(again["outcomes"][0]["hits"], outcomes[0]["hits"]);
    assert!(again["outcomes"][0]["bytes_a_token"].as_f64().unwrap() < 48.0);
}

#[test]
fn lookahead_is_replayed_from_the_forecasts_of_a_trace_at_the_times_that_are_given() {
    let place = Place::new();
    let (file, _) = traced(&place);
    let line = ["replay", "trace", "--lookahead", "--slots", "25%,50%"];
    let text = place.run(line).answer();
    assert!(text.contains("a layer takes 300 us, a record 160 us, its first byte 80 us; at most 2 records"), "{text}");
    for pool in ["128 (25 %)", "256 (50 %)"] {
        let row = text.lines().find(|line| line.contains(pool)).unwrap_or_else(|| panic!("{pool}: {text}"));
        assert!(row.contains("clock") && row.split_whitespace().count() == 3 + 1 + 10, "{row}");
    }
    let json = |more: &[&str]| -> Value {
        serde_json::from_str(&place.run([&line[..], &["--json"], more].concat()).answer()).unwrap()
    };
    let usual = json(&[]);
    assert_eq!(usual["lookahead"]["record_us"], 160.0);
    // What is weighed may lie below the last choice; what is not must lie clearly above it.
    let margin = |more: &[&str]| json(more)["lookahead"]["margin"].as_f64().unwrap();
    assert_eq!((margin(&[]), margin(&["--lookahead-margin", "-0.5"])), (-1.0, -0.5));
    assert!((margin(&["--lookahead-always"]) - 0.062).abs() < 1e-6);
    let first = &usual["outcomes"][0];
    assert_eq!((&first["slots"], &first["policy"], &first["off"]["issued"]), (&128.into(), &"clock".into(), &0.into()));
    assert!(first["fewer_misses"].as_f64().unwrap() > 0.2 && first["on"]["in_vain"].as_u64().unwrap() > 0, "{first}");
    let time = |side: &str| first[side]["us_a_token"].as_f64().unwrap();
    assert!((first["rate"].as_f64().unwrap() - time("off") / time("on")).abs() < 1e-9, "{first}");
    // Off is what a replay without lookahead finds.
    let plain: Value =
        serde_json::from_str(&place.run(["replay", "trace", "--slots", "25%", "--policy", "clock", "--json"]).answer())
            .unwrap();
    assert_eq!(plain["outcomes"][0]["misses"], first["off"]["misses"]);
    // A disk in GB/s is a time a record; nobody asks where no forecast is good enough.
    let bytes = usual["record_bytes"].as_f64().unwrap();
    let slow = json(&["--disk-gbps", "0.1", "--latency-us", "0", "--layer-us", "200", "--lookahead-margin", "100"]);
    assert!((slow["lookahead"]["record_us"].as_f64().unwrap() - bytes / 100.0).abs() < 1e-3, "{slow}");
    assert_eq!((&slow["lookahead"]["layer_us"], &slow["lookahead"]["latency_us"]), (&200.0.into(), &0.0.into()));
    assert_eq!((&slow["outcomes"][0]["rate"], &slow["outcomes"][0]["on"]["issued"]), (&1.0.into(), &0.into()));
    // A trace of an earlier build is replayed as it was, without lookahead.
    let mut whole = std::fs::read(&file).unwrap();
    whole[8] = 1;
    std::fs::write(&file, whole).unwrap();
    let text = place.run(line).refused(2);
    assert!(text.contains("`trace` is a trace of version 1, which holds no forecasts"), "{text}");
}

#[test]
fn what_cannot_be_traced_or_replayed_is_refused_in_one_sentence() {
    let place = Place::new();
    place.write("notes.txt", "mine");
    for (line, part) in [
        (&["replay"][..], "there is nothing to replay: give a file that `ss run --trace-experts FILE` wrote"),
        (&["replay", "missing"], "`missing` cannot be opened"),
        (&["replay", "notes.txt"], "`notes.txt` is no trace that this program reads"),
        (&["replay", "notes.txt", "--synthetic", "released"], "FILE and `--synthetic` exclude each other"),
        (&["replay", "--synthetic", "nano-like", "--policy", "best"], "clock, lru, lfu, popularity, belady"),
        (&["replay", "--synthetic", "nano-like", "--slots", "5"], "at least 18"),
        (&["replay", "--synthetic", "nano-like", "--record-bytes", "0"], "0 is not in 1.."),
        (&["replay", "--synthetic", "nano-like", "--record-bytes", "18446744073709551615"], "is not in 1.."),
        (&["replay", "--synthetic", "nano-like", "--tokens", "100001"], "100001 is not in 1..=100000"),
        (&["replay", "notes.txt", "--tokens", "5"], "`--tokens` is for traces that `--synthetic` makes up"),
        (&["replay", "notes.txt", "--seed", "5"], "leave it out for `notes.txt`"),
        (&["replay", "--synthetic", "nano-like", "--lookahead"], "a made-up trace has none"),
        (&["replay", "notes.txt", "--layer-us", "5"], "`--layer-us` says how lookahead is replayed; add `--lookahead`"),
        (&["replay", "notes.txt", "--latency-us", "5"], "`--disk-latency-us` says how lookahead is replayed"),
        (
            &["replay", "notes.txt", "--lookahead", "--record-us", "5", "--disk-gbps", "1"],
            "`--record-us` and `--disk-gbps` exclude each other",
        ),
        (&["replay", "notes.txt", "--lookahead", "--layer-us", "0"], "expected a number from 0.001 to 1000000"),
        (&["replay", "."], "`.` is a directory, expected a file"),
        (&["replay", "--synthetic", "nano-like", "--tokens", "0"], "0 is not in 1..=100000"),
        (
            &["replay", "notes.txt", "--lookahead", "--record-bytes", "5"],
            "`--record-bytes` says what a disk of `--disk-gbps` has to send; give that too",
        ),
        (&["run", "--trace-experts", "no/where", "hi"], "`--trace-experts`: `no/where` cannot be written"),
        (&["run", "--trace-experts", "notes.txt", "hi"], "`notes.txt` holds something else than a trace"),
        (&["run", "--trace-experts", ".", "hi"], "`.` is a directory, expected a file"),
        (&["run", "--trace-experts", "same", "--stats-json", "./same", "hi"], "name the same file"),
    ] {
        let text = place.run(line).refused(2);
        assert!(text.contains(part), "{text}");
    }
}

#[test]
#[cfg(unix)]
fn a_pipe_is_no_trace_and_nobody_waits_for_it() {
    let place = Place::new();
    let made = std::process::Command::new("mkfifo").arg(place.path("pipe")).status().unwrap();
    assert!(made.success());
    let text = place.run(["replay", "pipe"]).refused(2);
    assert!(text.starts_with("`pipe` is a pipe or a device, expected a file; write the trace into one"), "{text}");
    let text = place.run(["run", "--trace-experts", "pipe", "hi"]).refused(2);
    assert!(text.contains("`pipe` is a pipe or a device, expected a file"), "{text}");
    let text = place.run(["replay", "/dev/stdin"]).stdin("ss-trace").refused(2);
    assert!(text.starts_with("`/dev/stdin` is a pipe or a device"), "{text}");
}

#[test]
fn a_run_that_is_refused_leaves_the_trace_that_was_there() {
    let place = Place::new();
    let (file, _) = traced(&place);
    let before = std::fs::read(&file).unwrap();
    let long = "word ".repeat(20_000);
    let text = place.run(["run", "--backend", "reference", "--trace-experts", "trace", &long]).refused(2);
    assert!(text.contains("tokens long"), "{text}");
    assert_eq!(std::fs::read(&file).unwrap(), before);
    place.run(["run", "--backend", "reference", "--trace-experts", "left", &long]).refused(2);
    assert!(!place.path("left").exists());
}

#[test]
fn settings_of_another_command_do_not_stop_a_replay() {
    let place = Place::new();
    traced(&place);
    let line = ["replay", "trace", "--slots", "25%", "--policy", "clock"];
    place.run(line).env("SS_DISK_GBPS", "3").env("SS_RECORD_US", "3").answer();
    let made = ["replay", "--synthetic", "nano-like", "--tokens", "5", "--policy", "clock"];
    place.run(made).env("SS_LOOKAHEAD", "1").answer();
}

#[test]
fn a_file_goes_before_variables_and_each_pool_and_policy_comes_once() {
    let place = Place::new();
    let (_, _) = traced(&place);
    let set = |run: crate::Run| run.env("SS_SYNTHETIC", "nano-like").env("SS_TOKENS", "9").env("SS_SEED", "3");
    let line = ["replay", "trace", "--slots", "floor,25%,128", "--policy", "lru,clock,lru", "--json"];
    let json: Value = serde_json::from_str(&set(place.run(line)).answer()).unwrap();
    assert_eq!((&json["trace"], &json["tokens"]), (&"trace".into(), &52.into()));
    let outcomes = json["outcomes"].as_array().unwrap();
    let pairs: Vec<_> =
        outcomes.iter().map(|o| (o["slots"].as_u64().unwrap(), o["policy"].as_str().unwrap())).collect();
    assert_eq!(pairs, [(128, "lru"), (128, "clock")]);
}

#[test]
fn the_size_of_an_expert_in_a_damaged_header_is_refused() {
    let place = Place::new();
    let (file, _) = traced(&place);
    let whole = std::fs::read(&file).unwrap();
    for size in [0, u64::MAX] {
        let mut bytes = whole.clone();
        bytes[24..32].copy_from_slice(&size.to_le_bytes());
        std::fs::write(&file, bytes).unwrap();
        let text = place.run(["replay", "trace"]).refused(2);
        assert!(text.contains(&format!("it speaks of experts of {size} bytes")), "{text}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_trace_that_cannot_be_written_costs_no_answer() {
    let place = Place::new();
    let said = place.run([&QUESTION[..], &["--trace-experts", "/dev/full"]].concat()).said();
    assert_eq!((said.code, said.stdout), (Some(2), ss(&QUESTION).answer()));
    let last = said.stderr.lines().last().unwrap_or_default();
    assert!(last.starts_with("error: `--trace-experts`: `/dev/full` cannot be written: "), "{}", said.stderr);
    assert!(said.stderr.contains(" reply tokens at "), "{}", said.stderr);
}

#[test]
fn the_next_start_reads_what_was_used_most_and_answers_the_same() {
    let place = Place::new();
    let stats = || crate::stats(&place, &QUESTION);
    let (first, second) = (stats(), stats());
    assert_eq!(first["output_ids"], second["output_ids"]);
    assert_eq!(first["hot_set_records"], 0);
    assert!(second["hot_set_records"].as_u64().unwrap() > 0, "{second}");
    let folders: Vec<_> = std::fs::read_dir(place.home().join("state/models")).unwrap().collect();
    let [Ok(folder)] = &folders[..] else { panic!("one model: {folders:?}") };
    let file = folder.path().join("hot.json");
    let kept = std::fs::read_to_string(&file).unwrap();
    // It is nobody's business but this program's, and costs no answer.
    std::fs::write(&file, &kept[..100]).unwrap();
    let said = place.run([&QUESTION[..], &["-v", "--no-hot-set"]].concat()).said();
    assert!(!said.stderr.contains("hot.json"), "{}", said.stderr);
    assert_eq!(std::fs::read_to_string(&file).unwrap().len(), 100, "it is neither read nor written");
    let said = place.run([&QUESTION[..], &["-v"]].concat()).said();
    assert_eq!(said.code, Some(0));
    let notes = said.stderr.lines().filter(|line| line.contains("hot.json` is left aside: it is not JSON"));
    assert_eq!(notes.count(), 1, "{}", said.stderr);
    let again: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(again["layers"].as_array().unwrap().len(), 8);
}
