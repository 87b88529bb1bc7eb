//! Owns: the server's own paths, and chat completions as the pattern of all dialects.

use serde_json::{Value, json};

use super::rig::{Rig, Setup, script};

#[test]
fn the_servers_own_paths_answer() {
    let rig = Rig::saying("Hello there.");
    assert_eq!(rig.get("/").text(), "Ollama is running");
    assert_eq!(rig.get("/health").json(), json!({ "status": "ok" }));
    assert!(rig.ask("GET", "/", &[("accept", "text/html")], b"").text().starts_with("<!doctype html>"));
    let status = rig.get("/ss/status").json();
    assert_eq!((status["model"].as_str(), status["queued"].as_u64()), (Some("nano"), Some(0)));
    assert!(rig.get("/metrics").text().contains("ss_requests_total{path=\"/health\",status=\"200\"} 1"));
    let tokens = rig.post("/tokenize", &json!({ "content": "Hello there." })).json()["tokens"].clone();
    assert_eq!(rig.post("/detokenize", &json!({ "tokens": tokens })).json(), json!({ "content": "Hello there." }));
    let messages = json!({ "messages": [{ "role": "user", "content": "hi" }] });
    assert!(rig.post("/apply-template", &messages).json()["prompt"].as_str().unwrap().contains("<|im_start|>user\nhi"));
    assert_eq!(rig.get("/openapi.json").json()["openapi"], "3.1.0");
}

#[test]
fn a_streamed_chat_is_the_unstreamed_one() {
    let text = "Well, 👩‍👩‍👧 é and e\u{301}: done.";
    let rig = Rig::saying(text);
    let mut body = json!({ "model": "nano", "messages": [{ "role": "user", "content": "hi" }] });
    let whole = rig.post("/v1/chat/completions", &body);
    assert_eq!(whole.status, 200);
    assert_eq!(whole.json()["choices"][0]["message"]["content"], text);
    body["stream"] = json!(true);
    body["stream_options"] = json!({ "include_usage": true });
    let streamed = rig.post("/v1/chat/completions", &body);
    let events = streamed.events();
    assert_eq!(events.last().unwrap().1, "[DONE]");
    let chunks = streamed.data();
    assert_eq!(chunks[0]["choices"][0]["delta"]["role"], "assistant");
    let joined: String = chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(joined, text);
    assert_eq!(chunks.last().unwrap()["usage"]["total_tokens"], whole.json()["usage"]["total_tokens"]);
}

#[test]
fn a_tool_call_streams_its_text_argument_while_it_is_written() {
    let call = "Let me see.\n\n<tool_call>\n<function=say>\n<parameter=text>\nHello world\n</parameter>\n</function>\n</tool_call>";
    let rig = Rig::with(script(json!([{ "text": call }])));
    let tool = json!({ "type": "function", "function": { "name": "say", "parameters": {
        "type": "object", "properties": { "text": { "type": "string" } } } } });
    let mut body = json!({ "messages": [{ "role": "user", "content": "hi" }], "tools": [tool] });
    let whole = rig.post("/v1/chat/completions", &body).json();
    let choice = &whole["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls");
    assert_eq!(choice["message"]["tool_calls"][0]["function"]["arguments"], "{\"text\":\"Hello world\"}");
    body["stream"] = json!(true);
    let chunks = rig.post("/v1/chat/completions", &body).data();
    let pieces: Vec<&str> = chunks
        .iter()
        .filter_map(|chunk| chunk["choices"][0]["delta"]["tool_calls"][0]["function"]["arguments"].as_str())
        .collect();
    assert!(pieces.len() > 3, "{pieces:?}");
    assert_eq!(pieces.concat(), "{\"text\":\"Hello world\"}");
}

#[test]
fn an_unknown_field_is_named() {
    let rig = Rig::saying("x");
    let reply =
        rig.post("/v1/chat/completions", &json!({ "messages": [{ "role": "user", "content": "hi" }], "foo": 1 }));
    assert_eq!(reply.status, 400);
    let error: &Value = &reply.json()["error"];
    assert_eq!((error["param"].as_str(), error["type"].as_str()), (Some("foo"), Some("invalid_request_error")));
}

#[test]
fn while_the_model_is_loaded_the_server_says_so() {
    let rig = Rig::set_up(script(json!([])), Setup { loading: true, ..Setup::default() });
    let health = rig.get("/health");
    assert_eq!((health.status, health.json()), (503, json!({ "status": "loading" })));
    for path in ["/api/tags", "/v1/models", "/ss/status"] {
        let reply = rig.get(path);
        assert_eq!((reply.status, reply.header("retry-after")), (503, Some("1")), "{path}");
    }
    assert_eq!(rig.get("/nope").status, 404);
}
