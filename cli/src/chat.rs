//! Owns: the conversation at a terminal: its commands, its settings, its memory of what was said.
//! Invariants: a turn that was stopped leaves the conversation as far as it was shown; one that failed leaves nothing.

use std::fmt::Display;

use anyhow::{Result, anyhow, bail};
use serde_json::{Value, json};
use ss_generate::Finish;
use ss_server::Thinking;

use crate::answer::{Answer, Settings, answer};
use crate::args::{ReplyArgs, SamplingArgs};
use crate::exit::Exit;
use crate::lines::{Line, Lines};
use crate::run::Run;
use crate::setup::{Ready, name};
use crate::{sentence, terminal, values};

const HELP: &str = "\
/set             what can be set, and to what it is set
/set NAME VALUE  sets it; `default` goes back to the default
/clear           forgets the conversation
/help            this text
/bye             leaves, as Ctrl-D does
\"\"\"              begins and ends a message of several lines
Ctrl-C           stops the answer";

/// Word that takes a setting back.
const DEFAULT: &str = "default";

/// Talks until the person leaves.
///
/// # Errors
/// When the terminal or the device fails.
pub fn talk(run: &Run, ready: &mut Ready) -> Result<Exit> {
    terminal::note(format_args!("{}: /help says what can be typed, /bye leaves", name(&ready.dir)));
    let mut lines = Lines::open()?;
    let mut chat = Chat { run, reply: run.args.reply.clone(), sampling: run.args.sampling.clone(), said: Vec::new() };
    while let Some(line) = lines.next()? {
        match Line::parse(&line) {
            Line::Bye => break,
            Line::Help => terminal::note(HELP),
            Line::Clear => chat.said.clear(),
            Line::Show => terminal::note(chat.shown(ready)?),
            Line::Set(key, value) => chat.set(key, value).unwrap_or_else(|error| terminal::note(sentence(&error))),
            Line::Unknown(word) => terminal::note(format_args!("`{word}` is no command; /help lists them")),
            Line::Say(text) if text.trim().is_empty() => {}
            Line::Say(text) => chat.say(ready, text)?,
        }
    }
    Ok(Exit::Answered)
}

struct Chat<'a> {
    run: &'a Run<'a>,
    reply: ReplyArgs,
    sampling: SamplingArgs,
    /// Messages after the system message.
    said: Vec<Value>,
}

impl Chat<'_> {
    fn settings(&self) -> Settings<'_> {
        Settings { reply: &self.reply, sampling: &self.sampling, tools: &self.run.tools }
    }

    fn say(&mut self, ready: &mut Ready, text: &str) -> Result<()> {
        self.said.push(json!({ "role": "user", "content": text }));
        match self.answer(ready) {
            Ok((said, finish)) if finish == Finish::Cancelled && said.is_empty() => _ = self.said.pop(),
            Ok((said, _)) => self.said.push(said.message()),
            // The conversation can go on after an answer that failed, but not after a lost device.
            Err(error) if Exit::of(&error) == Exit::Device || crate::is_broken_pipe(&error) => return Err(error),
            Err(error) => {
                terminal::note(format_args!("error: {}", sentence(&error)));
                self.said.pop();
            }
        }
        Ok(())
    }

    fn answer(&self, ready: &mut Ready) -> Result<(Answer, Finish)> {
        let settings = self.settings();
        let ids = settings.chat_ids(ready, settings.system().into_iter().chain(self.said.iter().cloned()).collect())?;
        let ask = settings.ask(ready, ids)?;
        let (said, report) = answer(ready, &ask, &self.run.interrupt.arm())?;
        terminal::gap();
        if self.run.args.verbose {
            terminal::aside(report.lines(true));
            terminal::gap();
        }
        self.run.keep(&report)?;
        Ok((said, report.summary.finish))
    }

    fn set(&mut self, key: &str, value: &str) -> Result<()> {
        if value.is_empty() {
            bail!("`/set {key}` needs a value; `{DEFAULT}` goes back to the default");
        }
        let value = value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value);
        let s = &mut self.sampling;
        let done = match key.replace('-', "_").as_str() {
            "temperature" | "temp" => put(&mut s.temperature, value, values::temperature),
            "top_k" => put(&mut s.top_k, value, values::top_k),
            "top_p" => put(&mut s.top_p, value, values::top_p),
            "min_p" => put(&mut s.min_p, value, values::min_p),
            "presence_penalty" => put(&mut s.presence_penalty, value, values::penalty),
            "frequency_penalty" => put(&mut s.frequency_penalty, value, values::penalty),
            "repetition_penalty" | "repeat_penalty" => put(&mut s.repetition_penalty, value, values::repetition),
            "seed" => put(&mut s.seed, value, values::whole),
            "max_tokens" => put(&mut self.reply.max_tokens, value, values::max_tokens),
            "think" => put(&mut self.reply.think, value, str::parse),
            "system" => put(&mut self.reply.system, value, |text| Ok::<_, String>(text.to_string())),
            _ => bail!("`{key}` cannot be set; `/set` lists what can"),
        };
        done.map_err(|expected| anyhow!("`{value}` is no value for `{key}`: {expected}"))
    }

    /// Every setting with the value that the next answer gets.
    fn shown(&self, ready: &Ready) -> Result<String> {
        let (s, r) = (self.settings().sampler(ready)?, &self.sampling);
        let row = |name: &str, value: &dyn Display, set: bool| {
            format!("{name:<20}{value}{}", if set { "" } else { " (default)" })
        };
        let limit = self.reply.max_tokens.map_or_else(|| "none".to_string(), |limit| limit.to_string());
        let seed = r.seed.map_or_else(|| "a fresh one for each answer".to_string(), |seed| seed.to_string());
        let think = self.reply.think.is_some_and(Thinking::is_on);
        let system = self.reply.system.as_deref().unwrap_or("none");
        Ok([
            row("temperature", &s.temperature, r.temperature.is_some()),
            row("top_k", &s.top_k, r.top_k.is_some()),
            row("top_p", &s.top_p, r.top_p.is_some()),
            row("min_p", &s.min_p, r.min_p.is_some()),
            row("presence_penalty", &s.presence_penalty, r.presence_penalty.is_some()),
            row("frequency_penalty", &s.frequency_penalty, r.frequency_penalty.is_some()),
            row("repetition_penalty", &s.repetition_penalty, r.repetition_penalty.is_some()),
            row("seed", &seed, r.seed.is_some()),
            row("max_tokens", &limit, self.reply.max_tokens.is_some()),
            row("think", &if think { "on" } else { "off" }, self.reply.think.is_some()),
            row("system", &system, self.reply.system.is_some()),
        ]
        .join("\n"))
    }
}

/// Puts a value in its place; `default` empties it.
fn put<T, E: Display>(
    place: &mut Option<T>,
    value: &str,
    parse: impl FnOnce(&str) -> Result<T, E>,
) -> Result<(), String> {
    *place = match value {
        DEFAULT => None,
        value => Some(parse(value).map_err(|expected| expected.to_string())?),
    };
    Ok(())
}

impl Answer {
    /// As a message of the conversation.
    fn message(&self) -> Value {
        let mut message = json!({ "role": "assistant", "content": self.text });
        if !self.reasoning.is_empty() {
            message["reasoning_content"] = json!(self.reasoning.trim());
        }
        if !self.calls.is_empty() {
            message["tool_calls"] = json!(self.calls);
        }
        message
    }
}
