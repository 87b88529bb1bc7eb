//! Owns: `POST /api/chat` (server.md section 10): its fields, its messages.
//! Refuses: pictures, parts in place of text, fields on messages that they do not belong on.
//! Invariants: a request without messages loads, and touches no engine; results find their calls by id, else by name, else by
//! their order.

use serde_json::Value;
use warp::http::Method;

use super::reply::{Form, answer};
use super::settings::{self, FORMAT, KEEP_ALIVE, MODEL, OPTIONS, STREAM, THINK};
use super::told;
use crate::api::common::{Object, list, no_pictures, text};
use crate::api::openai::fields::{FUNCTION, tool};
use crate::conversation::{CallResult, Conversation, MadeCall, Said};
use crate::http::route::Route;
use crate::refusal::Refusal;
use crate::request::{Generation, Input};
use crate::shape::{ANY_WHOLE, Field, Fields, Kind};

/// The endpoint.
pub const ROUTE: Route = Route {
    method: Method::POST,
    path: "/api/chat",
    about: "Continues a conversation, as Ollama's chat does; without messages it loads.",
    body: Some(&BODY),
    reply: Kind::Object(&REPLY),
    handler: |call| Box::pin(answer(call, Form::Chat, &BODY, generation)),
};

const CALLED: Fields = Fields::strict(
    "OllamaCalledFunction",
    &[
        Field::required("name", Kind::Text, "The function."),
        Field::new("arguments", Kind::Map, "Its arguments."),
        Field::inert("index", ANY_WHOLE),
    ],
);

const TOOL_CALL: Fields = Fields::strict(
    "OllamaToolCall",
    &[
        Field::required("function", Kind::Object(&CALLED), "What was called."),
        Field::new("id", Kind::Text, "The call's id."),
        Field::inert("type", Kind::Only("\"function\"")),
        Field::inert("index", ANY_WHOLE),
    ],
);

const MESSAGE: Fields = Fields::strict(
    "OllamaMessage",
    &[
        Field::required("role", Kind::Choice(&["system", "developer", "user", "assistant", "tool"]), "Who speaks."),
        Field::new("content", Kind::Text, "What is said; left out, nothing is."),
        Field::new("images", Kind::List(&Kind::Text), "None: pictures are refused."),
        Field::new("thinking", Kind::Text, "On the assistant's: its thoughts."),
        Field::new("tool_calls", Kind::List(&Kind::Object(&TOOL_CALL)), "On the assistant's: calls that it made."),
        Field::new("tool_name", Kind::Text, "On a tool's: the function that it is a result of."),
        Field::new("tool_call_id", Kind::Text, "On a tool's: the call that it answers."),
    ],
);

const TOOL: Fields = Fields::strict(
    "OllamaTool",
    &[
        Field::inert("type", Kind::Only("\"function\"")),
        Field::required("function", Kind::Object(&FUNCTION), "The function."),
    ],
);

const BODY: Fields = Fields::strict(
    "OllamaChatRequest",
    &[
        MODEL,
        Field::new(
            "messages",
            Kind::List(&Kind::Object(&MESSAGE)),
            "The conversation; without one the model is loaded.",
        ),
        Field::new("tools", Kind::List(&Kind::Object(&TOOL)), "Functions that the model may call."),
        STREAM,
        THINK,
        FORMAT,
        OPTIONS,
        KEEP_ALIVE,
    ],
);

const REPLY: Fields = Fields::open(
    "OllamaChatReply",
    &[
        Field::required("model", Kind::Text, "The model."),
        Field::required("created_at", Kind::Text, "When, as RFC 3339 writes it."),
        Field::required(
            "message",
            Kind::Map,
            "The reply: `role`, `content`, and where there are some `thinking` and `tool_calls`.",
        ),
        told::DONE,
        told::DONE_REASON,
        told::TOTAL,
        told::LOADING,
        told::PROMPT_TOKENS,
        told::PROMPT_TIME,
        told::TOKENS,
        told::TIME,
    ],
);

/// The request as the server sees it; none where there are no messages.
fn generation(fields: &Object, window: u32) -> Result<Option<Generation>, Refusal> {
    let mut generation = Generation::new(Input::Chat(Vec::new()));
    settings::apply(&mut generation, fields, window)?;
    if list(fields, "messages").is_empty() {
        return Ok(None);
    }
    generation.input = Input::Chat(messages(fields)?);
    let tools = list(fields, "tools").iter().filter_map(|tool| tool["function"].as_object());
    generation.tools = tools.map(tool).collect();
    Ok(Some(generation))
}

/// The conversation.
fn messages(fields: &Object) -> Result<Vec<Value>, Refusal> {
    let mut talk = Conversation::default();
    // Whether the calls that results answer have ids: clients that keep none cannot be held to them.
    let mut have_ids = true;
    for (index, message) in list(fields, "messages").iter().enumerate() {
        let path = format!("messages[{index}]");
        let Some(message) = message.as_object() else { continue };
        let role = text(message, "role").unwrap_or_default();
        check_fields(message, role, &path)?;
        let content = text(message, "content").unwrap_or_default().to_owned();
        match role {
            "system" | "developer" => talk.system(content, &path)?,
            "user" => talk.user(content, &path)?,
            "tool" => {
                let id = filled(message, "tool_call_id").filter(|_| have_ids);
                talk.result(CallResult { id, name: filled(message, "tool_name"), text: content }, &path)?;
            }
            _ => {
                let calls: Vec<MadeCall> = list(message, "tool_calls").iter().map(made_call).collect();
                have_ids = calls.is_empty() || calls.iter().any(|call| call.id.is_some());
                let reasoning = text(message, "thinking").unwrap_or_default().to_owned();
                talk.assistant(Said { reasoning, text: content, calls }, &path)?;
            }
        }
    }
    talk.finish("messages")
}

/// A text that is not empty: clients write every field of their types, most of them empty.
fn filled(fields: &Object, name: &str) -> Option<String> {
    text(fields, name).filter(|text| !text.is_empty()).map(str::to_owned)
}

/// Fields belong to certain roles; empty ones to all.
fn check_fields(message: &Object, role: &str, path: &str) -> Result<(), Refusal> {
    if !list(message, "images").is_empty() {
        return Err(no_pictures(&format!("{path}.images[0]")));
    }
    let belongs = |name: &str| match name {
        "thinking" | "tool_calls" => role == "assistant",
        "tool_name" | "tool_call_id" => role == "tool",
        _ => true,
    };
    let is_empty =
        |value: &Value| value.as_str().is_some_and(str::is_empty) || value.as_array().is_some_and(Vec::is_empty);
    match message.iter().find(|(name, value)| !belongs(name) && !is_empty(value)) {
        Some((name, _)) => {
            let path = format!("{path}.{name}");
            Err(Refusal::field(&path, format!("`{path}` does not belong on a message of `{role}`: leave it out")))
        }
        None => Ok(()),
    }
}

fn made_call(call: &Value) -> MadeCall {
    let function = &call["function"];
    MadeCall {
        id: call["id"].as_str().filter(|id| !id.is_empty()).map(str::to_owned),
        name: function["name"].as_str().unwrap_or_default().to_owned(),
        arguments: function["arguments"].as_object().cloned().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn turns(messages: Value) -> Result<Vec<Value>, Refusal> {
        let fields = BODY.check(json!({ "messages": messages }))?;
        super::messages(&fields)
    }

    fn calls(ids: [Option<&str>; 2]) -> Value {
        let call =
            |id: Option<&str>, name: &str| json!({ "id": id, "function": { "name": name, "arguments": { "n": 1 } } });
        json!({ "role": "assistant", "tool_calls": [call(ids[0], "f"), call(ids[1], "g")] })
    }

    fn results(made: Value, results: [Value; 2]) -> Vec<String> {
        let [first, second] = results;
        let turns = turns(json!([{ "role": "user", "content": "go" }, made, first, second])).unwrap();
        turns[2..].iter().map(|turn| turn["content"].as_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn results_find_their_calls_by_id_name_or_order() {
        let result = |fields: Value, text: &str| {
            let mut result = json!({ "role": "tool", "content": text });
            result.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            result
        };
        let ids = calls([Some("a"), Some("b")]);
        let by_id = [result(json!({ "tool_call_id": "b" }), "2"), result(json!({ "tool_call_id": "a" }), "1")];
        assert_eq!(results(ids, by_id), ["1", "2"]);
        let plain = calls([None, Some("")]);
        let by_name = [result(json!({ "tool_name": "g" }), "2"), result(json!({ "tool_name": "f" }), "1")];
        assert_eq!(results(plain.clone(), by_name), ["1", "2"]);
        let in_order = [result(json!({ "tool_name": "" }), "1"), result(json!({}), "2")];
        assert_eq!(results(plain.clone(), in_order), ["1", "2"]);
        let kept = [
            result(json!({ "tool_call_id": "x", "tool_name": "g" }), "2"),
            result(json!({ "tool_call_id": "y", "tool_name": "f" }), "1"),
        ];
        assert_eq!(results(plain, kept), ["1", "2"]);
    }

    #[test]
    fn a_message_has_the_fields_of_its_role() {
        let refused = |message: Value| turns(json!([message])).unwrap_err().message;
        assert!(refused(json!({ "role": "user", "content": "x", "thinking": "y" })).contains("`messages[0].thinking`"));
        assert!(refused(json!({ "role": "user", "tool_name": "f" })).contains("`messages[0].tool_name`"));
        assert!(refused(json!({ "role": "user", "name": "f" })).contains("`messages[0].name`"));
        assert!(refused(json!({ "role": "user", "content": [] })).contains("`messages[0].content` must be a text"));
        assert!(refused(json!({ "role": "bot", "content": "x" })).contains("`messages[0].role`"));
        assert!(refused(json!({ "role": "user", "content": "x", "images": ["aGk="] })).contains("picture"));
        let empties = json!({ "role": "user", "thinking": "", "tool_calls": [], "tool_name": "", "images": [], "tool_call_id": "" });
        assert_eq!(turns(json!([empties])).unwrap(), [json!({ "role": "user", "content": "" })]);
    }

    #[test]
    fn arguments_are_an_object() {
        for wrong in [json!("not json"), json!("[]"), json!(5), json!([]), json!("")] {
            let call = json!({ "function": { "name": "f", "arguments": wrong } });
            let talk = json!([{ "role": "user" }, { "role": "assistant", "tool_calls": [call] }, { "role": "tool" }]);
            assert!(turns(talk).unwrap_err().message.contains("arguments` must be an object"));
        }
        let call = json!({ "type": "function", "index": 0, "function": { "name": "f", "index": 0 } });
        let talk = json!([{ "role": "user" }, { "role": "assistant", "tool_calls": [call] }, { "role": "tool" }]);
        assert_eq!(turns(talk).unwrap()[1]["tool_calls"][0]["function"]["arguments"], json!({}));
    }
}
