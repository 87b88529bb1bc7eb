//! Owns: bodies of every path that takes one: good ones of real clients, damaged in their structure and in their bytes.
//! Refuses: a panic, an answer that is neither a reply nor a refusal in the form of its API, a case that takes seconds.

use std::path::Path;

use serde_json::{Value, json};

use super::inside::{Inside, Saying, Told};
use super::random::{Random, damage, damage_bytes, odd_value, pieces, reply, run};
use crate::refusal::Family;

/// A function as OpenAI's clients declare it.
fn say() -> Value {
    json!({ "name": "say", "description": "Says it.", "strict": false, "parameters": { "type": "object",
        "properties": { "text": { "type": "string" }, "n": { "type": "integer" } } } })
}

/// A body of each path that uses as many of its fields as can stand side by side.
fn full() -> Vec<(&'static str, Value)> {
    let tool = json!({ "type": "function", "function": say() });
    let call =
        json!({ "id": "c1", "type": "function", "function": { "name": "say", "arguments": "{\"text\":\"x\"}" } });
    let chat = json!({
        "messages": [
            { "role": "system", "content": "Be brief." },
            { "role": "user", "content": [{ "type": "text", "text": "hi" }] },
            { "role": "assistant", "content": null, "reasoning_content": "hm", "tool_calls": [call] },
            { "role": "tool", "tool_call_id": "c1", "name": "say", "content": "done" },
            { "role": "user", "content": "go on" },
        ],
        "tools": [tool], "tool_choice": "auto", "parallel_tool_calls": false, "stream": true,
        "stream_options": { "include_usage": true }, "temperature": 0.5, "top_p": 0.9, "top_k": 5, "min_p": 0.1, "seed": 7,
        "presence_penalty": 1, "frequency_penalty": -1, "repetition_penalty": 1.1, "logit_bias": { "5": 3 },
        "max_completion_tokens": 9, "stop": ["END"], "logprobs": true, "top_logprobs": 2, "reasoning_effort": "low",
        "chat_template_kwargs": { "enable_thinking": true }, "options": { "num_ctx": 2048 }, "n": 1, "user": "u",
        "response_format": { "type": "text" },
    });
    let schema = json!({ "type": "json_schema", "name": "s", "schema": { "type": "object" } });
    let items = json!([
        { "role": "developer", "content": "Be brief." },
        { "role": "user", "content": [{ "type": "input_text", "text": "hi" }] },
        { "type": "reasoning", "id": "r", "summary": [{ "type": "summary_text", "text": "hm" }], "encrypted_content": null },
        { "type": "function_call", "call_id": "c1", "name": "say", "arguments": "{}" },
        { "type": "function_call_output", "call_id": "c1", "output": "done" },
        { "type": "custom_tool_call", "call_id": "c2", "name": "free", "input": "x" },
        { "type": "custom_tool_call_output", "call_id": "c2", "output": [{ "type": "input_text", "text": "x" }] },
        { "role": "user", "content": "go on" },
    ]);
    let mut function = say();
    function["type"] = json!("function");
    let responses = json!({
        "input": items, "instructions": "Be good.", "tools": [function, { "type": "custom", "name": "free" },
            { "type": "namespace", "name": "ns", "description": "d", "tools": [function] }, { "type": "web_search" }],
        "tool_choice": "auto", "reasoning": { "effort": "low", "summary": "auto" }, "max_output_tokens": 9, "stream": true,
        "text": { "format": schema, "verbosity": "low" }, "store": false, "include": ["reasoning.encrypted_content"],
    });
    let messages = json!({
        "model": "qwen3.8-flash-next", "max_tokens": 9, "stream": true, "system": [{ "type": "text", "text": "Be brief." }],
        "messages": [
            { "role": "user", "content": "hi" },
            { "role": "assistant", "content": [{ "type": "thinking", "thinking": "hm", "signature": "s" },
                { "type": "text", "text": "so" }, { "type": "tool_use", "id": "t1", "name": "say", "input": {} }] },
            { "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "t1", "is_error": true,
                "content": [{ "type": "text", "text": "x" }] }, { "type": "text", "text": "go on" },
                { "type": "document", "title": "d", "source": { "type": "text", "media_type": "text/plain", "data": "x" } }] },
        ],
        "tools": [{ "name": "say", "input_schema": say()["parameters"] }], "tool_choice": { "type": "auto" },
        "thinking": { "type": "enabled", "budget_tokens": 1024 }, "stop_sequences": ["END"], "temperature": 0.5, "top_k": 5,
    });
    let ollama = json!({
        "messages": [
            { "role": "system", "content": "Be brief." }, { "role": "user", "content": "hi", "images": [] },
            { "role": "assistant", "thinking": "hm", "tool_calls": [{ "function": { "name": "say", "arguments": {} } }] },
            { "role": "tool", "tool_name": "say", "content": "done" }, { "role": "user", "content": "go on" },
        ],
        "tools": [tool], "think": "low", "keep_alive": "5m", "format": "", "stream": true,
        "options": { "num_predict": 9, "temperature": 0.5, "stop": ["END"], "num_ctx": 2048, "mirostat": 0, "num_gpu": 1 },
    });
    let mut count = messages.clone();
    count.as_object_mut().unwrap().remove("max_tokens");
    vec![
        ("/v1/chat/completions", chat.clone()),
        ("/apply-template", chat),
        (
            "/v1/completions",
            json!({ "prompt": ["a", [5, 6]], "max_tokens": 3, "echo": true, "logprobs": 2, "stop": "END" }),
        ),
        ("/v1/completions", json!({ "prompt": "a", "max_tokens": 3, "stream": true, "logit_bias": { "1": -100 } })),
        ("/v1/responses", responses),
        ("/v1/messages", messages),
        ("/v1/messages/count_tokens", count),
        ("/api/chat", ollama),
        ("/api/generate", json!({ "prompt": "a", "raw": true, "options": {}, "context": [] })),
        ("/api/generate", json!({ "prompt": "a", "system": "b", "suffix": "", "format": "json", "stream": false })),
        ("/api/show", json!({ "model": "qwen3.8-flash-next", "name": "", "verbose": true, "options": null })),
        ("/tokenize", json!({ "content": "hi", "with_pieces": true })),
        ("/detokenize", json!({ "tokens": [1, 2, 3] })),
    ]
}

/// Bodies of real clients, by path.
fn recorded() -> Vec<(String, Value)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/wire");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    let mut bodies = Vec::new();
    for file in files {
        let recording: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        for request in
            recording["requests"].as_array().into_iter().flatten().filter(|request| request["body"].is_object())
        {
            let mut body = request["body"].clone();
            if body.get("model").is_some() {
                body["model"] = json!("qwen3.8-flash-next:4bit");
            }
            let path = request["path"].as_str().unwrap().split('?').next().unwrap();
            bodies.push((path.to_owned(), body));
        }
    }
    bodies
}

fn check(path: &str, told: &Told) {
    let Told { status, kind, body } = told;
    let family = Family::of(path);
    if *status == 200 {
        assert!(kind != "application/json" || serde_json::from_str::<Value>(body).is_ok(), "{path}: {body}");
        return;
    }
    let error = told.json();
    let message = match family {
        Family::OpenAi => error["error"]["message"].as_str(),
        Family::Anthropic => error["error"]["message"].as_str().filter(|_| error["type"] == "error"),
        Family::Ollama | Family::Own => error["error"].as_str(),
    };
    let message = message.unwrap_or_else(|| panic!("{path}: {error}"));
    assert!(!message.is_empty() && message.chars().count() < 700, "{path}: {message}");
    match status {
        400 | 404 | 501 => {}
        // The engine says what it likes, whatever the request asks for.
        500 => assert!(
            message.contains("reply cannot be used") || message.contains("without the call"),
            "{path}: {message}"
        ),
        _ => panic!("{path}: {status}: {message}"),
    }
}

#[test]
fn no_body_is_answered_by_a_fault() {
    let (inside, full) = (Inside::new(), full());
    let mut seeds: Vec<(String, Value)> = full.iter().map(|(path, body)| ((*path).to_owned(), body.clone())).collect();
    seeds.extend(recorded());
    for (path, body) in &full {
        let told = inside.post(path, body.to_string().as_bytes());
        assert!(told.status == 200, "{path}: {}", told.body);
    }
    run("bodies", 100, |case| {
        let mut random = Random(case);
        let (path, mut body) = random.pick(&seeds).clone();
        let text = reply(&mut random);
        inside.say(Saying { pieces: pieces(&mut random, &text), cut: random.one_in(3) });
        let others: Vec<&Value> = seeds.iter().filter(|(other, _)| *other == path).map(|(_, body)| body).collect();
        match random.below(10) {
            0 => body = odd_value(&mut random),
            _ => (0..=random.below(3)).for_each(|_| {
                let other = *random.pick(&others);
                damage(&mut random, &mut body, other);
            }),
        }
        let mut bytes = body.to_string().into_bytes();
        if random.one_in(8) {
            damage_bytes(&mut random, &mut bytes);
        }
        check(&path, &inside.post(&path, &bytes));
    });
}
