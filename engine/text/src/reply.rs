//! Owns: reading a whole reply while it is written: reasoning, answer, stop strings, tool calls.
//! Refuses: nothing of its own.
//! Invariants: the events joined are the same however the text was cut into pieces; stop strings act on the answer's text
//! only, never on reasoning or call syntax; nothing follows a [`Event::Stop`], a [`Event::Failed`], or the only call allowed.

use crate::error::TextError;
use crate::stops::Stops;
use crate::thinking::Thinking;
use crate::tools::{ToolSplitter, TurnError};
use crate::values::ToolSchemas;

/// Something that a piece of a reply brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A piece of reasoning.
    Reasoning(String),
    /// A piece of the answer.
    Text(String),
    /// A tool call begins.
    CallStart {
        /// Calls before it in this reply.
        index: usize,
        /// The function called.
        name: String,
    },
    /// A piece of a call's arguments.
    CallArguments {
        /// The call's index.
        index: usize,
        /// Compact JSON; the pieces of a call joined are its whole arguments.
        json: String,
    },
    /// A tool call is complete; only now does it count.
    CallEnd {
        /// The call's index.
        index: usize,
        /// The function called.
        name: String,
        /// Its arguments, one compact JSON object.
        arguments: String,
    },
    /// This stop string was met: the answer ends here, and generation should.
    Stop(String),
    /// The reply cannot be used.
    Failed(TurnError),
}

/// How a reply came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The model ended it.
    Natural,
    /// The token limit or the window cut it: an open call is truncation, not an error.
    Cut,
}

/// What a reply is read with.
#[derive(Clone, Debug, Default)]
pub struct ReplyOptions {
    /// Whether the prompt opened the reasoning.
    pub thinking: bool,
    /// The functions offered; `None` when no tools were rendered, and then nothing in the answer is a call.
    pub tools: Option<ToolSchemas>,
    /// Stop strings of the request.
    pub stops: Vec<String>,
    /// Whether the first complete call ends the reply.
    pub one_call: bool,
}

/// A reply being read.
pub struct ReplyParser {
    thinking: Thinking,
    tools: Option<ToolSplitter>,
    stops: Stops,
    one_call: bool,
    over: bool,
}

impl ReplyParser {
    /// A reply at its start. Fails on stop strings over the limits (server.md section 5).
    pub fn new(options: ReplyOptions) -> Result<Self, TextError> {
        Ok(ReplyParser {
            thinking: Thinking::new(options.thinking),
            tools: options.tools.map(ToolSplitter::new),
            stops: Stops::new(&options.stops)?,
            one_call: options.one_call,
            over: false,
        })
    }

    /// Reads a piece of text.
    pub fn push(&mut self, text: &str) -> Vec<Event> {
        let mut events = Vec::new();
        if !self.over {
            let thought = self.thinking.push(text);
            give(&mut events, Event::Reasoning, thought.reasoning);
            self.answer(&thought.answer, &mut events);
        }
        events
    }

    /// The end of the reply: what was held back.
    pub fn finish(&mut self, ending: Ending) -> Vec<Event> {
        let mut events = Vec::new();
        if self.over {
            return events;
        }
        give(&mut events, Event::Reasoning, self.thinking.finish());
        let mut parts = Vec::new();
        if let Some(tools) = &mut self.tools {
            tools.finish(ending, &mut parts);
        }
        self.watch(parts, &mut events);
        if !self.over {
            give(&mut events, Event::Text, self.stops.finish());
        }
        self.over = true;
        events
    }

    /// Whether the reply has come to its end: by a stop string, an error, or [`ReplyParser::finish`].
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// Whether the text read so far ends inside the reasoning.
    pub fn is_reasoning(&self) -> bool {
        self.thinking.is_reasoning()
    }

    fn answer(&mut self, answer: &str, events: &mut Vec<Event>) {
        if answer.is_empty() {
            return;
        }
        let mut parts = Vec::new();
        match &mut self.tools {
            Some(tools) => tools.push(answer, &mut parts),
            None => parts.push(Event::Text(answer.to_owned())),
        }
        self.watch(parts, events);
    }

    /// Passes `parts` on, their text through the stop strings, up to the first that ends the reply.
    fn watch(&mut self, parts: Vec<Event>, events: &mut Vec<Event>) {
        for part in parts {
            if let Event::Text(text) = part {
                let (text, stopped) = self.stops.push(&text);
                give(events, Event::Text, text);
                if stopped {
                    events.push(Event::Stop(self.stops.met().unwrap_or_default().to_owned()));
                    self.over = true;
                    return;
                }
                continue;
            }
            // A stop string does not reach across a call.
            give(events, Event::Text, self.stops.finish());
            self.over = match part {
                Event::Failed(_) => true,
                Event::CallEnd { .. } => self.one_call,
                _ => false,
            };
            events.push(part);
            if self.over {
                return;
            }
        }
    }
}

fn give(events: &mut Vec<Event>, event: fn(String) -> Event, text: String) {
    if !text.is_empty() {
        events.push(event(text));
    }
}

/// A complete tool call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The function called.
    pub name: String,
    /// Its arguments: one compact JSON object, or what was written of it when the reply was cut.
    pub arguments: String,
    /// Whether the call was closed; only then may it be executed.
    pub complete: bool,
}

/// A reply as a whole: its events, joined.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// The reasoning.
    pub reasoning: String,
    /// The answer.
    pub text: String,
    /// The calls, in the order written.
    pub calls: Vec<Call>,
    /// The stop string that ended it.
    pub stop: Option<String>,
    /// Why it cannot be used.
    pub error: Option<TurnError>,
}

impl Reply {
    /// Adds an event.
    pub fn add(&mut self, event: Event) {
        match event {
            Event::Reasoning(text) => self.reasoning += &text,
            Event::Text(text) => self.text += &text,
            Event::CallStart { name, .. } => {
                self.calls.push(Call { name, arguments: String::new(), complete: false });
            }
            Event::CallArguments { json, .. } => {
                if let Some(call) = self.calls.last_mut() {
                    call.arguments += &json;
                }
            }
            Event::CallEnd { .. } => {
                if let Some(call) = self.calls.last_mut() {
                    call.complete = true;
                }
            }
            Event::Stop(stop) => self.stop = Some(stop),
            Event::Failed(error) => self.error = Some(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn options(thinking: bool, tools: bool, stops: &[&str]) -> ReplyOptions {
        let schemas = ToolSchemas::new(&[json!({"function": {"name": "f", "parameters": {"properties": {
            "text": {"type": "string"}, "n": {"type": "integer"}
        }}}})]);
        ReplyOptions {
            thinking,
            tools: tools.then_some(schemas),
            stops: stops.iter().map(|s| s.to_string()).collect(),
            one_call: false,
        }
    }

    fn read(options: &ReplyOptions, pieces: &[&str], ending: Ending) -> Reply {
        let mut parser = ReplyParser::new(options.clone()).unwrap();
        let mut reply = Reply::default();
        for piece in pieces {
            parser.push(piece).into_iter().for_each(|event| reply.add(event));
        }
        parser.finish(ending).into_iter().for_each(|event| reply.add(event));
        assert!(parser.is_over());
        assert_eq!(parser.push("more"), []);
        reply
    }

    #[test]
    fn a_reply_has_its_parts() {
        let text = "I look.\n</think>\n\nOne moment.\n\n<tool_call>\n<function=f>\n<parameter=n>\n3\n</parameter>\n</function>\n</tool_call>";
        let reply = read(&options(true, true, &[]), &[text], Ending::Natural);
        assert_eq!((reply.reasoning.as_str(), reply.text.as_str()), ("I look.\n", "One moment.\n\n"));
        assert_eq!(reply.calls, [Call { name: "f".into(), arguments: "{\"n\":3}".into(), complete: true }]);
    }

    #[test]
    fn without_tools_a_call_is_text() {
        let text = "<tool_call><function=f></function></tool_call>";
        let reply = read(&options(false, false, &[]), &[text], Ending::Natural);
        assert_eq!((reply.text.as_str(), reply.calls.len()), (text, 0));
    }

    #[test]
    fn stops_act_on_the_answer_only() {
        let text =
            "a STOP</think>b<tool_call><function=f><parameter=text>STOP</parameter></function></tool_call>c STOP d";
        let reply = read(&options(true, true, &["STOP"]), &[text], Ending::Natural);
        assert_eq!((reply.reasoning.as_str(), reply.text.as_str()), ("a STOP", "bc "));
        assert_eq!((reply.calls[0].arguments.as_str(), reply.stop.as_deref()), ("{\"text\":\"STOP\"}", Some("STOP")));
    }

    #[test]
    fn a_stop_does_not_reach_across_a_call() {
        let text = "ST<tool_call><function=f></function></tool_call>OP";
        let reply = read(&options(false, true, &["STOP"]), &[text], Ending::Natural);
        assert_eq!((reply.text.as_str(), reply.stop), ("STOP", None));
    }

    #[test]
    fn the_only_call_allowed_ends_the_reply() {
        let call = "<tool_call><function=f></function></tool_call>";
        let options = ReplyOptions { one_call: true, ..options(false, true, &[]) };
        let reply = read(&options, &[&format!("a{call}b{call}")], Ending::Natural);
        assert_eq!((reply.text.as_str(), reply.calls.len()), ("a", 1));
    }

    #[test]
    fn text_before_a_call_comes_before_it() {
        let mut parser = ReplyParser::new(options(false, true, &["STOP"])).unwrap();
        let events = parser.push("ST<tool_call><function=f></function></tool_call>");
        assert_eq!(events[0], Event::Text("ST".into()));
        assert_eq!(events[1], Event::CallStart { index: 0, name: "f".into() });
    }

    #[test]
    fn a_cut_call_keeps_what_was_written() {
        let text = "<tool_call><function=f><parameter=text>ab";
        let cut = read(&options(false, true, &[]), &[text], Ending::Cut);
        assert_eq!(cut.calls, [Call { name: "f".into(), arguments: "{\"text\":\"ab".into(), complete: false }]);
        assert_eq!(cut.error, None);
        let natural = read(&options(false, true, &[]), &[text], Ending::Natural);
        assert_eq!(natural.error, Some(TurnError::Unclosed { function: "f".into() }));
    }

    /// A generator for tests: the same numbers on every run.
    struct Dice(u64);

    impl Dice {
        fn below(&mut self, bound: usize) -> usize {
            self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (self.0 >> 33) as usize % bound
        }
    }

    #[test]
    fn any_cut_into_pieces_gives_the_same_reply() {
        let words = [
            "<tool_call>",
            "</tool_call>",
            "<function=f>",
            "<function=h>",
            "</function>",
            "<parameter=text>",
            "<parameter=n>",
            "</parameter>",
            "</think>",
            "<think>",
            "\n",
            "\n",
            " ",
            "a",
            "é",
            "👩‍👩‍👧",
            "STOP",
            "ST",
            "OP",
            "</",
            "<",
            "3",
            "\"",
            "\\",
            "tool_call>",
        ];
        let good = "<tool_call>\n<function=f>\n<parameter=text>\nSTOP\n</parameter>\n</function>\n</tool_call>\n";
        let mut dice = Dice(7);
        let (mut calls, mut stops, mut errors) = (0, 0, 0);
        for round in 0..3000 {
            let mut text = String::new();
            for _ in 0..dice.below(25) {
                text += if dice.below(12) == 0 { good } else { words[dice.below(words.len())] };
            }
            let options = options(round % 2 == 0, round % 5 != 0, if round % 3 == 0 { &[] } else { &["STOP", "a\n"] });
            let ending = if round % 7 == 0 { Ending::Cut } else { Ending::Natural };
            let whole = read(&options, &[&text], ending);
            for _ in 0..3 {
                let mut pieces = Vec::new();
                let mut rest = text.as_str();
                while let Some(longest) = rest.chars().count().checked_sub(1) {
                    let chars = 1 + dice.below(longest.min(8) + 1);
                    let end = rest.char_indices().nth(chars).map_or(rest.len(), |(at, _)| at);
                    pieces.push(&rest[..end]);
                    rest = &rest[end..];
                }
                assert_eq!(read(&options, &pieces, ending), whole, "{text:?} as {pieces:?}");
            }
            calls += whole.calls.iter().filter(|call| call.complete).count();
            stops += usize::from(whole.stop.is_some());
            errors += usize::from(whole.error.is_some());
        }
        assert!(calls > 100 && stops > 100 && errors > 20, "{calls} calls, {stops} stops, {errors} errors");
    }
}
