//! Owns: `ss run`: one answer, or a chat when a person sits at a terminal.
//! Invariants: what can be refused without the model is refused before it is loaded.

use std::fs::OpenOptions;
use std::io::{IsTerminal, stdin};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use ss_generate::Finish;
use ss_replay::TracePlace;
use ss_text::Stops;

use crate::answer::{Settings, answer};
use crate::args::RunArgs;
use crate::chat;
use crate::exit::Exit;
use crate::hot::HotFile;
use crate::interrupt::Interrupt;
use crate::report::Report;
use crate::setup::{self, Ready};
use crate::trace::TraceFile;
use crate::{intake, terminal, tools};

/// What every answer of a run needs.
pub struct Run<'a> {
    /// The flags.
    pub args: &'a RunArgs,
    /// Tools offered.
    pub tools: Vec<Value>,
    /// Ctrl-C.
    pub interrupt: Interrupt,
    stats: Option<StatsFile>,
}

/// What is kept of a run beside its answers.
struct Kept {
    trace: Option<TraceFile>,
    hot: Option<HotFile>,
}

impl Kept {
    /// Starts the trace and the reading of the hot set, as the flags say.
    fn start(args: &RunArgs, trace: Option<TracePlace>, ready: &mut Ready) -> Result<Self> {
        let model = &mut ready.engine.model;
        let trace = trace.map(|place| TraceFile::new(place, model.checkpoint()));
        if let Some(trace) = &trace {
            model.trace(Box::new(trace.clone()))?;
        }
        let hot = if args.no_hot_set { None } else { HotFile::of(model) };
        if let Some(hot) = &hot {
            model.warm(&hot.read(args.verbose));
        }
        Ok(Kept { trace, hot })
    }

    /// Keeps what is to be kept.
    fn end(&self, ready: &Ready) -> Result<()> {
        if let Some(hot) = &self.hot {
            hot.write(&ready.engine.model.store().experts.uses().hottest());
        }
        self.trace.as_ref().map_or(Ok(()), TraceFile::end)
    }
}

/// Runs the command.
///
/// # Errors
/// When the model cannot be loaded or run; see [`Exit`] for what the shell is told.
pub fn run(args: &RunArgs) -> Result<Exit> {
    let prompt = prompt(args)?;
    Stops::new(&args.reply.stop).context("`--stop`")?;
    let trace = args.trace_experts.as_deref().map(TracePlace::claim).transpose().context("`--trace-experts`")?;
    let run = Run {
        args,
        tools: args.reply.tools.as_deref().map(tools::read).transpose()?.unwrap_or_default(),
        stats: args.stats_json.as_deref().map(StatsFile::claim).transpose()?,
        interrupt: Interrupt::install()?,
    };
    apart(args)?;
    let mut ready = setup::load(&args.load, args.pool.size(), args.reply.prefill_pass)?;
    Settings { reply: &args.reply, sampling: &args.sampling, tools: &run.tools }.check(&ready)?;
    let kept = Kept::start(args, trace, &mut ready)?;
    let exit = match prompt {
        Some(text) => run.once(&mut ready, &text),
        None => chat::talk(&run, &mut ready),
    };
    ready.device.keep();
    let traced = kept.end(&ready);
    exit.and_then(|exit| traced.map(|()| exit))
}

/// The prompt: argument, standard input, or both; none means a chat.
fn prompt(args: &RunArgs) -> Result<Option<String>> {
    let mut text = args.prompt.clone();
    if !stdin().is_terminal() {
        let piped = intake::read(stdin().lock(), "standard input")?;
        text = match text {
            Some(text) if piped.is_empty() => Some(text),
            Some(text) => Some(format!("{text}\n\n{piped}")),
            None => Some(piped),
        };
    }
    match &text {
        None if args.reply.raw => {
            bail!("`--raw` continues a prompt: give one, as in `ss run --raw \"Once upon a time\"`")
        }
        Some(text) if text.is_empty() || (text.trim().is_empty() && !args.reply.raw) => {
            bail!("there is nothing to answer: give a prompt, as in `ss run \"How do I make tea?\"`, or pipe one in")
        }
        _ => Ok(text),
    }
}

impl Run<'_> {
    fn once(&self, ready: &mut Ready, text: &str) -> Result<Exit> {
        let settings = Settings { reply: &self.args.reply, sampling: &self.args.sampling, tools: &self.tools };
        let ids = if self.args.reply.raw {
            ready.engine.raw_ids(text)?
        } else {
            let user = json!({ "role": "user", "content": text });
            settings.chat_ids(ready, settings.system().into_iter().chain([user]).collect())?
        };
        let ask = settings.ask(ready, ids)?;
        if ready.announced {
            terminal::gap();
        }
        let (_, report) = answer(ready, &ask, &self.interrupt.arm())?;
        terminal::gap();
        terminal::aside(report.lines(self.args.verbose));
        self.keep(&report)?;
        Ok(if report.summary.finish == Finish::Cancelled { Exit::Interrupted } else { Exit::Answered })
    }

    /// Writes the file of `--stats-json`, if there is to be one.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn keep(&self, report: &Report) -> Result<()> {
        self.stats.as_ref().map_or(Ok(()), |file| file.write(&report.json()))
    }
}

/// The file of `--stats-json`.
struct StatsFile(PathBuf);

impl StatsFile {
    /// Makes sure that the file can be written, before an answer is made for nothing. A pipe is opened once only, when there
    /// is something to write: its reader ends when it is closed.
    fn claim(path: &Path) -> Result<Self> {
        if std::fs::metadata(path).map_or(true, |metadata| metadata.is_file() || metadata.is_dir()) {
            let open = OpenOptions::new().append(true).create(true).open(path);
            open.with_context(|| format!("`--stats-json`: `{}` cannot be written", path.display()))?;
        }
        Ok(StatsFile(path.to_path_buf()))
    }

    fn write(&self, text: &str) -> Result<()> {
        let done = std::fs::write(&self.0, text);
        done.with_context(|| format!("`--stats-json`: `{}` cannot be written", self.0.display()))
    }
}

/// Refuses one file for two things.
fn apart(args: &RunArgs) -> Result<()> {
    let place = |path: &Option<PathBuf>| path.as_deref().and_then(|path| path.canonicalize().ok());
    match (place(&args.trace_experts), place(&args.stats_json)) {
        (Some(trace), Some(stats)) if trace == stats => {
            bail!("`--trace-experts` and `--stats-json` name the same file, `{}`; name two", trace.display())
        }
        _ => Ok(()),
    }
}
