//! Owns: `ss report`: what this machine is, what its devices say, whether they compute rightly and how fast, in one file to send.
//! Refuses: names of people, machines and folders; a model of one's own is told by its size alone.
//! Invariants: each part is a program of its own, so that a driver that takes it down costs that part and nothing else; no file
//! is written over.

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use ss_memory::{Machine, pressure, reclaimable_bytes};

use crate::args::ReportArgs;
use crate::exit::Exit;
use crate::terminal;

/// The longest a part may take; a driver may hang.
const LIMIT: Duration = Duration::from_secs(20 * 60);
/// How often a part is looked after.
const LOOK: Duration = Duration::from_millis(50);

/// Runs all parts and writes the file.
///
/// # Errors
/// When the file exists already or cannot be written, or this program cannot start itself.
pub fn report(args: &ReportArgs) -> Result<Exit> {
    let out = args.out.display();
    // Before anything is run: a report takes minutes. One that is stopped leaves no file behind.
    ensure!(
        !args.out.exists(),
        "`--out`: {out} is there already, and a report writes over nothing; give a name that is free"
    );
    let folder = args.out.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    tempfile::tempfile_in(folder)
        .with_context(|| format!("`--out`: {} takes no files; name a file in a folder that does", folder.display()))?;
    let mut failed = Vec::new();
    let mut parts = serde_json::Map::new();
    for (name, flags) in parts_of(args) {
        terminal::note(format_args!("{name}: ss {}", shown(&flags)));
        let part = run(&flags, LIMIT)?;
        if part["failure"] != Value::Null {
            failed.push(name);
        }
        parts.insert(name.to_owned(), part);
    }
    let text = format!("{:#}\n", json!({ "version": crate::VERSION, "system": system(), "parts": parts }));
    let file = OpenOptions::new().write(true).create_new(true).open(&args.out);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    written.with_context(|| format!("`--out`: {out} cannot be written"))?;
    let said = match &failed[..] {
        [] => "every part ended well".to_owned(),
        names => format!("failed: {}; the file says how", names.join(", ")),
    };
    terminal::note(format_args!("{out}: {said}"));
    Ok(Exit::Answered)
}

/// The parts, each with the flags of this program that make it.
fn parts_of(args: &ReportArgs) -> Vec<(&'static str, Vec<String>)> {
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let mut device = Vec::new();
    if let Some(adapter) = &args.adapter {
        device.extend(["--adapter".to_owned(), adapter.clone()]);
    }
    let model = |flags: &mut Vec<String>| {
        if let Some(model) = &args.model {
            flags.extend(["--model".to_owned(), model.display().to_string()]);
        }
    };
    let mut selftest = words("selftest --json");
    if args.quick {
        selftest.push("--quick".to_owned());
    }
    let mut bench = words("bench --json --profile --slots floor,all");
    bench.extend(words(if args.quick { "-p 64 -n 32 -r 1" } else { "-p 512 -n 128 -r 3" }));
    model(&mut bench);
    [&mut selftest, &mut bench].into_iter().for_each(|flags| flags.extend(device.iter().cloned()));
    vec![("devices", words("devices --json")), ("selftest", selftest), ("bench", bench)]
}

/// Flags as a person would type them.
fn shown(flags: &[String]) -> String {
    let quoted = |flag: &String| if flag.contains(' ') { format!("'{flag}'") } else { flag.clone() };
    flags.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

/// Runs this program, and tells how it ended and what it said.
fn run(flags: &[String], limit: Duration) -> Result<Value> {
    let own = std::env::current_exe().context("the system does not say where this program lies")?;
    let begun = Instant::now();
    let mut command = Command::new(own);
    command.args(flags).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    let mut child = command.spawn().context("this program cannot be started once more")?;
    let mut output = child.stdout.take().context("a part has no output")?;
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        // What is cut off is no JSON, and said to be none.
        let _ = output.read_to_string(&mut text);
        text
    });
    let status = loop {
        if let Some(status) = child.try_wait().context("a part is lost")? {
            break Some(status);
        }
        if begun.elapsed() > limit {
            // It may have ended just now.
            let _ = child.kill();
            let _ = child.wait();
            break None;
        }
        std::thread::sleep(LOOK);
    };
    let text = reader.join().unwrap_or_default();
    let result = serde_json::from_str(&text).map_or(Value::Null, without_names);
    let failure = failure(status, limit, &result);
    Ok(json!({ "seconds": begun.elapsed().as_secs_f64(), "failure": failure, "result": result }))
}

/// Why a part did not end well, if it did not.
fn failure(status: Option<ExitStatus>, limit: Duration, result: &Value) -> Option<String> {
    match status {
        None => Some(format!("it did not end in {} s", limit.as_secs())),
        Some(status) if !status.success() => Some(status.to_string()),
        Some(_) => result.is_null().then(|| "it said nothing".to_owned()),
    }
}

/// A result without what its model is called.
fn without_names(mut result: Value) -> Value {
    if let Some(fields) = result.as_object_mut() {
        fields.remove("model");
    }
    result
}

/// What this machine is.
fn system() -> Value {
    let machine = Machine::probe().ok();
    json!({
        "os": std::env::consts::OS,
        "arch": std::env::consts::ARCH,
        "release": release(),
        "processors": std::thread::available_parallelism().ok().map(usize::from),
        "memory_bytes": machine.map(|machine| machine.physical),
        "memory_limit_bytes": machine.and_then(|machine| machine.limit),
        "reclaimable_bytes": reclaimable_bytes().ok(),
        "pressure": pressure().ok().map(|pressure| pressure.to_string()),
    })
}

/// The kernel's version, where a file says it.
fn release() -> Option<String> {
    let text = std::fs::read_to_string(Path::new("/proc/sys/kernel/osrelease")).ok()?;
    Some(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args() -> ReportArgs {
        ReportArgs { out: "x".into(), quick: false, adapter: None, model: None }
    }

    #[test]
    fn parts_follow_the_flags() {
        let shown_of = |args: &ReportArgs| parts_of(args).iter().map(|(_, flags)| shown(flags)).collect::<Vec<_>>();
        let all = shown_of(&args());
        assert_eq!(all[0], "devices --json");
        assert_eq!(all[2], "bench --json --profile --slots floor,all -p 512 -n 128 -r 3");
        let quick = ReportArgs { quick: true, adapter: Some("My Card".into()), model: Some("m".into()), ..args() };
        let quick = shown_of(&quick);
        assert_eq!(quick[1], "selftest --json --quick --adapter 'My Card'");
        assert!(quick[2].ends_with("-p 64 -n 32 -r 1 --model m --adapter 'My Card'"), "{}", quick[2]);
    }

    #[test]
    fn a_result_has_no_name_of_a_model() {
        assert_eq!(without_names(json!({ "model": "secret", "rows": [1] })), json!({ "rows": [1] }));
        assert_eq!(without_names(json!([2])), json!([2]));
    }

    #[test]
    fn silence_is_a_failure_and_so_is_taking_too_long() {
        let limit = Duration::from_secs(3);
        assert_eq!(failure(None, limit, &Value::Null).as_deref(), Some("it did not end in 3 s"));
        assert_eq!(failure(Some(ExitStatus::default()), limit, &Value::Null).as_deref(), Some("it said nothing"));
        assert_eq!(failure(Some(ExitStatus::default()), limit, &json!({})), None);
    }
}
