//! Owns: the real engine behind the server: the small model of the repository on plain Rust. What a script cannot show is shown
//! here: forms and calls that are held to, seeds, likelihoods, limits, cancellation.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use serde_json::{Value, json};
use ss_checkpoint::Checkpoint;
use ss_model::{Model, ModelOptions, PassMutation};
use ss_reference::{Options, Reference};
use ss_stream::{PoolGeometry, PoolSize, StoreOptions};

use super::openai_wire::{replay, setup};
use super::rig::{Rig, WORDS, request};
use super::seen::{CHAT, TEXT, both, function, user, with};
use crate::real::{Loaded, RealEngine};

/// One server for all tests of this file: their requests wait for one another, as clients do.
static RIG: LazyLock<Rig> = LazyLock::new(|| {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/flash-next-nano");
    let checkpoint = Arc::new(Checkpoint::open(&dir).unwrap());
    let words = ss_generate::Words::open(&checkpoint).unwrap();
    let slots = PoolSize::All.resolve(PoolGeometry::from(checkpoint.geometry())).unwrap();
    let options = ModelOptions {
        store: StoreOptions::new(slots),
        arithmetic: ss_backend::Arithmetic::Exact,
        read_group: ss_generate::DEFAULT_READ_GROUP,
        mutation: PassMutation::None,
    };
    let backend = Arc::new(Reference::new(Options { threads: 2, ..Options::default() }).unwrap());
    let model = Model::load(backend, checkpoint, options, &mut |_, _| {}).unwrap();
    let loaded = Loaded { prefill_pass: 64, slots, ..Loaded::default() };
    Rig::start(Box::new(RealEngine::new(ss_generate::Engine::new(model, words), loaded)), setup())
});

fn ask(text: &str, more: Value) -> Value {
    with(json!({ "messages": user(text) }), &more)
}

fn answer(body: &Value) -> Value {
    let reply = RIG.post(CHAT, body);
    assert_eq!(reply.status, 200, "{body}: {}", reply.text());
    reply.json()
}

fn content(reply: &Value) -> &str {
    reply["choices"][0]["message"]["content"].as_str().unwrap()
}

/// Ids that the model cannot draw: its replies go on to their limit.
fn endless() -> Value {
    let end = |text: &str| WORDS.text_ids(text).unwrap()[0].to_string();
    json!({ end("<|im_end|>"): -100, end("<|endoftext|>"): -100 })
}

const SEEDS: std::ops::Range<u64> = 1..6;

#[test]
fn a_schema_is_held_to_at_any_temperature() {
    let schema = json!({ "type": "object", "additionalProperties": false, "required": ["name", "age", "tags", "mood"],
        "properties": { "name": { "type": "string", "maxLength": 12 }, "age": { "type": "integer", "minimum": 0, "maximum": 150 },
        "tags": { "type": "array", "items": { "enum": ["a", "b"] }, "minItems": 1, "maxItems": 3 },
        "mood": { "anyOf": [{ "type": "null" }, { "type": "boolean" }] } } });
    let format =
        json!({ "type": "json_schema", "json_schema": { "name": "person", "strict": true, "schema": schema } });
    for seed in SEEDS {
        let body =
            ask("Who?", json!({ "response_format": format, "temperature": 1.5, "top_p": 1, "top_k": 0, "seed": seed }));
        let (choice, _) = both(&RIG, &body);
        assert_eq!(choice["finish_reason"], "stop");
        let person: Value = serde_json::from_str(choice["message"]["content"].as_str().unwrap()).unwrap();
        assert_eq!(person.as_object().unwrap().len(), 4, "{person}");
        assert!(person["name"].as_str().unwrap().chars().count() <= 12, "{person}");
        assert!((0..=150).contains(&person["age"].as_i64().unwrap()), "{person}");
        let tags = person["tags"].as_array().unwrap();
        assert!((1..=3).contains(&tags.len()) && tags.iter().all(|tag| tag == "a" || tag == "b"), "{person}");
        assert!(person["mood"].is_null() || person["mood"].is_boolean(), "{person}");
    }
}

#[test]
fn other_forms_are_held_to_as_well() {
    for seed in SEEDS {
        let wild = json!({ "temperature": 1.5, "top_p": 1, "top_k": 0, "seed": seed });
        let of = |format: Value| both(&RIG, &ask("What?", with(json!({ "response_format": format }), &wild))).0;
        let date = of(json!({ "type": "regex", "regex": "[0-9]{4}-[01][0-9]" }));
        let text = date["message"]["content"].as_str().unwrap();
        assert!(text.len() == 7 && text.as_bytes()[4] == b'-' && text[..4].parse::<u32>().is_ok(), "{text}");
        let grammar = of(json!({ "type": "grammar", "grammar": "start: \"yes\" | \"no\" (\" \" \"way\")?" }));
        let text = grammar["message"]["content"].as_str().unwrap();
        assert!(["yes", "no", "no way"].contains(&text), "{text}");
    }
    // Nothing bounds this form but the limit: what ends by itself is whole.
    let body = json!({ "response_format": { "type": "json_object" }, "max_tokens": 200, "seed": 3 });
    let (choice, _) = both(&RIG, &ask("An object, please.", body));
    let text = choice["message"]["content"].as_str().unwrap();
    assert!(text.trim_start().starts_with('{'), "{text}");
    if choice["finish_reason"] == "stop" {
        assert!(serde_json::from_str::<Value>(text).unwrap().is_object(), "{text}");
    }
}

#[test]
fn a_form_holds_the_answer_and_leaves_the_reasoning_free() {
    let format = json!({ "type": "regex", "regex": "ok|no" });
    // Whether the small model ever closes its reasoning is its own affair: what follows the tag is held.
    let more = json!({ "response_format": format, "think": true, "max_tokens": 200, "seed": 1 });
    let (choice, _) = both(&RIG, &ask("Hi", more));
    let text = choice["message"]["content"].as_str().unwrap();
    assert!(text == "ok" || text == "no" || choice["finish_reason"] == "length", "{choice}");
}

#[test]
fn row_74_a_required_call_is_declared_and_its_arguments_are_valid() {
    let city =
        json!({ "city": { "enum": ["Rome", "Oslo"] }, "days": { "type": "integer", "minimum": 1, "maximum": 9 } });
    let mut weather = function("get_weather", city);
    weather["function"]["parameters"]["required"] = json!(["city", "days"]);
    weather["function"]["parameters"]["additionalProperties"] = json!(false);
    let mut stop = function("stop", json!({}));
    stop["function"]["strict"] = json!(true);
    let named = json!({ "type": "function", "function": { "name": "get_weather" } });
    for choice in [json!("required"), named.clone()] {
        for seed in SEEDS {
            let body = ask(
                "Now?",
                json!({ "tools": [weather, stop], "tool_choice": choice, "parallel_tool_calls": false,
                "temperature": 1.5, "top_p": 1, "top_k": 0, "seed": seed }),
            );
            let (made, _) = both(&RIG, &body);
            assert_eq!((&made["finish_reason"], &made["message"]["content"]), (&json!("tool_calls"), &Value::Null));
            let calls = made["message"]["tool_calls"].as_array().unwrap();
            assert_eq!(calls.len(), 1, "{made}");
            let function = &calls[0]["function"];
            let arguments: Value = serde_json::from_str(function["arguments"].as_str().unwrap()).unwrap();
            match function["name"].as_str().unwrap() {
                "stop" => assert!(choice != named && arguments == json!({}), "{made}"),
                name => {
                    assert_eq!((name, arguments.as_object().unwrap().len()), ("get_weather", 2));
                    assert!(["Rome", "Oslo"].contains(&arguments["city"].as_str().unwrap()), "{made}");
                    assert!((1..=9).contains(&arguments["days"].as_i64().unwrap()), "{made}");
                }
            }
        }
    }
}

#[test]
fn row_73_a_required_call_of_one_token_is_cut_and_none() {
    let body = json!({ "tools": [function("f", json!({}))], "tool_choice": "required", "max_tokens": 1, "seed": 1 });
    let (choice, joined) = both(&RIG, &ask("Now?", body));
    assert_eq!((&choice["finish_reason"], joined.calls.len()), (&json!("length"), 0));
}

#[test]
fn rows_105_and_106_a_seed_is_the_reply() {
    let of = |more: Value| {
        let more =
            with(json!({ "temperature": 1, "top_p": 1, "top_k": 0, "max_tokens": 24, "logit_bias": endless() }), &more);
        let (choice, _) = both_if_seeded(&ask("Tell me a story.", more));
        choice["message"]["content"].as_str().unwrap().to_owned()
    };
    assert_eq!(of(json!({ "seed": 7 })), of(json!({ "seed": 7 })));
    assert_ne!(of(json!({ "seed": 7 })), of(json!({ "seed": 8 })));
    let fresh: HashSet<String> = (0..4).map(|_| of(json!({}))).collect();
    assert!(fresh.len() > 1, "{fresh:?}");
}

/// With a seed the streamed reply is the whole one too.
fn both_if_seeded(body: &Value) -> (Value, bool) {
    match body.get("seed") {
        Some(_) => (both(&RIG, body).0, true),
        None => (answer(body)["choices"][0].clone(), false),
    }
}

#[test]
fn likelihoods_agree_with_the_greedy_choice_whatever_the_penalties() {
    let (choice, _) =
        both(&RIG, &ask("Hi", json!({ "temperature": 0, "logprobs": true, "top_logprobs": 4, "max_tokens": 12 })));
    let entries = choice["logprobs"]["content"].as_array().unwrap();
    assert!(!entries.is_empty());
    for entry in entries {
        let top = entry["top_logprobs"].as_array().unwrap();
        assert_eq!((&top[0]["bytes"], &top[0]["logprob"], top.len()), (&entry["bytes"], &entry["logprob"], 4));
        assert!(top.windows(2).all(|pair| pair[0]["logprob"].as_f64() >= pair[1]["logprob"].as_f64()));
        assert!(entry["logprob"].as_f64().unwrap() <= 0.0);
    }
    // A bias moves the choice, and the likelihoods stay the model's own.
    let first = entries[0]["bytes"].clone();
    let text: Vec<u8> = serde_json::from_value(first.clone()).unwrap();
    let id = WORDS.text_ids(std::str::from_utf8(&text).unwrap()).unwrap()[0].to_string();
    let more =
        json!({ "temperature": 0, "logprobs": true, "top_logprobs": 1, "max_tokens": 1, "logit_bias": { id: -100 } });
    let moved = answer(&ask("Hi", more))["choices"][0]["logprobs"]["content"][0].clone();
    assert_ne!(moved["bytes"], first);
    assert_eq!(moved["top_logprobs"][0]["bytes"], first);
    assert_eq!(moved["top_logprobs"][0]["logprob"], entries[0]["logprob"]);
}

#[test]
fn an_echoed_prompt_has_the_likelihoods_that_its_tokens_would_have_had() {
    let prompt = "Q: één 👩‍👩‍👧 日本 ok\nA:";
    let body = |more: Value| with(json!({ "temperature": 0, "logprobs": 1, "max_tokens": 2 }), &more);
    let post = |body: &Value| {
        let reply = RIG.post(TEXT, body);
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply.json()["choices"][0].clone()
    };
    let told = post(&body(json!({ "prompt": prompt, "echo": true })));
    let logprobs = &told["logprobs"];
    let list = |name: &str| logprobs[name].as_array().unwrap().clone();
    let ids = WORDS.text_ids(prompt).unwrap();
    let length = ids.len();
    assert_eq!((list("tokens").len(), list("token_logprobs").len()), (length + 2, length + 2));
    assert_eq!((&list("token_logprobs")[0], &list("top_logprobs")[0]), (&Value::Null, &Value::Null));
    // Characters that lie in several tokens count once.
    assert_eq!(list("text_offset")[length], prompt.chars().count());
    let text = told["text"].as_str().unwrap();
    for (token, offset) in list("tokens").iter().zip(list("text_offset")) {
        let (token, at) = (token.as_str().unwrap(), offset.as_u64().unwrap() as usize);
        let there: String = text.chars().skip(at).take(token.chars().count()).collect();
        assert!(token.contains('\u{fffd}') || there == token, "{token:?} at {at} of {text:?}");
    }
    // The greedy reply's own tokens, echoed, are as likely as when they were drawn.
    let greedy = |at: usize| {
        let best = list("top_logprobs")[at]
            .as_object()
            .unwrap()
            .values()
            .map(|l| l.as_f64().unwrap())
            .fold(f64::MIN, f64::max);
        best == list("token_logprobs")[at].as_f64().unwrap()
    };
    assert!(greedy(length) && greedy(length + 1), "{logprobs}");
    let whole = WORDS.text_ids(text).unwrap();
    if whole.len() == length + 2 && whole[..length] == ids {
        let again = post(&body(json!({ "prompt": whole, "echo": true, "max_tokens": 1 })));
        for at in 1..length + 2 {
            let (one, other) = (&logprobs["token_logprobs"][at], &again["logprobs"]["token_logprobs"][at]);
            assert!((one.as_f64().unwrap() - other.as_f64().unwrap()).abs() < 1e-4, "{at}: {one} {other}");
        }
    }
    let streamed = RIG.post(TEXT, &body(json!({ "prompt": prompt, "echo": true, "stream": true })));
    let chunks = streamed.data();
    let choices = chunks.iter().map(|chunk| &chunk["choices"][0]);
    for name in ["tokens", "token_logprobs", "top_logprobs", "text_offset"] {
        let joined: Vec<Value> = choices
            .clone()
            .flat_map(|choice| choice["logprobs"][name].as_array().cloned().unwrap_or_default())
            .collect();
        assert_eq!(joined, list(name), "{name}");
    }
}

#[test]
fn row_61_a_prompt_of_all_the_window_but_one_token_gets_one() {
    let used = answer(&ask("Hi", json!({ "max_tokens": 1 })))["usage"]["prompt_tokens"].as_u64().unwrap();
    let made = answer(&ask("Hi", json!({ "options": { "num_ctx": used + 1 }, "logit_bias": endless() })));
    assert_eq!(
        (&made["usage"]["completion_tokens"], &made["choices"][0]["finish_reason"]),
        (&json!(1), &json!("length"))
    );
    let full = RIG.post(CHAT, &ask("Hi", json!({ "options": { "num_ctx": used } })));
    assert_eq!((full.status, &full.json()["error"]["code"]), (400, &json!("context_length_exceeded")));
}

#[test]
fn a_stop_string_ends_the_reply_of_the_model() {
    let more = json!({ "temperature": 0, "max_tokens": 24, "logit_bias": endless() });
    let free = answer(&ask("Tell me a story.", more.clone()));
    let text = content(&free).to_owned();
    let stop: String = text.chars().skip(4).take(3).collect();
    let (choice, _) = both(&RIG, &ask("Tell me a story.", with(more, &json!({ "stop": [stop, "never"] }))));
    let before = text.split(&stop).next().unwrap();
    assert_eq!((&choice["message"]["content"], &choice["finish_reason"]), (&json!(before), &json!("stop")));
}

#[test]
fn rows_51_and_54_a_client_that_goes_away_ends_its_reply_within_a_token() {
    for stream in [true, false] {
        let body =
            ask("Count.", json!({ "stream": stream, "max_tokens": 3900, "logit_bias": endless(), "temperature": 1.5 }));
        let mut socket = RIG.connect();
        socket.write_all(&request("POST", CHAT, &[], body.to_string().as_bytes())).unwrap();
        if stream {
            socket.read_exact(&mut [0; 200]).unwrap();
        } else {
            std::thread::sleep(Duration::from_millis(300));
        }
        drop(socket);
        // Other tests' replies may still come first.
        let begun = std::time::Instant::now();
        answer(&ask("Hi", json!({ "max_tokens": 1 })));
        assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    }
}

#[test]
fn what_cannot_be_held_to_is_refused_by_its_keyword() {
    let schema = json!({ "type": "object", "properties": { "a": { "type": "array", "uniqueItems": true } } });
    let format = json!({ "type": "json_schema", "json_schema": { "name": "a", "schema": schema } });
    let mut tool = function("f", json!({ "a": { "type": "array", "uniqueItems": true } }));
    tool["function"]["strict"] = json!(true);
    for (more, field) in
        [(json!({ "response_format": format }), "response_format"), (json!({ "tools": [tool] }), "tools")]
    {
        let reply = RIG.post(CHAT, &ask("Hi", more));
        let error = reply.json()["error"].clone();
        assert_eq!((reply.status, error["param"].as_str()), (400, Some(field)), "{error}");
        assert!(error["message"].as_str().unwrap().contains("uniqueItems"), "{error}");
    }
}

#[test]
fn clients_are_answered_by_the_model_too() {
    for client in ["openai-python-3.57.0", "lm-eval-0.4.13-completions", "lm-eval-0.4.13-chat"] {
        replay(client, &RIG);
    }
}
