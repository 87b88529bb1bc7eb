//! Owns: the messages of a chat completion (server.md section 6).
//! Refuses: pictures, and fields on messages of roles that they do not belong to.

use serde_json::Value;

use crate::api::common::{self, Object, arguments, list, text};
use crate::conversation::{CallResult, Conversation, MadeCall, Said};
use crate::refusal::Refusal;

/// The conversation.
///
/// # Errors
/// Names the message that is wrong.
pub fn read(fields: &Object) -> Result<Vec<Value>, Refusal> {
    let mut talk = Conversation::default();
    for (index, message) in list(fields, "messages").iter().enumerate() {
        let path = format!("messages[{index}]");
        let Some(message) = message.as_object() else { continue };
        read_message(&mut talk, message, &path)?;
    }
    talk.finish("messages")
}

fn read_message(talk: &mut Conversation, message: &Object, path: &str) -> Result<(), Refusal> {
    let role = text(message, "role").unwrap_or_default();
    check_fields(message, role, path)?;
    let content = content(message, path)?;
    let needs = |content: Option<String>| {
        content.ok_or_else(|| Refusal::field(path, format!("`{path}.content` is missing: it must be a text or parts")))
    };
    match role {
        "system" | "developer" => talk.system(needs(content)?, path),
        "user" => talk.user(needs(content)?, path),
        "tool" => {
            let id = text(message, "tool_call_id").map(str::to_owned);
            if id.is_none() {
                return Err(Refusal::field(
                    path,
                    format!("`{path}.tool_call_id` is missing: it names the call that is answered"),
                ));
            }
            let name = text(message, "name").map(str::to_owned);
            talk.result(CallResult { id, name, text: needs(content)? }, path)
        }
        _ => {
            let reasoning = match (text(message, "reasoning_content"), text(message, "reasoning")) {
                (Some(_), Some(_)) => {
                    return Err(Refusal::field(
                        path,
                        format!("`{path}` has both `reasoning_content` and `reasoning`: send one"),
                    ));
                }
                (one, other) => one.or(other).unwrap_or_default().to_owned(),
            };
            let calls = list(message, "tool_calls").iter().enumerate();
            let calls = calls
                .map(|(at, call)| made_call(call, &format!("{path}.tool_calls[{at}]")))
                .collect::<Result<_, _>>()?;
            talk.assistant(Said { reasoning, text: content.unwrap_or_default(), calls }, path)
        }
    }
}

/// Fields belong to certain roles.
fn check_fields(message: &Object, role: &str, path: &str) -> Result<(), Refusal> {
    let belongs = |name: &str| match name {
        // An assistant's name is a label of frameworks that changes nothing.
        "name" => role == "tool" || role == "assistant",
        "tool_call_id" => role == "tool",
        "tool_calls" | "reasoning_content" | "reasoning" => role == "assistant",
        _ => true,
    };
    let wrong = message.keys().find(|name| !belongs(name));
    match wrong {
        Some(name) => {
            let path = format!("{path}.{name}");
            Err(Refusal::field(&path, format!("`{path}` does not belong on a message of `{role}`: leave it out")))
        }
        None => Ok(()),
    }
}

fn made_call(call: &Value, path: &str) -> Result<MadeCall, Refusal> {
    let function = &call["function"];
    Ok(MadeCall {
        id: call["id"].as_str().map(str::to_owned),
        name: function["name"].as_str().unwrap_or_default().to_owned(),
        arguments: arguments(
            function["arguments"].as_str().unwrap_or_default(),
            &format!("{path}.function.arguments"),
        )?,
    })
}

/// A message's text; parts are joined without a separator.
fn content(message: &Object, path: &str) -> Result<Option<String>, Refusal> {
    match message.get("content") {
        Some(Value::Array(parts)) => {
            let mut joined = String::new();
            for (index, part) in parts.iter().enumerate() {
                let path = format!("{path}.content[{index}]");
                match part["type"].as_str().unwrap_or_default() {
                    "text" | "input_text" | "output_text" => joined += part["text"].as_str().unwrap_or_default(),
                    "refusal" => joined += part["refusal"].as_str().unwrap_or_default(),
                    _ => return Err(common::no_pictures(&path)),
                }
            }
            Ok(Some(joined))
        }
        Some(Value::String(text)) => Ok(Some(text.clone())),
        _ => Ok(None),
    }
}
