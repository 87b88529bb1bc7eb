//! Owns: fields and forms that several of OpenAI's endpoints share.

use serde_json::{Map, Value, json};

use crate::api::common::{Object, text};
use crate::engine::{Outcome, Token};
use crate::refusal::Refusal;
use crate::request::{Format, Tool};
use crate::shape::{Field, Fields, Kind, real, token_id};

/// Most tokens of a reply.
pub const POSITIVE: Kind = Kind::Whole(1, i128::MAX);
/// How many alternatives of a token are told.
pub const TOP: Kind = Kind::Whole(0, 20);
/// Ids with what is added to them.
pub const BIAS: Kind = Kind::ByToken(&Kind::Real(-100.0, 100.0));

/// What is told of the end of a stream.
pub const STREAM_OPTIONS: Fields = Fields::strict(
    "StreamOptions",
    &[
        Field::new("include_usage", Kind::Flag, "Whether a last chunk tells the tokens used."),
        Field::inert("include_obfuscation", Kind::Flag),
    ],
);

/// A schema with its name.
pub const NAMED_SCHEMA: Fields = Fields::strict(
    "NamedSchema",
    &[
        Field::required("name", Kind::Text, "Its name."),
        Field::new("description", Kind::Text, "What it is for."),
        Field::new("schema", Kind::Map, "The JSON Schema."),
        Field::inert("strict", Kind::Flag),
    ],
);

/// What an answer must be, as chat completions say it.
pub const RESPONSE_FORMAT: Fields = Fields::strict(
    "ResponseFormat",
    &[
        Field::required(
            "type",
            Kind::Choice(&["text", "json_object", "json_schema", "regex", "grammar"]),
            "What it is.",
        ),
        Field::new("json_schema", Kind::Object(&NAMED_SCHEMA), "The schema, for `json_schema`."),
        Field::new("regex", Kind::Text, "The expression, for `regex`."),
        Field::new("grammar", Kind::Text, "The grammar in Lark's notation, for `grammar`."),
    ],
);

/// A function that is offered.
pub const FUNCTION: Fields = Fields::strict(
    "Function",
    &[
        Field::required("name", Kind::Text, "Its name."),
        Field::new("description", Kind::Text, "What it does."),
        Field::new("parameters", Kind::Map, "JSON Schema of its arguments."),
        Field::new("strict", Kind::Flag, "Whether arguments are held to the schema."),
    ],
);

/// What an answer must be.
///
/// # Errors
/// When the schema, expression or grammar is missing.
pub fn format(fields: &Object) -> Result<Format, Refusal> {
    let Some(format) = fields.get("response_format").and_then(Value::as_object) else { return Ok(Format::Text) };
    let missing = |name: &str| {
        let path = format!("response_format.{name}");
        Refusal::field(&path, format!("`{path}` is missing: the type of `response_format` asks for it"))
    };
    let kind = text(format, "type").unwrap_or_default();
    if let Some(stray) =
        ["json_schema", "regex", "grammar"].iter().find(|name| **name != kind && format.contains_key(**name))
    {
        let path = format!("response_format.{stray}");
        return Err(Refusal::field(
            &path,
            format!("`{path}` needs the type `{stray}`, but the type of `response_format` is `{kind}`"),
        ));
    }
    match kind {
        "json_object" => Ok(Format::Json),
        "json_schema" => {
            let schema = format.get("json_schema").and_then(Value::as_object).ok_or_else(|| missing("json_schema"))?;
            Ok(schema.get("schema").map_or(Format::Json, |schema| Format::Schema(schema.clone())))
        }
        "regex" => text(format, "regex").map(|regex| Format::Regex(regex.to_owned())).ok_or_else(|| missing("regex")),
        "grammar" => {
            text(format, "grammar").map(|text| Format::Grammar(text.to_owned())).ok_or_else(|| missing("grammar"))
        }
        _ => Ok(Format::Text),
    }
}

/// A function that is offered, from its checked fields.
pub fn tool(function: &Object) -> Tool {
    Tool {
        name: text(function, "name").unwrap_or_default().to_owned(),
        description: text(function, "description").map(str::to_owned),
        parameters: function
            .get("parameters")
            .cloned()
            .unwrap_or_else(|| json!({ "type": "object", "properties": {} })),
        strict: function.get("strict").and_then(Value::as_bool).unwrap_or(false),
    }
}

/// Ids with what is added to their logits.
pub fn bias(fields: &Object) -> Vec<(u32, f32)> {
    let pairs = fields.get("logit_bias").and_then(Value::as_object).into_iter().flatten();
    pairs.filter_map(|(id, add)| Some((token_id(id)?, real(add)? as f32))).collect()
}

/// Tokens used, as chat completions and completions tell it.
pub fn usage(outcome: &Outcome) -> Value {
    json!({
        "prompt_tokens": outcome.prompt,
        "completion_tokens": outcome.output,
        "total_tokens": outcome.prompt + outcome.output,
        "prompt_tokens_details": { "cached_tokens": outcome.cached },
        "completion_tokens_details": { "reasoning_tokens": outcome.reasoning },
    })
}

/// Tokens with their likelihood, as chat completions tell it.
pub fn logprobs(tokens: &[Token]) -> Value {
    let entry = |text: &str, bytes: &[u8], logprob: f32| {
        let mut entry = Map::new();
        entry.insert("token".to_owned(), json!(text));
        entry.insert("logprob".to_owned(), json!(logprob));
        entry.insert("bytes".to_owned(), json!(bytes));
        entry
    };
    tokens
        .iter()
        .map(|token| {
            // A token whose bytes are no whole text of their own is shown as well as can be.
            let text = String::from_utf8_lossy(&token.bytes);
            let mut of_token = entry(&text, &token.bytes, token.logprob.unwrap_or(0.0));
            let top = token.top.iter().map(|(text, bytes, logprob)| entry(text, bytes, *logprob));
            of_token.insert("top_logprobs".to_owned(), top.collect());
            Value::Object(of_token)
        })
        .collect()
}
