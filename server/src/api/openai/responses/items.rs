//! Owns: the items of a reply in their states: begun, growing, whole; and how the events of each are called.
//! Refuses: a call of a free-text tool without its text.
//! Invariants: an item keeps its id; a call is an item only once it is whole.

use serde_json::{Map, Value, json};

use super::tools::{Entry, INPUT};
use crate::app::fresh_id;
use crate::refusal::Refusal;

/// What an item of text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A part of the answer.
    Answer,
    /// Thoughts, told as a summary.
    Summary,
    /// Thoughts as they are: their reader asked for no summary.
    Thoughts,
}

/// An item of text that grows.
#[derive(Debug)]
pub struct Growing {
    /// What it is.
    pub kind: Kind,
    /// Its id.
    pub id: String,
    /// Its text so far.
    pub text: String,
}

impl Growing {
    /// An item that begins.
    pub fn new(kind: Kind) -> Self {
        let prefix = if kind == Kind::Answer { "msg_" } else { "rs_" };
        Growing { kind, id: fresh_id(prefix), text: String::new() }
    }

    /// The item before its first word.
    pub fn begun(&self) -> Value {
        self.item("in_progress", false)
    }

    /// The item with all its text.
    pub fn whole(&self, status: &str) -> Value {
        self.item(status, true)
    }

    fn item(&self, status: &str, whole: bool) -> Value {
        let parts = if whole { json!([self.part(&self.text)]) } else { json!([]) };
        let mut item = json!({ "id": self.id, "type": "reasoning", "status": status });
        match self.kind {
            Kind::Answer => {
                item["type"] = json!("message");
                item["role"] = json!("assistant");
                item["content"] = parts;
            }
            Kind::Summary => {
                item["summary"] = parts;
                item["encrypted_content"] = Value::Null;
            }
            Kind::Thoughts => {
                item["summary"] = json!([]);
                item["content"] = parts;
                item["encrypted_content"] = Value::Null;
            }
        }
        item
    }

    /// Its one part, with this text.
    pub fn part(&self, text: &str) -> Value {
        match self.kind {
            Kind::Answer => json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": [] }),
            Kind::Summary => json!({ "type": "summary_text", "text": text }),
            Kind::Thoughts => json!({ "type": "reasoning_text", "text": text }),
        }
    }

    /// The events of its part, and those of the part's text, up to `.added`, `.delta` and `.done`.
    pub fn events(&self) -> (&'static str, &'static str) {
        match self.kind {
            Kind::Answer => ("response.content_part", "response.output_text"),
            Kind::Summary => ("response.reasoning_summary_part", "response.reasoning_summary_text"),
            Kind::Thoughts => ("response.content_part", "response.reasoning_text"),
        }
    }

    /// The name under which an event tells which part it is of.
    pub fn index(&self) -> &'static str {
        if self.kind == Kind::Summary { "summary_index" } else { "content_index" }
    }
}

/// A call that is whole.
#[derive(Debug)]
pub struct Called {
    /// Its id as an item.
    pub id: String,
    /// The item with nothing of what the tool is given.
    pub begun: Value,
    /// What the tool is given: arguments, or free text.
    pub given: String,
    /// The name of the field that holds it.
    pub field: &'static str,
    /// Its events, up to `.delta` and `.done`.
    pub events: &'static str,
}

impl Called {
    /// A call of a tool.
    ///
    /// # Errors
    /// When a free-text tool is given something else.
    pub fn new(name: &str, entry: Option<&Entry>, arguments: String) -> Result<Self, Refusal> {
        let custom = entry.is_some_and(|entry| entry.custom);
        let given = if custom { free_text(name, &arguments)? } else { arguments };
        let (prefix, kind, field, events) = match custom {
            true => ("ctc_", "custom_tool_call", "input", "response.custom_tool_call_input"),
            false => ("fc_", "function_call", "arguments", "response.function_call_arguments"),
        };
        let id = fresh_id(prefix);
        let mut begun = json!({
            "id": id,
            "type": kind,
            "status": "in_progress",
            "call_id": fresh_id("call_"),
            "name": entry.map_or(name, |entry| &entry.name),
            field: "",
        });
        if let Some(namespace) = entry.and_then(|entry| entry.namespace.as_ref()) {
            begun["namespace"] = json!(namespace);
        }
        Ok(Called { id, begun, given, field, events })
    }

    /// The item.
    pub fn whole(&self) -> Value {
        let mut item = self.begun.clone();
        item["status"] = json!("completed");
        item[self.field] = json!(self.given);
        item
    }
}

/// The text that a free-text tool is given.
fn free_text(name: &str, arguments: &str) -> Result<String, Refusal> {
    let arguments: Map<String, Value> = serde_json::from_str(arguments).unwrap_or_default();
    match arguments.get(INPUT) {
        Some(Value::String(input)) if arguments.len() == 1 => Ok(input.clone()),
        _ => Err(Refusal::inference(format!(
            "the model's reply cannot be used: it called `{name}` without the one text `{INPUT}` that this tool is given"
        ))),
    }
}
