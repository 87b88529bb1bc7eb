//! Owns: tests of `/v1/responses`: its items, tools, events and refusals, and the requests that real clients send.

use std::time::Duration;

use serde_json::{Value, json};

use super::rig::{Reply, Rig, Setup, script};

const PATH: &str = "/v1/responses";

fn ask(rig: &Rig, body: Value) -> Reply {
    rig.post(PATH, &body)
}

/// The prompt of a body, as the scripted engine saw it: a reply is given only if the prompt holds `wanted`.
fn prompt_holds(body: &Value, wanted: &str) -> bool {
    let rig = Rig::with(script(json!([{ "when": wanted, "text": "yes" }, { "text": "no" }])));
    let reply = ask(&rig, body.clone());
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()["output"][0]["content"][0]["text"] == "yes"
}

fn refused(body: Value, param: &str) {
    let rig = Rig::saying("x");
    let reply = ask(&rig, body);
    assert_eq!(reply.status, 400, "{param}: {}", reply.text());
    let error = &reply.json()["error"];
    assert_eq!((error["param"].as_str(), error["type"].as_str()), (Some(param), Some("invalid_request_error")));
    assert!(!error["message"].as_str().unwrap().is_empty());
    assert_eq!(ask(&rig, json!({ "input": "hi" })).status, 200);
}

/// A reply without what differs from one time to the next.
fn plain(mut value: Value) -> Value {
    match &mut value {
        Value::Object(fields) => {
            for (name, field) in fields.iter_mut() {
                match name.as_str() {
                    "id" | "call_id" | "created_at" => *field = Value::Null,
                    _ => *field = plain(field.take()),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| *item = plain(item.take())),
        _ => {}
    }
    value
}

/// The events of a stream; each is named by its type, and they are numbered from 0.
fn events(reply: &Reply) -> Vec<Value> {
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(reply.header("content-type"), Some("text/event-stream; charset=utf-8"));
    assert_eq!(reply.header("cache-control"), Some("no-cache"));
    assert!(reply.whole && !reply.text().contains("[DONE]"));
    let told: Vec<(Option<String>, Value)> =
        reply.events().into_iter().map(|(name, data)| (name, serde_json::from_str(&data).unwrap())).collect();
    for (at, (name, data)) in told.iter().enumerate() {
        assert_eq!((name.as_deref(), data["sequence_number"].as_u64()), (data["type"].as_str(), Some(at as u64)));
    }
    told.into_iter().map(|(_, data)| data).collect()
}

fn types(events: &[Value]) -> Vec<&str> {
    let mut types: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    types.dedup();
    types
}

/// The same request whole and streamed: they give the same reply, and the deltas joined are its texts.
fn both(rig: impl Fn() -> Rig, body: &Value) -> (Value, Vec<Value>) {
    let whole = ask(&rig(), body.clone());
    assert_eq!(whole.status, 200, "{}", whole.text());
    let mut streaming = body.clone();
    streaming["stream"] = json!(true);
    let events = events(&ask(&rig(), streaming));
    let last = &events.last().unwrap()["response"];
    assert_eq!(plain(whole.json()), plain(last.clone()));
    for (at, item) in last["output"].as_array().unwrap().iter().enumerate() {
        let of = |event: &&Value| event["output_index"] == at;
        let joined: String = events.iter().filter(of).filter_map(|event| event["delta"].as_str()).collect();
        let parts = ["content", "summary"].iter().find_map(|name| item[name][0]["text"].as_str());
        assert_eq!(joined, parts.or(item["arguments"].as_str()).or(item["input"].as_str()).unwrap());
        let added = events.iter().find(of).unwrap();
        assert_eq!((&added["type"], &added["item"]["id"]), (&json!("response.output_item.added"), &item["id"]));
        let done = events.iter().rfind(of).unwrap();
        assert_eq!((&done["type"], &done["item"]), (&json!("response.output_item.done"), item));
    }
    (whole.json(), events)
}

fn call(name: &str, parameters: &[(&str, &str)]) -> String {
    let given: String =
        parameters.iter().map(|(name, value)| format!("<parameter={name}>\n{value}\n</parameter>\n")).collect();
    format!("<tool_call>\n<function={name}>\n{given}</function>\n</tool_call>")
}

fn function(name: &str) -> Value {
    json!({ "type": "function", "name": name, "parameters": {
        "type": "object", "properties": { "text": { "type": "string" } } } })
}

#[test]
fn a_response_repeats_its_request() {
    let rig = Rig::saying("Hello.");
    let body = json!({
        "model": "nano", "input": "hi", "instructions": "Be brief.", "temperature": 0.5, "top_p": 0.9,
        "max_output_tokens": 64, "metadata": { "a": "b" }, "user": "x", "service_tier": "auto", "store": true,
        "tools": [function("say"), { "type": "web_search" }], "tool_choice": "none", "parallel_tool_calls": false,
        "reasoning": { "effort": "none", "generate_summary": "auto" }, "truncation": "disabled", "background": false,
        "text": { "verbosity": "low" }, "previous_response_id": null, "include": [], "top_logprobs": 0,
        "stream_options": { "include_obfuscation": false }, "client_metadata": {}, "access_programs": ["x"],
        "prompt_cache_key": "k", "prompt_cache_retention": "24h", "safety_identifier": "s",
    });
    let reply = ask(&rig, body.clone()).json();
    for name in
        ["instructions", "temperature", "top_p", "max_output_tokens", "metadata", "user", "service_tier", "tool_choice"]
    {
        assert_eq!(reply[name], body[name], "{name}");
    }
    assert!(reply["id"].as_str().unwrap().starts_with("resp_") && reply["created_at"].is_u64());
    let fixed = json!({ "object": "response", "status": "completed", "model": "nano", "error": null,
        "incomplete_details": null, "previous_response_id": null, "store": false, "truncation": "disabled",
        "parallel_tool_calls": false, "reasoning": { "effort": "none", "summary": "auto" },
        "text": { "verbosity": "low", "format": { "type": "text" } } });
    for (name, value) in fixed.as_object().unwrap() {
        assert_eq!(&reply[name], value, "{name}");
    }
    assert_eq!((&reply["tools"][0]["strict"], &reply["tools"][1]["type"]), (&json!(false), &json!("web_search")));
    let usage = &reply["usage"];
    let count = |name: &str| usage[name].as_u64().unwrap();
    assert_eq!(count("total_tokens"), count("input_tokens") + count("output_tokens"));
    assert_eq!(usage["input_tokens_details"]["cached_tokens"], 0);
    assert_eq!(usage["output_tokens_details"]["reasoning_tokens"], 0);
    let message = &reply["output"][0];
    assert_eq!(
        (&message["type"], &message["role"], &message["status"]),
        (&json!("message"), &json!("assistant"), &json!("completed"))
    );
    assert_eq!(
        message["content"],
        json!([{ "type": "output_text", "text": "Hello.", "annotations": [], "logprobs": [] }])
    );
}

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

/// Row 88, and the way back.
#[test]
fn members_of_a_namespace_and_free_text_tools_come_back_as_they_were_declared() {
    let tools = json!([
        { "type": "namespace", "name": "agents", "description": "Sub-agents.", "tools": [function("say"), { "type": "custom", "name": "raw" }] },
        { "type": "custom", "name": "apply_patch", "description": "Patches files.",
          "format": { "type": "grammar", "syntax": "lark", "definition": "start: /a+/" } },
        { "type": "web_search", "external_web_access": true }, { "type": "web_search_preview_2025_03_11" },
        { "type": "file_search", "vector_store_ids": ["x"] },
    ]);
    let patch = "*** Begin Patch\n\"a\" <b>\n*** End Patch";
    let text = [
        call("agents.say", &[("text", "x")]),
        call("agents.raw", &[("input", "y")]),
        call("apply_patch", &[("input", patch)]),
    ]
    .join("\n");
    let body = json!({ "input": "hi", "tools": tools });
    let (whole, events) = both(|| Rig::saying(&text), &body);
    let output = &whole["output"];
    let shown = |at: usize| json!([output[at]["type"], output[at]["namespace"], output[at]["name"]]);
    assert_eq!(shown(0), json!(["function_call", "agents", "say"]));
    assert_eq!(shown(1), json!(["custom_tool_call", "agents", "raw"]));
    assert_eq!(shown(2), json!(["custom_tool_call", null, "apply_patch"]));
    assert_eq!(output[2]["input"], patch);
    let of_custom: Vec<&str> =
        events.iter().filter(|event| event["output_index"] == 2).map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(of_custom[1..3], ["response.custom_tool_call_input.delta", "response.custom_tool_call_input.done"]);
    for wanted in ["agents.say", "Sub-agents.", "Patches files.", "start: /a+/"] {
        assert!(prompt_holds(&body, wanted), "{wanted}");
    }
    assert!(!prompt_holds(&body, "web_search"));
    let mut back = body.clone();
    let mut items = vec![json!({ "role": "user", "content": "hi" })];
    items.extend(output.as_array().unwrap().iter().cloned());
    for at in [2, 0, 1] {
        let kind = if at == 0 { "function_call_output" } else { "custom_tool_call_output" };
        items.push(json!({ "type": kind, "call_id": output[at]["call_id"], "output": format!("result {at}") }));
    }
    back["input"] = json!(items);
    let order = "result 0\n</tool_response>\n<tool_response>\nresult 1\n</tool_response>\n<tool_response>\nresult 2";
    assert!(prompt_holds(&back, order));
    assert!(prompt_holds(&back, "<function=agents.say>") && prompt_holds(&back, patch));
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
fn items_of_the_assistant_in_a_row_are_one_turn() {
    let body = json!({ "input": [
        { "role": "user", "content": [{ "type": "input_text", "text": "do " }, { "type": "input_text", "text": "it" }] },
        { "type": "reasoning", "id": "rs_1", "summary": [{ "type": "summary_text", "text": "short" }],
          "content": [{ "type": "reasoning_text", "text": "I think" }], "encrypted_content": "", "status": "completed" },
        { "type": "message", "id": "msg_1", "status": "completed", "phase": "commentary", "role": "assistant",
          "content": [{ "type": "output_text", "text": "I do.", "annotations": [], "logprobs": [] }] },
        { "type": "function_call", "id": "fc_1", "call_id": "a", "name": "f", "arguments": "" , "status": "completed" },
        { "type": "custom_tool_call", "id": "ctc_1", "call_id": "b", "name": "g", "input": "free" },
        { "type": "custom_tool_call_output", "call_id": "b", "name": "g", "output": "two" },
        { "type": "function_call_output", "call_id": "a", "output": [{ "type": "input_text", "text": "one" }] },
    ] });
    for wanted in [
        "user\ndo it<|im_end|>",
        "<think>\nI think\n</think>\n\nI do.\n\n<tool_call>\n<function=f>\n</function>",
        "<parameter=input>\nfree\n</parameter>",
        "one\n</tool_response>\n<tool_response>\ntwo",
    ] {
        assert!(prompt_holds(&body, wanted), "{wanted}");
    }
}

/// Row 87.
#[test]
fn thoughts_come_back_from_their_summary() {
    let mut body = json!({ "input": [
        { "role": "user", "content": "hi" },
        { "type": "reasoning", "id": "rs", "summary": [{ "type": "summary_text", "text": "I read." }], "content": null, "encrypted_content": null },
        { "type": "function_call", "call_id": "a", "name": "f", "arguments": "{\"n\": 1}" },
        { "type": "function_call_output", "call_id": "a", "output": "ok" },
    ] });
    assert!(prompt_holds(&body, "<think>\nI read.\n</think>"));
    body["input"][1]["summary"] = json!([]);
    assert!(!prompt_holds(&body, "I read."));
    body["input"][1]["encrypted_content"] = json!("gAAA");
    refused(body, "input[1].encrypted_content");
}

/// Row 85.
#[test]
fn words_of_the_system_join_the_instructions_or_are_the_users() {
    let item = |role: &str, text: &str| json!({ "role": role, "content": text });
    let body = json!({ "instructions": "one", "input": [
        item("developer", "two"), item("system", "three"), item("user", "hi"), item("developer", "four") ] });
    assert!(prompt_holds(&body, "system\none\n\ntwo\n\nthree<|im_end|>"));
    assert!(prompt_holds(&body, "user\nfour<|im_end|>"));
    assert!(prompt_holds(&json!({ "input": [item("user", "<|im_end|><|image_pad|>")] }), "<|im_start|>assistant"));
}

/// Rows 29, 67, 69 and 70.
#[test]
fn a_conversation_is_whole() {
    let user = json!({ "role": "user", "content": "hi" });
    let made = |id: &str, arguments: &str| json!({ "type": "function_call", "call_id": id, "name": "f", "arguments": arguments });
    let output = |id: &str| json!({ "type": "function_call_output", "call_id": id, "output": "x" });
    let input = |items: Value| json!({ "input": items });
    refused(input(json!([])), "input");
    refused(json!({}), "input");
    refused(input(json!(5)), "input");
    refused(input(json!([{ "role": "developer", "content": "x" }])), "input");
    refused(input(json!([user, { "role": "assistant", "content": "x" }])), "input");
    refused(input(json!([user, { "type": "reasoning", "summary": [] }])), "input");
    refused(input(json!([user, made("a", "{}")])), "input");
    refused(input(json!([user, output("a")])), "input[1]");
    refused(input(json!([user, made("a", "{}"), output("b")])), "input[2]");
    refused(input(json!([user, made("a", "{}"), output("a"), output("a")])), "input[3]");
    refused(input(json!([user, made("a", "{}"), user])), "input[2]");
    refused(input(json!([user, made("a", "{}"), output("a"), made("a", "{}"), output("a")])), "input[3]");
    for wrong in ["not json", "[]"] {
        refused(input(json!([user, made("a", wrong), output("a")])), "input[1].arguments");
    }
    assert!(prompt_holds(&input(json!([user, made("a", ""), output("a")])), "<function=f>\n</function>"));
}

/// Row 86, and every other field that is not done here.
#[test]
fn what_is_not_done_is_refused_by_name() {
    for (name, value) in [
        ("previous_response_id", json!("resp_1")),
        ("conversation", json!("conv_1")),
        ("background", json!(true)),
        ("prompt", json!({ "id": "x" })),
        ("context_management", json!([{ "type": "compaction" }])),
        ("max_tool_calls", json!(3)),
        ("top_logprobs", json!(5)),
        ("truncation", json!("auto")),
        ("foo", json!(1)),
        ("stream", json!("true")),
        ("stream", json!(1)),
        ("temperature", json!("cold")),
        ("temperature", json!(1e300)),
        ("max_output_tokens", json!(0)),
        ("max_output_tokens", json!(-1)),
        ("store", json!("yes")),
        ("model", json!("other")),
        ("user", json!(5)),
        ("tool_choice", json!("required")),
        ("tools", json!({})),
    ] {
        let mut body = json!({ "input": "hi" });
        body[name] = value;
        refused(body, name);
    }
    refused(json!({ "input": "hi", "reasoning": { "effort": "banana" } }), "reasoning.effort");
    refused(json!({ "input": "hi", "reasoning": { "foo": 1 } }), "reasoning.foo");
    refused(json!({ "input": "hi", "text": { "format": { "type": "xml" } } }), "text.format.type");
    refused(
        json!({ "input": "hi", "text": { "format": { "type": "json_schema", "name": "x" } } }),
        "text.format.schema",
    );
    let null = json!({ "input": "hi", "temperature": null, "tools": null, "text": null, "reasoning": null, "stream": null,
        "previous_response_id": null, "conversation": null, "max_tool_calls": null, "top_logprobs": null });
    assert_eq!(ask(&Rig::saying("x"), null).status, 200);
}

/// Rows 91 to 93: there is no vision tower.
#[test]
fn pictures_files_and_unknown_items_are_refused_by_their_path() {
    let part = |part: Value| json!({ "input": [{ "role": "user", "content": [part] }] });
    refused(part(json!({ "type": "input_image", "image_url": "data:image/png;base64,AAAA" })), "input[0].content[0]");
    refused(part(json!({ "type": "input_image", "image_url": "http://localhost/x" })), "input[0].content[0]");
    refused(part(json!({ "type": "input_file", "file_id": "f" })), "input[0].content[0].type");
    refused(part(json!({ "type": "input_audio" })), "input[0].content[0].type");
    refused(part(json!({ "type": "input_text" })), "input[0].content[0].text");
    refused(json!({ "input": [{ "type": "item_reference", "id": "x" }] }), "input[0].type");
    refused(json!({ "input": [{ "role": "tool", "content": "x" }] }), "input[0].role");
    refused(json!({ "input": [{ "role": "user", "content": "x", "name": "y" }] }), "input[0].name");
}

/// Rows 71, 72, 74 and 75.
#[test]
fn a_choice_names_a_tool_that_is_offered() {
    let tools = json!([function("f"), { "type": "custom", "name": "c" }, { "type": "web_search" },
        { "type": "namespace", "name": "n", "tools": [function("g")] }]);
    let with = |choice: Value| json!({ "input": "hi", "tools": tools, "tool_choice": choice });
    refused(with(json!({ "type": "function", "name": "nope" })), "tool_choice");
    refused(with(json!({ "type": "custom", "name": "f" })), "tool_choice");
    refused(with(json!({ "type": "web_search" })), "tool_choice.type");
    refused(with(json!({ "type": "mcp", "server_label": "x" })), "tool_choice.type");
    refused(with(json!({ "type": "allowed_tools", "mode": "auto", "tools": [] })), "tool_choice.tools");
    refused(
        with(json!({ "type": "allowed_tools", "mode": "auto", "tools": [{ "type": "web_search" }] })),
        "tool_choice.tools[0].type",
    );
    refused(json!({ "input": "hi", "tools": [{ "type": "web_search" }], "tool_choice": "required" }), "tool_choice");
    refused(json!({ "input": "hi", "tools": [{ "type": "computer_use_preview" }] }), "tools[0].type");
    refused(json!({ "input": "hi", "tools": [function("f"), function("f")] }), "tools");
    assert!(prompt_holds(&json!({ "input": "hi", "tools": [], "tool_choice": "auto" }), "hi"));
    assert!(!prompt_holds(&with(json!("none")), "<tools>"));
    let allowed =
        with(json!({ "type": "allowed_tools", "mode": "auto", "tools": [{ "type": "function", "name": "n.g" }] }));
    assert!(prompt_holds(&allowed, "n.g") && !prompt_holds(&allowed, "\"name\": \"f\""));
    for (choice, sentence, text) in [
        (json!("required"), "You must call one of the available tools now.", call("f", &[])),
        (
            json!({ "type": "function", "name": "g", "namespace": "n" }),
            "You must call the n.g tool now.",
            call("n.g", &[]),
        ),
        (json!({ "type": "custom", "name": "c" }), "You must call the c tool now.", call("c", &[("input", "x")])),
    ] {
        let rig = Rig::with(script(json!([{ "when": sentence, "text": text }, { "text": "no" }])));
        let reply = ask(&rig, with(choice.clone()));
        assert_eq!(reply.status, 200, "{choice}: {}", reply.text());
        assert_eq!(reply.json()["tool_choice"], choice);
    }
}

#[test]
fn a_reply_without_the_call_that_was_asked_for_is_a_failure() {
    let body = json!({ "input": "hi", "tools": [function("f")], "tool_choice": "required" });
    let reply = ask(&Rig::saying("no"), body);
    assert_eq!((reply.status, &reply.json()["error"]["code"]), (500, &json!("inference_error")));
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

/// Row 59.
#[test]
fn a_prompt_that_is_too_long_is_refused_before_the_stream() {
    for stream in [false, true] {
        let reply = ask(&Rig::saying("x"), json!({ "input": "word ".repeat(1_000_000), "stream": stream }));
        assert_eq!((reply.status, &reply.json()["error"]["code"]), (400, &json!("context_length_exceeded")));
    }
}

#[test]
fn nothing_is_kept() {
    let rig = Rig::saying("x");
    for (method, path) in [
        ("GET", "/v1/responses/resp_1"),
        ("DELETE", "/v1/responses/resp_1"),
        ("GET", "/v1/responses/resp_1/input_items"),
    ] {
        let reply = rig.ask(method, path, &[], b"");
        assert_eq!((reply.status, &reply.json()["error"]["code"]), (404, &json!("stored_state_unsupported")));
        assert_eq!(reply.json()["error"]["type"], "invalid_request_error");
    }
    let reply = rig.get(PATH);
    assert_eq!((reply.status, reply.header("allow")), (405, Some("POST, OPTIONS")));
}

/// Rows 39 to 42.
#[test]
fn a_body_is_a_json_object() {
    let rig = Rig::saying("x");
    let deep = "[".repeat(100_000);
    let bodies: [&[u8]; 7] = [b"{not json", b"", b"[]", b"\"x\"", b"null", b"{\"input\":\"\xff\"}", deep.as_bytes()];
    for body in bodies {
        let reply = rig.ask("POST", PATH, &[], body);
        assert_eq!(reply.status, 400);
        assert!(reply.json()["error"]["message"].is_string());
    }
    assert!([200, 400].contains(&rig.ask("POST", PATH, &[], b"{\"input\":\"\\ud800\"}").status));
    assert_eq!(ask(&rig, json!({ "input": "hi" })).status, 200);
}

/// Rows 51 and 54.
#[test]
fn a_client_that_leaves_ends_its_reply() {
    use std::io::{Read, Write};
    for stream in [true, false] {
        let rig = Rig::with(script(json!([{ "text": "word ", "times": 5000, "token_ms": 20 }, { "text": "ok" }])));
        let body = json!({ "input": "hi", "stream": stream }).to_string();
        let mut socket = rig.connect();
        socket.write_all(&super::rig::request("POST", PATH, &[], body.as_bytes())).unwrap();
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

#[test]
fn requests_of_real_clients_are_answered() {
    for (name, file) in [
        ("codex", include_str!("../../fixtures/wire/codex-0.171.0.json")),
        ("codex, a tool", include_str!("../../fixtures/wire/codex-0.171.0-tool.json")),
        ("openai-python", include_str!("../../fixtures/wire/openai-python-3.57.0.json")),
    ] {
        let recorded: Value = serde_json::from_str(file).unwrap();
        let requests = recorded["requests"].as_array().unwrap().iter().filter(|request| request["path"] == PATH);
        let mut seen = 0;
        for request in requests {
            seen += 1;
            let mut setup = Setup::default();
            setup.settings.aliases = vec![request["body"]["model"].as_str().unwrap().to_owned()];
            let text = if request["body"]["reasoning"]["effort"].is_string() { "I see.\n</think>\n\nOK" } else { "OK" };
            let rig = Rig::set_up(script(json!([{ "text": text }])), setup);
            let headers = request["headers"].as_object().unwrap();
            let headers: Vec<(&str, &str)> =
                headers.iter().map(|(name, value)| (name.as_str(), value.as_str().unwrap())).collect();
            let reply = rig.ask("POST", PATH, &headers, request["body"].to_string().as_bytes());
            assert_eq!(json!(reply.status), request["expect_status"], "{name}: {}", reply.text());
            let response = match request["body"]["stream"] == true {
                true => events(&reply).pop().unwrap()["response"].take(),
                false => reply.json(),
            };
            assert_eq!((&response["status"], response["usage"].is_object()), (&json!("completed"), true));
            let said = response["output"].as_array().unwrap().last().unwrap();
            assert_eq!(said["content"][0]["text"], "OK", "{name}");
        }
        assert!(seen > 0, "{name}");
    }
}

/// What a format or a strict tool asks for is what the engine is held to.
#[test]
fn formats_and_strict_tools_reach_the_engine() {
    let schema = json!({ "type": "object", "properties": { "a": { "type": "integer" } } });
    for format in [
        json!({ "type": "text" }),
        json!({ "type": "json_object" }),
        json!({ "type": "json_schema", "name": "x", "schema": schema, "strict": true }),
    ] {
        let reply = ask(&Rig::saying("{\"a\":1}"), json!({ "input": "hi", "text": { "format": format } }));
        assert_eq!((reply.status, &reply.json()["text"]["format"]), (200, &format));
    }
}
