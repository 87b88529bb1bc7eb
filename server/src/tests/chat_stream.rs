//! Owns: replies of chat completions, whole and streamed: their text, calls, ends, likelihoods and failures.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::rig::{Rig, script};
use super::seen::{Bench, CHAT, Joined, both, function, user, with, written};
use crate::scripted::Script;

/// A server whose tokens are so many bytes long.
fn cutting(text: &str, bytes: usize) -> Rig {
    Rig::with(Script { token_bytes: Some(bytes), ..script(json!([{ "text": text }])) })
}

fn ask(more: Value) -> Value {
    with(json!({ "messages": user("hi") }), &more)
}

#[test]
fn row_64_a_stop_string_ends_the_answer_before_it() {
    for (text, stop, left) in [
        ("1, 2, 3, 4, 5, 6", json!(["5"]), "1, 2, 3, 4, "),
        ("one two three four", json!("two three"), "one "),
        ("a\n\nb", json!("\n\n"), "a"),
        ("a b", json!(""), "a b"),
        ("a b", json!([]), "a b"),
        ("a b", json!(["", "never"]), "a b"),
        ("abc", json!(["c", "bc"]), "a"),
        ("über", json!("ü"), ""),
    ] {
        for bytes in [1, 3, 100] {
            let (choice, _) = both(&cutting(text, bytes), &ask(json!({ "stop": stop })));
            assert_eq!((&choice["message"]["content"], &choice["finish_reason"]), (&json!(left), &json!("stop")));
        }
    }
}

#[test]
fn stop_strings_have_limits() {
    let bench = Bench::saying("a");
    assert_eq!(bench.ask(&json!({ "stop": vec!["x"; 16] })).status, 200);
    bench.seen.lock().clear();
    for stop in [json!(vec!["x"; 17]), json!("y".repeat(257)), json!(5), json!({})] {
        bench.refused_chat(&json!({ "stop": stop }), "stop");
    }
    bench.refused_chat(&json!({ "stop": ["a", 5] }), "stop[1]");
}

#[test]
fn row_65_text_held_back_is_sent_when_it_turns_out_to_be_no_stop() {
    let (choice, joined) = both(&cutting("say END", 1), &ask(json!({ "stop": "ENDING" })));
    assert_eq!(choice["message"]["content"], "say END");
    let pieces: Vec<&str> =
        joined.chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(pieces, ["", "s", "a", "y", " ", "END"]);
    let (choice, _) = both(&cutting("ENDLESS", 1), &ask(json!({ "stop": "ENDING" })));
    assert_eq!(choice["message"]["content"], "ENDLESS");
}

#[test]
fn stops_leave_reasoning_and_calls_alone() {
    let text = format!("a STOP</think>\n\nb {}", written("say", &[("text", "STOP")]));
    let tools = [function("say", json!({ "text": { "type": "string" } }))];
    let (choice, _) = both(&cutting(&text, 2), &ask(json!({ "stop": "STOP", "think": true, "tools": tools })));
    let message = &choice["message"];
    assert_eq!(message["reasoning_content"], "a STOP");
    assert_eq!(message["tool_calls"][0]["function"]["arguments"], "{\"text\":\"STOP\"}");
}

#[test]
fn row_66_streamed_is_unstreamed_scalar_for_scalar() {
    let text = "😀😁😂🤣😃 👩‍👩‍👧‍👦👨‍👨‍👦 🇫🇷🇯🇵 é e\u{301} ❤\u{fe0f} 👍🏽 \u{200d} שָׁלוֹם 日本語\r\n\t\u{0}end";
    for rig in [Rig::saying(text), cutting(text, 1), cutting(text, 7)] {
        let (choice, _) = both(&rig, &ask(json!({})));
        assert_eq!(choice["message"]["content"], text);
    }
}

#[test]
fn row_79_reasoning_ends_at_its_tag_however_it_is_cut() {
    for bytes in [1, 2, 5] {
        let (choice, _) = both(&cutting("I </thin k.</think>\n\nYes.", bytes), &ask(json!({ "think": true })));
        let message = &choice["message"];
        assert_eq!((&message["reasoning_content"], &message["content"]), (&json!("I </thin k."), &json!("Yes.")));
    }
    let (choice, _) = both(&cutting("I only think </thi", 3), &ask(json!({ "think": true })));
    let message = &choice["message"];
    assert_eq!((&message["reasoning_content"], &message["content"]), (&json!("I only think </thi"), &json!("")));
    let (choice, _) = both(&cutting("No thought.", 3), &ask(json!({})));
    assert!(choice["message"].get("reasoning_content").is_none());
}

#[test]
fn row_80_a_tag_without_a_function_is_text() {
    let tools = json!({ "tools": [function("f", json!({}))] });
    for text in ["Write <tool_call> to call.", "It ends in <tool_", "a <tool_call>"] {
        for bytes in [1, 4, 100] {
            let (choice, _) = both(&cutting(text, bytes), &ask(tools.clone()));
            assert_eq!((&choice["message"]["content"], &choice["finish_reason"]), (&json!(text), &json!("stop")));
        }
    }
}

#[test]
fn calls_have_ids_of_their_own_and_content_is_null_without_text() {
    let text = format!("{}\n{}", written("f", &[("n", "1")]), written("f", &[("n", "2")]));
    let tools = [function("f", json!({ "n": { "type": "integer" } }))];
    let (choice, _) = both(&Rig::saying(&text), &ask(json!({ "tools": tools })));
    assert_eq!((&choice["message"]["content"], &choice["finish_reason"]), (&Value::Null, &json!("tool_calls")));
    let calls = choice["message"]["tool_calls"].as_array().unwrap();
    assert_eq!(calls.len(), 2);
    assert!(calls[0]["id"] != calls[1]["id"] && calls[0]["type"] == "function");
    assert_eq!(calls[1]["function"], json!({ "name": "f", "arguments": "{\"n\":2}" }));
}

#[test]
fn without_parallel_calls_the_first_complete_one_ends_the_reply() {
    let text = format!("a {}\n{} and more", written("f", &[]), written("f", &[]));
    let body = ask(json!({ "tools": [function("f", json!({}))], "parallel_tool_calls": false }));
    let (choice, _) = both(&cutting(&text, 4), &body);
    assert_eq!(choice["message"]["tool_calls"].as_array().unwrap().len(), 1);
    assert_eq!(choice["finish_reason"], "tool_calls");
}

#[test]
fn row_73_a_required_call_cut_by_the_limit_is_length_and_no_error() {
    let body = json!({ "tools": [function("f", json!({}))], "tool_choice": "required", "max_tokens": 1 });
    let (choice, joined) = both(&cutting(&written("f", &[]), 5), &ask(body));
    assert_eq!((&choice["finish_reason"], joined.calls.len()), (&json!("length"), 0));
    assert!(choice["message"].get("tool_calls").is_none());
}

#[test]
fn a_call_cut_by_the_limit_keeps_what_was_written() {
    let text = written("say", &[("text", "Hello world")]);
    let limit = text.find("world").unwrap();
    let tools = [function("say", json!({ "text": { "type": "string" } }))];
    let (choice, _) = both(&cutting(&text, 1), &ask(json!({ "tools": tools, "max_tokens": limit })));
    assert_eq!(choice["finish_reason"], "length");
    let arguments = choice["message"]["tool_calls"][0]["function"]["arguments"].as_str().unwrap();
    assert!(arguments.starts_with("{\"text\":\"Hello"), "{arguments}");
    assert!(serde_json::from_str::<Value>(arguments).is_err(), "{arguments}");
}

/// A reply that cannot be used: 500 whole, an error frame and no `[DONE]` streamed.
fn fails(rig: &Rig, body: &Value, words: &str) {
    let whole = rig.post(CHAT, body);
    let error = whole.json()["error"].clone();
    assert_eq!(
        (whole.status, &error["code"], &error["type"]),
        (500, &json!("inference_error"), &json!("server_error"))
    );
    assert!(error["message"].as_str().unwrap().contains(words), "{error}");
    let streamed = rig.post(CHAT, &with(body.clone(), &json!({ "stream": true })));
    let joined = Joined::read(&streamed);
    let last = joined.chunks.last().unwrap();
    assert_eq!((&last["error"]["code"], joined.done, joined.finish.len()), (&json!("inference_error"), false, 0));
    assert!(last["error"]["message"].as_str().unwrap().contains(words), "{last}");
    assert_eq!(streamed.events().last().unwrap().1, last.to_string());
    assert!(rig.settles(Duration::from_secs(5)));
}

#[test]
fn a_malformed_call_at_a_normal_stop_is_an_error() {
    let body = ask(json!({ "tools": [function("f", json!({ "text": { "type": "string" } }))] }));
    fails(&cutting("<tool_call>\n<function=f>\n<parameter=text>\nab", 4), &body, "did not close it");
    fails(&cutting(&written("f", &[("text", "a"), ("text", "b")]), 4), &body, "cannot be used");
    fails(&cutting(&written("g", &[]), 4), &body, "not among the tools");
}

#[test]
fn a_choice_that_the_reply_does_not_meet_is_an_error() {
    let body = ask(json!({ "tools": [function("f", json!({}))], "tool_choice": "required" }));
    fails(&Rig::saying("I would rather not."), &body, "tool_choice");
}

/// Row 103: what fails after the first token is an error frame, and the next request works.
#[test]
fn row_103_a_fault_in_the_middle_is_an_error_and_the_next_reply_is_made() {
    let rig = Rig::with(script(json!([{ "text": "one two three", "when": "fail", "fail": [1, "the disk is gone"] },
        { "text": "one two three", "when": "panic", "panic": 1 }, { "text": "Well." }])));
    fails(&rig, &json!({ "messages": user("fail") }), "the disk is gone");
    fails(&rig, &json!({ "messages": user("panic") }), "fault of its own");
    assert_eq!(rig.post(CHAT, &ask(json!({}))).status, 200);
}

#[test]
fn row_76_a_text_that_looks_like_a_number_stays_text() {
    let text = written("f", &[("zip", "00123")]);
    let tools = [function("f", json!({ "zip": { "type": ["string", "null"] } }))];
    let (choice, _) = both(&cutting(&text, 3), &ask(json!({ "tools": tools })));
    assert_eq!(choice["message"]["tool_calls"][0]["function"]["arguments"], "{\"zip\":\"00123\"}");
}

#[test]
fn row_77_numbers_that_are_none_do_no_harm() {
    let tools = [function("f", json!({ "n": { "type": "integer" }, "x": { "type": "number" } }))];
    for value in ["1e20", "inf", "", "-0", "99999999999999999999999", "NaN", "1e999"] {
        for name in ["n", "x"] {
            let (choice, _) = both(&cutting(&written("f", &[(name, value)]), 3), &ask(json!({ "tools": tools })));
            let arguments = choice["message"]["tool_calls"][0]["function"]["arguments"].as_str().unwrap();
            assert!(serde_json::from_str::<Value>(arguments).unwrap().is_object(), "{arguments}");
        }
    }
}

#[test]
fn row_78_an_argument_of_a_megabyte_streams_in_linear_time() {
    let long = "All work and \"no\" play.\n".repeat(43_700);
    let text = written("say", &[("text", &long)]);
    let script = Script { token_bytes: Some(4096), ..script(json!([{ "text": text, "token_ms": 1 }])) };
    let body = ask(json!({ "tools": [function("say", json!({ "text": { "type": "string" } }))] }));
    let started = Instant::now();
    let (choice, joined) = both(&Rig::with(script), &body);
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    let arguments: Value =
        serde_json::from_str(choice["message"]["tool_calls"][0]["function"]["arguments"].as_str().unwrap()).unwrap();
    assert!(arguments["text"] == long);
    assert!(joined.chunks.len() > 200, "{}", joined.chunks.len());
}

#[test]
fn usage_is_told_in_a_chunk_of_its_own() {
    let rig = Rig::saying("Well then.");
    let plain = Joined::read(&rig.post(CHAT, &ask(json!({ "stream": true }))));
    assert!(plain.done && plain.chunks.iter().all(|chunk| chunk.get("usage").is_none()));
    let options = json!({ "stream": true, "stream_options": { "include_usage": true, "include_obfuscation": false } });
    let chunks = Joined::read(&rig.post(CHAT, &ask(options))).chunks;
    let (last, before) = chunks.split_last().unwrap();
    assert_eq!(last["choices"], json!([]));
    assert!(before.iter().all(|chunk| chunk["usage"].is_null() && chunk.get("usage").is_some()));
    let end = before.last().unwrap();
    assert_eq!((&end["choices"][0]["delta"], &end["choices"][0]["finish_reason"]), (&json!({}), &json!("stop")));
    let usage = &rig.post(CHAT, &ask(json!({}))).json()["usage"];
    assert_eq!(&last["usage"], usage);
    assert_eq!(usage["prompt_tokens_details"], json!({ "cached_tokens": 0 }));
    assert_eq!(usage["completion_tokens_details"], json!({ "reasoning_tokens": 0 }));
    let sum = usage["prompt_tokens"].as_u64().unwrap() + usage["completion_tokens"].as_u64().unwrap();
    assert_eq!(usage["total_tokens"], sum);
}

#[test]
fn a_whole_reply_has_its_form() {
    let reply = Rig::saying("Well.").post(CHAT, &ask(json!({}))).json();
    let id = reply["id"].as_str().unwrap();
    assert!(id.starts_with("chatcmpl-") && id.len() == "chatcmpl-".len() + 32, "{id}");
    assert_eq!((&reply["object"], &reply["model"]), (&json!("chat.completion"), &json!("nano")));
    assert!(reply["created"].as_u64().unwrap() > 1_700_000_000);
    let choice = json!({ "index": 0, "message": { "role": "assistant", "content": "Well." }, "finish_reason": "stop",
        "logprobs": null });
    assert_eq!(reply["choices"], json!([choice]));
}

#[test]
fn likelihoods_are_told_of_every_token_in_both_forms() {
    let rig = cutting("a stop b", 2);
    let (choice, joined) = both(&rig, &ask(json!({ "logprobs": true, "top_logprobs": 1 })));
    let entries = choice["logprobs"]["content"].as_array().unwrap();
    let text: String = entries.iter().map(|entry| entry["token"].as_str().unwrap()).collect();
    assert_eq!((text.as_str(), joined.logprobs.len()), ("a stop b", entries.len()));
    for entry in entries {
        assert_eq!(entry["bytes"], json!(entry["token"].as_str().unwrap().as_bytes()));
        assert_eq!(entry["top_logprobs"].as_array().unwrap().len(), 1);
        assert!(entry["logprob"].is_number());
    }
    let (choice, _) = both(&rig, &ask(json!({ "logprobs": true })));
    assert_eq!(choice["logprobs"]["content"][0]["top_logprobs"], json!([]));
    let (choice, _) = both(&Rig::saying(""), &ask(json!({ "logprobs": true })));
    assert_eq!(choice["logprobs"], json!({ "content": [], "refusal": null }));
    let bench = Bench::saying("a");
    bench.refused_chat(&json!({ "top_logprobs": 2 }), "top_logprobs");
    for wrong in [json!(21), json!(-1), json!(true)] {
        bench.refused_chat(&json!({ "logprobs": true, "top_logprobs": wrong }), "top_logprobs");
    }
    assert_eq!(bench.job(&json!({ "logprobs": true, "top_logprobs": 20 })).logprobs, Some(20));
    assert_eq!(bench.job(&json!({ "logprobs": true })).logprobs, Some(0));
    assert_eq!(bench.job(&json!({})).logprobs, None);
}
