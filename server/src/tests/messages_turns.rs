//! Owns: from Anthropic's body to the request that the engine gets: turns, blocks, settings (server.md section 9).

use serde_json::{Value, json};

use crate::api::anthropic::fields::BODY;
use crate::api::anthropic::{messages, turns};
use crate::refusal::Refusal;
use crate::request::{Format, Generation, ToolChoice};
use crate::{Effort, Thinking};

/// A body with these fields beside what must be there.
fn body(more: Value) -> Value {
    let mut body = json!({ "model": "nano", "max_tokens": 8, "messages": [{ "role": "user", "content": "hi" }] });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

fn read(more: Value) -> Result<Generation, Refusal> {
    let fields = BODY.check(body(more))?;
    let (talk, _) = turns::read(&fields)?;
    messages::generation(&fields, talk.finish("messages")?)
}

/// The conversation in the template's form.
fn turns(more: Value) -> Vec<Value> {
    let fields = BODY.check(body(more)).unwrap();
    turns::read(&fields).unwrap().0.finish("messages").unwrap()
}

fn messages(list: Value) -> Vec<Value> {
    turns(json!({ "messages": list }))
}

fn refused(more: Value) -> String {
    read(more).unwrap_err().message
}

fn refused_messages(list: Value) -> String {
    refused(json!({ "messages": list }))
}

fn call(id: &str) -> Value {
    json!({ "type": "tool_use", "id": id, "name": "see", "input": { "at": id } })
}

fn result(id: &str, content: Value) -> Value {
    json!({ "type": "tool_result", "tool_use_id": id, "content": content })
}

fn user(content: Value) -> Value {
    json!({ "role": "user", "content": content })
}

fn model(content: Value) -> Value {
    json!({ "role": "assistant", "content": content })
}

#[test]
fn row_90_the_billing_line_is_not_read_whatever_it_says() {
    let with = |line: &str| {
        turns(json!({ "system": [
            { "type": "text", "text": line },
            { "type": "text", "text": "You help.", "cache_control": { "type": "ephemeral" } },
            { "type": "text", "text": "Be brief." },
        ] }))
    };
    let one = with("x-anthropic-billing-header: cc_version=1; cch=aaaa;");
    assert_eq!(one[0], json!({ "role": "system", "content": "You help.\n\nBe brief." }));
    assert_eq!(one, with("x-anthropic-billing-header: cc_version=2; cch=bbbb;\n"));
    let text = turns(json!({ "system": "x-anthropic-billing-header: a\nYou help.\nx-anthropic-billing-header: b" }));
    assert_eq!(text[0]["content"], "You help.\nx-anthropic-billing-header: b");
    assert_eq!(turns(json!({ "system": "x-anthropic-billing-header: a" })).len(), 1);
}

#[test]
fn row_85_a_system_message_joins_the_system_text_before_the_conversation_and_is_the_users_after() {
    let system = |content: Value| json!({ "role": "system", "content": content });
    let before = turns(json!({ "system": "one", "messages": [system(json!("two")), user(json!("hi"))] }));
    assert_eq!(before[0]["content"], "one\n\ntwo");
    let tools = json!([{ "type": "tool_addition", "tools": [] }, { "type": "text", "text": "two" }, { "type": "tool_removal" }]);
    let after = messages(json!([user(json!("hi")), system(tools.clone())]));
    assert_eq!(after, [json!({ "role": "user", "content": "hi\n\ntwo" })]);
    // Between a call and its result it does not part them.
    let between = messages(json!([
        user(json!("hi")),
        model(json!([call("a")])),
        system(tools),
        user(json!([result("a", json!("seen"))])),
    ]));
    let roles: Vec<&Value> = between.iter().map(|message| &message["role"]).collect();
    assert_eq!(roles, ["user", "assistant", "tool", "user"]);
}

#[test]
fn messages_of_one_role_in_a_row_are_one_turn() {
    let made = messages(json!([
        user(json!("a")),
        user(json!([{ "type": "text", "text": "b" }, { "type": "text", "text": "c", "cache_control": {} }])),
        model(json!([{ "type": "text", "text": "He" }, { "type": "text", "text": "llo." }])),
        model(json!([call("x")])),
        user(json!([result("x", json!("seen"))])),
    ]));
    assert_eq!(made[0], json!({ "role": "user", "content": "a\n\nb\n\nc" }));
    assert_eq!((&made[1]["content"], made[1]["tool_calls"].as_array().unwrap().len()), (&json!("Hello."), 1));
    assert_eq!(made.len(), 3);
}

#[test]
fn row_68_results_come_first_and_in_call_order() {
    let made = messages(json!([
        user(json!("go")),
        model(json!([{ "type": "text", "text": "Let me see." }, call("a"), call("b")])),
        user(json!([{ "type": "text", "text": "And?" }, result("b", json!("second"))])),
        user(json!([result("a", json!([{ "type": "text", "text": "fi" }, { "type": "text", "text": "rst" }]))])),
    ]));
    let told: Vec<(&Value, &Value)> = made[2..].iter().map(|made| (&made["role"], &made["content"])).collect();
    let (tool, person) = (json!("tool"), json!("user"));
    let (first, second, and) = (json!("fi\n\nrst"), json!("second"), json!("And?"));
    assert_eq!(told, [(&tool, &first), (&tool, &second), (&person, &and)]);
}

#[test]
fn rows_67_and_89_calls_and_results_belong_together() {
    let (go, calls) = (user(json!("go")), model(json!([call("a"), call("b")])));
    let none = refused_messages(json!([go, calls, user(json!("well?"))]));
    assert!(none.contains("`a`, `b`"), "{none}");
    assert!(refused_messages(json!([go, calls, user(json!([result("a", json!(""))]))])).contains("`b`"));
    assert!(refused_messages(json!([go, calls])).contains("`a`, `b`"));
    let twice = json!([result("a", json!("")), result("b", json!("")), result("a", json!(""))]);
    assert!(refused_messages(json!([go, calls, user(twice)])).contains("second result"));
    assert!(refused_messages(json!([user(json!([result("a", json!(""))])), calls])).contains("was not called"));
    let stranger = refused_messages(json!([go, calls, user(json!([result("z", json!(""))]))]));
    assert_eq!(stranger, "`messages[2].content[0]` is the result of `z`, which was not called just before it");
    let both = json!([result("a", json!("")), result("b", json!(""))]);
    assert!(refused_messages(json!([go, calls, user(both.clone()), calls, user(both)])).contains("again"));
}

#[test]
fn results_hold_texts_documents_search_results_and_references() {
    let parts = json!([
        { "type": "text", "text": "a" },
        { "type": "document", "title": "Notes", "context": "of May",
          "source": { "type": "text", "media_type": "text/plain", "data": "b" } },
        { "type": "document", "source": { "type": "content", "content": [{ "type": "text", "text": "c" }] } },
        { "type": "search_result", "title": "T", "source": "https://x.example", "content": [{ "type": "text", "text": "d" }] },
        { "type": "tool_reference", "tool_name": "see" },
        { "type": "document", "source": { "type": "base64", "media_type": "application/pdf", "data": "JVBERi0=" } },
    ]);
    let mut failed = result("a", parts.clone());
    failed["is_error"] = json!(true);
    let made = messages(json!([user(json!("go")), model(json!([call("a")])), user(json!([failed]))]));
    let told = made[2]["content"].as_str().unwrap();
    assert!(told.starts_with("Error: a\n\nDocument: Notes\nof May\nb\n\nc\n\n"), "{told}");
    assert!(
        told.contains("Search result: T (https://x.example)\nd\n\nTool: see\n\n(A document was attached"),
        "{told}"
    );
    // The same but for the reference may stand in a user's message.
    let mut own = parts.as_array().unwrap().clone();
    own.remove(4);
    assert!(messages(json!([user(json!(own))]))[0]["content"].as_str().unwrap().contains("Notes\nof May\nb"));
    let bare = json!([{ "type": "tool_result", "tool_use_id": "a" }]);
    assert_eq!(messages(json!([user(json!("go")), model(json!([call("a")])), user(bare)]))[2]["content"], "");
}

#[test]
fn row_93_a_picture_is_refused_in_words_that_clients_know() {
    let picture = json!({ "type": "image", "source": { "type": "base64", "media_type": "image/png", "data": "AAAA" } });
    let inside = json!([user(json!("go")), model(json!([call("a")])), user(json!([result("a", json!([picture]))]))]);
    for list in [json!([user(json!([picture]))]), inside] {
        let words = refused_messages(list);
        assert!(words.starts_with("Could not process image"), "{words}");
    }
}

#[test]
fn an_unknown_block_is_named_with_its_path() {
    let words = refused_messages(json!([user(json!([{ "type": "text", "text": "a" }, { "type": "dance" }]))]));
    assert!(words.starts_with("`messages[0].content[1].type` is `dance`"), "{words}");
    for (content, path) in [
        (json!([{ "type": "tool_use", "id": "a", "name": "f", "input": {} }]), "messages[0].content[0].type"),
        (json!([{ "type": "text" }]), "messages[0].content[0].text"),
        (json!([{ "text": "a" }]), "messages[0].content[0].type"),
        (json!([{ "type": "tool_result" }]), "messages[0].content[0].tool_use_id"),
        (json!([{ "type": "document" }]), "messages[0].content[0].source"),
        (json!([result("a", json!([{ "type": "dance" }]))]), "messages[0].content[0].content[0].type"),
        (json!(5), "messages[0].content"),
        (json!(null), "messages[0].content"),
    ] {
        let words = refused_messages(json!([user(content)]));
        assert!(words.starts_with(&format!("`{path}`")), "{words}");
    }
    let lacks =
        refused_messages(json!([user(json!("a")), model(json!([{ "type": "tool_use", "id": "x", "name": "f" }]))]));
    assert!(lacks.starts_with("`messages[1].content[0].input` is missing"), "{lacks}");
    assert!(refused_messages(json!([{ "role": "robot", "content": "a" }])).starts_with("`messages[0].role`"));
    assert!(refused_messages(json!([{ "role": "user", "content": "a", "mood": 1 }])).starts_with("`messages[0].mood`"));
}

#[test]
fn thoughts_that_were_left_out_come_back_by_their_signature() {
    let said = |block: Value| {
        let list = json!([user(json!("a")), model(json!([block, { "type": "text", "text": "b" }])), user(json!("c"))]);
        messages(list)[1].get("reasoning_content").cloned()
    };
    let signed = turns::signature("Well, 👩‍👩‍👧: é.");
    assert!(signed.starts_with("slotstream.thinking.v1."));
    assert_eq!(said(json!({ "type": "thinking", "thinking": "", "signature": signed })), Some(json!("Well, 👩‍👩‍👧: é.")));
    assert_eq!(said(json!({ "type": "thinking", "thinking": "shown", "signature": signed })), Some(json!("shown")));
    assert_eq!(
        said(json!({ "type": "thinking", "thinking": "theirs", "signature": "EqQBCg==" })),
        Some(json!("theirs"))
    );
    for foreign in ["EqQBCg==", "slotstream.thinking.v1.!!!", "slotstream.thinking.v1./w==", ""] {
        assert_eq!(said(json!({ "type": "thinking", "thinking": "", "signature": foreign })), None, "{foreign}");
    }
    assert_eq!(said(json!({ "type": "redacted_thinking", "data": "xyz" })), None);
}

#[test]
fn a_conversation_ends_with_the_user() {
    assert!(refused_messages(json!([user(json!("a")), model(json!("b"))])).contains("assistant"));
    assert!(refused_messages(json!([])).contains("at least one message"));
    assert!(refused_messages(json!([{ "role": "system", "content": "a" }])).contains("at least one message"));
}

#[test]
fn thinking_is_asked_for_by_budget_or_effort() {
    let thinks = |more: Value| read(more).unwrap().thinking;
    let enabled = |budget: u64| thinks(json!({ "thinking": { "type": "enabled", "budget_tokens": budget } }));
    assert_eq!(thinks(json!({})), Thinking::Off);
    assert_eq!(thinks(json!({ "thinking": { "type": "disabled" } })), Thinking::Off);
    for (budget, effort) in [
        (1024, Effort::Low),
        (4095, Effort::Low),
        (4096, Effort::Medium),
        (16383, Effort::Medium),
        (16384, Effort::Xhigh),
    ] {
        assert_eq!(enabled(budget), Thinking::On(Some(effort)), "{budget}");
    }
    let adaptive = json!({ "type": "adaptive", "display": "summarized" });
    assert_eq!(thinks(json!({ "thinking": adaptive })), Thinking::On(Some(Effort::Xhigh)));
    for (label, effort) in
        [("low", Effort::Low), ("medium", Effort::Medium), ("high", Effort::Xhigh), ("max", Effort::Xhigh)]
    {
        let more = json!({ "thinking": adaptive, "output_config": { "effort": label } });
        assert_eq!(thinks(more), Thinking::On(Some(effort)));
    }
    assert!(refused(json!({ "thinking": { "type": "enabled" } })).starts_with("`thinking.budget_tokens` is missing"));
    assert!(refused(json!({ "thinking": { "type": "maybe" } })).starts_with("`thinking.type`"));
    assert!(refused(json!({ "output_config": { "effort": "banana" } })).starts_with("`output_config.effort`"));
}

#[test]
fn a_schema_of_the_answer_is_part_of_the_request() {
    let format = json!({ "type": "json_schema", "schema": { "type": "object" } });
    let wanted = Format::Schema(json!({ "type": "object" }));
    assert_eq!(read(json!({ "output_config": { "format": format } })).unwrap().format, wanted);
    assert_eq!(read(json!({ "output_format": format })).unwrap().format, wanted);
    assert!(refused(json!({ "output_format": format, "output_config": { "format": format } })).contains("older name"));
    assert!(refused(json!({ "output_config": { "format": { "type": "text" } } })).contains("output_config.format"));
    assert!(
        refused(json!({ "output_config": { "format": { "type": "json_schema" } } })).contains("schema` is missing")
    );
    assert!(refused(json!({ "output_config": { "verve": 1 } })).contains("`output_config.verve`"));
}

#[test]
fn tools_of_other_servers_are_left_out_and_others_are_not() {
    let own = json!({ "name": "see", "description": "Looks.", "strict": true, "cache_control": { "type": "ephemeral" },
        "input_schema": { "type": "object", "properties": { "at": { "type": "string" } } } });
    let tools = json!([
        own,
        { "type": "web_search_20260101", "name": "web_search", "max_uses": 5 },
        { "type": "web_fetch_20260101", "name": "web_fetch" },
        { "type": "code_execution_20260101", "name": "code_execution" },
        { "type": "tool_search_tool_regex_20251119", "name": "tool_search_tool_regex" },
        { "type": "mcp_toolset", "mcp_server_name": "x" },
        { "type": "advisor_20260301", "name": "advisor" },
    ]);
    let made = read(json!({ "tools": tools })).unwrap();
    assert_eq!((made.tools.len(), made.tools[0].strict, made.parallel), (1, true, true));
    assert_eq!(made.tools[0].description.as_deref(), Some("Looks."));
    let named = json!({ "tools": tools, "tool_choice": { "type": "tool", "name": "web_search" } });
    assert!(refused(named).starts_with("`tool_choice` names `web_search`"));
    assert!(refused(json!({ "tools": [{ "type": "bash_20250124", "name": "bash" }] })).starts_with("`tools[0].type`"));
    assert!(refused(json!({ "tools": [{ "name": "x" }] })).starts_with("`tools[0].input_schema` is missing"));
    assert!(refused(json!({ "tools": [{ "input_schema": {} }] })).starts_with("`tools[0].name` is missing"));
}

#[test]
fn a_choice_of_tools_is_part_of_the_request() {
    let made = |choice: Value| read(json!({ "tool_choice": choice })).unwrap();
    assert_eq!(made(json!({ "type": "auto" })).choice, ToolChoice::Auto);
    assert_eq!(made(json!({ "type": "any" })).choice, ToolChoice::Required);
    assert_eq!(made(json!({ "type": "none" })).choice, ToolChoice::None);
    assert_eq!(made(json!({ "type": "tool", "name": "f" })).choice, ToolChoice::Named("f".into()));
    assert!(!made(json!({ "type": "auto", "disable_parallel_tool_use": true })).parallel);
    assert!(refused(json!({ "tool_choice": { "type": "tool" } })).starts_with("`tool_choice.name` is missing"));
    assert!(refused(json!({ "tool_choice": "auto" })).starts_with("`tool_choice` must be an object"));
}

#[test]
fn settings_out_of_range_are_refused_and_others_are_none_of_this_api() {
    for (name, wrong) in [
        ("temperature", json!(-0.1)),
        ("temperature", json!(1e300)),
        ("temperature", json!("cold")),
        ("top_p", json!(1.5)),
        ("top_p", json!(-0.1)),
        ("top_k", json!(-1)),
        ("top_k", json!(1.5)),
        ("max_tokens", json!(0)),
        ("max_tokens", json!(-1)),
        ("max_tokens", json!(true)),
        ("stream", json!(1)),
        ("stop_sequences", json!("x")),
        ("metadata", json!("x")),
        ("context_management", json!([])),
        ("service_tier", json!(5)),
        ("container", json!("c")),
        ("mcp_servers", json!([{ "url": "http://x" }])),
        ("system", json!(5)),
        ("system", json!([{ "type": "image" }])),
    ] {
        let words = refused(json!({ name: wrong }));
        assert!(words.starts_with(&format!("`{name}")), "{name}: {words}");
    }
    assert!(refused(json!({ "temperature": -1 })).starts_with("`temperature` must be a number of at least 0; found"));
    assert!(refused(json!({ "stop_sequences": vec!["x"; 17] })).starts_with("`stop_sequences` holds 17"));
    assert!(refused(json!({ "stop_sequences": ["x".repeat(257)] })).starts_with("`stop_sequences` holds a string"));
    let made = read(json!({
        "temperature": 0.5, "top_p": 0.9, "top_k": 7, "stop_sequences": ["x", ""], "metadata": { "user_id": null },
        "context_management": { "edits": [] }, "service_tier": "auto", "container": null, "mcp_servers": [],
        "seed": "not a number", "min_p": 3, "presence_penalty": {},
    }))
    .unwrap();
    assert_eq!((made.sampling.temperature, made.sampling.top_p, made.sampling.top_k), (Some(0.5), Some(0.9), Some(7)));
    assert_eq!((made.sampling.seed, made.sampling.min_p, made.sampling.presence_penalty), (None, None, None));
    assert_eq!(made.max_tokens, Some(8));
}
