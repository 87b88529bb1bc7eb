//! Owns: the fields of a body of `/v1/responses` and of its reply; items and tools have tables of their own.
//! Refuses: by name, whatever needs kept replies or would change the reply and is not done here.

use super::input::ITEMS;
use super::tools::{CHOICE, TOOLS};
use crate::api::openai::fields::{POSITIVE, STREAM_OPTIONS};
use crate::shape::{ANY_REAL, ANY_WHOLE, Field, Fields, Kind};

const REASONING: Fields = Fields::strict(
    "ReasoningOptions",
    &[
        Field::new("effort", Kind::Text, "How hard the model thinks: none, low, medium, high, xhigh or max."),
        Field::new("summary", SUMMARY, "Whether its thoughts are told as a summary; they are told in full."),
        Field::new("generate_summary", SUMMARY, "The same by its old name."),
    ],
);

const SUMMARY: Kind = Kind::Choice(&["auto", "concise", "detailed", "none"]);

const PLAIN_FORMAT: Fields =
    Fields::strict("PlainFormat", &[Field::required("type", Kind::Choice(&["text", "json_object"]), "What it is.")]);

const SCHEMA_FORMAT: Fields = Fields::strict(
    "SchemaFormat",
    &[
        Field::required("type", Kind::Only("\"json_schema\""), "What it is."),
        Field::required("name", Kind::Text, "The schema's name."),
        Field::required("schema", Kind::Map, "The JSON Schema."),
        Field::new("description", Kind::Text, "What it is for."),
        Field::inert("strict", Kind::Flag),
    ],
);

const TEXT: Fields = Fields::strict(
    "TextOptions",
    &[
        Field::new(
            "format",
            Kind::Tagged(&[("text", &PLAIN_FORMAT), ("json_object", &PLAIN_FORMAT), ("json_schema", &SCHEMA_FORMAT)]),
            "What the answer must be; it is enforced.",
        ),
        Field::inert("verbosity", Kind::Text),
    ],
);

/// The body.
pub const BODY: Fields = Fields::strict(
    "ResponseRequest",
    &[
        Field::new("model", Kind::Text, "The model's name; left out, it is the one that there is."),
        Field::required("input", Kind::Either(&[Kind::Text, ITEMS]), "The user's text, or the conversation's items."),
        Field::new(
            "instructions",
            Kind::Text,
            "The system text; messages of the system before the conversation join it.",
        ),
        Field::new("tools", TOOLS, "What the model may call; searches of the web and of files are left out."),
        Field::new("tool_choice", CHOICE, "Whether it calls one."),
        Field::new("parallel_tool_calls", Kind::Flag, "Whether it may call several."),
        Field::new("reasoning", Kind::Object(&REASONING), "Whether the model thinks first."),
        Field::new("text", Kind::Object(&TEXT), "The answer's form."),
        Field::new("max_output_tokens", POSITIVE, "Most tokens of the reply."),
        Field::new("temperature", ANY_REAL, "Below or at zero the likeliest token is taken."),
        Field::new("top_p", ANY_REAL, "Only the likeliest tokens of this mass; outside 0 to 1 is off."),
        Field::new("stream", Kind::Flag, "Whether the reply comes in events."),
        Field::inert("stream_options", Kind::Object(&STREAM_OPTIONS)),
        Field::inert("store", Kind::Flag),
        Field::inert("include", Kind::List(&Kind::Text)),
        Field::inert("metadata", Kind::Map),
        Field::inert("user", Kind::Text),
        Field::inert("prompt_cache_key", Kind::Text),
        Field::inert("prompt_cache_retention", Kind::Text),
        Field::inert("safety_identifier", Kind::Text),
        Field::inert("service_tier", Kind::Text),
        Field::inert("client_metadata", Kind::Map),
        Field::inert("access_programs", Kind::Anything),
        Field::inert("truncation", Kind::Only("\"disabled\"")),
        Field::inert("background", Kind::Only("false")),
        Field::inert("top_logprobs", Kind::Only("0")),
        Field::inert("previous_response_id", Kind::Only("null")),
        Field::inert("conversation", Kind::Only("null")),
        Field::inert("prompt", Kind::Only("null")),
        Field::inert("context_management", Kind::Only("null")),
        Field::inert("max_tool_calls", Kind::Only("null")),
    ],
);

/// A reply, whole.
pub const REPLY: Fields = Fields::open(
    "Response",
    &[
        Field::required("id", Kind::Text, "`resp_` and 32 digits."),
        Field::required("object", Kind::Only("\"response\""), ""),
        Field::required("created_at", ANY_WHOLE, "Seconds since 1970."),
        Field::required("status", Kind::Choice(&["completed", "incomplete", "failed", "in_progress"]), ""),
        Field::required("model", Kind::Text, "The model."),
        Field::required("output", Kind::List(&Kind::Map), "What the model wrote, in order."),
        Field::new("usage", Kind::Map, "Tokens used."),
    ],
);
