//! Owns: what is refused: each time one sentence that names what was wrong, and an exit code.

use std::ffi::OsStr;
use std::process::Stdio;

use crate::{Place, ss};

#[test]
fn a_value_that_makes_no_sense_is_refused_by_its_flag() {
    let wrong = [
        ("--temperature", &["nan", "inf", "-1", "1e300", "hot", ""][..], "a number from 0"),
        ("--top-p", &["nan", "0", "-1", "1.5", "inf"], "a number above 0, up to 1"),
        ("--min-p", &["nan", "-3", "1.5"], "a number from 0 to 1"),
        ("--presence-penalty", &["nan", "inf", "-2.5", "5"], "a number from -2 to 2"),
        ("--frequency-penalty", &["nan", "-inf", "3"], "a number from -2 to 2"),
        ("--repetition-penalty", &["nan", "0", "-1", "3"], "a number from 0.5 to 2"),
        ("--top-k", &["-1", "1.5", "99999999999"], "a whole number from 0"),
        ("--seed", &["-1", "1.5", "18446744073709551616"], "a whole number from 0"),
        ("--max-tokens", &["0", "-1", "4294967296", "many"], "a whole number from 1"),
        ("--logit-bias", &["42", "x=1", "42=nan", "42=inf", "42=1e38", "99999999999=1"], "ID=BIAS"),
        ("--slots", &["-3", "none", "0%", "101%", "12.5%", "nan%", "24GB", "99999999999", ""], "is not a pool size"),
        ("--experts-per-layer", &["0", "-1", "2.5", "inf"], "a number of experts"),
        ("--threads", &["-1", "100000", "x"], "'--threads <N>'"),
        ("--bulk-lanes", &["-1", "65536"], "'--bulk-lanes <N>'"),
        ("--ngram-cache-mb", &["-1", "x"], "a whole number from 0"),
        ("--prefill-pass", &["0", "-1", "4097"], "not in 1..=4096"),
        ("--read-group", &["-1", "262145", "all"], "'--read-group <TOKENS>'"),
        ("--arithmetic", &["half", ""], "values: exact, fast"),
        ("--backend", &["gpu", "cuda"], "values: auto, reference, wgpu"),
        ("--adapter", &[""], "a value is required"),
        ("--io", &["fast"], "values: auto, cached, direct"),
        ("--think", &["banana"], "values: off, low, medium, xhigh"),
    ];
    for (flag, values, expected) in wrong {
        for value in values {
            let text = ss(&["run", &format!("{flag}={value}"), "hi"]).refused(2);
            assert!(text.contains(flag) && text.contains(expected), "{flag}={value}: {text}");
        }
    }
}

#[test]
fn a_negative_number_is_a_value_and_no_flag() {
    for flag in ["--temperature", "--top-k", "--seed", "--max-tokens", "--slots"] {
        let text = ss(&["run", flag, "-1", "hi"]).refused(2);
        assert!(text.contains(&format!("invalid value '-1' for '{flag}")), "{text}");
    }
    ss(&["run", "--presence-penalty", "-2", "--temperature", "0", "-n", "1", "hi"]).answer();
}

#[test]
fn what_only_the_model_knows_is_refused_too() {
    for (flag, value, expected) in [
        ("--slots", "17", "needs at least 18"),
        ("--slots", "0", "needs at least 18"),
        ("--experts-per-layer", "1", "makes a pool of 8 slots"),
        ("--experts-per-layer", "65", "more than the 64 experts"),
        ("--bulk-lanes", "0", "0 is not in 1..=256"),
        ("--demand-lanes", "65535", "65535 is not in 1..=256"),
        ("--slots", "577", "more than the 512 experts"),
        ("--logit-bias", "4096=1", "there is no token 4096; this model's tokens are 0 to 4095"),
        ("--logit-bias", "4294967295=1", "there is no token 4294967295"),
    ] {
        let text = ss(&["run", flag, value, "hi"]).refused(2);
        assert!(text.contains(expected), "{flag} {value}: {text}");
    }
}

#[test]
fn what_does_not_fit_the_machine_is_refused_with_the_arithmetic() {
    for megabytes in ["1000000000", "18446744073709551615"] {
        let text = ss(&["run", "--ngram-cache-mb", megabytes, "hi"]).refused(3);
        for part in ["this machine has", "trunk", "512 slots", "n-gram rows", "--ngram-cache-mb"] {
            assert!(text.contains(part), "{text}");
        }
    }
}

#[test]
fn flags_that_exclude_each_other_are_named() {
    for (a, b) in [
        (&["--slots", "all"][..], &["--experts-per-layer", "3"][..]),
        (&["--raw"], &["--think"]),
        (&["--raw"], &["--system", "x"]),
        (&["--raw"], &["--tools", "x"]),
    ] {
        let text = ss(&[&["run"], a, b, &["hi"]].concat()).refused(2);
        assert!(text.contains(&format!("`{}` and `{}` exclude each other", a[0], b[0])), "{text}");
    }
}

#[test]
fn a_command_line_that_cannot_be_read_is_refused() {
    for (line, expected) in [
        (&["frob"][..], "unrecognized subcommand 'frob'"),
        (&["run", "--temprature", "1", "hi"], "similar argument exists: '--temperature'"),
        (&["run", "hi", "there"], "unexpected argument 'there'"),
        (&["run", "--stop"], "a value is required for '--stop <TEXT>'"),
        (&["inspect"], "<DIR>"),
        (&["completions", "cmd"], "possible values: bash"),
    ] {
        let text = ss(line).refused(2);
        assert!(text.contains(expected), "{line:?}: {text}");
    }
}

#[test]
fn there_must_be_something_to_answer() {
    for (line, stdin) in [(&["run"][..], ""), (&["run"], " \n"), (&["run", ""], ""), (&["run", "--raw", ""], "")] {
        let text = ss(line).stdin(stdin).refused(2);
        assert!(text.starts_with("there is nothing to answer: give a prompt"), "{text}");
    }
}

#[cfg(unix)]
#[test]
fn text_that_is_not_utf8_is_refused() {
    use std::os::unix::ffi::OsStrExt;
    let text = ss(&["run"]).stdin(b"tea\xff").refused(2);
    assert_eq!(text, "standard input is not UTF-8 text: its byte 3 is wrong");
    let place = Place::new();
    let text = place.run([OsStr::new("run"), OsStr::from_bytes(b"\xff")]).refused(2);
    assert!(text.starts_with("invalid UTF-8"), "{text}");
}

#[test]
fn a_prompt_longer_than_the_window_is_refused_with_both_numbers() {
    for text in ["a".repeat(2_000_000), "hello there my friend ".repeat(90_000), "\u{1f375}".repeat(200_000)] {
        let text = ss(&["run"]).stdin(text).refused(2);
        assert!(text.contains(" tokens long") && text.contains(" 4096 "), "{text}");
    }
}

#[test]
fn the_tools_file_is_checked_before_the_model_is_loaded() {
    let place = Place::new();
    let tools = place.write("t.json", r#"[{"type": "function"}]"#);
    for (path, expected) in [
        (tools.to_str().unwrap(), "entry 0: expected an object `function`"),
        ("missing.json", "`missing.json` cannot be opened"),
        (".", "`.` cannot be"),
    ] {
        // No such model: it is not even looked for.
        let text = place.run(["run", "--model", "missing", "--tools", path, "hi"]).refused(2);
        assert!(text.starts_with("`--tools`: ") && text.contains(expected), "{text}");
    }
}

#[test]
fn too_many_or_too_long_stop_strings_are_refused() {
    let many: Vec<String> = (0..17).map(|i| format!("--stop=s{i}")).collect();
    let many: Vec<&str> = ["run"].into_iter().chain(many.iter().map(String::as_str)).chain(["hi"]).collect();
    assert!(ss(&many).refused(2).contains("at most 16"));
    assert!(ss(&["run", "--stop", &"s".repeat(257), "hi"]).refused(2).contains("at most 256"));
    ss(&["run", "--stop", "", "--temperature", "0", "-n", "1", "hi"]).answer();
}

#[test]
fn a_stats_file_that_cannot_be_written_is_refused_before_the_answer() {
    for path in [".", "missing/stats.json"] {
        let place = Place::new();
        let text = place.run(["run", "--stats-json", path, "hi"]).refused(2);
        assert!(text.starts_with(&format!("`--stats-json`: `{path}` cannot be written")), "{text}");
    }
}

#[test]
fn closed_streams_are_no_crash() {
    let place = Place::new();
    let mut run = place.run(["run", "--temperature", "0", "-n", "3", "hi"]);
    let output = run.command.stdin(Stdio::null()).output().unwrap();
    assert_eq!((output.status.code(), String::from_utf8(output.stdout).unwrap().as_str()), (Some(0), "I am Nano\n"));
    let shell = |redirection: &str| {
        let mut command = place.command("/bin/sh");
        command.args(["-c", &format!("exec \"$0\" run --temperature 0 -n 3 hi {redirection}"), crate::SS]);
        command.output().unwrap()
    };
    if cfg!(unix) {
        for closed in ["<&-", "</dev/null >&-", "</dev/null 2>&-"] {
            let output = shell(closed);
            assert_eq!(output.status.code(), Some(0), "{closed}: {}", String::from_utf8_lossy(&output.stderr));
        }
    }
    if cfg!(target_os = "linux") {
        let output = shell("</dev/null >/dev/full");
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && text.contains("error: standard output cannot be written"), "{text}");
        assert_eq!(shell("</dev/null 2>/dev/full").status.code(), Some(0));
    }
}
