//! Owns: what is said beside the answer: stats, profile, help, version, completions; and pipes that end early.

use std::io::Read;
use std::process::Stdio;

use crate::{Place, SLOTSTREAM, nano, ss, stats};

#[test]
fn the_lines_after_an_answer_say_what_it_took() {
    let said = ss(&[
        "run",
        "--model",
        nano().to_str().unwrap(),
        "--temperature",
        "0",
        "--slots",
        "floor",
        "How do I make tea?",
    ])
    .said();
    let lines: Vec<&str> = said.stderr.lines().collect();
    let [tokens, memory, early] = lines[..] else { panic!("{}", said.stderr) };
    assert!(tokens.starts_with("18 prompt tokens at ") && tokens.contains(" tok/s, 52 reply tokens at "), "{tokens}");
    assert!(tokens.ends_with("(reference backend, fast arithmetic)"), "{tokens}");
    assert!(
        memory.starts_with("128 slots for 512 experts, ")
            && memory.contains(" % hits, ")
            && memory.contains(" read, peak memory "),
        "{memory}"
    );
    assert!(early.contains(" experts asked for early, ") && early.ends_with(" read in vain"), "{early}");
}

#[test]
fn the_profile_adds_up_to_everything() {
    let said = ss(&["run", "--temperature", "0", "-v", "Tell me a story about a fox."]).said();
    let head = said.stderr.lines().find(|line| line.starts_with("reference backend on ")).unwrap();
    for part in ["fast arithmetic", " dispatches, ", " submissions, ", " readbacks in "] {
        assert!(head.contains(part), "{head}");
    }
    let percent = |line: &str| line.strip_suffix(" %")?.split_whitespace().last()?.parse::<f64>().ok();
    let rows: Vec<&str> = said.stderr.lines().filter(|line| line.starts_with("  ")).collect();
    for stage in ["moe", "gdn", "qsa", "head", "disk_wait", "host"] {
        assert!(rows.iter().any(|row| row.trim_start().starts_with(stage)), "{stage}: {}", said.stderr);
    }
    let sum: f64 = rows.iter().map(|row| percent(row).unwrap()).sum();
    // Each row is rounded to a tenth.
    assert!((sum - 100.0).abs() <= 0.05 * rows.len() as f64, "{sum} %: {}", said.stderr);
}

#[test]
fn the_stats_file_holds_every_figure() {
    let place = Place::new();
    let report =
        stats(&place, &["run", "--seed", "5", "--slots", "floor", "--arithmetic", "exact", "How do I make tea?"]);
    for (field, value) in [
        ("model", "flash-next-nano".into()),
        ("seed", 5.into()),
        ("prompt_tokens", 18.into()),
        ("slots", 128.into()),
        ("all_slots", 512.into()),
        ("backend", "reference".into()),
        ("profile", "exact".into()),
        ("finish", serde_json::Value::from("stop")),
    ] {
        assert_eq!(report[field], value, "{field}");
    }
    for ids in ["prompt", "output"] {
        let count = report[format!("{ids}_ids")].as_array().unwrap().len();
        assert_eq!(report[format!("{ids}_tokens")], count);
    }
    for field in [
        "prefill_seconds",
        "prefill_tokens_per_second",
        "decode_seconds",
        "decode_tokens_per_second",
        "expert_hits",
        "expert_misses",
        "expert_evictions",
        "hit_rate",
        "ngram_rows",
        "ngram_hits",
        "bytes_read",
        "disk_wait_seconds",
        "dispatches",
        "submissions",
        "readbacks",
        "device_memory_bytes",
        "peak_memory_bytes",
        "threads",
    ] {
        assert!(report[field].as_f64().is_some_and(|value| value > 0.0), "{field}: {}", report[field]);
    }
    assert!(report["adapter"].as_str().is_some_and(|name| !name.is_empty()));
    let stages: f64 = report["stage_seconds"].as_object().unwrap().values().filter_map(serde_json::Value::as_f64).sum();
    let total = report["prefill_seconds"].as_f64().unwrap() + report["decode_seconds"].as_f64().unwrap();
    assert!((stages - total).abs() < 0.01 * total, "{stages} s of {total} s");
}

#[test]
fn a_pipe_that_ends_early_is_no_error() {
    let nano = nano();
    for line in [
        &["run", "--raw", "--temperature", "0", "-n", "200", "Once upon a time"][..],
        &["inspect", nano.to_str().unwrap()],
        &["completions", "bash"],
        &["--help"],
    ] {
        let place = Place::new();
        let mut command = place.command(crate::SS);
        let mut child =
            command.args(line).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut first = [0; 5];
        child.stdout.take().unwrap().read_exact(&mut first).unwrap();
        let output = child.wait_with_output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(0), "{line:?}: {stderr}");
        assert!(!stderr.contains("error") && !stderr.contains("panicked"), "{line:?}: {stderr}");
    }
}

#[test]
fn the_version_names_the_commit() {
    let text = ss(&["--version"]).answer();
    let commit = text
        .trim_end()
        .strip_prefix(&format!("ss {} (", env!("CARGO_PKG_VERSION")))
        .and_then(|rest| rest.strip_suffix(')'));
    let commit = commit.unwrap_or_else(|| panic!("{text}"));
    assert!(
        commit == "unknown commit" || (commit.len() == 12 && commit.chars().all(|c| c.is_ascii_hexdigit())),
        "{text}"
    );
}

#[test]
fn help_lists_every_command_and_every_flag() {
    let text = ss(&["--help"]).answer();
    for part in [
        "run ",
        "inspect ",
        "devices ",
        "selftest ",
        "completions ",
        "Exit codes: 0 answered, 2 wrong usage",
        "SS_MAX_TOKENS",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let help = ss(&["run", "--help"]).answer();
    let text = help.split_whitespace().collect::<Vec<_>>().join(" ");
    for flag in [
        "model",
        "slots",
        "experts-per-layer",
        "arithmetic",
        "backend",
        "adapter",
        "threads",
        "bulk-lanes",
        "demand-lanes",
        "io",
        "ngram-cache-mb",
        "read-group",
        "max-tokens",
        "think",
        "raw",
        "system",
        "tools",
        "stop",
        "prefill-pass",
        "temperature",
        "top-k",
        "top-p",
        "min-p",
        "presence-penalty",
        "frequency-penalty",
        "repetition-penalty",
        "logit-bias",
        "seed",
        "stats-json",
        "verbose",
    ] {
        assert!(text.contains(&format!("--{flag}")), "{flag}");
        assert!(text.contains(&format!("[env: SS_{}]", flag.replace('-', "_").to_uppercase())), "{flag}");
    }
    for heading in ["Model and device:", "Reply:", "Sampling:", "Output:", "Examples:"] {
        assert!(text.contains(heading), "{heading}");
    }
    let widest = help.lines().map(|line| line.chars().count()).max();
    assert!(widest <= Some(100), "{widest:?}");
}

#[test]
fn help_goes_to_standard_output_and_without_a_command_to_standard_error() {
    let said = ss(&[]).said();
    assert_eq!((said.code, said.stdout.as_str()), (Some(2), ""));
    assert!(said.stderr.contains("Usage: ss <COMMAND>"), "{}", said.stderr);
}

#[test]
fn completions_are_made_for_every_shell_and_for_both_names() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let text = ss(&["completions", shell]).answer();
        for word in ["experts-per-layer", "inspect", "exact", "xhigh", "cached"] {
            assert!(text.contains(word), "{shell}: {word}");
        }
    }
    let place = Place::new();
    let output = place.command(SLOTSTREAM).args(["completions", "fish"]).output().unwrap();
    assert!(String::from_utf8(output.stdout).unwrap().contains("complete -c slotstream"));
}

#[test]
fn nothing_is_styled_where_nobody_sees_it() {
    for (name, value) in [("NO_COLOR", "1"), ("TERM", "xterm-256color")] {
        let said =
            ss(&["run", "--think", "--temperature", "0", "What is the capital of Japan?"]).env(name, value).said();
        assert!(!said.stderr.contains('\u{1b}') && !said.stdout.contains('\u{1b}'), "{:?}", said.stderr);
    }
}
