//! Owns: completions as server.md section 7 promises them: prompts of every form, echo, likelihoods, limits, streams.

use serde_json::{Value, json};

use super::rig::{Rig, WORDS, script};
use super::seen::{Bench, TEXT, with};

#[test]
fn a_reply_has_its_form_and_sixteen_tokens_unless_told_otherwise() {
    let bench = Bench::cutting(&"ab ".repeat(40), 3);
    let (reply, seen) = bench.text(&json!({}));
    assert_eq!((seen.prompt.as_str(), seen.max_tokens), ("Once", Some(16)));
    assert!(reply["id"].as_str().unwrap().starts_with("cmpl-"));
    assert_eq!((&reply["object"], &reply["model"]), (&json!("text_completion"), &json!("nano")));
    let choice = json!({ "index": 0, "text": "ab ".repeat(16), "finish_reason": "length", "logprobs": null });
    assert_eq!(reply["choices"], json!([choice]));
    let prompt = WORDS.text_ids("Once").unwrap().len();
    assert_eq!((&reply["usage"]["prompt_tokens"], &reply["usage"]["completion_tokens"]), (&json!(prompt), &json!(16)));
    assert_eq!(reply["usage"]["total_tokens"], prompt + 16);
}

#[test]
fn prompts_come_in_four_forms() {
    let bench = Bench::saying("x");
    let ids = WORDS.text_ids("Once upon").unwrap();
    let post = |prompt: &Value| bench.rig.post(TEXT, &json!({ "prompt": prompt, "echo": true }));
    for (prompt, texts) in [
        (json!("Once upon"), vec!["Once upon"]),
        (json!(["Once", "Twice"]), vec!["Once", "Twice"]),
        (json!(ids), vec!["Once upon"]),
        (json!([ids, ids]), vec!["Once upon", "Once upon"]),
        (json!(["Once", ids]), vec!["Once", "Once upon"]),
        (json!(vec!["a"; 32]), vec!["a"; 32]),
    ] {
        let reply = post(&prompt);
        assert_eq!(reply.status, 200, "{}", reply.text());
        let reply = reply.json();
        let seen: Vec<_> = bench.seen.lock().drain(..).collect();
        assert_eq!(seen.iter().map(|seen| seen.prompt.as_str()).collect::<Vec<_>>(), texts);
        for (index, (choice, text)) in reply["choices"].as_array().unwrap().iter().zip(&texts).enumerate() {
            assert_eq!((&choice["index"], &choice["text"]), (&json!(index), &json!(format!("{text}x"))));
        }
        let read: usize = seen.iter().map(|seen| seen.ids.len()).sum();
        assert_eq!(
            (&reply["usage"]["prompt_tokens"], &reply["usage"]["completion_tokens"]),
            (&json!(read), &json!(seen.len()))
        );
    }
    for (wrong, field) in [
        (json!([]), "prompt"),
        (json!(""), "prompt"),
        (json!([[]]), "prompt"),
        (json!(5), "prompt"),
        (json!([1, "a"]), "prompt"),
        (json!([1, [1]]), "prompt"),
        (json!([-1]), "prompt[0]"),
        (json!([1.5]), "prompt[0]"),
        (json!([[1, "a"]]), "prompt[0][1]"),
        (json!([4_000_000]), "prompt"),
        (json!(vec!["a"; 33]), "prompt"),
        (Value::Null, "prompt"),
    ] {
        bench.refused(TEXT, &json!({ "prompt": wrong }), field);
    }
    assert!(bench.is_well());
}

#[test]
fn fields_reach_the_engine_or_are_refused_by_name() {
    let bench = Bench::saying("x");
    let asked = json!({ "temperature": 0.5, "top_p": 2, "top_k": -1, "min_p": 3, "presence_penalty": 1, "seed": 9,
        "frequency_penalty": -1, "repetition_penalty": 1.5, "logit_bias": { "3": 4 }, "max_tokens": 3, "stop": ["a", ""],
        "n": 1, "best_of": 1, "suffix": "", "user": "u", "logprobs": 5, "model": "nano" });
    let (_, seen) = bench.text(&asked);
    let got = seen.sampling;
    assert_eq!((got.temperature, got.top_p, got.top_k, got.min_p, got.seed), (0.5, 1.0, 0, 1.0, 9));
    assert_eq!((got.presence_penalty, got.frequency_penalty, got.repetition_penalty), (1.0, -1.0, 1.5));
    assert_eq!((got.logit_bias, seen.max_tokens, seen.logprobs), (vec![(3, 4.0)], Some(3), Some(5)));
    assert!(!seen.prompt_logprobs && seen.reply.tools.is_none() && !seen.reply.thinking);
    for (name, wrong) in [
        ("max_tokens", json!(-1)),
        ("max_tokens", json!(0)),
        ("logprobs", json!(6)),
        ("logprobs", json!(true)),
        ("n", json!(2)),
        ("best_of", json!(2)),
        ("suffix", json!("x")),
        ("echo", json!(1)),
        ("temperature", json!("cold")),
        ("presence_penalty", json!(3)),
        ("seed", json!(1.5)),
        ("stop", json!(vec!["a"; 17])),
        ("stream", json!("true")),
        ("messages", json!([])),
        ("foo", json!(1)),
        ("model", json!("other")),
    ] {
        bench.refused(TEXT, &json!({ "prompt": "a", name: wrong }), name);
    }
}

#[test]
fn a_limit_of_zero_gives_the_prompt_back() {
    let bench = Bench::saying("never");
    let (reply, seen) = bench.text(&json!({ "max_tokens": 0, "echo": true }));
    assert_eq!((seen.max_tokens, &reply["choices"][0]["text"]), (Some(0), &json!("Once")));
    assert_eq!(
        (&reply["usage"]["completion_tokens"], &reply["choices"][0]["finish_reason"]),
        (&json!(0), &json!("length"))
    );
}

#[test]
fn tags_and_stops_are_those_of_text() {
    let text = "a</think>b<tool_call>\n<function=f>c STOP d";
    let (reply, _) = Bench::cutting(text, 2).text(&json!({ "stop": "STOP", "max_tokens": 100 }));
    assert_eq!(reply["choices"][0]["text"], "a</think>b<tool_call>\n<function=f>c ");
    assert_eq!(reply["choices"][0]["finish_reason"], "stop");
}

#[test]
fn likelihoods_have_offsets_of_characters() {
    let bench = Bench::cutting("één 👍 x", 1);
    let (reply, _) = bench.text(&json!({ "logprobs": 1 }));
    let told = &reply["choices"][0]["logprobs"];
    assert_eq!(told["tokens"].as_array().unwrap().concat_texts(), "één 👍 x");
    assert_eq!(told["text_offset"], json!([0, 1, 2, 3, 4, 5, 6]));
    for name in ["token_logprobs", "top_logprobs"] {
        assert_eq!(told[name].as_array().unwrap().len(), 7);
    }
    assert_eq!(told["top_logprobs"][0], json!({ "é": 0.0 }));
    let (reply, seen) = bench.text(&json!({ "logprobs": 0, "echo": true }));
    assert!(seen.prompt_logprobs);
    // This engine tells nothing of the prompt: the reply's own tokens begin behind it.
    assert_eq!(reply["choices"][0]["logprobs"]["text_offset"][0], 4);
}

/// Texts in a row.
trait Concat {
    fn concat_texts(&self) -> String;
}

impl Concat for Vec<Value> {
    fn concat_texts(&self) -> String {
        self.iter().map(|text| text.as_str().unwrap()).collect()
    }
}

#[test]
fn streamed_is_unstreamed() {
    let text = "één 👩‍👩‍👧 e\u{301} 🇫🇷 ok";
    let bench = Bench::cutting(text, 3);
    for more in [
        json!({}),
        json!({ "echo": true }),
        json!({ "logprobs": 2 }),
        json!({ "stop": "🇫" }),
        json!({ "echo": true, "logprobs": 2, "max_tokens": 3 }),
    ] {
        let whole = bench.text(&more).0;
        let body =
            with(json!({ "prompt": "Once", "stream": true, "stream_options": { "include_usage": true } }), &more);
        let reply = bench.rig.post(TEXT, &body);
        assert_eq!(reply.header("content-type"), Some("text/event-stream; charset=utf-8"));
        assert_eq!(reply.events().last().unwrap().1, "[DONE]");
        let chunks = reply.data();
        let choice = &whole["choices"][0];
        let choices: Vec<&Value> = chunks.iter().map(|chunk| &chunk["choices"][0]).filter(|c| c.is_object()).collect();
        let joined: String = choices.iter().map(|choice| choice["text"].as_str().unwrap()).collect();
        assert_eq!(joined, choice["text"].as_str().unwrap(), "{more}");
        let ends: Vec<&Value> =
            choices.iter().map(|choice| &choice["finish_reason"]).filter(|end| !end.is_null()).collect();
        assert_eq!(ends, [&choice["finish_reason"]]);
        for name in ["tokens", "token_logprobs", "top_logprobs", "text_offset"] {
            let told: Vec<Value> = choices
                .iter()
                .flat_map(|choice| choice["logprobs"][name].as_array().cloned().unwrap_or_default())
                .collect();
            assert_eq!(told, choice["logprobs"][name].as_array().cloned().unwrap_or_default(), "{name} {more}");
        }
        let (last, before) = chunks.split_last().unwrap();
        assert_eq!((&last["choices"], &last["usage"]), (&json!([]), &whole["usage"]));
        assert!(before.iter().all(|chunk| chunk["usage"].is_null() && chunk["id"] == last["id"]));
    }
    bench.refused(TEXT, &json!({ "prompt": ["a", "b"], "stream": true }), "stream");
}

#[test]
fn what_fails_is_said_in_both_forms() {
    let rig = Rig::with(script(json!([{ "text": "one two three", "fail": [1, "the disk is gone"] }])));
    let whole = rig.post(TEXT, &json!({ "prompt": "a" }));
    assert_eq!((whole.status, &whole.json()["error"]["code"]), (500, &json!("inference_error")));
    let streamed = rig.post(TEXT, &json!({ "prompt": "a", "stream": true }));
    let events = streamed.events();
    assert!(events.iter().all(|(_, data)| data != "[DONE]"));
    let last: Value = serde_json::from_str(&events.last().unwrap().1).unwrap();
    assert_eq!(last["error"]["message"], "the disk is gone");
}

#[test]
fn row_61_a_prompt_of_all_tokens_but_one_gets_one_and_a_full_one_none() {
    let bench = Bench::cutting("one two", 3);
    let (reply, seen) = bench.text(&json!({ "prompt": vec![5; 4095], "max_tokens": 100 }));
    assert_eq!((seen.ids.len(), &reply["usage"]["completion_tokens"]), (4095, &json!(1)));
    assert_eq!(reply["choices"][0]["finish_reason"], "length");
    let full = bench.rig.post(TEXT, &json!({ "prompt": vec![5; 4096] }));
    let error = full.json()["error"].clone();
    assert_eq!((full.status, &error["code"]), (400, &json!("context_length_exceeded")));
    let (reply, _) = bench.text(&json!({ "prompt": vec![5; 4096], "max_tokens": 0, "echo": true }));
    assert_eq!(reply["usage"]["prompt_tokens"], 4096);
}
