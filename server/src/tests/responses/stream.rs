//! Owns: tests of the events of a response: their order, their numbers, and that they add up to the whole.

use std::time::Duration;

use serde_json::{Value, json};

use super::{PATH, ask, both, call, events, function, types};
use crate::tests::rig::{Rig, script};

/// Rows 66 and 79.
#[test]
fn a_streamed_response_is_the_unstreamed_one() {
    let text = "I look. 👩‍👩‍👧\n</think>\n\nWell, 🇩🇪🇫🇷 é and e\u{301} ❤️: done.";
    for bytes in [1, 3, 7] {
        let rig = || {
            let mut script = script(json!([{ "text": text }]));
            script.token_bytes = Some(bytes);
            Rig::with(script)
        };
        let (whole, events) = both(rig, &json!({ "input": "hi", "reasoning": { "effort": "low", "summary": "auto" } }));
        assert_eq!(whole["output"][0]["summary"], json!([{ "type": "summary_text", "text": "I look. 👩‍👩‍👧\n" }]));
        assert_eq!(whole["output"][1]["content"][0]["text"], "Well, 🇩🇪🇫🇷 é and e\u{301} ❤️: done.");
        assert!(whole["usage"]["output_tokens_details"]["reasoning_tokens"].as_u64().unwrap() > 0);
        assert_eq!(
            types(&events),
            [
                "response.created",
                "response.in_progress",
                "response.output_item.added",
                "response.reasoning_summary_part.added",
                "response.reasoning_summary_text.delta",
                "response.reasoning_summary_text.done",
                "response.reasoning_summary_part.done",
                "response.output_item.done",
                "response.output_item.added",
                "response.content_part.added",
                "response.output_text.delta",
                "response.output_text.done",
                "response.content_part.done",
                "response.output_item.done",
                "response.completed",
            ]
        );
        let deltas = events.iter().filter(|event| event["type"] == "response.output_text.delta");
        assert!(deltas.clone().count() > 3);
        assert!(deltas.into_iter().all(|event| event["item_id"].is_string() && event["content_index"] == 0));
    }
}

#[test]
fn thoughts_that_no_summary_was_asked_of_are_told_as_they_are() {
    let rig = || Rig::saying("I look.\n</think>\n\nDone.");
    let (whole, events) = both(rig, &json!({ "input": "hi", "reasoning": { "effort": "high" } }));
    let item = &whole["output"][0];
    assert_eq!((&item["type"], &item["summary"]), (&json!("reasoning"), &json!([])));
    assert_eq!(item["content"], json!([{ "type": "reasoning_text", "text": "I look.\n" }]));
    assert!(types(&events).contains(&"response.reasoning_text.delta"));
    assert_eq!(whole["output"][1]["content"][0]["text"], "Done.");
}

#[test]
fn calls_are_told_whole_and_text_keeps_its_place() {
    let text = format!(
        "Let me see.\n\n{}\n{}\nThat is all.",
        call("say", &[("text", "Hello world")]),
        call("say", &[("text", "again")])
    );
    let (whole, events) = both(|| Rig::saying(&text), &json!({ "input": "hi", "tools": [function("say")] }));
    let output = whole["output"].as_array().unwrap();
    let kinds: Vec<&str> = output.iter().map(|item| item["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["message", "function_call", "function_call", "message"]);
    assert_eq!(output[1]["arguments"], "{\"text\":\"Hello world\"}");
    assert_eq!((&output[1]["name"], &output[1]["status"]), (&json!("say"), &json!("completed")));
    assert!(output[1]["call_id"].as_str().unwrap().starts_with("call_"));
    assert_ne!(output[1]["call_id"], output[2]["call_id"]);
    let of_call: Vec<&str> =
        events.iter().filter(|event| event["output_index"] == 1).map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(
        of_call,
        [
            "response.output_item.added",
            "response.function_call_arguments.delta",
            "response.function_call_arguments.done",
            "response.output_item.done",
        ]
    );
}

/// Row 73.
#[test]
fn a_cut_reply_is_incomplete_and_a_cut_call_is_not_told() {
    let text = format!("Let me see. {}", call("f", &[("text", "Hello world")]));
    let tokens = |most: u32| json!({ "input": "hi", "tools": [function("f")], "max_output_tokens": most });
    for most in [1, 12] {
        let (whole, events) = both(|| Rig::saying(&text), &tokens(most));
        assert_eq!((&whole["status"], &whole["error"]), (&json!("incomplete"), &Value::Null));
        assert_eq!(whole["incomplete_details"], json!({ "reason": "max_output_tokens" }));
        assert_eq!(whole["output"].as_array().unwrap().len(), 1);
        assert_eq!(whole["output"][0]["status"], "incomplete");
        assert_eq!(events.last().unwrap()["type"], "response.incomplete");
        assert_eq!(events.last().unwrap()["response"]["usage"]["output_tokens"], most);
    }
    let after = format!("{} and then some more words that are cut", call("f", &[]));
    let whole = |most| ask(&Rig::saying(&after), tokens(most)).json();
    let all = whole(1000)["usage"]["output_tokens"].as_u64().unwrap() as u32;
    let (cut, _) = both(|| Rig::saying(&after), &tokens(all - 2));
    assert_eq!((&cut["status"], &cut["output"][0]["type"]), (&json!("completed"), &json!("function_call")));
}

/// Row 103.
#[test]
fn a_failure_in_a_stream_is_its_last_event() {
    let failing =
        || script(json!([{ "text": "Hello there, friend.", "fail": [3, "the disk is gone"] }, { "text": "ok" }]));
    let rig = Rig::with(failing());
    let told = events(&ask(&rig, json!({ "input": "hi", "stream": true })));
    let last = told.last().unwrap();
    assert_eq!(last["type"], "response.failed");
    assert_eq!(last["response"]["status"], "failed");
    assert_eq!(last["response"]["error"], json!({ "code": "inference_error", "message": "the disk is gone" }));
    assert!(types(&told).contains(&"response.output_text.delta"));
    assert!(!types(&told).contains(&"response.completed"));
    assert_eq!(ask(&rig, json!({ "input": "hi" })).json()["output"][0]["content"][0]["text"], "ok");
    let whole = ask(&Rig::with(failing()), json!({ "input": "hi" }));
    assert_eq!((whole.status, &whole.json()["error"]["type"]), (500, &json!("server_error")));
}

#[test]
fn a_malformed_call_is_a_failure() {
    let text = call("nope", &[]);
    let body = json!({ "input": "hi", "tools": [function("f")], "stream": true });
    let told = events(&ask(&Rig::saying(&text), body));
    assert_eq!(told.last().unwrap()["type"], "response.failed");
    assert_eq!(told.last().unwrap()["response"]["error"]["code"], "inference_error");
}

#[test]
fn a_free_text_tool_without_its_text_is_a_failure() {
    let text = call("raw", &[("other", "x")]);
    let mut body = json!({ "input": "hi", "tools": [{ "type": "custom", "name": "raw" }] });
    let whole = ask(&Rig::saying(&text), body.clone());
    assert_eq!((whole.status, &whole.json()["error"]["code"]), (500, &json!("inference_error")));
    body["stream"] = json!(true);
    let told = events(&ask(&Rig::saying(&text), body));
    assert_eq!(types(&told), ["response.created", "response.in_progress", "response.failed"]);
}

#[test]
fn a_quiet_stream_tells_that_it_is_in_progress() {
    let rig = Rig::with(script(json!([{ "text": "done", "prefill_ms": 11_500 }])));
    let told = events(&ask(&rig, json!({ "input": "hi", "stream": true, "instructions": "x" })));
    assert_eq!(
        told[..3].iter().map(|event| event["type"].as_str().unwrap()).collect::<Vec<_>>(),
        ["response.created", "response.in_progress", "response.in_progress"]
    );
    assert_eq!(told[2]["response"], told[1]["response"]);
    let progress = &told[2]["prompt_progress"];
    assert!(progress["read"].as_u64().unwrap() < progress["total"].as_u64().unwrap());
    assert_eq!(told.last().unwrap()["type"], "response.completed");
}

/// Rows 51 and 54.
#[test]
fn a_client_that_leaves_ends_its_reply() {
    use std::io::{Read, Write};
    for stream in [true, false] {
        let rig = Rig::with(script(json!([{ "text": "word ", "times": 5000, "token_ms": 20 }, { "text": "ok" }])));
        let body = json!({ "input": "hi", "stream": stream }).to_string();
        let mut socket = rig.connect();
        socket.write_all(&crate::tests::rig::request("POST", PATH, &[], body.as_bytes())).unwrap();
        if stream {
            socket.read_exact(&mut [0; 200]).unwrap();
        } else {
            std::thread::sleep(Duration::from_millis(200));
        }
        drop(socket);
        assert!(rig.settles(Duration::from_secs(5)));
        assert_eq!(ask(&rig, json!({ "input": "hi" })).status, 200);
    }
}
