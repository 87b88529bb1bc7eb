//! Owns: Ollama's API as its clients see it: both forms of a reply, whole and line by line, and what is told of the model.

use std::time::Duration;

use serde_json::{Value, json};

use super::rig::{Reply, Rig, script};

const CALLS: &str = "Let me see.\n\n<tool_call>\n<function=say>\n<parameter=text>\nHello 👩‍👩‍👧\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=add>\n<parameter=n>\n3\n</parameter>\n</function>\n</tool_call>";

/// A user's message.
pub fn user(text: &str) -> Value {
    json!([{ "role": "user", "content": text }])
}

/// The tools of [`CALLS`].
fn tools() -> Value {
    let tool = |name: &str, field: &str, kind: &str| {
        let parameters = json!({ "type": "object", "properties": { field: { "type": kind } } });
        json!({ "type": "function", "function": { "name": name, "parameters": parameters } })
    };
    json!([tool("say", "text", "string"), tool("add", "n", "integer")])
}

/// Asks for the whole reply, and for its lines.
fn both(rig: &Rig, path: &str, mut body: Value) -> (Value, Vec<Value>) {
    let streamed = rig.post(path, &body);
    assert_eq!((streamed.status, streamed.header("content-type")), (200, Some("application/x-ndjson")));
    body["stream"] = json!(false);
    let whole = rig.post(path, &body);
    assert_eq!((whole.status, whole.header("content-type")), (200, Some("application/json")), "{}", whole.text());
    (whole.json(), streamed.lines())
}

/// The texts at a place of every line, joined.
fn joined(lines: &[Value], place: &str) -> String {
    lines.iter().filter_map(|line| line.pointer(place)?.as_str()).collect()
}

/// The last line says `done` and has every count; no other does.
fn check_end(lines: &[Value], reason: &str) {
    let (last, before) = lines.split_last().unwrap();
    assert!(before.iter().all(|line| line["done"] == false));
    check_last(last, reason);
}

fn check_last(last: &Value, reason: &str) {
    assert_eq!((&last["done"], &last["done_reason"], &last["model"]), (&json!(true), &json!(reason), &json!("nano")));
    for count in
        ["total_duration", "load_duration", "prompt_eval_count", "prompt_eval_duration", "eval_count", "eval_duration"]
    {
        assert!(last[count].is_u64(), "{count}: {last}");
    }
    assert!(last["total_duration"].as_u64() >= last["prompt_eval_duration"].as_u64());
    assert!(last["prompt_eval_count"].as_u64().unwrap() > 0);
    assert!(last["created_at"].as_str().unwrap().ends_with('Z'));
    assert!(last.get("context").is_none());
}

#[test]
fn row_66_a_streamed_chat_is_the_whole_one() {
    let text = "Five 😀😃😄😁😆, 👩‍👩‍👧‍👦 🏳️‍🌈 🇩🇪🇫🇷, é and e\u{301}: done.";
    let rig = Rig::saying(text);
    let (whole, lines) = both(&rig, "/api/chat", json!({ "model": "nano", "messages": user("hi") }));
    assert_eq!(whole["message"], json!({ "role": "assistant", "content": text }));
    check_last(&whole, "stop");
    assert!(lines.len() > 5);
    assert!(lines.iter().all(|line| line["message"]["role"] == "assistant"));
    assert_eq!(joined(&lines, "/message/content"), text);
    check_end(&lines, "stop");
    let last = lines.last().unwrap();
    assert_eq!((&last["eval_count"], &last["prompt_eval_count"]), (&whole["eval_count"], &whole["prompt_eval_count"]));
}

#[test]
fn row_66_a_streamed_answer_to_a_prompt_is_the_whole_one() {
    let text = "Of 👩‍👩‍👧, é and e\u{301}.";
    let rig = Rig::saying(text);
    let (whole, lines) = both(&rig, "/api/generate", json!({ "prompt": "hi", "system": "Be brief." }));
    assert_eq!(whole["response"], text);
    check_last(&whole, "stop");
    assert_eq!(joined(&lines, "/response"), text);
    check_end(&lines, "stop");
}

#[test]
fn row_79_thoughts_have_a_field_of_their_own() {
    for token_bytes in [None, Some(1), Some(3)] {
        let mut script = script(json!([{ "text": "I think 👍.\n</think>\n\nSo it is." }]));
        script.token_bytes = token_bytes;
        let rig = Rig::with(script);
        let (whole, lines) = both(&rig, "/api/chat", json!({ "messages": user("hi"), "think": true }));
        assert_eq!(
            whole["message"],
            json!({ "role": "assistant", "content": "So it is.", "thinking": "I think 👍.\n" })
        );
        assert_eq!(joined(&lines, "/message/thinking"), "I think 👍.\n");
        assert_eq!(joined(&lines, "/message/content"), "So it is.");
        let (whole, lines) = both(&rig, "/api/generate", json!({ "prompt": "hi", "think": "high" }));
        assert_eq!((&whole["response"], &whole["thinking"]), (&json!("So it is."), &json!("I think 👍.\n")));
        assert_eq!(
            (joined(&lines, "/response"), joined(&lines, "/thinking")),
            ("So it is.".into(), "I think 👍.\n".into())
        );
    }
}

#[test]
fn row_79_thoughts_without_an_end_are_all_of_the_reply() {
    let rig = Rig::saying("On and on");
    let (whole, lines) = both(&rig, "/api/chat", json!({ "messages": user("hi"), "think": true }));
    assert_eq!(whole["message"], json!({ "role": "assistant", "content": "", "thinking": "On and on" }));
    assert_eq!(joined(&lines, "/message/thinking"), "On and on");
}

#[test]
fn calls_come_whole_before_the_last_line() {
    let rig = Rig::saying(CALLS);
    let (whole, lines) = both(&rig, "/api/chat", json!({ "messages": user("hi"), "tools": tools() }));
    let plain = |calls: &[Value]| calls.iter().map(|call| call["function"].clone()).collect::<Vec<_>>();
    let expected = [
        json!({ "index": 0, "name": "say", "arguments": { "text": "Hello 👩‍👩‍👧" } }),
        json!({ "index": 1, "name": "add", "arguments": { "n": 3 } }),
    ];
    assert_eq!(plain(whole["message"]["tool_calls"].as_array().unwrap()), expected);
    check_last(&whole, "stop");
    let called: Vec<Value> =
        lines.iter().filter_map(|line| line["message"]["tool_calls"].as_array()).flatten().cloned().collect();
    assert_eq!(plain(&called), expected);
    assert_ne!(called[0]["id"], called[1]["id"]);
    assert!(lines.last().unwrap()["message"].get("tool_calls").is_none());
    assert_eq!(joined(&lines, "/message/content"), whole["message"]["content"]);
    check_end(&lines, "stop");
}

#[test]
fn a_calls_result_goes_back_with_the_message_that_made_it() {
    let rig = Rig::with(script(json!([{ "when": "<tool_response>\n42\n", "text": "It is 42." }, { "text": CALLS }])));
    let mut messages = user("hi");
    let made = rig.post("/api/chat", &json!({ "messages": messages, "tools": tools(), "stream": false })).json();
    let turns = messages.as_array_mut().unwrap();
    turns.push(made["message"].clone());
    turns.push(json!({ "role": "tool", "tool_name": "add", "content": "42" }));
    let id = made["message"]["tool_calls"][0]["id"].clone();
    turns.push(json!({ "role": "tool", "tool_call_id": id, "content": "said" }));
    let reply = rig.post("/api/chat", &json!({ "messages": messages, "tools": tools(), "stream": false })).json();
    assert_eq!(reply["message"]["content"], "It is 42.");
}

/// Rows 73 and 80: what was cut is no call, and what is no call is text.
#[test]
fn a_cut_call_is_not_presented() {
    let rig = Rig::saying(CALLS);
    let body = json!({ "messages": user("hi"), "tools": tools(), "options": { "num_predict": 12 } });
    let (whole, lines) = both(&rig, "/api/chat", body);
    assert!(whole["message"].get("tool_calls").is_none(), "{whole}");
    check_last(&whole, "length");
    assert!(lines.iter().all(|line| line["message"].get("tool_calls").is_none()));
    check_end(&lines, "length");
    let prose = Rig::saying("Write <tool_call> and <tool_");
    let (whole, lines) = both(&prose, "/api/chat", json!({ "messages": user("hi"), "tools": tools() }));
    assert_eq!(whole["message"]["content"], "Write <tool_call> and <tool_");
    assert_eq!(joined(&lines, "/message/content"), "Write <tool_call> and <tool_");
}

#[test]
fn a_call_that_is_none_is_an_error_in_both_forms() {
    let rig = Rig::saying("Hm.\n<tool_call>\n<function=nope>\n</function>\n</tool_call>");
    let body = json!({ "messages": user("hi"), "tools": tools() });
    let lines = rig.post("/api/chat", &body).lines();
    check_failure(&lines);
    let whole = rig.post("/api/chat", &json!({ "messages": user("hi"), "tools": tools(), "stream": false }));
    assert_eq!((whole.status, &whole.json()["code"]), (500, &json!("inference_error")));
}

/// The last line is a failure, and none says `done`.
fn check_failure(lines: &[Value]) {
    let last = lines.last().unwrap();
    assert!(last["error"].is_string() && last["code"] == "inference_error" && last.get("done").is_none(), "{last}");
    assert!(lines.iter().all(|line| line["done"] != true));
}

#[test]
fn row_103_a_failure_in_a_stream_is_a_line_without_done() {
    for path in ["/api/chat", "/api/generate"] {
        let replies =
            json!([{ "text": "One two three four five.", "fail": [3, "the disk is gone"] }, { "text": "Well." }]);
        let rig = Rig::with(script(replies));
        let body = json!({ "messages": user("hi") });
        let body = if path == "/api/chat" { body } else { json!({ "prompt": "hi" }) };
        let reply = rig.post(path, &body);
        assert_eq!(reply.status, 200);
        assert!(reply.whole && reply.lines().len() > 1);
        check_failure(&reply.lines());
        assert_eq!(reply.lines().last().unwrap()["error"], "the disk is gone");
        check_end(&rig.post(path, &body).lines(), "stop");
    }
    let whole = Rig::with(script(json!([{ "text": "One two.", "fail": [1, "the disk is gone"] }])));
    let reply = whole.post("/api/chat", &json!({ "messages": user("hi"), "stream": false }));
    assert_eq!((reply.status, reply.json()), (500, json!({ "error": "the disk is gone", "code": "inference_error" })));
}

/// Rows 64 and 65.
#[test]
fn a_stop_string_ends_the_answer_before_it() {
    let rig = Rig::saying("1, 2, 3, 4, 5, 6.\n\nEnd");
    for (stop, text) in [
        (json!(["5"]), "1, 2, 3, 4, "),
        (json!("4, 5"), "1, 2, 3, "),
        (json!("\n\n"), "1, 2, 3, 4, 5, 6."),
        (json!(["", "Ende", "never"]), "1, 2, 3, 4, 5, 6.\n\nEnd"),
    ] {
        let (whole, lines) = both(&rig, "/api/chat", json!({ "messages": user("count"), "options": { "stop": stop } }));
        assert_eq!(whole["message"]["content"], text);
        assert_eq!(joined(&lines, "/message/content"), text);
        check_end(&lines, "stop");
    }
}

#[test]
fn a_reply_limit_is_a_length() {
    let rig = Rig::saying("One two three four five six seven.");
    let (whole, lines) = both(&rig, "/api/generate", json!({ "prompt": "hi", "options": { "num_predict": 2 } }));
    assert_eq!((&whole["eval_count"], &whole["done_reason"]), (&json!(2), &json!("length")));
    check_end(&lines, "length");
}

#[test]
fn the_model_is_listed_and_shown() {
    let rig = Rig::saying("x");
    let facts = rig.app.core().unwrap().words.facts().clone();
    let tags = rig.get("/api/tags").json();
    let model = &tags["models"][0];
    assert_eq!(
        (&model["name"], &model["model"], &model["size"]),
        (&json!("nano"), &json!("nano"), &json!(facts.bytes))
    );
    assert_eq!(model["digest"].as_str().unwrap().len(), 64);
    assert!(model["modified_at"].as_str().unwrap().starts_with("20"));
    let details = json!({ "parent_model": "", "format": "safetensors", "family": facts.architecture,
        "families": [facts.architecture], "parameter_size": facts.parameters, "quantization_level": facts.quantization });
    assert_eq!(model["details"], details);

    let ps = rig.get("/api/ps").json();
    let running = &ps["models"][0];
    let resident: u64 = (rig.app.core().unwrap().watch)().memory.iter().map(|part| part.bytes).sum();
    assert_eq!(
        (&running["size"], &running["size_vram"]),
        (&json!(resident), &json!(0)),
        "nothing is in memory of a GPU"
    );
    assert_eq!((&running["context_length"], &running["digest"]), (&json!(facts.window), &model["digest"]));
    assert!(running["expires_at"].as_str().unwrap() > "2100");

    let show = rig.post("/api/show", &json!({ "model": "nano" })).json();
    assert_eq!(show["parameters"], format!("num_ctx {}", facts.window));
    assert_eq!(show["template"], facts.template);
    assert_eq!(show["details"], details);
    assert_eq!(show["model_info"]["general.architecture"], facts.architecture);
    assert_eq!(show["model_info"][format!("{}.context_length", facts.architecture)], facts.window);
    assert_eq!(show["capabilities"], json!(["completion", "tools", "thinking"]));
    assert_eq!(rig.get("/api/version").json(), json!({ "version": rig.app.settings.version }));
}

#[test]
fn what_is_listed_never_waits_for_a_reply() {
    let rig = Rig::with(script(json!([{ "text": "on and on ", "times": 500, "token_ms": 20 }])));
    let mut stream = rig.connect();
    let body = json!({ "messages": user("hi") }).to_string();
    std::io::Write::write_all(&mut stream, &super::rig::request("POST", "/api/chat", &[], body.as_bytes())).unwrap();
    while !rig.app.core().unwrap().hub.is_busy() {
        std::thread::sleep(Duration::from_millis(5));
    }
    let ask = |path: &str, body: Value| if body.is_null() { rig.get(path) } else { rig.post(path, &body) };
    for (path, body) in [
        ("/api/tags", Value::Null),
        ("/api/ps", Value::Null),
        ("/api/version", Value::Null),
        ("/api/show", json!({ "model": "nano" })),
        ("/api/chat", json!({ "messages": [] })),
        ("/api/generate", json!({ "prompt": "", "keep_alive": 0 })),
    ] {
        let since = std::time::Instant::now();
        let reply: Reply = ask(path, body);
        assert_eq!(reply.status, 200, "row 50: {path}");
        assert!(since.elapsed() < Duration::from_millis(100), "row 50: {path} took {:?}", since.elapsed());
    }
    drop(stream);
    assert!(rig.settles(Duration::from_secs(5)));
}
