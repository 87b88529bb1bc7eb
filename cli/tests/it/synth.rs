//! Owns: a made-up checkpoint as a person meets it: written, described, measured, talked to, refused.

#[cfg(unix)]
use std::process::Stdio;
#[cfg(unix)]
use std::time::Duration;

use serde_json::Value;

use crate::Place;

#[test]
fn what_is_made_can_be_described_measured_and_run() {
    let place = Place::new();
    let said = place.run(["synth", "made", "--geometry", "nano-like", "--layers", "4", "--draft-head"]).said();
    assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""));
    let lines: Vec<&str> = said.stdout.lines().collect();
    let [what, took, next] = lines[..] else { panic!("{}", said.stdout) };
    assert_eq!(what, "made: 4 layers (3 gated delta, 1 sparse attention), 64 experts, 6 a token");
    assert!(took.contains(" written in ") && took.ends_with(" left as holes"), "{took}");
    assert_eq!(next, "measure it with `ss bench --model made`");
    assert!(place.run(["inspect", "made"]).answer().contains("64 of width 64, 6 a token"));
    let flags = ["--model", "made", "--backend", "reference"];
    let bench = place.run([&["bench", "-p", "8", "-n", "4", "-r", "1", "--json"], &flags[..]].concat()).answer();
    assert_eq!(serde_json::from_str::<Value>(&bench).unwrap()["rows"].as_array().unwrap().len(), 2);
    let reply = place.run([&["run", "-n", "5", "--seed", "1", "hi"], &flags[..]].concat()).answer();
    assert!(!reply.trim().is_empty());
}

#[test]
fn the_report_as_json_has_every_figure() {
    let place = Place::new();
    let line =
        ["synth", "made", "--geometry", "nano-like", "--layers", "2", "--ngram", "full", "--seed", "7", "--json"];
    let json: Value = serde_json::from_str(&place.run(line).answer()).unwrap();
    for (field, value) in
        [("path", "made".into()), ("layers", 2.into()), ("seed", 7.into()), ("bytes_of_holes", Value::from(0))]
    {
        assert_eq!(json[field], value, "{field}");
    }
    for field in ["bytes_written", "files", "seconds", "bytes_per_second"] {
        assert!(json[field].as_f64().is_some_and(|number| number > 0.0), "{field}");
    }
}

#[test]
fn what_cannot_be_made_is_refused_in_one_sentence() {
    let place = Place::new();
    place.write("notes.txt", "mine");
    for (line, part) in [
        (&["synth", "."][..], ". is not empty, expected a new or empty directory"),
        (&["synth", "made", "--geometry", "nowhere.json"], "nowhere.json: cannot read"),
        (&["synth", "made", "--layers", "0"], "--layers"),
        (&["synth", "made", "--ngram", "some"], "sparse"),
        (&["synth", "made", "--ngram-rows", "0"], "0 is not in 1.."),
        (&["synth", "made", "--ngram-rows", "18446744073709551615"], "is not in 1.."),
    ] {
        let text = place.run(line).refused(2);
        assert!(text.contains(part), "{text}");
    }
    assert!(!place.path("made").exists());
}

#[test]
#[cfg(unix)]
fn ctrl_c_removes_what_was_written_and_what_a_crash_left_is_called_so() {
    let place = Place::new();
    let begun = |signal: &str| {
        let mut command = place.command(crate::SS);
        command.args(["synth", "made", "--layers", "2", "--threads", "1"]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).stdin(Stdio::null()).spawn().unwrap();
        while !place.path("made/model-00001.safetensors").exists() && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        crate::signals::send(&child, signal);
        let output = child.wait_with_output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    assert_eq!(begun("-INT"), (Some(130), "stopped; what was written is removed\n".into()));
    assert!(!place.path("made").exists());
    assert_eq!(begun("-KILL").0, None);
    let text = place.run(["synth", "made", "--geometry", "nano-like"]).refused(2);
    assert!(
        text.starts_with("made is what an `ss synth` that was cut short has left") && text.contains("remove it first")
    );
}
