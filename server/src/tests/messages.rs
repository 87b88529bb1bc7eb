//! Owns: Anthropic's messages and the count of their tokens over a socket: statuses, errors, whole replies (server.md sections
//! 9, 11 and 12).

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::rig::{Rig, script};

pub const PATH: &str = "/v1/messages";
pub const COUNT: &str = "/v1/messages/count_tokens";

/// A body with these fields beside what must be there.
pub fn body(more: Value) -> Value {
    let mut body = json!({ "model": "nano", "max_tokens": 500, "messages": [{ "role": "user", "content": "hi" }] });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

/// A tool with one text argument.
pub fn tool(name: &str) -> Value {
    json!({ "name": name, "description": "Looks.",
        "input_schema": { "type": "object", "properties": { "at": { "type": "string" }, "n": { "type": "integer" } } } })
}

/// A call as the model writes it.
pub fn call(name: &str, at: &str) -> String {
    format!("<tool_call>\n<function={name}>\n<parameter=at>\n{at}\n</parameter>\n</function>\n</tool_call>")
}

fn is_idle(rig: &Rig) -> bool {
    rig.app.core().unwrap().hub.is_idle()
}

fn error(rig: &Rig, body: &Value) -> (u16, String, String) {
    let reply = rig.post(PATH, body);
    let error = reply.json();
    assert_eq!(error["type"], "error", "{error}");
    let text = |name: &str| error["error"][name].as_str().unwrap().to_owned();
    (reply.status, text("type"), text("message"))
}

#[test]
fn a_reply_has_its_form() {
    let rig = Rig::saying("Hello there.");
    let reply = rig.post("/v1/messages?beta=true", &body(json!({})));
    assert!(reply.header("request-id").unwrap().starts_with("req_"));
    assert_eq!(reply.header("x-slotstream-ignored-fields"), None);
    let message = reply.json();
    assert!(message["id"].as_str().unwrap().starts_with("msg_"));
    assert_eq!(
        (&message["type"], &message["role"], &message["model"]),
        (&json!("message"), &json!("assistant"), &json!("nano"))
    );
    assert_eq!(message["content"], json!([{ "type": "text", "text": "Hello there." }]));
    assert_eq!((&message["stop_reason"], &message["stop_sequence"]), (&json!("end_turn"), &Value::Null));
    let usage = &message["usage"];
    assert_eq!((&usage["cache_creation_input_tokens"], &usage["cache_read_input_tokens"]), (&json!(0), &json!(0)));
    assert_eq!(usage["input_tokens"], rig.post(COUNT, &body(json!({}))).json()["input_tokens"]);
    assert!(usage["output_tokens"].as_u64().unwrap() > 0);
}

#[test]
fn rows_24_and_25_an_unknown_field_is_ignored_and_named_where_that_is_safe() {
    let rig = Rig::saying("ok");
    let reply = rig.post(PATH, &body(json!({ "foo": 1, "seed": "x", "bar": null })));
    assert_eq!((reply.status, reply.header("x-slotstream-ignored-fields")), (200, Some("foo, seed")));
    let long = "x".repeat(1000);
    for stream in [false, true] {
        let reply = rig.post(PATH, &body(json!({ "a\r\nset-cookie: b": 1, &long: 2, "stream": stream })));
        assert_eq!((reply.status, reply.header("x-slotstream-ignored-fields")), (200, None));
        assert_eq!(reply.header("set-cookie"), None);
    }
    assert_eq!(
        rig.post(COUNT, &body(json!({ "foo": 1 }))).header("x-slotstream-ignored-fields"),
        Some("max_tokens, foo")
    );
}

#[test]
fn rows_27_and_28_the_model_and_the_limit_are_needed() {
    let rig = Rig::saying("ok");
    let (status, kind, words) = error(&rig, &body(json!({ "model": "other" })));
    assert_eq!((status, kind.as_str()), (404, "not_found_error"));
    assert!(words.contains("`other`") && words.contains("`nano`"), "{words}");
    assert_eq!(rig.post(COUNT, &body(json!({ "model": "other" }))).status, 404);
    for name in ["model", "max_tokens", "messages"] {
        let (status, kind, words) = error(&rig, &body(json!({ name: null })));
        assert_eq!((status, kind.as_str()), (400, "invalid_request_error"));
        assert!(words.starts_with(&format!("`{name}` is missing")), "{words}");
    }
    assert_eq!(rig.post(PATH, &body(json!({ "model": "NANO:latest" }))).status, 200);
}

#[test]
fn every_error_has_anthropics_form() {
    let rig = Rig::saying("ok");
    let deep = format!("{{\"a\":{}", "[".repeat(100_000));
    for bad in [&b"{not json"[..], b"", b"[]", b"\"x\"", b"null", b"{\"a\":\"\xff\"}", deep.as_bytes()] {
        for path in [PATH, COUNT] {
            let reply = rig.ask("POST", path, &[("content-type", "application/json")], bad);
            assert_eq!((reply.status, &reply.json()["error"]["type"]), (400, &json!("invalid_request_error")));
        }
    }
    for (status, kind, method, path, headers) in [
        (405, "invalid_request_error", "GET", PATH, vec![]),
        (404, "not_found_error", "POST", "/v1/messages/batches", vec![]),
        (403, "permission_error", "POST", PATH, vec![("origin", "https://attacker.example")]),
    ] {
        let reply = rig.ask(method, path, &headers, b"{}");
        assert_eq!((reply.status, &reply.json()["type"]), (status, &json!("error")));
        assert_eq!(reply.json()["error"]["type"], kind);
        assert_eq!(reply.header("content-type"), Some("application/json"));
    }
    assert_eq!(error(&rig, &body(json!({ "temperature": -1 }))).0, 400);
    assert_eq!(rig.post(PATH, &body(json!({}))).status, 200);
}

#[test]
fn row_60_a_prompt_that_is_too_long_is_told_in_words_that_clients_read() {
    let rig = Rig::saying("ok");
    let begun = Instant::now();
    for words in [1_000_000, 6_000] {
        let long = json!({ "messages": [{ "role": "user", "content": "word ".repeat(words) }] });
        let (status, kind, message) = error(&rig, &body(long));
        assert_eq!((status, kind.as_str()), (400, "invalid_request_error"));
        let numbers = message.strip_prefix("prompt is too long: ").and_then(|rest| rest.strip_suffix(" maximum"));
        let (tokens, most) = numbers.unwrap().split_once(" tokens > ").unwrap();
        assert!(tokens.parse::<u64>().unwrap() > most.parse().unwrap(), "{message}");
        assert_eq!(most, "4096");
    }
    assert!(begun.elapsed() < Duration::from_secs(10));
}

#[test]
fn a_reply_says_why_it_ended() {
    let ended = |text: &str, times: usize, more: Value| {
        let mut script = script(json!([{ "text": text, "times": times }]));
        script.token_bytes = Some(5);
        let rig = Rig::with(script);
        rig.post(PATH, &body(more)).json()
    };
    let limit = ended("word ", 50, json!({ "max_tokens": 3 }));
    assert_eq!((&limit["stop_reason"], &limit["usage"]["output_tokens"]), (&json!("max_tokens"), &json!(3)));
    // A prompt that leaves little room.
    let long = |words: usize| json!([{ "role": "user", "content": "word ".repeat(words) }]);
    let rig = Rig::saying("ok");
    let fits = |words: &usize| {
        let count = rig.post(COUNT, &json!({ "model": "nano", "messages": long(*words) })).json();
        count["input_tokens"].as_u64().is_some_and(|tokens| (3000..4000).contains(&tokens))
    };
    let words = (1000..8000).step_by(500).find(fits).unwrap();
    let room = ended("word ", 3000, json!({ "max_tokens": 100_000, "messages": long(words) }));
    assert_eq!(room["stop_reason"], "model_context_window_exceeded", "{words} {} {}", room["usage"], room["error"]);
    let stop = ended("one, two, three", 1, json!({ "stop_sequences": ["zzz", ", th", ""] }));
    assert_eq!((&stop["stop_reason"], &stop["stop_sequence"]), (&json!("stop_sequence"), &json!(", th")));
    assert_eq!(stop["content"][0]["text"], "one, two");
    let calls = ended(&call("see", "x"), 1, json!({ "tools": [tool("see")] }));
    assert_eq!(calls["stop_reason"], "tool_use");
}

#[test]
fn a_call_is_a_block_of_its_own() {
    let text = format!("Let me see.\n\n{}\n{}", call("see", "Paris"), call("see", "Rome"));
    let rig = Rig::with(script(json!([{ "text": text }])));
    let message = rig.post(PATH, &body(json!({ "tools": [tool("see")] }))).json();
    let blocks = message["content"].as_array().unwrap();
    assert_eq!(blocks[0], json!({ "type": "text", "text": "Let me see.\n\n" }));
    assert_eq!(
        (blocks.len(), &blocks[1]["input"], &blocks[2]["input"]),
        (3, &json!({ "at": "Paris" }), &json!({ "at": "Rome" }))
    );
    assert!(blocks[1]["id"].as_str().unwrap().starts_with("toolu_"));
    assert_ne!(blocks[1]["id"], blocks[2]["id"]);
    // The reply goes back as it came, with its results.
    let results: Vec<Value> =
        [2, 1].map(|at| json!({ "type": "tool_result", "tool_use_id": blocks[at]["id"], "content": "sunny" })).to_vec();
    let next = json!({ "tools": [tool("see")], "messages": [
        { "role": "user", "content": "hi" }, { "role": "assistant", "content": blocks }, { "role": "user", "content": results },
    ] });
    assert_eq!(rig.post(PATH, &body(next)).status, 200);
}

#[test]
fn row_73_a_call_that_was_cut_is_withheld() {
    let rig = Rig::with(script(json!([{ "text": call("see", "Paris") }])));
    let mut asked = body(json!({ "tools": [tool("see")], "tool_choice": { "type": "any" }, "max_tokens": 1 }));
    for most in [1, 6] {
        asked["max_tokens"] = json!(most);
        let message = rig.post(PATH, &asked).json();
        assert_eq!(message["stop_reason"], "max_tokens");
        assert!(message["content"].as_array().unwrap().iter().all(|block| block["type"] != "tool_use"), "{message}");
    }
    let two = format!("{}\n{}", call("see", "Paris"), call("see", &"far ".repeat(100)));
    let rig = Rig::with(script(json!([{ "text": two }])));
    asked["max_tokens"] = json!(120);
    let message = rig.post(PATH, &asked).json();
    assert_eq!((&message["stop_reason"], message["content"].as_array().unwrap().len()), (&json!("max_tokens"), 1));
}

#[test]
fn rows_71_72_74_and_75_tools_and_choices_are_checked() {
    let rig = Rig::saying("ok");
    for (more, words) in [
        (json!({ "tool_choice": { "type": "any" } }), "`tools` is empty"),
        (
            json!({ "tool_choice": { "type": "any" }, "tools": [{ "type": "web_search_20250305", "name": "web_search" }] }),
            "`tools` is empty",
        ),
        (json!({ "tool_choice": { "type": "tool", "name": "f" }, "tools": [tool("see")] }), "`f`"),
        (json!({ "tools": [tool("see"), tool("see")] }), "twice"),
    ] {
        let (status, kind, message) = error(&rig, &body(more.clone()));
        assert_eq!((status, kind.as_str()), (400, "invalid_request_error"));
        assert!(message.contains(words), "{message}");
        assert_eq!(rig.post(COUNT, &body(more)).status, 400);
    }
    for kind in ["none", "auto"] {
        assert_eq!(rig.post(PATH, &body(json!({ "tools": [], "tool_choice": { "type": kind } }))).status, 200);
    }
}

#[test]
fn a_reply_that_cannot_be_used_is_an_error() {
    for text in ["No call.".to_owned(), call("other", "x"), "<tool_call>\n<function=see>\n".to_owned()] {
        let rig = Rig::with(script(json!([{ "text": text }])));
        let asked = body(json!({ "tools": [tool("see")], "tool_choice": { "type": "any" } }));
        let (status, kind, _) = error(&rig, &asked);
        assert_eq!((status, kind.as_str()), (500, "api_error"));
    }
}

#[test]
fn thoughts_are_a_block_of_their_own_shown_or_not() {
    let rig = Rig::with(script(json!([{ "text": "I wonder.\n</think>\n\nHello." }])));
    let mut asked = body(json!({ "thinking": { "type": "enabled", "budget_tokens": 1024 } }));
    let shown = rig.post(PATH, &asked).json()["content"].clone();
    assert_eq!(shown[0]["thinking"], "I wonder.\n");
    assert_eq!(shown[1], json!({ "type": "text", "text": "Hello." }));
    asked["thinking"]["display"] = json!("omitted");
    let hidden = rig.post(PATH, &asked).json()["content"].clone();
    assert_eq!((&hidden[0]["thinking"], &hidden[0]["signature"]), (&json!(""), &shown[0]["signature"]));
    // A block that was left out counts as much as one that was shown.
    let replayed = |content: &Value| {
        let list = json!([
            { "role": "user", "content": "a" }, { "role": "assistant", "content": content }, { "role": "user", "content": "b" },
        ]);
        rig.post(COUNT, &body(json!({ "messages": list }))).json()["input_tokens"].as_u64().unwrap()
    };
    assert_eq!(replayed(&hidden), replayed(&shown));
    assert!(replayed(&json!([shown[1]])) < replayed(&hidden));
    // Row 79: thoughts without an end are all there is.
    let rig = Rig::saying("I wonder and");
    let endless = rig.post(PATH, &asked).json();
    assert_eq!((endless["content"].as_array().unwrap().len(), &endless["content"][0]["type"]), (1, &json!("thinking")));
}

#[test]
fn a_count_takes_what_a_reply_does_not() {
    let rig = Rig::saying("ok");
    let count = |list: Value| rig.post(COUNT, &json!({ "model": "nano", "messages": list }));
    let user = json!({ "role": "user", "content": "hi" });
    let short = count(json!([user])).json()["input_tokens"].as_u64().unwrap();
    let said = count(json!([user, { "role": "assistant", "content": "Hello there, my friend: how are you today?" }]));
    assert!(said.status == 200 && said.json()["input_tokens"].as_u64().unwrap() > short);
    let calls =
        json!({ "role": "assistant", "content": [{ "type": "tool_use", "id": "a", "name": "see", "input": {} }] });
    assert_eq!(count(json!([user, calls])).status, 200);
    assert_eq!(count(json!([user, calls, user])).status, 400);
    assert_eq!(
        rig.post(PATH, &body(json!({ "messages": [user, { "role": "assistant", "content": "Hello" }] }))).status,
        400
    );
    let with = rig.post(COUNT, &body(json!({ "system": "Be brief.", "tools": [tool("see")] })));
    assert!(with.json()["input_tokens"].as_u64().unwrap() > short);
}

#[test]
fn row_50_a_count_answers_while_a_reply_is_made() {
    let rig = Rig::with(script(json!([{ "text": "word ", "times": 200, "token_ms": 50 }])));
    rig.post(COUNT, &body(json!({})));
    std::thread::scope(|scope| {
        let long = scope.spawn(|| {
            use std::io::{Read, Write};
            let mut stream = rig.connect();
            let asked = body(json!({ "stream": true })).to_string();
            stream.write_all(&super::rig::request("POST", PATH, &[], asked.as_bytes())).unwrap();
            let mut some = [0; 300];
            stream.read_exact(&mut some).unwrap();
            stream
        });
        let _stream = long.join().unwrap();
        for _ in 0..5 {
            let begun = Instant::now();
            assert_eq!(rig.post(COUNT, &body(json!({}))).status, 200);
            assert!(begun.elapsed() < Duration::from_millis(100), "{:?}", begun.elapsed());
        }
        assert!(!is_idle(&rig));
    });
    assert!(rig.settles(Duration::from_secs(5)));
}

#[test]
fn row_58_a_full_queue_is_told_as_overloaded() {
    let limits = crate::hub::Limits { queue: 0, ..crate::hub::Limits::default() };
    let setup = super::rig::Setup { limits, ..super::rig::Setup::default() };
    let rig = Rig::set_up(script(json!([{ "text": "word ", "times": 40, "token_ms": 20 }])), setup);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| rig.post(PATH, &body(json!({}))).status);
        while is_idle(&rig) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let reply = rig.post(PATH, &body(json!({ "stream": true })));
        assert_eq!((reply.status, reply.header("retry-after")), (503, Some("1")));
        assert_eq!(reply.json()["error"]["type"], "overloaded_error");
        assert_eq!(first.join().unwrap(), 200);
    });
}
