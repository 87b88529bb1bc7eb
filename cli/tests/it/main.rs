//! Owns: the program as a person meets it: standard output, standard error and exit codes, as text.
//! Invariants: every run is told its places and variables; nothing of the machine's owner leaks in.

mod answers;
mod bench;
#[cfg(unix)]
mod chat;
mod devices;
mod gather;
mod models;
mod output;
mod pack;
mod refusals;
mod replay;
#[cfg(unix)]
mod serve;
mod settings;
#[cfg(unix)]
mod signals;
mod synth;
mod tiers;

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// The two names of the program.
const SS: &str = env!("CARGO_BIN_EXE_ss");
const SLOTSTREAM: &str = env!("CARGO_BIN_EXE_slotstream");

/// What a run said.
struct Said {
    stdout: String,
    stderr: String,
    code: Option<i32>,
}

/// A place of its own: `$SS_HOME` and files beside it.
struct Place(TempDir);

/// A run in the making.
struct Run {
    command: Command,
    stdin: Vec<u8>,
}

impl Place {
    fn new() -> Self {
        let place = Place(tempfile::tempdir().unwrap());
        std::fs::create_dir_all(place.home().join("models")).unwrap();
        place
    }

    fn home(&self) -> PathBuf {
        self.0.path().join("home")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// The command, with nothing from outside but where to find programs.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env_clear().env("SS_HOME", self.home()).env("HOME", self.0.path()).current_dir(self.0.path());
        // Software Vulkan takes a minute to compile all kernels: once is enough for all tests.
        command.env("MESA_SHADER_CACHE_DIR", concat!(env!("CARGO_TARGET_TMPDIR"), "/mesa"));
        command
    }

    fn run(&self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Run {
        let mut command = self.command(SS);
        command.args(args);
        Run { command, stdin: Vec::new() }
    }

    /// A copy of the small model that a test may damage.
    fn copy_of_nano(&self) -> PathBuf {
        let copy = self.path("copy");
        std::fs::create_dir(&copy).unwrap();
        for file in std::fs::read_dir(nano()).unwrap() {
            let file = file.unwrap();
            // Not `copy`: that would keep a file read-only.
            std::fs::write(copy.join(file.file_name()), std::fs::read(file.path()).unwrap()).unwrap();
        }
        copy
    }
}

impl Run {
    fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    fn stdin(mut self, text: impl AsRef<[u8]>) -> Self {
        self.stdin = text.as_ref().to_vec();
        self
    }

    fn said(mut self) -> Said {
        self.command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = self.command.spawn().unwrap();
        let mut pipe = child.stdin.take().unwrap();
        let text = self.stdin;
        // A program that refuses early does not read everything.
        let writer = std::thread::spawn(move || _ = pipe.write_all(&text));
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Said { stdout: text(output.stdout), stderr: text(output.stderr), code: output.status.code() }
    }

    /// The run's answer; it must have been given.
    #[track_caller]
    fn answer(self) -> String {
        let said = self.said();
        assert_eq!(said.code, Some(0), "{}", said.stderr);
        said.stdout
    }

    /// What the run was refused with: one sentence, nothing on standard output.
    #[track_caller]
    fn refused(self, code: i32) -> String {
        let said = self.said();
        assert_eq!((said.code, said.stdout.as_str()), (Some(code), ""), "{}", said.stderr);
        let lines: Vec<&str> = said.stderr.lines().filter(|line| !line.starts_with("no --model: ")).collect();
        let [line] = lines[..] else { panic!("expected one line: {}", said.stderr) };
        let text = line.strip_prefix("error: ").unwrap_or_else(|| panic!("{line}")).to_string();
        for technical in ["panicked", "Error {", "Some(", "Os {", "Err("] {
            assert!(!text.contains(technical), "{text}");
        }
        text
    }
}

/// A run of `ss` in an empty place.
fn ss(args: &[&str]) -> Run {
    // The folder may go: what a run needs of it is that it is empty.
    let place = Place::new();
    let mut run = place.run(args);
    run.command.current_dir(env!("CARGO_TARGET_TMPDIR"));
    run
}

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

fn nano() -> PathBuf {
    repository().join("models/flash-next-nano")
}

/// What a float64 model answers, greedily, to five prompts.
fn expected() -> Vec<Value> {
    let text = std::fs::read_to_string(repository().join("models/flash-next-nano-expected.json")).unwrap();
    let mut file: Value = serde_json::from_str(&text).unwrap();
    let ends = file["meta"]["eos"].as_array().unwrap().clone();
    let mut cases = std::mem::take(file["cases"].as_array_mut().unwrap());
    for case in &mut cases {
        let ids = case["output_ids"].as_array_mut().unwrap();
        // The id that ends a reply is no part of it.
        ids.pop_if(|id| ends.contains(id));
    }
    cases
}

/// The stats file of a run.
fn stats(place: &Place, args: &[&str]) -> Value {
    let file = place.path("stats.json");
    place.run(args).env("SS_STATS_JSON", file.to_str().unwrap()).answer();
    serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap()
}
