//! Owns: the conversation at a terminal: its commands, its editing, its memory of what was said.
//! Invariants: a turn that was stopped or failed leaves the conversation as far as it was shown.

use anyhow::{Result, anyhow, bail};
use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;
use serde_json::{Value, json};
use ss_generate::Finish;

use crate::args::{ReplyArgs, RunArgs, SamplingArgs};
use crate::exit::Exit;
use crate::run::{Answer, Interrupt, answer, ask, chat_ids, finish, system};
use crate::setup::{Ready, name};

const HELP: &str = "\
/help            this text
/set             what can be set, and to what it is set
/set NAME VALUE  temperature, top_k, top_p, min_p, presence_penalty, frequency_penalty, repetition_penalty, seed,
                 max_tokens, think, system; `default` goes back to the default
/clear           forget the conversation
/bye             leave (or Ctrl-D)
\"\"\"              begin and end a message of several lines
Ctrl-C           stop the answer";

/// Opens and closes a message of several lines.
const QUOTES: &str = "\"\"\"";

/// What a line means.
#[derive(Debug, PartialEq, Eq)]
enum Line<'a> {
    Help,
    Clear,
    Bye,
    Show,
    Set(&'a str, &'a str),
    Unknown(&'a str),
    Say(&'a str),
}

impl<'a> Line<'a> {
    fn parse(line: &'a str) -> Self {
        let trimmed = line.trim();
        let mut words = trimmed.splitn(3, char::is_whitespace);
        match (words.next().unwrap_or_default(), words.next(), words.next()) {
            ("/help" | "/?", ..) => Line::Help,
            ("/clear", ..) => Line::Clear,
            ("/bye" | "/exit" | "/quit", ..) => Line::Bye,
            ("/set", None, _) => Line::Show,
            ("/set", Some(key), value) => Line::Set(key, value.unwrap_or_default().trim()),
            (word, ..) if word.starts_with('/') => Line::Unknown(word),
            _ => Line::Say(line),
        }
    }
}

/// Talks until the person leaves.
///
/// # Errors
/// When the terminal or the device fails.
pub fn talk(args: &RunArgs, ready: &mut Ready, tools: &[Value], interrupt: &Interrupt) -> Result<Exit> {
    if args.reply.raw {
        bail!("`--raw` continues a prompt: give one, as in `ss run --raw \"Once upon a time\"`");
    }
    eprintln!("{}: /help says what can be typed, /bye leaves", name(&ready.dir));
    let mut editor = DefaultEditor::new()?;
    let mut chat = Conversation { reply: args.reply.clone(), sampling: args.sampling.clone(), messages: system(&args.reply) };
    while let Some(line) = read(&mut editor)? {
        match Line::parse(&line) {
            Line::Bye => break,
            Line::Help => eprintln!("{HELP}"),
            Line::Clear => chat.messages = system(&chat.reply),
            Line::Show => eprintln!("{}", chat.settings()),
            Line::Set(key, value) => chat.set(key, value).unwrap_or_else(|error| eprintln!("{error}")),
            Line::Unknown(word) => eprintln!("`{word}` is no command; /help lists them"),
            Line::Say(text) if text.trim().is_empty() => {}
            Line::Say(text) => chat.say(args, ready, text, tools, interrupt)?,
        }
    }
    Ok(Exit::Answered)
}

/// One message, perhaps of several lines; none when the person leaves.
fn read(editor: &mut DefaultEditor) -> Result<Option<String>> {
    let mut message: Option<String> = None;
    loop {
        let line = match editor.readline(if message.is_none() { ">>> " } else { "... " }) {
            Ok(line) => line,
            // Ctrl-C at the prompt drops what was typed.
            Err(ReadlineError::Interrupted) => {
                message = None;
                continue;
            }
            Err(ReadlineError::Eof) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        message = match (message, line.trim()) {
            (None, whole) if whole.len() >= 2 * QUOTES.len() && whole.starts_with(QUOTES) && whole.ends_with(QUOTES) => {
                return Ok(Some(whole[QUOTES.len()..whole.len() - QUOTES.len()].to_string()));
            }
            (None, start) if start.starts_with(QUOTES) => Some(format!("{}\n", &start[QUOTES.len()..])),
            (None, _) => {
                editor.add_history_entry(line.as_str())?;
                return Ok(Some(line));
            }
            (Some(text), end) if end.ends_with(QUOTES) => {
                return Ok(Some(format!("{text}{}", &end[..end.len() - QUOTES.len()])));
            }
            (Some(text), _) => Some(format!("{text}{line}\n")),
        };
    }
}

struct Conversation {
    reply: ReplyArgs,
    sampling: SamplingArgs,
    messages: Vec<Value>,
}

impl Conversation {
    fn say(&mut self, args: &RunArgs, ready: &mut Ready, text: &str, tools: &[Value], interrupt: &Interrupt) -> Result<()> {
        self.messages.push(json!({ "role": "user", "content": text }));
        let outcome = self.reply(args, ready, tools, interrupt);
        let (said, finished) = match outcome {
            Ok(done) => done,
            // The conversation can go on after an answer that failed, but not after a lost device.
            Err(error) if crate::exit::Exit::of(&error) == Exit::Device => return Err(error),
            Err(error) => {
                eprintln!("error: {}", crate::sentence(&error));
                self.messages.pop();
                return Ok(());
            }
        };
        let mut message = json!({ "role": "assistant", "content": said.text });
        if !said.reasoning.is_empty() {
            message["reasoning_content"] = json!(said.reasoning.trim());
        }
        if !said.calls.is_empty() {
            message["tool_calls"] = json!(said.calls);
        }
        self.messages.push(message);
        if finished == Finish::Cancelled {
            eprintln!("(stopped)");
        }
        Ok(())
    }

    fn reply(&self, args: &RunArgs, ready: &mut Ready, tools: &[Value], interrupt: &Interrupt) -> Result<(Answer, Finish)> {
        let ids = chat_ids(&self.reply, ready, self.messages.clone(), tools)?;
        let ask = ask(&self.reply, &self.sampling, ready, ids, tools);
        let (said, report) = answer(ready, &ask, interrupt.arm(), args.verbose)?;
        finish(&said)?;
        if args.verbose {
            report.print();
        }
        Ok((said, report.summary.finish))
    }

    fn set(&mut self, key: &str, value: &str) -> Result<()> {
        if value.is_empty() {
            bail!("`/set {key}` needs a value; `default` goes back to the default");
        }
        let s = &mut self.sampling;
        match key.replace('-', "_").as_str() {
            "temperature" | "temp" => s.temperature = parsed(key, value)?,
            "top_k" => s.top_k = parsed(key, value)?,
            "top_p" => s.top_p = parsed(key, value)?,
            "min_p" => s.min_p = parsed(key, value)?,
            "presence_penalty" => s.presence_penalty = parsed(key, value)?,
            "frequency_penalty" => s.frequency_penalty = parsed(key, value)?,
            "repetition_penalty" => s.repetition_penalty = parsed(key, value)?,
            "seed" => s.seed = parsed(key, value)?,
            "max_tokens" => self.reply.max_tokens = parsed::<std::num::NonZeroU32>(key, value)?.map(Into::into),
            "think" => self.reply.think = parsed(key, value)?,
            "system" => {
                self.reply.system = (value != "default").then(|| value.to_string());
                self.messages.retain(|message| message["role"] != "system");
                self.messages.splice(0..0, system(&self.reply));
            }
            _ => bail!("`{key}` cannot be set; /help lists what can"),
        }
        Ok(())
    }

    fn settings(&self) -> String {
        let shown = |value: Option<String>| value.unwrap_or_else(|| "default".into());
        let s = &self.sampling;
        let rows = [
            ("temperature", shown(s.temperature.map(|v| v.to_string()))),
            ("top_k", shown(s.top_k.map(|v| v.to_string()))),
            ("top_p", shown(s.top_p.map(|v| v.to_string()))),
            ("min_p", shown(s.min_p.map(|v| v.to_string()))),
            ("presence_penalty", shown(s.presence_penalty.map(|v| v.to_string()))),
            ("frequency_penalty", shown(s.frequency_penalty.map(|v| v.to_string()))),
            ("repetition_penalty", shown(s.repetition_penalty.map(|v| v.to_string()))),
            ("seed", shown(s.seed.map(|v| v.to_string()))),
            ("max_tokens", shown(self.reply.max_tokens.map(|v| v.to_string()))),
            ("think", if self.reply.think.is_some_and(ss_server::Thinking::is_on) { "on".into() } else { "off".into() }),
            ("system", shown(self.reply.system.clone())),
        ];
        rows.map(|(name, value)| format!("{name:<20}{value}")).join("\n")
    }
}

/// A value, or none for `default`.
fn parsed<T: std::str::FromStr>(key: &str, value: &str) -> Result<Option<T>> {
    if value == "default" {
        return Ok(None);
    }
    value.parse().map(Some).map_err(|_| anyhow!("`{value}` is no value for `{key}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_mean_what_the_help_says() {
        assert_eq!(Line::parse("/help"), Line::Help);
        assert_eq!(Line::parse("/bye "), Line::Bye);
        assert_eq!(Line::parse("/set"), Line::Show);
        assert_eq!(Line::parse("/set temperature 0.5"), Line::Set("temperature", "0.5"));
        assert_eq!(Line::parse("/set system You are brief."), Line::Set("system", "You are brief."));
        assert_eq!(Line::parse("/sett x"), Line::Unknown("/sett"));
        assert_eq!(Line::parse("what is 1/2?"), Line::Say("what is 1/2?"));
    }
}
