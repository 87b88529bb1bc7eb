//! Owns: the description of the API in OpenAPI 3.1, made from the tables that requests are checked by.
//! Invariants: a path, field or kind is described exactly as it is checked.

use serde_json::{Map, Value, json};

use crate::refusal::Family;
use crate::shape::Kind;

/// The description.
pub fn describe(version: &str) -> Value {
    let mut named = Map::new();
    let mut paths = Map::new();
    for route in super::routes() {
        let errors = errors(Family::of(route.path));
        let mut responses =
            json!({ "200": { "description": "The answer.", "content": content(route.path, route.reply, &mut named) } });
        for status in ["400", "401", "403", "404", "405", "413", "415", "431", "500", "501", "503"] {
            responses[status] =
                json!({ "description": "A refusal.", "content": { "application/json": { "schema": errors } } });
        }
        let mut operation = json!({ "summary": route.about, "responses": responses });
        if let Some(body) = route.body {
            let schema = Kind::Object(body).schema(&mut named);
            operation["requestBody"] =
                json!({ "required": true, "content": { "application/json": { "schema": schema } } });
        }
        if route.path.ends_with("{id}") {
            operation["parameters"] =
                json!([{ "name": "id", "in": "path", "required": true, "schema": { "type": "string" } }]);
        }
        let methods = paths.entry(route.path).or_insert_with(|| json!({}));
        methods[route.method.as_str().to_lowercase()] = operation;
    }
    json!({
        "openapi": "3.1.0",
        "info": { "title": "slotstream", "version": version, "description": "One model, three dialects." },
        "paths": paths,
        "components": { "schemas": named },
    })
}

/// What an answer may be: JSON, and where replies can be streamed the stream's type.
fn content(path: &str, reply: Kind, named: &mut Map<String, Value>) -> Value {
    if matches!(reply, Kind::Text) {
        let mut content = json!({ "text/plain": { "schema": { "type": "string" } } });
        if path == "/" {
            content["text/html"] = json!({ "schema": { "type": "string" } });
        }
        return content;
    }
    let schema = reply.schema(named);
    let mut content = json!({ "application/json": { "schema": schema } });
    match path {
        "/api/chat" | "/api/generate" => content["application/x-ndjson"] = json!({ "schema": { "type": "string" } }),
        "/v1/chat/completions" | "/v1/completions" | "/v1/responses" | "/v1/messages" => {
            content["text/event-stream"] = json!({ "schema": event() });
        }
        _ => {}
    }
    content
}

/// An event of a stream.
fn event() -> Value {
    json!({
        "description": "An event: its name, and its data, which is JSON or `[DONE]`.",
        "type": "object",
        "required": ["data"],
        "properties": { "event": { "type": "string" }, "data": { "type": "string" } },
    })
}

fn errors(family: Family) -> Value {
    match family {
        Family::OpenAi => json!({
            "type": "object",
            "required": ["error"],
            "properties": { "error": {
                "type": "object",
                "required": ["message", "type", "code"],
                "properties": {
                    "message": { "type": "string" }, "type": { "type": "string" },
                    "param": { "type": ["string", "null"] }, "code": { "type": "string" },
                },
            } },
        }),
        Family::Anthropic => json!({
            "type": "object",
            "required": ["type", "error"],
            "properties": { "type": { "const": "error" }, "error": {
                "type": "object",
                "required": ["type", "message"],
                "properties": { "type": { "type": "string" }, "message": { "type": "string" } },
            } },
        }),
        Family::Ollama | Family::Own => json!({
            "type": "object",
            "required": ["error"],
            "properties": { "error": { "type": "string" }, "code": { "type": "string" }, "details": {} },
        }),
    }
}
