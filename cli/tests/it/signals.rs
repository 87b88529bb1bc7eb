//! Owns: Ctrl-C outside the chat.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::{Place, SS};

/// An answer that does not end by itself: the tokens that end one are banned.
pub const ENDLESS: [&str; 4] = ["--logit-bias", "4070=-100", "--logit-bias", "4072=-100"];

/// Ctrl-C.
pub fn interrupt(child: &Child) {
    let done = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(done.success());
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
