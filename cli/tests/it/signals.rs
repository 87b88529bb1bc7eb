//! Owns: Ctrl-C outside the chat.

use std::io::{BufRead, Read};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::{Place, SS};

/// An answer that does not end by itself: the tokens that end one are banned.
pub const ENDLESS: [&str; 4] = ["--logit-bias", "4070=-100", "--logit-bias", "4072=-100"];

/// Ctrl-C.
pub fn interrupt(child: &Child) {
    send(child, "-INT");
}

/// A signal by its flag of `kill`.
pub fn send(child: &Child, signal: &str) {
    let done = Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
    assert!(done.success());
}

#[test]
fn ctrl_c_ends_a_measurement_and_a_self_test_at_once_with_a_word() {
    for line in [
        &["bench", "--backend", "reference", "-p0", "-n", "4000", "-r1000"][..],
        &["selftest", "--backend", "reference"],
    ] {
        let place = Place::new();
        let mut command = place.command(SS);
        command.args(line).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        match line[0] {
            // Its first line comes once it has begun.
            "bench" => child.stdout.as_mut().unwrap().read_exact(&mut [0; 20]).unwrap(),
            _ => std::thread::sleep(Duration::from_millis(300)),
        }
        assert!(child.try_wait().unwrap().is_none(), "{line:?} runs longer than that");
        interrupt(&child);
        let asked = Instant::now();
        let output = child.wait_with_output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(130), "{line:?}: {stderr}");
        assert!(stderr.ends_with("stopped\n"), "{line:?}: {stderr}");
        assert!(asked.elapsed() < Duration::from_secs(1), "{:?}", asked.elapsed());
    }
}

#[test]
fn ctrl_c_ends_a_report_with_its_part_and_leaves_no_file() {
    let place = Place::new();
    let mut command = place.command(SS);
    // The whole bench on the processor takes longer than this test.
    let mut child = command.arg("report").stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = std::io::BufReader::new(child.stderr.take().unwrap());
    let mut said = String::new();
    while !said.contains("pp512") {
        assert!(stderr.read_line(&mut said).unwrap() > 0, "{said}");
    }
    assert!(place.path("ss-report.json").exists(), "the name is taken meanwhile");
    interrupt(&child);
    let asked = Instant::now();
    stderr.read_to_string(&mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{said}");
    assert!(said.ends_with("stopped\n") && asked.elapsed() < Duration::from_secs(5), "{said}");
    assert!(!place.path("ss-report.json").exists());
}

#[test]
fn ctrl_c_stops_the_answer_and_keeps_what_was_written() {
    let place = Place::new();
    let mut command = place.command(SS);
    command
        .args(["run", "--raw", "--temperature", "1", "--stats-json", "stats.json"])
        .args(ENDLESS)
        .arg("Once upon a time");
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut out = child.stdout.take().unwrap();
    let mut first = [0; 20];
    out.read_exact(&mut first).unwrap();
    interrupt(&child);
    let asked = Instant::now();
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(130), "{stderr}");
    assert!(asked.elapsed() < Duration::from_secs(2), "{:?}", asked.elapsed());
    assert!(rest.ends_with('\n') && stderr.contains("(stopped)\n") && stderr.contains(" reply tokens at "), "{stderr}");
    let report: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(place.path("stats.json")).unwrap()).unwrap();
    assert_eq!(report["finish"], "cancelled");
    assert!(report["output_tokens"].as_u64() > Some(0));
}
