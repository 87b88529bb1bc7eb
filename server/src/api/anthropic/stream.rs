//! Owns: the events of a streamed reply of Anthropic's API.
//! Invariants: blocks are numbered from 0 and one is open at a time; a call is told whole once it is complete, or not at all;
//! after an error nothing follows.

use serde_json::{Value, json};
use ss_text::Event;

use super::messages::{Ending, Messages, usage};
use super::turns::signature;
use crate::app::fresh_id;
use crate::engine::{Outcome, Piece};
use crate::flow::{Start, Watched};
use crate::http::stream::{SSE, Writer, event};
use crate::refusal::{Family, Refusal};

/// A block that may grow.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Open {
    Thinking,
    Text,
}

/// The events of a reply.
pub struct Events {
    form: Messages,
    watched: Watched,
    /// Blocks begun.
    blocks: usize,
    open: Option<Open>,
    reasoning: String,
    /// Whether a call is being written.
    calling: bool,
}

impl Events {
    /// A reply at its start.
    pub fn new(form: Messages, start: Start) -> Self {
        Events { form, watched: Watched::new(start), blocks: 0, open: None, reasoning: String::new(), calling: false }
    }

    fn start_block(&mut self, block: Value, out: &mut Vec<u8>) {
        say(out, json!({ "type": "content_block_start", "index": self.blocks, "content_block": block }));
        self.blocks += 1;
    }

    /// A piece of the last block.
    fn delta(&self, delta: Value, out: &mut Vec<u8>) {
        let index = self.blocks.saturating_sub(1);
        say(out, json!({ "type": "content_block_delta", "index": index, "delta": delta }));
    }

    fn stop_block(&self, out: &mut Vec<u8>) {
        say(out, json!({ "type": "content_block_stop", "index": self.blocks.saturating_sub(1) }));
    }

    /// Makes a block of this kind the open one.
    fn turn_to(&mut self, kind: Open, out: &mut Vec<u8>) {
        if self.open == Some(kind) {
            return;
        }
        self.close(out);
        let block = match kind {
            Open::Thinking => json!({ "type": "thinking", "thinking": "", "signature": "" }),
            Open::Text => json!({ "type": "text", "text": "" }),
        };
        self.start_block(block, out);
        self.open = Some(kind);
    }

    fn close(&mut self, out: &mut Vec<u8>) {
        let Some(open) = self.open.take() else { return };
        if open == Open::Thinking {
            let signed = signature(&std::mem::take(&mut self.reasoning));
            self.delta(json!({ "type": "signature_delta", "signature": signed }), out);
        }
        self.stop_block(out);
    }
}

impl Writer for Events {
    fn kind(&self) -> &'static str {
        SSE
    }

    fn begin(&mut self, out: &mut Vec<u8>) {
        let start = &self.watched.start;
        let message = json!({
            "id": fresh_id("msg_"),
            "type": "message",
            "role": "assistant",
            "model": start.model,
            "content": [],
            "stop_reason": null,
            "stop_sequence": null,
            "usage": usage(start.prompt_tokens, 0, 0),
        });
        say(out, json!({ "type": "message_start", "message": message }));
        ping(out);
    }

    fn piece(&mut self, piece: Piece, out: &mut Vec<u8>) {
        let Piece::Event(told) = piece else { return };
        self.watched.see(&told);
        match told {
            Event::Reasoning(text) => {
                self.turn_to(Open::Thinking, out);
                self.reasoning += &text;
                if !self.form.hidden {
                    self.delta(json!({ "type": "thinking_delta", "thinking": text }), out);
                }
            }
            Event::Text(text) => {
                self.turn_to(Open::Text, out);
                self.delta(json!({ "type": "text_delta", "text": text }), out);
            }
            Event::CallStart { .. } => {
                self.close(out);
                self.calling = true;
            }
            Event::CallEnd { name, arguments, .. } => {
                self.calling = false;
                let block = json!({ "type": "tool_use", "id": fresh_id("toolu_"), "name": name, "input": {} });
                self.start_block(block, out);
                self.delta(json!({ "type": "input_json_delta", "partial_json": arguments }), out);
                self.stop_block(out);
            }
            Event::CallArguments { .. } | Event::Stop(_) | Event::Failed(_) => {}
        }
    }

    fn quiet(&mut self, out: &mut Vec<u8>) {
        match self.open {
            // Some clients count only so many pings in a row as a sign of life.
            Some(Open::Thinking) if self.form.hidden => {
                self.delta(json!({ "type": "thinking_delta", "thinking": "" }), out);
            }
            _ => ping(out),
        }
    }

    fn end(&mut self, outcome: &Outcome, out: &mut Vec<u8>) {
        if let Err(refusal) = self.watched.check(outcome) {
            return self.fail(&refusal, out);
        }
        self.close(out);
        let ending = Ending { calls: self.watched.calls(), cut: self.calling, stop: self.watched.stop.as_deref() };
        let (reason, stop) = self.form.reason(&self.watched.start, outcome, &ending);
        say(
            out,
            json!({
                "type": "message_delta",
                "delta": { "stop_reason": reason, "stop_sequence": stop },
                "usage": usage(outcome.prompt, outcome.cached, outcome.output),
            }),
        );
        say(out, json!({ "type": "message_stop" }));
    }

    fn fail(&mut self, refusal: &Refusal, out: &mut Vec<u8>) {
        say(out, Family::Anthropic.error(refusal));
    }
}

fn ping(out: &mut Vec<u8>) {
    say(out, json!({ "type": "ping" }));
}

/// Appends an event: its name is its type.
fn say(out: &mut Vec<u8>, data: Value) {
    event(out, data["type"].as_str(), &data.to_string());
}
