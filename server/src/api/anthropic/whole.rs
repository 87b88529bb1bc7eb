//! Owns: a reply of Anthropic's API that is not streamed.
//! Invariants: its blocks are those of the stream, in the order written; a call that was cut is not among them.

use serde_json::{Value, json};
use ss_text::Event;

use super::messages::{Ending, Messages, usage};
use super::turns::signature;
use crate::app::fresh_id;
use crate::flow::Made;
use crate::refusal::Refusal;

/// The message.
///
/// # Errors
/// When a call's arguments are no JSON.
pub fn message(form: &Messages, made: Made) -> Result<Value, Refusal> {
    let Made { start, reply, events, outcome, .. } = made;
    let calls = reply.calls.iter().filter(|call| call.complete).count();
    let ending = Ending { calls, cut: calls < reply.calls.len(), stop: reply.stop.as_deref() };
    let (reason, stop) = form.reason(&start, &outcome, &ending);
    Ok(json!({
        "id": fresh_id("msg_"),
        "type": "message",
        "role": "assistant",
        "model": start.model,
        "content": content(&reply.reasoning, events, form.hidden)?,
        "stop_reason": reason,
        "stop_sequence": stop,
        "usage": usage(outcome.prompt, outcome.cached, outcome.output),
    }))
}

fn content(reasoning: &str, events: Vec<Event>, hidden: bool) -> Result<Vec<Value>, Refusal> {
    let mut blocks = Vec::new();
    if !reasoning.is_empty() {
        let shown = if hidden { "" } else { reasoning };
        blocks.push(json!({ "type": "thinking", "thinking": shown, "signature": signature(reasoning) }));
    }
    // The text since the last call.
    let mut text = String::new();
    for event in events {
        match event {
            Event::Text(piece) => text += &piece,
            Event::CallEnd { name, arguments, .. } => {
                close(&mut text, &mut blocks);
                let input: Value = serde_json::from_str(&arguments)
                    .map_err(|error| Refusal::inference(format!("the model's call of `{name}` is no JSON: {error}")))?;
                blocks.push(json!({ "type": "tool_use", "id": fresh_id("toolu_"), "name": name, "input": input }));
            }
            _ => {}
        }
    }
    close(&mut text, &mut blocks);
    Ok(blocks)
}

fn close(text: &mut String, blocks: &mut Vec<Value>) {
    if !text.is_empty() {
        blocks.push(json!({ "type": "text", "text": std::mem::take(text) }));
    }
}
