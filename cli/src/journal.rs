//! Owns: where a server's log goes: standard error, a file, or both, as lines for people or for programs.
//! Invariants: a terminal or pipe that takes nothing blocks no request: lines are dropped then, and counted.

use std::fs::OpenOptions;
use std::io::IsTerminal;

use anyhow::{Context, Result};
use tracing::level_filters::LevelFilter;
use tracing_appender::non_blocking::{NonBlocking, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::writer::MakeWriterExt;

use crate::args::{LogArgs, LogFormat, LogLevel};

/// Lines that wait for a slow reader at most.
const MOST_LINES: usize = 4096;

/// Keeps the log going until it is dropped; what is left is written then.
pub struct Journal {
    _guards: Vec<WorkerGuard>,
}

/// Starts the log.
///
/// # Errors
/// When its file cannot be written.
pub fn open(args: &LogArgs) -> Result<Journal> {
    let (errors, guard) = apart(std::io::stderr());
    let mut guards = vec![guard];
    let colours = std::io::stderr().is_terminal() && args.log_file.is_none() && std::env::var_os("NO_COLOR").is_none();
    match &args.log_file {
        None => install(args, errors, colours),
        Some(path) => {
            let file = OpenOptions::new().append(true).create(true).open(path);
            let file = file.with_context(|| format!("`--log-file`: `{}` cannot be written", path.display()))?;
            let (file, guard) = apart(file);
            guards.push(guard);
            install(args, errors.and(file), colours);
        }
    }
    Ok(Journal { _guards: guards })
}

fn apart(writer: impl std::io::Write + Send + 'static) -> (NonBlocking, WorkerGuard) {
    NonBlockingBuilder::default().lossy(true).buffered_lines_limit(MOST_LINES).finish(writer)
}

fn install<W: for<'w> MakeWriter<'w> + Send + Sync + 'static>(args: &LogArgs, writer: W, colours: bool) {
    let level = match args.log_level {
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
    };
    let log = tracing_subscriber::fmt().with_writer(writer).with_max_level(level).with_target(false).with_ansi(colours);
    // Nobody else sets one up: the first is the only one.
    let _ = match args.log_format {
        LogFormat::Text => tracing::subscriber::set_global_default(log.finish()),
        LogFormat::Json => tracing::subscriber::set_global_default(log.json().flatten_event(true).finish()),
    };
}
