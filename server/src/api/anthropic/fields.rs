//! Owns: the tables of fields of Anthropic's API, and the small readings of them: tools, thinking, what an answer must be.
//! Refuses: tools that neither this server nor its clients run, and fields that ask for what there is not.

use serde_json::Value;

use crate::Thinking;
use crate::api::common::{Object, flag, list, number, text};
use crate::refusal::Refusal;
use crate::request::{Format, Tool, ToolChoice};
use crate::shape::{Field, Fields, Kind};

/// A block of text.
const TEXT_BLOCK: Fields = Fields::open(
    "AnthropicTextBlock",
    &[Field::required("type", Kind::Text, "`text`."), Field::new("text", Kind::Text, "The text.")],
);

const TEXT_BLOCKS: Kind = Kind::Either(&[Kind::Text, Kind::List(&Kind::Object(&TEXT_BLOCK))]);

/// Where a document or a picture comes from.
const SOURCE: Fields = Fields::open(
    "AnthropicSource",
    &[
        Field::required(
            "type",
            Kind::Text,
            "`text` and `content` are read; of others the model is told that they are not.",
        ),
        Field::new("media_type", Kind::Text, "The type of the data."),
        Field::new("data", Kind::Text, "The data."),
        Field::new("url", Kind::Text, "An address; nothing is ever fetched."),
        Field::new("content", TEXT_BLOCKS, "The document, for `content`."),
    ],
);

const ANY_SOURCE: Kind = Kind::Either(&[Kind::Text, Kind::Object(&SOURCE)]);

/// A block inside a tool's result.
const RESULT_BLOCK: Fields = Fields::open(
    "AnthropicResultBlock",
    &[
        Field::required(
            "type",
            Kind::Text,
            "`text`, `document`, `search_result` or `tool_reference`; pictures are refused.",
        ),
        Field::new("text", Kind::Text, "The text."),
        Field::new("source", ANY_SOURCE, "Of a document or a search result."),
        Field::new("title", Kind::Text, "Its title."),
        Field::new("context", Kind::Text, "What is said about a document."),
        Field::new("content", TEXT_BLOCKS, "The text of a search result."),
        Field::new("tool_name", Kind::Text, "Of a tool reference: the tool."),
    ],
);

/// A block of a message.
const BLOCK: Fields = Fields::open(
    "AnthropicContentBlock",
    &[
        Field::required(
            "type",
            Kind::Text,
            "Of a user: `text`, `tool_result`, `document`, `search_result`; pictures are refused. Of the assistant: `text`, \
             `thinking`, `redacted_thinking`, `tool_use`.",
        ),
        Field::new("text", Kind::Text, "The text."),
        Field::new("thinking", Kind::Text, "Thoughts."),
        Field::new("signature", Kind::Text, "What came with the thoughts; it restores those that were left out."),
        Field::new("id", Kind::Text, "Of a call: its id."),
        Field::new("name", Kind::Text, "Of a call: the tool."),
        Field::new("input", Kind::Map, "Of a call: its arguments."),
        Field::new("tool_use_id", Kind::Text, "Of a result: the call that it answers."),
        Field::new("is_error", Kind::Flag, "Of a result: whether the call failed."),
        Field::new(
            "content",
            Kind::Either(&[Kind::Text, Kind::List(&Kind::Object(&RESULT_BLOCK))]),
            "Of a tool's or a search's result: what it is.",
        ),
        Field::new("source", ANY_SOURCE, "Of a document or a search result."),
        Field::new("title", Kind::Text, "Its title."),
        Field::new("context", Kind::Text, "What is said about a document."),
    ],
);

const MESSAGE: Fields = Fields::strict(
    "AnthropicMessage",
    &[
        Field::required("role", Kind::Choice(&["user", "assistant", "system"]), "Who speaks."),
        Field::required(
            "content",
            Kind::Either(&[Kind::Text, Kind::List(&Kind::Object(&BLOCK))]),
            "What is said: a text or blocks.",
        ),
    ],
);

const SYSTEM_BLOCK: Fields = Fields::open(
    "AnthropicSystemBlock",
    &[Field::required("type", Kind::Only("\"text\""), "Its type."), Field::required("text", Kind::Text, "The text.")],
);

const TOOL: Fields = Fields::open(
    "AnthropicTool",
    &[
        Field::new("type", Kind::Text, "`custom`; tools that Anthropic's servers run are left out."),
        Field::new("name", Kind::Text, "Its name."),
        Field::new("description", Kind::Text, "What it does."),
        Field::new("input_schema", Kind::Map, "JSON Schema of its arguments."),
        Field::new("strict", Kind::Flag, "Whether arguments are held to the schema."),
    ],
);

const CHOICE: Fields = Fields::strict(
    "AnthropicToolChoice",
    &[
        Field::required("type", Kind::Choice(&["auto", "any", "tool", "none"]), "Whether a tool is to be called."),
        Field::new("name", Kind::Text, "The tool, for `tool`."),
        Field::new("disable_parallel_tool_use", Kind::Flag, "Whether at most one may be called."),
    ],
);

const THINKING: Fields = Fields::strict(
    "AnthropicThinkingConfig",
    &[
        Field::required("type", Kind::Choice(&["enabled", "disabled", "adaptive"]), "Whether the model thinks first."),
        Field::new("budget_tokens", Kind::Whole(1, i128::MAX), "How hard, for `enabled`."),
        Field::new("display", Kind::Choice(&["summarized", "omitted"]), "Whether its thoughts are shown."),
    ],
);

const FORMAT: Fields = Fields::strict(
    "AnthropicOutputFormat",
    &[
        Field::required("type", Kind::Only("\"json_schema\""), "What the answer is."),
        Field::required("schema", Kind::Map, "The JSON Schema; it is enforced."),
    ],
);

const OUTPUT: Fields = Fields::strict(
    "AnthropicOutputConfig",
    &[
        Field::new(
            "effort",
            Kind::Choice(&["low", "medium", "high", "xhigh", "max"]),
            "How hard the model thinks, where `thinking` is `adaptive`.",
        ),
        Field::new("format", Kind::Object(&FORMAT), "What the answer must be."),
    ],
);

/// What is asked for; what only a reply needs comes first.
const FIELDS: &[Field] = &[
    Field::required(
        "max_tokens",
        Kind::Whole(1, i128::MAX),
        "Most tokens of the reply; cut to the room in the window.",
    ),
    Field::required("model", Kind::Text, "The model's name."),
    Field::required("messages", Kind::List(&Kind::Object(&MESSAGE)), "The conversation."),
    Field::new(
        "system",
        Kind::Either(&[Kind::Text, Kind::List(&Kind::Object(&SYSTEM_BLOCK))]),
        "What the model is told before the conversation.",
    ),
    Field::new("stop_sequences", Kind::List(&Kind::Text), "Strings that end the answer; they are left out of it."),
    Field::new("stream", Kind::Flag, "Whether the reply comes in pieces."),
    Field::new("temperature", Kind::Real(0.0, f64::MAX), "At zero the likeliest token is taken."),
    Field::new("top_p", Kind::Real(0.0, 1.0), "Only the likeliest tokens of this mass."),
    Field::new("top_k", Kind::Whole(0, u64::MAX as i128), "Only so many of the likeliest tokens; 0 is off."),
    Field::new("tools", Kind::List(&Kind::Object(&TOOL)), "Tools that the model may call."),
    Field::new("tool_choice", Kind::Object(&CHOICE), "Whether it calls one."),
    Field::new("thinking", Kind::Object(&THINKING), "Whether the model thinks first."),
    Field::new("output_config", Kind::Object(&OUTPUT), "How hard it thinks, and what the answer must be."),
    Field::new("output_format", Kind::Object(&FORMAT), "`output_config.format` by its older name."),
    Field::inert("metadata", Kind::Map),
    Field::inert("context_management", Kind::Map),
    Field::inert("service_tier", Kind::Text),
    Field::inert("container", Kind::Only("null")),
    Field::inert("mcp_servers", Kind::Only("[]")),
];

/// The fields of a request for a reply.
pub const BODY: Fields = Fields::open("MessagesRequest", FIELDS);

/// The fields of a request for a count: the same without the limit of the reply.
pub const COUNT: Fields = Fields::open("CountTokensRequest", FIELDS.split_at(1).1);

/// Kinds of tools that Anthropic's own servers run: a client that offers them gets along without.
const ELSEWHERE: [&str; 6] =
    ["web_search_", "web_fetch_", "code_execution_", "tool_search_tool_", "mcp_toolset", "advisor_"];

/// Tools that are offered, and whether one is to be called.
///
/// # Errors
/// Names a tool that cannot be offered, or a choice that cannot be met.
pub fn tools(fields: &Object) -> Result<(Vec<Tool>, ToolChoice), Refusal> {
    let (mut tools, mut dropped) = (Vec::new(), Vec::new());
    for (index, tool) in list(fields, "tools").iter().filter_map(Value::as_object).enumerate() {
        let path = format!("tools[{index}]");
        match text(tool, "type") {
            None | Some("custom") => tools.push(offered(tool, &path)?),
            Some(kind) if ELSEWHERE.iter().any(|start| kind.starts_with(start)) => {
                dropped.extend(text(tool, "name"));
            }
            Some(kind) => {
                let kind: String = kind.chars().take(64).collect();
                let path = format!("{path}.type");
                return Err(Refusal::field(
                    &path,
                    format!("`{path}` is `{kind}`: only tools of type `custom` can be offered here"),
                ));
            }
        }
    }
    let choice = choice(fields)?;
    match &choice {
        ToolChoice::Named(name) if dropped.contains(&name.as_str()) => Err(Refusal::field(
            "tool_choice",
            format!("`tool_choice` names `{name}`, a tool of Anthropic's servers that this server does not have"),
        )),
        _ => Ok((tools, choice)),
    }
}

fn offered(tool: &Object, path: &str) -> Result<Tool, Refusal> {
    Ok(Tool {
        name: needed(text(tool, "name"), path, "name", "a text")?.to_owned(),
        description: text(tool, "description").map(str::to_owned),
        parameters: needed(tool.get("input_schema"), path, "input_schema", "an object")?.clone(),
        strict: flag(tool, "strict"),
    })
}

fn choice(fields: &Object) -> Result<ToolChoice, Refusal> {
    let Some(choice) = fields.get("tool_choice").and_then(Value::as_object) else { return Ok(ToolChoice::Auto) };
    Ok(match text(choice, "type") {
        Some("any") => ToolChoice::Required,
        Some("none") => ToolChoice::None,
        Some("tool") => ToolChoice::Named(needed(text(choice, "name"), "tool_choice", "name", "a text")?.to_owned()),
        _ => ToolChoice::Auto,
    })
}

/// Whether several tools may be called.
pub fn parallel(fields: &Object) -> bool {
    !fields
        .get("tool_choice")
        .and_then(Value::as_object)
        .is_some_and(|choice| flag(choice, "disable_parallel_tool_use"))
}

/// Whether the model thinks.
///
/// # Errors
/// When it is to think within a budget that is not named.
pub fn thinking(fields: &Object) -> Result<Thinking, Refusal> {
    let Some(thinking) = fields.get("thinking").and_then(Value::as_object) else { return Ok(Thinking::Off) };
    let effort = match text(thinking, "type") {
        Some("enabled") => {
            match needed(number(thinking, "budget_tokens"), "thinking", "budget_tokens", "a positive whole number")? {
                ..4096 => "low",
                4096..16384 => "medium",
                _ => "high",
            }
        }
        Some("adaptive") => output(fields).and_then(|output| text(output, "effort")).unwrap_or("high"),
        _ => "off",
    };
    effort.parse().map_err(|error| Refusal::field("output_config.effort", format!("`output_config.effort`: {error}")))
}

/// Whether thoughts are left out of the reply.
pub fn hides_thoughts(fields: &Object) -> bool {
    fields.get("thinking").and_then(|thinking| thinking.get("display")).is_some_and(|display| display == "omitted")
}

/// What the answer must be.
///
/// # Errors
/// When it is said twice.
pub fn format(fields: &Object) -> Result<Format, Refusal> {
    let (new, old) = (output(fields).and_then(|output| output.get("format")), fields.get("output_format"));
    if new.is_some() && old.is_some() {
        return Err(Refusal::field(
            "output_format",
            "`output_format` is the older name of `output_config.format`: send one of them",
        ));
    }
    let schema = new.or(old).and_then(|format| format.get("schema"));
    Ok(schema.map_or(Format::Text, |schema| Format::Schema(schema.clone())))
}

fn output(fields: &Object) -> Option<&Object> {
    fields.get("output_config").and_then(Value::as_object)
}

/// A field that an object must have because of its type.
///
/// # Errors
/// When it is missing.
pub fn needed<T>(field: Option<T>, path: &str, name: &str, kind: &str) -> Result<T, Refusal> {
    field.ok_or_else(|| {
        let path = format!("{path}.{name}");
        Refusal::field(&path, format!("`{path}` is missing: it must be {kind}"))
    })
}
