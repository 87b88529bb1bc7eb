//! Owns: tests of the tools of `/v1/responses`: their names, their kinds, the choice among them.

use serde_json::{Value, json};

use super::{ask, both, call, function, prompt_holds, refused};
use crate::tests::rig::{Rig, script};

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
