//! Owns: tests of the items that `/v1/responses` reads, and the conversation that they are.

use serde_json::{Value, json};

use super::{prompt_holds, refused};

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
