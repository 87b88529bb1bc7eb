//! Owns: the two forms of a chat completion's reply, whole and in chunks (server.md section 6).
//! Invariants: a declared string argument is streamed while it is written; a call that was cut is never presented as whole.

use serde_json::{Value, json};
use ss_text::Event;

use super::super::fields;
use crate::app::fresh_id;
use crate::engine::{Ended, Outcome, Piece, Token};
use crate::flow::{Dialect, Made, Start, Watched};
use crate::http::stream::{SSE, Writer, comment, event};
use crate::refusal::{Family, Refusal};
use crate::shape::{ANY_WHOLE, Field, Fields, Kind};

/// A reply, whole.
pub const REPLY: Fields = Fields::open(
    "ChatCompletion",
    &[
        Field::required("id", Kind::Text, "`chatcmpl-` and 32 digits."),
        Field::required("object", Kind::Only("\"chat.completion\""), ""),
        Field::required("created", ANY_WHOLE, "Seconds since 1970."),
        Field::required("model", Kind::Text, "The model."),
        Field::required("choices", Kind::List(&Kind::Map), "The reply, one."),
        Field::required("usage", Kind::Map, "Tokens used."),
    ],
);

/// The forms of a reply.
pub struct Chat {
    /// Whether a stream tells what was used.
    pub usage: bool,
    /// Whether likelihoods are told.
    pub logprobs: bool,
}

/// Why a reply ended, as OpenAI says it.
pub fn finish_reason(outcome: &Outcome, complete_calls: usize) -> &'static str {
    match outcome.ended {
        Ended::Limit | Ended::Window | Ended::Repeated => "length",
        _ if complete_calls > 0 => "tool_calls",
        _ => "stop",
    }
}

impl Dialect for Chat {
    fn whole(&self, made: Made) -> Result<Value, Refusal> {
        let Made { start, reply, tokens, outcome, .. } = made;
        let complete = reply.calls.iter().filter(|call| call.complete).count();
        let call = |call: &ss_text::Call| json!({ "id": fresh_id("call_"), "type": "function", "function": { "name": call.name, "arguments": call.arguments } });
        let calls: Vec<Value> = reply.calls.iter().map(call).collect();
        let content = if reply.text.is_empty() && !calls.is_empty() { Value::Null } else { json!(reply.text) };
        let mut message = json!({ "role": "assistant", "content": content });
        if !reply.reasoning.is_empty() {
            message["reasoning_content"] = json!(reply.reasoning);
        }
        if !calls.is_empty() {
            message["tool_calls"] = json!(calls);
        }
        let logprobs =
            if self.logprobs { json!({ "content": fields::logprobs(&tokens), "refusal": null }) } else { Value::Null };
        Ok(json!({
            "id": fresh_id("chatcmpl-"),
            "object": "chat.completion",
            "created": start.created,
            "model": start.model,
            "choices": [{
                "index": 0,
                "message": message,
                "finish_reason": finish_reason(&outcome, complete),
                "logprobs": logprobs,
            }],
            "usage": fields::usage(&outcome),
        }))
    }

    fn writer(self: Box<Self>, start: Start) -> Box<dyn Writer> {
        Box::new(Chunks {
            id: fresh_id("chatcmpl-"),
            usage: self.usage,
            watched: Watched::new(start),
            tokens: Vec::new(),
            read: (0, 0),
        })
    }
}

/// The chunks of a streamed reply.
struct Chunks {
    id: String,
    usage: bool,
    watched: Watched,
    /// Tokens whose likelihood is still to be told.
    tokens: Vec<Token>,
    /// Prompt tokens read, of how many.
    read: (usize, usize),
}

impl Chunks {
    fn chunk(&self, choices: Value, usage: Value, out: &mut Vec<u8>) {
        let start = &self.watched.start;
        let mut chunk = json!({
            "id": self.id,
            "object": "chat.completion.chunk",
            "created": start.created,
            "model": start.model,
            "choices": choices,
        });
        if self.usage {
            chunk["usage"] = usage;
        }
        event(out, None, &chunk.to_string());
    }

    fn delta(&mut self, delta: Value, finish: Option<&str>, out: &mut Vec<u8>) {
        let tokens = std::mem::take(&mut self.tokens);
        let wanted = tokens.iter().any(|token| token.logprob.is_some());
        let logprobs =
            if wanted { json!({ "content": fields::logprobs(&tokens), "refusal": null }) } else { Value::Null };
        let choice = json!({ "index": 0, "delta": delta, "finish_reason": finish, "logprobs": logprobs });
        self.chunk(json!([choice]), Value::Null, out);
    }
}

impl Writer for Chunks {
    fn kind(&self) -> &'static str {
        SSE
    }

    fn begin(&mut self, out: &mut Vec<u8>) {
        self.delta(json!({ "role": "assistant", "content": "" }), None, out);
    }

    fn piece(&mut self, piece: Piece, out: &mut Vec<u8>) {
        let told = match piece {
            Piece::Reading { done, total } => return self.read = (done, total),
            Piece::Prompt(_) => return,
            Piece::Token(token) if token.logprob.is_some() => return self.tokens.push(token),
            Piece::Token(_) => return,
            Piece::Event(told) => told,
        };
        self.watched.see(&told);
        let delta = match told {
            Event::Reasoning(text) => json!({ "reasoning_content": text }),
            Event::Text(text) => json!({ "content": text }),
            Event::CallStart { index, name } => {
                let function = json!({ "name": name, "arguments": "" });
                json!({ "tool_calls": [{ "index": index, "id": fresh_id("call_"), "type": "function", "function": function }] })
            }
            Event::CallArguments { index, json } => {
                json!({ "tool_calls": [{ "index": index, "function": { "arguments": json } }] })
            }
            Event::CallEnd { .. } | Event::Stop(_) | Event::Failed(_) => return,
        };
        self.delta(delta, None, out);
    }

    fn quiet(&mut self, out: &mut Vec<u8>) {
        match self.read {
            (done, total) if done < total => comment(out, &format!("keepalive: {done} of {total} prompt tokens read")),
            _ => comment(out, "keepalive"),
        }
    }

    fn end(&mut self, outcome: &Outcome, out: &mut Vec<u8>) {
        if let Err(refusal) = self.watched.check(outcome) {
            return self.fail(&refusal, out);
        }
        self.delta(json!({}), Some(finish_reason(outcome, self.watched.calls())), out);
        if self.usage {
            self.chunk(json!([]), fields::usage(outcome), out);
        }
        event(out, None, "[DONE]");
    }

    fn fail(&mut self, refusal: &Refusal, out: &mut Vec<u8>) {
        event(out, None, &Family::OpenAi.error(refusal).to_string());
    }
}
