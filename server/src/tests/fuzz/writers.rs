//! Owns: every API's two forms of a reply, held against each other: what is streamed, joined, is what is given whole, however the
//! reply is cut into tokens; after a failure there is no sign of success.

use serde_json::{Value, json};

use super::inside::{Inside, Saying, Told};
use super::random::{Random, pieces, reply, run};

/// What a client makes of a reply, in any API.
#[derive(Debug, Default, PartialEq)]
struct Read {
    reasoning: String,
    text: String,
    /// Names and arguments, as they came.
    calls: Vec<(String, String)>,
    reason: String,
    failed: Option<String>,
}

/// Reads a whole reply.
type Whole = fn(&Value) -> Read;
/// Reads a stream's values, one after the other.
type Streamed = fn(&mut Read, &Value);

struct Api {
    path: &'static str,
    body: Value,
    whole: Whole,
    streamed: Streamed,
    /// What only a stream that ended well holds.
    success: &'static [&'static str],
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn call(name: &Value, arguments: &Value) -> (String, String) {
    let arguments = arguments.as_str().map_or_else(|| arguments.to_string(), str::to_owned);
    (text(name).to_owned(), arguments)
}

fn chat(value: &Value) -> Read {
    let choice = &value["choices"][0];
    let message = &choice["message"];
    let calls = message["tool_calls"].as_array().into_iter().flatten();
    Read {
        reasoning: text(&message["reasoning_content"]).to_owned(),
        text: text(&message["content"]).to_owned(),
        calls: calls.map(|made| call(&made["function"]["name"], &made["function"]["arguments"])).collect(),
        reason: text(&choice["finish_reason"]).to_owned(),
        failed: None,
    }
}

fn chat_chunk(read: &mut Read, value: &Value) {
    let choice = &value["choices"][0];
    read.reasoning += text(&choice["delta"]["reasoning_content"]);
    read.text += text(&choice["delta"]["content"]);
    for piece in choice["delta"]["tool_calls"].as_array().into_iter().flatten() {
        let (name, arguments) = call(&piece["function"]["name"], &piece["function"]["arguments"]);
        match piece["id"].as_str() {
            Some(_) => read.calls.push((name, arguments)),
            None => read.calls[piece["index"].as_u64().unwrap() as usize].1 += &arguments,
        }
    }
    read.reason += text(&choice["finish_reason"]);
}

fn completion(value: &Value) -> Read {
    let choice = &value["choices"][0];
    Read {
        text: text(&choice["text"]).to_owned(),
        reason: text(&choice["finish_reason"]).to_owned(),
        ..Read::default()
    }
}

fn completion_chunk(read: &mut Read, value: &Value) {
    let piece = completion(value);
    read.text += &piece.text;
    read.reason += &piece.reason;
}

fn response(value: &Value) -> Read {
    let mut read = Read { reason: text(&value["status"]).to_owned(), ..Read::default() };
    for item in value["output"].as_array().into_iter().flatten() {
        match text(&item["type"]) {
            "reasoning" => read.reasoning += text(&item["summary"][0]["text"]),
            "message" => {
                for part in item["content"].as_array().into_iter().flatten() {
                    read.text += text(&part["text"]);
                }
            }
            _ => read.calls.push(call(&item["name"], &item["arguments"])),
        }
    }
    read
}

fn response_event(read: &mut Read, value: &Value) {
    match text(&value["type"]) {
        "response.output_text.delta" => read.text += text(&value["delta"]),
        "response.reasoning_summary_text.delta" => read.reasoning += text(&value["delta"]),
        "response.output_item.done" if value["item"]["type"] == "function_call" => {
            read.calls.push(call(&value["item"]["name"], &value["item"]["arguments"]));
        }
        "response.completed" | "response.incomplete" => {
            // The last state is told whole as well.
            let last = response(&value["response"]);
            assert_eq!((&last.text, &last.reasoning, &last.calls), (&read.text, &read.reasoning, &read.calls));
            read.reason = last.reason;
        }
        _ => {}
    }
}

fn message(value: &Value) -> Read {
    let mut read = Read { reason: text(&value["stop_reason"]).to_owned(), ..Read::default() };
    for block in value["content"].as_array().into_iter().flatten() {
        match text(&block["type"]) {
            "thinking" => read.reasoning += text(&block["thinking"]),
            "text" => read.text += text(&block["text"]),
            _ => read.calls.push(call(&block["name"], &block["input"])),
        }
    }
    read
}

fn message_event(read: &mut Read, value: &Value) {
    match text(&value["type"]) {
        "content_block_start" if value["content_block"]["type"] == "tool_use" => {
            read.calls.push((text(&value["content_block"]["name"]).to_owned(), String::new()));
        }
        "content_block_delta" => {
            let delta = &value["delta"];
            read.reasoning += text(&delta["thinking"]);
            read.text += text(&delta["text"]);
            if let Some(last) = read.calls.last_mut() {
                last.1 += text(&delta["partial_json"]);
            }
        }
        "message_delta" => read.reason = text(&value["delta"]["stop_reason"]).to_owned(),
        _ => {}
    }
}

fn ollama(value: &Value) -> Read {
    let mut read = Read::default();
    ollama_line(&mut read, value);
    read
}

fn ollama_line(read: &mut Read, value: &Value) {
    let told = if value["message"].is_object() { &value["message"] } else { value };
    read.reasoning += text(&told["thinking"]);
    read.text += text(&told["content"]);
    read.text += text(&told["response"]);
    let calls = told["tool_calls"].as_array().into_iter().flatten();
    read.calls.extend(calls.map(|made| call(&made["function"]["name"], &made["function"]["arguments"])));
    read.reason += text(&value["done_reason"]);
}

fn apis() -> Vec<Api> {
    let hi = json!([{ "role": "user", "content": "hi" }]);
    let schema =
        json!({ "type": "object", "properties": { "text": { "type": "string" }, "n": { "type": "integer" } } });
    let tools = json!([{ "type": "function", "function": { "name": "say", "parameters": schema } }]);
    let done: &[&str] =
        &["[DONE]", "\"finish_reason\":\"stop\"", "\"finish_reason\":\"length\"", "\"finish_reason\":\"tool_calls\""];
    let last: &[&str] = &["\"done\":true"];
    vec![
        Api {
            path: "/v1/chat/completions",
            body: json!({ "messages": hi, "tools": tools, "think": true, "logprobs": true, "top_logprobs": 1 }),
            whole: chat,
            streamed: chat_chunk,
            success: done,
        },
        Api {
            path: "/v1/completions",
            body: json!({ "prompt": "a", "echo": true, "stop": ["END"] }),
            whole: completion,
            streamed: completion_chunk,
            success: done,
        },
        Api {
            path: "/v1/responses",
            body: json!({ "input": "hi", "reasoning": { "effort": "low", "summary": "auto" },
                "tools": [{ "type": "function", "name": "say", "parameters": schema }] }),
            whole: response,
            streamed: response_event,
            success: &["response.completed", "response.incomplete"],
        },
        Api {
            path: "/v1/messages",
            body: json!({ "model": "qwen3.8-flash-next", "max_tokens": 100, "messages": hi, "stop_sequences": ["END"],
                "tools": [{ "name": "say", "input_schema": schema }],
                "thinking": { "type": "enabled", "budget_tokens": 1024 } }),
            whole: message,
            streamed: message_event,
            success: &["message_stop", "message_delta"],
        },
        Api {
            path: "/api/chat",
            body: json!({ "messages": hi, "tools": tools, "think": true, "options": { "stop": ["END"] } }),
            whole: ollama,
            streamed: ollama_line,
            success: last,
        },
        Api {
            path: "/api/generate",
            body: json!({ "prompt": "hi", "think": true }),
            whole: ollama,
            streamed: ollama_line,
            success: last,
        },
    ]
}

/// The values of a stream, each on its line.
fn values(told: &Told) -> Vec<Value> {
    let parse = |data: &str| serde_json::from_str(data).unwrap_or_else(|error| panic!("{error}: {data}"));
    if told.kind.starts_with("application/x-ndjson") {
        assert!(told.body.ends_with('\n'));
        return told.body.lines().map(parse).collect();
    }
    assert!(told.kind.starts_with("text/event-stream") && told.body.ends_with("\n\n"), "{}: {}", told.kind, told.body);
    for line in told.body.lines() {
        let known = ["data: ", "event: ", ": "].iter().any(|begin| line.starts_with(begin));
        assert!(known || line.is_empty(), "{line}");
    }
    let data = told.body.lines().filter_map(|line| line.strip_prefix("data: ")).filter(|data| *data != "[DONE]");
    data.map(parse).collect()
}

/// What a client reads of a reply that is not streamed.
fn whole(api: &Api, told: &Told) -> Read {
    match told.status {
        200 => (api.whole)(&told.json()),
        500 => Read { failed: Some(failure(&told.json()).unwrap()), ..Read::default() },
        other => panic!("{}: {other}: {}", api.path, told.body),
    }
}

/// The sentence of an error, in any API's form.
fn failure(value: &Value) -> Option<String> {
    let error = if value["type"] == "response.failed" { &value["response"]["error"] } else { &value["error"] };
    error.as_str().or(error["message"].as_str()).map(str::to_owned)
}

/// What a client reads of a stream.
fn streamed(api: &Api, told: &Told) -> Read {
    assert_eq!(told.status, 200, "{}: {}", api.path, told.body);
    let mut read = Read::default();
    for value in values(told) {
        assert_eq!(read.failed, None, "{}: something follows a failure: {}", api.path, told.body);
        (api.streamed)(&mut read, &value);
        read.failed = failure(&value);
    }
    if read.failed.is_some() {
        assert!(!api.success.iter().any(|sign| told.body.contains(sign)), "{}: {}", api.path, told.body);
    }
    read
}

#[test]
fn what_is_streamed_is_what_is_given_whole() {
    let (inside, apis) = (Inside::new(), apis());
    run("writers", 100, |case| {
        let mut random = Random(case);
        let (api, written, cut) = (random.pick(&apis), reply(&mut random), random.one_in(3));
        let mut ask = |stream: bool| {
            inside.say(Saying { pieces: pieces(&mut random, &written), cut });
            let mut body = api.body.clone();
            body["stream"] = json!(stream);
            inside.post(api.path, body.to_string().as_bytes())
        };
        let (of_whole, of_stream) = (whole(api, &ask(false)), streamed(api, &ask(true)));
        match &of_whole.failed {
            // How far a stream came before is not a whole reply's business.
            Some(why) => assert_eq!(of_stream.failed.as_ref(), Some(why), "{}: {written:?}", api.path),
            None => assert_eq!(of_stream, of_whole, "{}: {written:?}", api.path),
        }
    });
}
