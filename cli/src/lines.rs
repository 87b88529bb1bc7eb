//! Owns: what a person types in the chat: commands, and messages of one line or several.
//! Invariants: a message's lines reach the model as they were typed.

use anyhow::Result;
use rustyline::config::{Behavior, Config};
use rustyline::error::ReadlineError;
use rustyline::history::MemHistory;
use rustyline::{Editor, Helper};

/// Opens and closes a message of several lines.
const QUOTES: &str = "\"\"\"";
const PROMPT: &str = ">>> ";
const MORE: &str = "... ";

/// What was typed means.
#[derive(Debug, PartialEq, Eq)]
pub enum Line<'a> {
    /// Show the help.
    Help,
    /// Forget the conversation.
    Clear,
    /// Leave.
    Bye,
    /// Show the settings.
    Show,
    /// Change a setting.
    Set(&'a str, &'a str),
    /// A command that there is not.
    Unknown(&'a str),
    /// Something to say to the model.
    Say(&'a str),
}

impl<'a> Line<'a> {
    /// The meaning of a line.
    pub fn parse(line: &'a str) -> Self {
        let (word, rest) = split(line);
        match (word, rest) {
            ("/help" | "/?", _) => Line::Help,
            ("/clear", _) => Line::Clear,
            ("/bye" | "/exit" | "/quit", _) => Line::Bye,
            ("/set" | "/show", "") => Line::Show,
            ("/set", rest) => {
                let (key, value) = split(rest);
                Line::Set(key, value)
            }
            (word, _) if word.starts_with('/') => Line::Unknown(word),
            _ => Line::Say(line),
        }
    }
}

/// The first word, and what follows.
fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    (word, rest.trim())
}

/// What one line adds to a message.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// The message is whole.
    Whole(String),
    /// More lines follow.
    Open(String),
}

/// Adds a line to what was typed before it; `before` is none outside quotes.
fn add(before: Option<String>, line: &str) -> Step {
    let end = line.trim_end();
    match before {
        Some(text) => match end.strip_suffix(QUOTES) {
            Some(last) => Step::Whole(text + last),
            None => Step::Open(text + line + "\n"),
        },
        None => match end.trim_start().strip_prefix(QUOTES) {
            Some(first) => match first.strip_suffix(QUOTES) {
                Some(whole) => Step::Whole(whole.to_string()),
                None if first.is_empty() => Step::Open(String::new()),
                None => Step::Open(first.to_string() + "\n"),
            },
            None => Step::Whole(line.to_string()),
        },
    }
}

/// The lines of a person at a terminal.
pub struct Lines<H: Helper = ()>(Editor<H, MemHistory>);

impl Lines {
    /// Lines of this terminal.
    ///
    /// # Errors
    /// When the terminal does not allow editing.
    pub fn open() -> Result<Self> {
        // The prompt is for the person, also where standard output is not the terminal.
        let config = Config::builder().behavior(Behavior::PreferTerm).build();
        Ok(Lines(Editor::with_history(config, MemHistory::new())?))
    }

    /// One message, perhaps of several lines; none when the person leaves.
    ///
    /// # Errors
    /// When the terminal cannot be read.
    pub fn next(&mut self) -> Result<Option<String>> {
        let mut before: Option<String> = None;
        loop {
            let line = match self.0.readline(if before.is_none() { PROMPT } else { MORE }) {
                Ok(line) => line,
                // Ctrl-C at the prompt drops what was typed.
                Err(ReadlineError::Interrupted) => {
                    before = None;
                    continue;
                }
                Err(ReadlineError::Eof) => return Ok(None),
                Err(error) => return Err(error.into()),
            };
            self.0.add_history_entry(line.as_str())?;
            match add(before.take(), &line) {
                Step::Whole(message) => return Ok(Some(message)),
                Step::Open(text) => before = Some(text),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_mean_what_the_help_says() {
        assert_eq!(Line::parse("/help"), Line::Help);
        assert_eq!(Line::parse("/bye "), Line::Bye);
        assert_eq!(Line::parse("/set"), Line::Show);
        assert_eq!(Line::parse("/set temperature  0.5"), Line::Set("temperature", "0.5"));
        assert_eq!(Line::parse("/set seed"), Line::Set("seed", ""));
        assert_eq!(Line::parse("/set system You are brief."), Line::Set("system", "You are brief."));
        assert_eq!(Line::parse("/sett x"), Line::Unknown("/sett"));
        assert_eq!(Line::parse(" what is 1/2?"), Line::Say(" what is 1/2?"));
    }

    /// The message that these lines make, or none if it is still open.
    fn message(lines: &[&str]) -> Option<String> {
        let mut before = None;
        for (i, line) in lines.iter().enumerate() {
            match add(before.take(), line) {
                Step::Whole(text) => {
                    assert_eq!(i + 1, lines.len(), "the message ended early: {text:?}");
                    return Some(text);
                }
                Step::Open(text) => before = Some(text),
            }
        }
        None
    }

    #[test]
    fn quotes_hold_several_lines() {
        assert_eq!(message(&["one"]).as_deref(), Some("one"));
        assert_eq!(message(&["\"\"\"one", "  two", "three\"\"\""]).as_deref(), Some("one\n  two\nthree"));
        assert_eq!(message(&["\"\"\"", "", "one", "\"\"\""]).as_deref(), Some("\none\n"));
        assert_eq!(message(&["\"\"\"one\"\"\""]).as_deref(), Some("one"));
        assert_eq!(message(&["\"\"\"\"\"\""]).as_deref(), Some(""));
        assert_eq!(message(&["\"\"\"one", "two"]), None);
        assert_eq!(message(&["\"\"\"\""]), None, "four quotes open a message that begins with one");
    }
}
