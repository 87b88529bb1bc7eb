//! Owns: streamed replies of Anthropic's API: the order of events, the same content as without streaming, keep-alives, errors
//! after the head; and recorded requests of real clients (server.md sections 1, 9 and 12).

use serde_json::{Map, Value, json};
use ss_text::Event;

use super::messages::{PATH, body, call, tool};
use super::rig::{MODEL, Reply, Rig, script};
use crate::api::anthropic::messages::Messages;
use crate::api::anthropic::stream::Events;
use crate::engine::Piece;
use crate::flow::Start;
use crate::http::stream::Writer;
use crate::refusal::{Code, Refusal};

/// The data of a stream's events, each of which is named by its type.
fn told(reply: &Reply) -> Vec<Value> {
    let parse = |(name, data): (Option<String>, String)| {
        let data: Value = serde_json::from_str(&data).unwrap();
        assert_eq!(data["type"].as_str(), name.as_deref());
        data
    };
    reply.events().into_iter().map(parse).collect()
}

/// The message that a stream makes, put together as a client does; the order of events is checked on the way.
fn message(reply: &Reply) -> Value {
    let events = told(reply);
    assert_eq!((&events[0]["type"], &events[1]["type"]), (&json!("message_start"), &json!("ping")));
    let mut message = events[0]["message"].clone();
    assert_eq!((&message["content"], &message["usage"]["output_tokens"]), (&json!([]), &json!(0)));
    let (end, last) = (&events[events.len() - 2], &events[events.len() - 1]);
    assert_eq!((&end["type"], last), (&json!("message_delta"), &json!({ "type": "message_stop" })));
    let (mut blocks, mut open) = (Vec::<Value>::new(), None);
    for event in &events[2..events.len() - 2] {
        match event["type"].as_str().unwrap() {
            "content_block_start" => {
                assert_eq!((open, event["index"].as_u64()), (None, Some(blocks.len() as u64)));
                open = Some(blocks.len());
                blocks.push(event["content_block"].clone());
            }
            "content_block_delta" => {
                assert_eq!(event["index"].as_u64(), open.map(|open| open as u64));
                add(blocks.last_mut().unwrap(), &event["delta"]);
            }
            "content_block_stop" => assert_eq!(event["index"].as_u64(), open.take().map(|open| open as u64)),
            other => assert_eq!(other, "ping"),
        }
    }
    assert_eq!(open, None);
    message["content"] = json!(blocks);
    message["stop_reason"] = end["delta"]["stop_reason"].clone();
    message["stop_sequence"] = end["delta"]["stop_sequence"].clone();
    assert_eq!(message["usage"]["input_tokens"], end["usage"]["input_tokens"]);
    message["usage"] = end["usage"].clone();
    message
}

fn add(block: &mut Value, delta: &Value) {
    let joined =
        |block: &Value, name: &str| json!(block[name].as_str().unwrap().to_owned() + delta[name].as_str().unwrap());
    match delta["type"].as_str().unwrap() {
        "text_delta" => block["text"] = joined(block, "text"),
        "thinking_delta" => block["thinking"] = joined(block, "thinking"),
        "signature_delta" => block["signature"] = delta["signature"].clone(),
        _ => {
            assert_eq!(block["input"], json!({}), "the input comes whole");
            block["input"] = serde_json::from_str(delta["partial_json"].as_str().unwrap()).unwrap();
        }
    }
}

/// A message without what differs from one to the next.
fn plain(mut message: Value) -> Value {
    message["id"] = json!("msg");
    for block in message["content"].as_array_mut().unwrap() {
        if let Some(id) = block.get_mut("id") {
            *id = json!("toolu");
        }
    }
    message
}

#[test]
fn rows_64_to_66_79_and_80_what_is_streamed_is_what_is_given_whole() {
    let odd = "👩‍👩‍👧 🇫🇷 👍🏽 ❤️ é and e\u{301}: done";
    let thinks = json!({ "thinking": { "type": "adaptive" } });
    let hides = json!({ "thinking": { "type": "adaptive", "display": "omitted" } });
    let calls = json!({ "tools": [tool("see")] });
    let thought = format!("Well {odd}.\n</think>\n\n{odd}");
    let mixed = format!("Now.\n\n{}\n{}\nAnd then {odd}.", call("see", odd), call("see", "00123"));
    let all = format!("Hm.\n</think>\n\n{mixed}");
    let both = json!({ "tools": [tool("see")], "thinking": { "type": "enabled", "budget_tokens": 9000 } });
    let stops = |stop: &str| json!({ "stop_sequences": [stop, ""] });
    let cases = [
        (odd, json!({})),
        (&thought, thinks.clone()),
        (&thought, hides.clone()),
        ("only thoughts", thinks),
        ("only thoughts", hides),
        (&mixed, calls.clone()),
        (&all, both.clone()),
        (&all, json!({})),
        ("<tool_call>is a tag", calls.clone()),
        ("It ends with <tool_", calls.clone()),
        ("", calls),
        ("1, 2, 3, 4, 5, 6", stops("5")),
        ("a\n\nb", stops("\n\n")),
        ("one two three", stops("o thr")),
        ("no stop here", stops("heretic")),
        (odd, json!({ "max_tokens": 4 })),
        (&all, {
            let mut cut = both;
            cut["max_tokens"] = json!(60);
            cut
        }),
    ];
    for bytes in [None, Some(1), Some(7)] {
        for (text, more) in &cases {
            let mut told = script(json!([{ "text": text }]));
            told.token_bytes = bytes;
            let rig = Rig::with(told);
            let mut asked = body(more.clone());
            let whole = rig.post(PATH, &asked);
            assert_eq!(whole.status, 200, "{text}");
            asked["stream"] = json!(true);
            let streamed = rig.post(PATH, &asked);
            assert_eq!(streamed.header("content-type"), Some("text/event-stream; charset=utf-8"));
            assert_eq!(plain(message(&streamed)), plain(whole.json()), "{text} {more} {bytes:?}");
        }
    }
}

#[test]
fn every_token_of_the_answer_is_an_event() {
    let rig = Rig::saying("one two three four five six");
    let events = told(&rig.post(PATH, &body(json!({ "stream": true }))));
    let deltas = events.iter().filter(|event| event["type"] == "content_block_delta").count() as u64;
    assert_eq!(Some(deltas), events[events.len() - 2]["usage"]["output_tokens"].as_u64());
}

#[test]
fn row_103_an_error_after_the_head_is_the_last_event() {
    for after in [0, 3] {
        let rig = Rig::with(script(
            json!([{ "text": "one two three four five", "fail": [after, "the disk is gone"] }, { "text": "ok" }]),
        ));
        let reply = rig.post(PATH, &body(json!({ "stream": true })));
        let events = told(&reply);
        let last = json!({ "type": "error", "error": { "type": "api_error", "message": "the disk is gone" } });
        assert_eq!((reply.status, events.last().unwrap()), (200, &last));
        assert!(events.iter().all(|event| event["type"] != "message_stop" && event["type"] != "message_delta"));
        assert_eq!(rig.post(PATH, &body(json!({}))).json()["content"][0]["text"], "ok");
        let rig =
            Rig::with(script(json!([{ "text": "one two three four five", "fail": [after, "the disk is gone"] }])));
        let whole = rig.post(PATH, &body(json!({})));
        assert_eq!((whole.status, whole.json()), (500, last));
    }
}

#[test]
fn a_streamed_reply_without_the_call_asked_for_has_no_end() {
    let rig = Rig::saying("No call.");
    let asked =
        body(json!({ "stream": true, "tools": [tool("see")], "tool_choice": { "type": "tool", "name": "see" } }));
    let events = told(&rig.post(PATH, &asked));
    assert_eq!(events.last().unwrap()["error"]["type"], "api_error");
}

fn writer(hidden: bool) -> Events {
    let start =
        Start { request: "r".into(), model: MODEL.into(), created: 0, prompt_tokens: 5, room: 95, call_wanted: false };
    Events::new(Messages { asked: 5, hidden }, start)
}

fn quiet(writer: &mut Events) -> Value {
    let mut out = Vec::new();
    writer.quiet(&mut out);
    let text = String::from_utf8(out).unwrap();
    serde_json::from_str(text.split_once("data: ").unwrap().1).unwrap()
}

#[test]
fn a_quiet_stream_pings_or_thinks_of_nothing() {
    let reasoning = |writer: &mut Events| writer.piece(Piece::Event(Event::Reasoning("hm".into())), &mut Vec::new());
    let ping = json!({ "type": "ping" });
    for hidden in [false, true] {
        let mut writer = writer(hidden);
        assert_eq!(quiet(&mut writer), ping);
        reasoning(&mut writer);
        let empty =
            json!({ "type": "content_block_delta", "index": 0, "delta": { "type": "thinking_delta", "thinking": "" } });
        assert_eq!(quiet(&mut writer), if hidden { empty } else { ping.clone() });
        writer.piece(Piece::Event(Event::Text("x".into())), &mut Vec::new());
        assert_eq!(quiet(&mut writer), ping);
    }
}

#[test]
fn an_error_in_a_stream_tells_its_kind() {
    let mut out = Vec::new();
    writer(false).fail(&Refusal::new(Code::Stopping, "the server ends"), &mut out);
    let text = String::from_utf8(out).unwrap();
    assert!(text.starts_with("event: error\ndata: ") && text.contains("overloaded_error"), "{text}");
}

#[test]
fn requests_of_real_clients_get_their_replies() {
    let fixtures = [
        include_str!("../../fixtures/wire/anthropic-python-2.14.0.json"),
        include_str!("../../fixtures/wire/litellm-1.110.2.json"),
    ];
    let mut replayed = 0;
    for fixture in fixtures {
        let fixture: Value = serde_json::from_str(fixture).unwrap();
        for request in fixture["requests"].as_array().unwrap() {
            let path = request["path"].as_str().unwrap();
            if !path.starts_with("/v1/m") {
                continue;
            }
            replayed += 1;
            let thinks = request["body"].get("thinking").is_some();
            let rig = Rig::saying(if thinks { "Hm.\n</think>\n\nOK" } else { "OK" });
            let reply = replay(&rig, request);
            assert_eq!(json!(reply.status), request["expect_status"], "{path}: {}", reply.text());
            assert_eq!(reply.header("x-slotstream-ignored-fields"), None);
            match path {
                "/v1/messages" if request["body"]["stream"] == true => {
                    assert_eq!(message(&reply)["content"].as_array().unwrap().len(), 2);
                }
                "/v1/messages" => assert_eq!(reply.json()["content"][0]["text"], "OK"),
                "/v1/messages/count_tokens" => assert!(reply.json()["input_tokens"].is_u64()),
                _ => assert!(reply.json()["data"].is_array()),
            }
        }
    }
    assert!(replayed >= 5);
}

fn replay(rig: &Rig, request: &Value) -> Reply {
    let empty = Map::new();
    let headers = request["headers"].as_object().unwrap_or(&empty).iter();
    let headers: Vec<(&str, &str)> = headers.map(|(name, value)| (name.as_str(), value.as_str().unwrap())).collect();
    let mut body = request["body"].clone();
    if let Some(model) = body.get_mut("model") {
        *model = json!(MODEL);
    }
    let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    rig.ask(request["method"].as_str().unwrap(), request["path"].as_str().unwrap(), &headers, &bytes)
}
