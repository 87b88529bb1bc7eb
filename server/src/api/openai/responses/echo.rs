//! Owns: the response object: what it repeats of its request, and what it tells of the reply.
//! Invariants: every state of a response has the same fields.

use serde_json::{Map, Value, json};

use crate::api::common::Object;
use crate::app::fresh_id;
use crate::engine::Outcome;
use crate::flow::Start;

/// What a response object is made from, beside the reply itself.
pub struct Echo {
    /// Fields that stay the same.
    fixed: Map<String, Value>,
}

/// A state of a reply.
pub struct State<'s> {
    /// `in_progress`, `completed`, `incomplete` or `failed`.
    pub status: &'static str,
    /// Items that are whole.
    pub output: &'s [Value],
    /// What it came to.
    pub outcome: Option<&'s Outcome>,
    /// Code and sentence of a failure.
    pub error: Option<(&'s str, &'s str)>,
}

impl Echo {
    /// The echo of a checked body.
    pub fn new(fields: &Object, start: &Start) -> Self {
        let mut fixed = Map::new();
        let mut put = |name: &str, value: Value| _ = fixed.insert(name.to_owned(), value);
        put("id", json!(fresh_id("resp_")));
        put("object", json!("response"));
        put("created_at", json!(start.created));
        put("model", json!(start.model));
        let taken = |name: &str, or: Value| fields.get(name).cloned().unwrap_or(or);
        let mut text = taken("text", json!({}));
        if text.get("format").is_none() {
            text["format"] = json!({ "type": "text" });
        }
        put("text", text);
        let reasoning = taken("reasoning", json!({}));
        let summary = reasoning.get("summary").or(reasoning.get("generate_summary"));
        put("reasoning", json!({ "effort": reasoning.get("effort"), "summary": summary }));
        let mut tools = taken("tools", json!([]));
        tools.as_array_mut().into_iter().flatten().for_each(complete);
        put("tools", tools);
        put("tool_choice", taken("tool_choice", json!("auto")));
        put("parallel_tool_calls", taken("parallel_tool_calls", json!(true)));
        put("metadata", taken("metadata", json!({})));
        for name in [
            "instructions",
            "temperature",
            "top_p",
            "max_output_tokens",
            "user",
            "service_tier",
            "prompt_cache_key",
            "safety_identifier",
        ] {
            put(name, taken(name, Value::Null));
        }
        put("truncation", json!("disabled"));
        put("background", json!(false));
        put("store", json!(false));
        put("previous_response_id", Value::Null);
        put("max_tool_calls", Value::Null);
        put("top_logprobs", json!(0));
        Echo { fixed }
    }

    /// The response object.
    pub fn response(&self, state: &State<'_>) -> Value {
        let mut response = self.fixed.clone();
        let error = state.error.map(|(code, message)| json!({ "code": code, "message": message }));
        let cut = (state.status == "incomplete").then(|| json!({ "reason": "max_output_tokens" }));
        let mut put = |name: &str, value: Value| _ = response.insert(name.to_owned(), value);
        put("status", json!(state.status));
        put("output", json!(state.output));
        put("usage", state.outcome.map_or(Value::Null, usage));
        put("error", json!(error));
        put("incomplete_details", json!(cut));
        Value::Object(response)
    }
}

/// A function with all its fields, as typed clients expect it.
fn complete(tool: &mut Value) {
    if tool["type"] != "function" {
        return;
    }
    for (name, value) in [("description", Value::Null), ("parameters", Value::Null), ("strict", json!(false))] {
        if tool.get(name).is_none() {
            tool[name] = value;
        }
    }
}

fn usage(outcome: &Outcome) -> Value {
    json!({
        "input_tokens": outcome.prompt,
        "input_tokens_details": { "cached_tokens": outcome.cached, "cache_write_tokens": 0 },
        "output_tokens": outcome.output,
        "output_tokens_details": { "reasoning_tokens": outcome.reasoning },
        "total_tokens": outcome.prompt + outcome.output,
    })
}
