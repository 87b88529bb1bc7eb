//! Owns: tests of the fields of `/v1/responses`, of what a response repeats, and of refusals.

use serde_json::{Value, json};

use super::{PATH, ask, function, refused};
use crate::tests::rig::Rig;

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

/// A format is enforced, or refused with the words of what cannot be.
#[test]
fn a_format_is_enforced_or_refused() {
    let schema = json!({ "type": "object", "properties": { "a": { "type": "integer" } } });
    let named = |schema: Value| json!({ "type": "json_schema", "name": "x", "schema": schema, "strict": true });
    let body = |format: &Value| json!({ "input": "hi", "text": { "format": format } });
    for format in [json!({ "type": "text" }), json!({ "type": "json_object" }), named(schema)] {
        let reply = ask(&Rig::saying("{\"a\":1}"), body(&format));
        assert_eq!((reply.status, &reply.json()["text"]["format"]), (200, &format));
    }
    refused(body(&named(json!({ "type": "string", "pattern": "(" }))), "text.format");
}

/// Row 74: a strict tool's arguments are held to its schema, which must be one that they can be held to.
#[test]
fn a_strict_tool_is_enforced_or_refused() {
    let tool = |schema: Value| {
        json!({ "type": "function", "name": "f", "strict": true, "parameters": {
            "type": "object", "properties": { "text": schema }, "required": ["text"], "additionalProperties": false } })
    };
    let body = |tool: Value| json!({ "input": "hi", "tools": [tool] });
    let reply = ask(&Rig::saying("x"), body(tool(json!({ "type": "string" }))));
    assert_eq!((reply.status, &reply.json()["tools"][0]["strict"]), (200, &json!(true)));
    refused(body(tool(json!({ "type": "string", "pattern": "(" }))), "tools");
}
