//! Owns: `ss run`: one answer, or a chat when a person sits at a terminal.
//! Invariants: Ctrl-C stops the answer at the next layer; what was written stays.

use std::io::{IsTerminal, Read, Write};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use ss_generate::{Ask, Chat, Finish, Told};
use ss_model::Cancel;
use ss_server::{Column, SamplingRequest};
use ss_text::{Event, ReplyOptions, ToolSchemas};

use crate::args::{ReplyArgs, RunArgs, SamplingArgs};
use crate::chat;
use crate::exit::Exit;
use crate::progress::Progress;
use crate::report::Report;
use crate::setup::{self, Ready};

/// Runs the command.
///
/// # Errors
/// When the model cannot be loaded or run; see [`Exit`] for what the shell is told.
pub fn run(args: &RunArgs) -> Result<Exit> {
    let prompt = prompt(args)?;
    let tools = args.reply.tools.as_deref().map(read_tools).transpose()?.unwrap_or_default();
    let mut ready = setup::load(&args.load, args.reply.prefill_pass)?;
    let interrupt = Interrupt::install()?;
    match prompt {
        Some(text) => once(args, &mut ready, &text, &tools, &interrupt),
        None => chat::talk(args, &mut ready, &tools, &interrupt),
    }
}

/// The prompt: argument, standard input, or both; none means a chat.
fn prompt(args: &RunArgs) -> Result<Option<String>> {
    let mut text = args.prompt.clone();
    if !std::io::stdin().is_terminal() {
        let mut piped = Vec::new();
        std::io::stdin().read_to_end(&mut piped).context("standard input cannot be read")?;
        let piped = String::from_utf8(piped).context("standard input is not UTF-8 text")?;
        text = match (text, piped.is_empty()) {
            (Some(text), false) => Some(format!("{text}\n\n{piped}")),
            (None, false) => Some(piped),
            (text, true) => text,
        };
        ensure!(text.is_some(), "there is nothing to answer: give a prompt, as in `ss run \"How do I make tea?\"`, or pipe one in");
    }
    match &text {
        Some(text) if text.trim().is_empty() && !args.reply.raw => bail!("the prompt is empty: give one, as in `ss run \"How do I make tea?\"`"),
        Some(text) if text.is_empty() => bail!("the prompt is empty: `--raw` needs at least one character to continue"),
        _ => Ok(text),
    }
}

fn read_tools(path: &std::path::Path) -> Result<Vec<Value>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("`--tools`: `{}` cannot be read", path.display()))?;
    let tools: Value = serde_json::from_str(&text).with_context(|| format!("`--tools`: `{}` is not JSON", path.display()))?;
    match tools {
        Value::Array(tools) => Ok(tools),
        _ => bail!("`--tools`: `{}` must hold a list of tools, `[{{\"type\": \"function\", \"function\": {{...}}}}]`", path.display()),
    }
}

fn once(args: &RunArgs, ready: &mut Ready, text: &str, tools: &[Value], interrupt: &Interrupt) -> Result<Exit> {
    let ids = if args.reply.raw {
        ready.engine.raw_ids(text)?
    } else {
        let mut messages = system(&args.reply);
        messages.push(json!({ "role": "user", "content": text }));
        chat_ids(&args.reply, ready, messages, tools)?
    };
    let ask = ask(&args.reply, &args.sampling, ready, ids, tools);
    let (answer, report) = answer(ready, &ask, interrupt.arm(), args.verbose)?;
    finish(&answer)?;
    report.print();
    if let Some(path) = &args.stats_json {
        std::fs::write(path, report.json()).with_context(|| format!("`--stats-json`: `{}` cannot be written", path.display()))?;
    }
    Ok(if report.summary.finish == Finish::Cancelled { Exit::Interrupted } else { Exit::Answered })
}

/// The system message, if there is one.
pub fn system(reply: &ReplyArgs) -> Vec<Value> {
    reply.system.iter().map(|text| json!({ "role": "system", "content": text })).collect()
}

/// Ids of a conversation under the flags.
///
/// # Errors
/// When the template refuses it.
pub fn chat_ids(reply: &ReplyArgs, ready: &Ready, messages: Vec<Value>, tools: &[Value]) -> Result<Vec<u32>> {
    let options = reply.think.unwrap_or_default().template_options();
    Ok(ready.engine.chat_ids(&Chat { messages, tools: tools.to_vec(), options })?)
}

/// A request under the flags.
pub fn ask(reply: &ReplyArgs, sampling: &SamplingArgs, ready: &Ready, prompt: Vec<u32>, tools: &[Value]) -> Ask {
    let thinking = reply.think.is_some_and(ss_server::Thinking::is_on);
    let geometry = ready.engine.model.geometry();
    let config = ready.engine.model.checkpoint().generation_config().ok().flatten();
    let request = SamplingRequest {
        temperature: sampling.temperature,
        top_k: sampling.top_k,
        top_p: sampling.top_p,
        min_p: sampling.min_p,
        presence_penalty: sampling.presence_penalty,
        frequency_penalty: sampling.frequency_penalty,
        repetition_penalty: sampling.repetition_penalty,
        logit_bias: sampling.logit_bias.clone(),
        seed: sampling.seed,
    };
    let column = Column::of(thinking, !tools.is_empty());
    let mut ask = Ask::new(prompt, request.resolve(config.as_ref(), column, geometry.is_released()));
    ask.max_tokens = reply.max_tokens;
    ask.prefill_pass = reply.prefill_pass;
    ask.reply = ReplyOptions {
        thinking,
        tools: (!tools.is_empty()).then(|| ToolSchemas::new(tools)),
        stops: reply.stop.clone(),
    };
    ask
}

/// Makes the reply, writing it as it comes; gives its text and what it took.
///
/// # Errors
/// As [`ss_generate::Engine::answer`]; also when standard output cannot be written.
pub fn answer(ready: &mut Ready, ask: &Ask, cancel: Cancel, verbose: bool) -> Result<(Answer, Report)> {
    let mut state = ready.engine.model.new_state().map_err(ss_generate::Error::from)?;
    let before = Report::before(ready);
    let mut bar = Progress::reading();
    let mut answer = Answer::default();
    let stop = cancel.clone();
    let summary = ready.engine.answer(&mut state, ask, &cancel, &mut |told| match told {
        Told::Prefilled { done, total } => bar.update(done as u64, total as u64),
        Told::Reply(event) => {
            if let Err(error) = answer.show(event) {
                answer.failed.get_or_insert(error);
                stop.cancel();
            }
        }
    })?;
    match answer.failed.take() {
        Some(error) => Err(error),
        None => Ok((answer, Report::after(before, ready, ask, summary, verbose)?)),
    }
}

/// A reply as it was written.
#[derive(Default)]
pub struct Answer {
    /// Reasoning.
    pub reasoning: String,
    /// The answer's text.
    pub text: String,
    /// Complete calls, in OpenAI's form with object arguments.
    pub calls: Vec<Value>,
    failed: Option<anyhow::Error>,
}

impl Answer {
    fn show(&mut self, event: Event) -> Result<()> {
        match event {
            Event::Reasoning(text) => {
                eprint!("{text}");
                self.reasoning += &text;
            }
            Event::Text(text) => {
                if self.text.is_empty() && !self.reasoning.is_empty() {
                    eprintln!("\n");
                }
                let mut out = std::io::stdout().lock();
                out.write_all(text.as_bytes())?;
                out.flush()?;
                self.text += &text;
            }
            Event::CallEnd { name, arguments, .. } => {
                let arguments: Value = serde_json::from_str(&arguments)?;
                let call = json!({ "name": name, "arguments": arguments });
                let mut out = std::io::stdout().lock();
                if !self.text.is_empty() && !self.text.ends_with('\n') && self.calls.is_empty() {
                    writeln!(out)?;
                }
                writeln!(out, "{call}")?;
                self.calls.push(json!({ "type": "function", "function": call }));
            }
            Event::Failed(error) => bail!("the reply cannot be used: {error}"),
            Event::CallStart { .. } | Event::CallArguments { .. } | Event::Stop(_) => {}
        }
        Ok(())
    }
}

/// Ends the last line of an answer.
///
/// # Errors
/// When standard output cannot be written.
pub fn finish(answer: &Answer) -> Result<()> {
    if !answer.text.is_empty() && !answer.text.ends_with('\n') && answer.calls.is_empty() {
        writeln!(std::io::stdout())?;
    }
    Ok(())
}

/// Ctrl-C, as the switch of the answer that is being made.
#[derive(Clone)]
pub struct Interrupt(Arc<Mutex<Cancel>>);

impl Interrupt {
    fn install() -> Result<Self> {
        let interrupt = Interrupt(Arc::default());
        let seen = interrupt.clone();
        ctrlc::set_handler(move || {
            let cancel = seen.current();
            // A second Ctrl-C does not wait for the layer to end.
            if cancel.is_cancelled() {
                std::process::exit(Exit::Interrupted.code().into());
            }
            cancel.cancel();
        })
        .context("Ctrl-C cannot be watched")?;
        Ok(interrupt)
    }

    fn current(&self) -> Cancel {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A fresh switch for the next answer.
    pub fn arm(&self) -> Cancel {
        let fresh = Cancel::default();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = fresh.clone();
        fresh
    }
}
