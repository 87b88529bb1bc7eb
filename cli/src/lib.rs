//! Owns: the command line: flags, what is shown to people, exit codes (engine.md section 9).
//! Refuses: arithmetic, files of a model, policy of any part below; it puts the parts together.
//! Invariants: standard output holds the answer and nothing else; everything said beside it goes to standard error.

mod args;
mod chat;
mod config;
mod exit;
mod inspect;
mod places;
mod plan;
mod progress;
mod report;
mod run;
mod setup;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};

use args::{Cli, Command};
use exit::Exit;

/// Version and commit, as `--version` prints them.
pub const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("SS_COMMIT"), ")");

/// Runs the program.
pub fn main() -> ExitCode {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_max_level(tracing::Level::WARN).without_time().with_target(false).init();
    match dispatch() {
        Ok(exit) => exit.into(),
        Err(error) => {
            // Quiet when the reader of our output has gone: that is how pipes end.
            if !is_broken_pipe(&error) {
                eprintln!("error: {}", sentence(&error));
            }
            Exit::of(&error).into()
        }
    }
}

fn dispatch() -> anyhow::Result<Exit> {
    let mut command = Cli::command();
    if let Some(home) = places::home() {
        command = config::apply(command, &home.join("config.toml"))?;
    }
    let matches = command.try_get_matches().unwrap_or_else(|error| error.exit());
    match Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit()).command {
        Command::Run(args) => run::run(&args),
        Command::Inspect(args) => inspect::inspect(&args),
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "ss", &mut std::io::stdout());
            Ok(Exit::Answered)
        }
    }
}

/// An error and its causes as one sentence.
fn sentence(error: &anyhow::Error) -> String {
    let mut causes: Vec<String> = Vec::new();
    for cause in error.chain().map(ToString::to_string) {
        // A transparent error says what its cause says.
        if causes.last() != Some(&cause) {
            causes.push(cause);
        }
    }
    causes.join(": ")
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| cause.downcast_ref::<std::io::Error>().is_some_and(|io| io.kind() == std::io::ErrorKind::BrokenPipe))
}
