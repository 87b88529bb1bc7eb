//! Owns: tests of `/v1/responses`: its items, tools, events and refusals, and the requests that real clients send.

use serde_json::{Value, json};

use super::rig::{Reply, Rig, script};

mod clients;
mod fields;
mod items;
mod stream;
mod tools;

/// The endpoint.
pub const PATH: &str = "/v1/responses";

/// Posts a body to it.
pub fn ask(rig: &Rig, body: Value) -> Reply {
    rig.post(PATH, &body)
}

/// The prompt of a body, as the scripted engine saw it: a reply is given only if the prompt holds `wanted`.
pub fn prompt_holds(body: &Value, wanted: &str) -> bool {
    let rig = Rig::with(script(json!([{ "when": wanted, "text": "yes" }, { "text": "no" }])));
    let reply = ask(&rig, body.clone());
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()["output"][0]["content"][0]["text"] == "yes"
}

/// The body is refused with 400 for this field, and the server goes on.
pub fn refused(body: Value, param: &str) {
    let rig = Rig::saying("x");
    let reply = ask(&rig, body);
    assert_eq!(reply.status, 400, "{param}: {}", reply.text());
    let error = &reply.json()["error"];
    assert_eq!((error["param"].as_str(), error["type"].as_str()), (Some(param), Some("invalid_request_error")));
    assert!(!error["message"].as_str().unwrap().is_empty());
    assert_eq!(ask(&rig, json!({ "input": "hi" })).status, 200);
}

/// A reply without what differs from one time to the next.
fn plain(mut value: Value) -> Value {
    match &mut value {
        Value::Object(fields) => {
            for (name, field) in fields.iter_mut() {
                match name.as_str() {
                    "id" | "call_id" | "created_at" => *field = Value::Null,
                    _ => *field = plain(field.take()),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| *item = plain(item.take())),
        _ => {}
    }
    value
}

/// The events of a stream; each is named by its type, and they are numbered from 0.
pub fn events(reply: &Reply) -> Vec<Value> {
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(reply.header("content-type"), Some("text/event-stream; charset=utf-8"));
    assert_eq!(reply.header("cache-control"), Some("no-cache"));
    assert!(reply.whole && !reply.text().contains("[DONE]"));
    let told: Vec<(Option<String>, Value)> =
        reply.events().into_iter().map(|(name, data)| (name, serde_json::from_str(&data).unwrap())).collect();
    for (at, (name, data)) in told.iter().enumerate() {
        assert_eq!((name.as_deref(), data["sequence_number"].as_u64()), (data["type"].as_str(), Some(at as u64)));
    }
    told.into_iter().map(|(_, data)| data).collect()
}

/// The types of events; the same in a row once.
pub fn types(events: &[Value]) -> Vec<&str> {
    let mut types: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    types.dedup();
    types
}

/// The same request whole and streamed: they give the same reply, and the deltas joined are its texts.
pub fn both(rig: impl Fn() -> Rig, body: &Value) -> (Value, Vec<Value>) {
    let whole = ask(&rig(), body.clone());
    assert_eq!(whole.status, 200, "{}", whole.text());
    let mut streaming = body.clone();
    streaming["stream"] = json!(true);
    let events = events(&ask(&rig(), streaming));
    let last = &events.last().unwrap()["response"];
    assert_eq!(plain(whole.json()), plain(last.clone()));
    for (at, item) in last["output"].as_array().unwrap().iter().enumerate() {
        let of = |event: &&Value| event["output_index"] == at;
        let joined: String = events.iter().filter(of).filter_map(|event| event["delta"].as_str()).collect();
        let parts = ["content", "summary"].iter().find_map(|name| item[name][0]["text"].as_str());
        assert_eq!(joined, parts.or(item["arguments"].as_str()).or(item["input"].as_str()).unwrap());
        let added = events.iter().find(of).unwrap();
        assert_eq!((&added["type"], &added["item"]["id"]), (&json!("response.output_item.added"), &item["id"]));
        let done = events.iter().rfind(of).unwrap();
        assert_eq!((&done["type"], &done["item"]), (&json!("response.output_item.done"), item));
    }
    (whole.json(), events)
}

/// A call as the model writes it.
pub fn call(name: &str, parameters: &[(&str, &str)]) -> String {
    let given: String =
        parameters.iter().map(|(name, value)| format!("<parameter={name}>\n{value}\n</parameter>\n")).collect();
    format!("<tool_call>\n<function={name}>\n{given}</function>\n</tool_call>")
}

/// A tool with one text.
pub fn function(name: &str) -> Value {
    json!({ "type": "function", "name": name, "parameters": {
        "type": "object", "properties": { "text": { "type": "string" } } } })
}
