//! Owns: `ss report`: what this machine is, what its devices say, whether they compute rightly and how fast, in one file to send.
//! Refuses: names of people, machines and folders; a model of one's own is told by its size alone.
//! Invariants: each part is a program of its own, so that a driver that takes it down costs that part and nothing else; no file
//! is written over.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use serde_json::{Value, json};
use ss_memory::{Machine, pressure, reclaimable_bytes, system_release};
use ss_model::Cancel;

use crate::args::ReportArgs;
use crate::device::{Choice, automatic};
use crate::exit::Exit;
use crate::{interrupt, places, terminal};

/// The longest a part may take; a driver may hang.
const LIMIT: Duration = Duration::from_secs(20 * 60);
/// How often a part is looked after.
const LOOK: Duration = Duration::from_millis(50);
/// Lines of what a part said that are kept.
const MOST_LINES: usize = 40;
/// Says to a part that settings of this machine's owner do not count: two reports are to be of the same thing.
pub const PART: &str = "SLOTSTREAM_REPORT_PART";

/// Runs all parts and writes the file.
///
/// # Errors
/// When the file cannot be made or written, or this program cannot start itself.
pub fn report(args: &ReportArgs) -> Result<Exit> {
    let cancel = interrupt::switch()?;
    // Before anything is run: a report takes minutes.
    let reserved = Reserved::new(&args.out)?;
    let (mut parts, mut worst, mut failed) = (serde_json::Map::new(), Exit::Answered, Vec::new());
    let parts_wanted = parts_of(args, automatic(&ss_wgpu::adapters()) != Choice::Reference);
    if !parts_wanted.iter().any(|(name, _)| *name == "selftest") {
        terminal::note("selftest: left out, there is no GPU to test; `--adapter NAME` tests one that is software");
    }
    for (name, flags) in parts_wanted {
        terminal::note(format_args!("{name}: ss {}", shown(&flags)));
        let Some(part) = Part::run(&flags, LIMIT, &cancel)? else {
            terminal::note("stopped");
            return Ok(Exit::Interrupted);
        };
        if part.failure().is_some() {
            failed.push(name);
            worst = if worst == Exit::Answered { part.exit() } else { worst };
        }
        parts.insert(name.to_owned(), part.json(&private(args)));
    }
    let text = format!("{:#}\n", json!({ "version": crate::VERSION, "system": system(), "parts": parts }));
    reserved.fill(&text)?;
    let said = match &failed[..] {
        [] => "every part ended well".to_owned(),
        names => format!("failed: {}; the file has what they said", names.join(", ")),
    };
    terminal::note(format_args!("{}: {said}", args.out.display()));
    Ok(worst)
}

/// The file to be, empty; gone again unless it is filled.
struct Reserved {
    path: PathBuf,
    file: Option<File>,
}

impl Reserved {
    fn new(path: &Path) -> Result<Self> {
        let file = OpenOptions::new().write(true).create_new(true).open(path).map_err(|error| match error.kind() {
            std::io::ErrorKind::AlreadyExists => {
                anyhow!("`--out`: {} exists, and a report writes over nothing; name another file", path.display())
            }
            _ => anyhow!("`--out`: {} cannot be made ({error}); name a file in a folder that exists", path.display()),
        })?;
        Ok(Reserved { path: path.to_owned(), file: Some(file) })
    }

    fn fill(mut self, text: &str) -> Result<()> {
        let written = self.file.as_mut().map_or(Ok(()), |file| file.write_all(text.as_bytes()));
        written.with_context(|| format!("`--out`: {} cannot be written", self.path.display()))?;
        self.file = None;
        Ok(())
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if self.file.take().is_some() {
            // It was made by this run; if it cannot be removed, the next one says that it is there.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// The parts, each with the flags of this program that make it. Without an adapter there is nothing to prove.
fn parts_of(args: &ReportArgs, has_adapter: bool) -> Vec<(&'static str, Vec<OsString>)> {
    let words = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
    let with = |flag: &str, value: &OsStr| {
        let mut whole = OsString::from(flag);
        whole.push(value);
        whole
    };
    let adapter = args.adapter.as_ref().map(|adapter| with("--adapter=", OsStr::new(adapter)));
    let selftest = if args.quick { "selftest --json --quick" } else { "selftest --json" };
    let bench = if args.quick { "-p 64 -n 32 -r 1" } else { "-p 512 -n 128 -r 3" };
    let mut parts = vec![("devices", words("devices --json"))];
    if has_adapter || adapter.is_some() {
        // As it comes, then in the way that takes the least from a driver.
        parts.push(("selftest", words(selftest)));
        parts.push(("selftest_plain", words(&format!("{selftest} --matrix-units off --kernels wgsl"))));
    }
    let mut benches = words(&format!("bench --json --profile --slots floor,all {bench}"));
    benches.extend(args.model.as_ref().map(|model| with("--model=", model.as_os_str())));
    parts.push(("bench", benches));
    parts.iter_mut().skip(1).for_each(|(_, flags)| flags.extend(adapter.clone()));
    parts
}

/// Flags as a person would type them.
fn shown(flags: &[OsString]) -> String {
    let quoted = |flag: &OsString| {
        let text = flag.to_string_lossy();
        let plain = |c: char| c.is_alphanumeric() || "-_=.,/~:".contains(c);
        if text.chars().all(plain) { text.into_owned() } else { format!("'{}'", text.replace('\'', "'\\''")) }
    };
    flags.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

/// A part that has ended.
struct Part {
    /// None where it was ended.
    status: Option<ExitStatus>,
    took: Duration,
    result: Value,
    /// The last lines of what it said beside its result.
    said: Vec<String>,
}

impl Part {
    /// Runs this program once more; none where all is to end.
    fn run(flags: &[OsString], limit: Duration, cancel: &Cancel) -> Result<Option<Self>> {
        let own = std::env::current_exe().context("the system does not say where this program lies")?;
        let begun = Instant::now();
        let mut command = Command::new(own);
        command.args(flags).env(PART, "1").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let settings = std::env::vars_os().map(|(name, _)| name);
        let settings = settings.filter(|name| name.to_string_lossy().starts_with("SS_") && name != places::HOME);
        settings.for_each(|name| _ = command.env_remove(name));
        let mut child = command.spawn().context("this program cannot be started once more")?;
        let (result, said) = (read_all(child.stdout.take()), pass_on(child.stderr.take()));
        let status = watch(&mut child, || begun.elapsed() > limit || cancel.is_cancelled())?;
        let text = result.join().unwrap_or_default();
        let said = said.join().unwrap_or_default();
        if cancel.is_cancelled() {
            return Ok(None);
        }
        let result = serde_json::from_str(&text).map_or(Value::Null, without_names);
        Ok(Some(Part { status, took: begun.elapsed(), result, said }))
    }

    /// Why it did not end well, if it did not.
    fn failure(&self) -> Option<String> {
        match self.status {
            None => Some(format!("it did not end in {} s", LIMIT.as_secs())),
            Some(status) if !status.success() => Some(status.to_string()),
            Some(_) => self.result.is_null().then(|| "it said nothing".to_owned()),
        }
    }

    /// What this program ends with because of it.
    fn exit(&self) -> Exit {
        match self.status.and_then(|status| status.code()) {
            Some(code) if code == i32::from(Exit::Usage.code()) => Exit::Usage,
            Some(code) if code == i32::from(Exit::Memory.code()) => Exit::Memory,
            _ => Exit::Device,
        }
    }

    fn json(&self, private: &[String]) -> Value {
        let said: Vec<String> = self.said.iter().map(|line| without(line, private)).collect();
        json!({ "seconds": self.took.as_secs_f64(), "failure": self.failure(), "said": said, "result": self.result })
    }
}

/// Waits for a part, or ends it.
fn watch(child: &mut Child, is_over: impl Fn() -> bool) -> Result<Option<ExitStatus>> {
    loop {
        if let Some(status) = child.try_wait().context("a part is lost")? {
            return Ok(Some(status));
        }
        if is_over() {
            // It may have ended just now.
            let _ = child.kill();
            let _ = child.wait();
            return Ok(None);
        }
        std::thread::sleep(LOOK);
    }
}

/// All that a part prints.
fn read_all(output: Option<impl Read + Send + 'static>) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut text = String::new();
        // What is cut off is no JSON, and said to be none.
        let _ = output.map(|mut output| output.read_to_string(&mut text));
        text
    })
}

/// Shows what a part says, and keeps the end of it.
fn pass_on(output: Option<impl Read + Send + 'static>) -> JoinHandle<Vec<String>> {
    std::thread::spawn(move || {
        let mut kept = VecDeque::new();
        let lines =
            output.into_iter().flat_map(|output| BufReader::new(output).split(b'\n').map_while(|line| line.ok()));
        for line in lines {
            let line = String::from_utf8_lossy(&line).trim_end().to_owned();
            terminal::note(&line);
            kept.push_back(line);
            if kept.len() > MOST_LINES {
                kept.pop_front();
            }
        }
        kept.into()
    })
}

/// Words that are nobody else's business, the longest first.
fn private(args: &ReportArgs) -> Vec<String> {
    let own = |path: Option<PathBuf>| path.map(|path| path.display().to_string());
    let model = args.model.as_ref();
    let name = model.and_then(|model| model.file_name()).map(|name| name.to_string_lossy().into_owned());
    let words =
        [own(model.cloned()), name, own(places::home()), own(std::env::home_dir()), own(std::env::current_dir().ok())];
    let mut words: Vec<String> = words.into_iter().flatten().filter(|word| word.len() > 1).collect();
    words.sort_by_key(|word| std::cmp::Reverse(word.len()));
    words
}

/// A line without private words and without anything that looks like the place of a file.
fn without(line: &str, private: &[String]) -> String {
    let line = private.iter().fold(line.to_owned(), |line, word| line.replace(word, "..."));
    let is_place = |word: &str| {
        let word = word.trim_start_matches(['`', '(', '"', '\'']);
        word.starts_with('/') || word.starts_with("~/") || word.starts_with("./") || word.starts_with("../")
    };
    line.split(' ').map(|word| if is_place(word) { "..." } else { word }).collect::<Vec<_>>().join(" ")
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
        "release": system_release(),
        "processors": std::thread::available_parallelism().ok().map(usize::from),
        "memory_bytes": machine.map(|machine| machine.physical),
        // Some systems write a huge number for no limit.
        "memory_limit_bytes": machine.and_then(|machine| machine.limit.filter(|&limit| limit < machine.physical)),
        "reclaimable_bytes": reclaimable_bytes().ok(),
        "pressure": pressure().ok().map(|pressure| pressure.to_string()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args() -> ReportArgs {
        ReportArgs { out: "x".into(), quick: false, adapter: None, model: None }
    }

    #[test]
    fn parts_follow_the_flags_and_the_machine() {
        let shown_of = |args: &ReportArgs, has_adapter| {
            parts_of(args, has_adapter).iter().map(|(_, flags)| shown(flags)).collect::<Vec<_>>()
        };
        let bench = "bench --json --profile --slots floor,all -p 512 -n 128 -r 3";
        assert_eq!(shown_of(&args(), false), ["devices --json", bench], "without an adapter there is nothing to prove");
        let plain = "selftest --json --matrix-units off --kernels wgsl";
        assert_eq!(shown_of(&args(), true), ["devices --json", "selftest --json", plain, bench]);
        let quick = ReportArgs { quick: true, adapter: Some("It's".into()), model: Some("-m".into()), ..args() };
        let quick = shown_of(&quick, false);
        assert_eq!(quick[1], "selftest --json --quick '--adapter=It'\\''s'");
        assert!(quick[3].ends_with("-p 64 -n 32 -r 1 --model=-m '--adapter=It'\\''s'"), "{}", quick[3]);
    }

    #[test]
    fn a_result_has_no_name_of_a_model_and_a_line_no_place() {
        assert_eq!(without_names(json!({ "model": "secret", "rows": [1] })), json!({ "rows": [1] }));
        assert_eq!(without_names(json!([2])), json!([2]));
        let line = "error: there is no model in `/srv/secret model`; see ~/x, tok/s and (../y)";
        let private = ["/srv/secret model".to_owned(), "secret model".to_owned()];
        assert_eq!(without(line, &private), "error: there is no model in `...`; see ... tok/s and ...");
    }

    #[test]
    fn silence_is_a_failure_and_so_is_taking_too_long() {
        let part = |status, result| Part { status, took: Duration::ZERO, result, said: Vec::new() };
        assert_eq!(part(None, Value::Null).failure().as_deref(), Some("it did not end in 1200 s"));
        assert_eq!(part(Some(ExitStatus::default()), Value::Null).failure().as_deref(), Some("it said nothing"));
        assert_eq!(part(Some(ExitStatus::default()), json!({})).failure(), None);
        assert_eq!(part(None, Value::Null).exit(), Exit::Device);
    }

    #[test]
    fn a_name_is_reserved_until_it_is_filled_or_given_up() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("r.json");
        let reserved = Reserved::new(&path)?;
        assert!(path.exists() && Reserved::new(&path).is_err());
        drop(reserved);
        assert!(!path.exists());
        Reserved::new(&path)?.fill("{}")?;
        assert_eq!(std::fs::read_to_string(&path)?, "{}");
        assert!(Reserved::new(&folder.path().join("no/such")).is_err());
        Ok(())
    }
}
