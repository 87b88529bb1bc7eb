//! Owns: the command line: flags, what is shown to people, exit codes (engine.md section 9).
//! Refuses: arithmetic, files of a model, policy of any part below; it puts the parts together.
//! Invariants: standard output holds the answer and nothing else; everything said beside it goes to standard error.

mod answer;
mod args;
mod bench;
mod cache;
mod chat;
mod config;
mod device;
mod devices;
mod drivers;
mod exit;
mod gather;
mod hot;
mod inspect;
mod intake;
mod interrupt;
mod journal;
mod keep;
mod lines;
mod pack;
mod places;
mod plan;
mod precedence;
mod progress;
mod replay;
mod replay_ahead;
mod report;
mod run;
mod selftest;
mod serve;
mod setup;
mod synth;
mod terminal;
mod tools;
mod trace;
mod trust;
mod usage;
mod values;
mod variables;
mod verdicts;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::FromArgMatches;
use clap::error::ErrorKind;

use args::{Cli, Command};
use exit::Exit;

/// What the program is called; Linux has another `ss`, so that it answers to the second name too.
const NAME: &str = "ss";
const LONG_NAME: &str = "slotstream";

/// Version and commit, as `--version` prints them.
pub const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("SS_COMMIT"), ")");

/// Characters of a sentence that a person is shown.
const MOST_WORDS: usize = 1000;

/// Runs the program.
pub fn main() -> ExitCode {
    drivers::listen();
    match dispatch() {
        Ok(exit) => exit.into(),
        // The reader of our output has gone: that is how pipes end.
        Err(error) if is_broken_pipe(&error) => Exit::Answered.into(),
        Err(error) => {
            terminal::note(format_args!("error: {}", sentence(&error)));
            Exit::of(&error).into()
        }
    }
}

fn dispatch() -> anyhow::Result<Exit> {
    let mut command = variables::apply(Cli::definition());
    // Help, version and completions answer whatever the file says.
    let needs_settings = match command.clone().try_get_matches() {
        Ok(matches) => matches.subcommand_name() != Some("completions"),
        Err(error) => error.use_stderr(),
    };
    let is_part = std::env::var_os(gather::PART).is_some();
    if let Some(home) = places::home().filter(|_| needs_settings && !is_part) {
        command = config::apply(command, &home.join("config.toml"))?;
    }
    let matches = match command.try_get_matches() {
        Ok(matches) => matches,
        Err(error) if error.use_stderr() && error.kind() != ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            anyhow::bail!("{}", usage::sentence(&error))
        }
        // Help and version.
        Err(error) => error.exit(),
    };
    match Cli::from_arg_matches(&matches)?.command {
        Command::Run(mut args) => {
            if let Some(matches) = matches.subcommand_matches("run") {
                precedence::settle(&mut args, matches)?;
            }
            run::run(&args)
        }
        Command::Serve(mut args) => {
            if let Some(matches) = matches.subcommand_matches("serve") {
                precedence::settle_serve(&mut args, matches)?;
            }
            serve::serve(&args)
        }
        Command::Inspect(args) => inspect::inspect(&args),
        Command::Pack(args) => pack::pack(&args),
        Command::Devices(args) => devices::devices(&args),
        Command::Bench(mut args) => {
            if let Some(matches) = matches.subcommand_matches("bench") {
                precedence::settle_load(&mut args.load, matches)?;
            }
            bench::bench(&args)
        }
        Command::Selftest(mut args) => {
            if let Some(matches) = matches.subcommand_matches("selftest") {
                precedence::settle_device(&mut args.device, matches)?;
            }
            selftest::selftest(&args)
        }
        Command::Synth(args) => synth::synth(&args),
        Command::Replay(mut args) => {
            if let Some(matches) = matches.subcommand_matches("replay") {
                precedence::settle_replay(&mut args, matches)?;
            }
            replay::replay(&args)
        }
        Command::Report(args) => gather::report(&args),
        Command::Completions { shell } => completions(shell),
    }
}

fn completions(shell: clap_complete::Shell) -> anyhow::Result<Exit> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::definition(), called(), &mut script);
    std::io::stdout().write_all(&script).context("standard output cannot be written")?;
    Ok(Exit::Answered)
}

/// The name by which this program was called, of the two that it has.
fn called() -> &'static str {
    let name = std::env::args_os().next().map(PathBuf::from);
    match name.as_deref().and_then(Path::file_stem) {
        Some(name) if name == LONG_NAME => LONG_NAME,
        _ => NAME,
    }
}

/// An error and its causes as one sentence.
fn sentence(error: &anyhow::Error) -> String {
    let mut causes: Vec<String> = Vec::new();
    for cause in error.chain().map(ToString::to_string) {
        // An error that passes another one on says what its cause says.
        if !causes.last().is_some_and(|last| last.ends_with(&cause)) {
            causes.push(cause);
        }
    }
    // Some words come from a file: they get one line, no control characters, and an end.
    let line: String = causes.join(": ").chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    match line.char_indices().nth(MOST_WORDS) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line,
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.downcast_ref::<std::io::Error>().is_some_and(|io| io.kind() == std::io::ErrorKind::BrokenPipe)
    })
}
