//! Owns: the items of `input`, and the conversation that they are.
//! Refuses: items and parts that this server cannot read, by their path; an end with the model's own words.
//! Invariants: what the model wrote in a row is one turn; an item's id, status and phase change nothing.

use serde_json::{Map, Value, json};

use crate::api::common::{Object, arguments, list, no_pictures, text};
use crate::conversation::{CallResult, Conversation, MadeCall, Said};
use crate::refusal::Refusal;
use crate::shape::{Field, Fields, Kind};

use super::tools::full_name;

/// The items of a conversation.
pub const ITEMS: Kind = Kind::List(&Kind::Tagged(&[
    ("message", &MESSAGE),
    ("reasoning", &REASONING),
    ("function_call", &FUNCTION_CALL),
    ("function_call_output", &FUNCTION_OUTPUT),
    ("custom_tool_call", &CUSTOM_CALL),
    ("custom_tool_call_output", &CUSTOM_OUTPUT),
]));

const PART: Fields = Fields::open(
    "InputPart",
    &[
        Field::required(
            "type",
            Kind::Text,
            "`input_text`, `output_text` or `refusal`; pictures and files are refused.",
        ),
        Field::new("text", Kind::Text, "The text."),
        Field::new("refusal", Kind::Text, "The text of a refusal."),
        Field::inert("annotations", Kind::List(&Kind::Anything)),
        Field::inert("logprobs", Kind::List(&Kind::Anything)),
    ],
);

const CONTENT: Kind = Kind::Either(&[Kind::Text, Kind::List(&Kind::Object(&PART))]);

const ID: Field = Field::inert("id", Kind::Text);
const STATUS: Field = Field::inert("status", Kind::Text);
const CREATED_BY: Field = Field::inert("created_by", Kind::Text);

const MESSAGE: Fields = Fields::strict(
    "MessageItem",
    &[
        Field::new("type", Kind::Only("\"message\""), "Its type; an item without one is a message."),
        Field::required("role", Kind::Choice(&["system", "developer", "user", "assistant"]), "Who speaks."),
        Field::required("content", CONTENT, "What is said: a text or parts."),
        ID,
        STATUS,
        Field::inert("phase", Kind::Text),
    ],
);

const TEXTS: Kind = Kind::List(&Kind::Object(&Fields::open(
    "ReasoningPart",
    &[
        Field::new("type", Kind::Text, "`summary_text` or `reasoning_text`."),
        Field::required("text", Kind::Text, "The text."),
    ],
)));

const REASONING: Fields = Fields::strict(
    "ReasoningItem",
    &[
        Field::required("type", Kind::Only("\"reasoning\""), "Its type."),
        Field::new("summary", TEXTS, "The thoughts as a summary told them."),
        Field::new("content", TEXTS, "The thoughts; they win over the summary."),
        Field::new("encrypted_content", Kind::Only("\"\""), "Nothing: this server has no key to thoughts of others."),
        ID,
        STATUS,
    ],
);

const NAMESPACE: Field = Field::new("namespace", Kind::Text, "The namespace of what was called.");

const FUNCTION_CALL: Fields = Fields::strict(
    "FunctionCallItem",
    &[
        Field::required("type", Kind::Only("\"function_call\""), "Its type."),
        Field::required("call_id", Kind::Text, "The call's id."),
        Field::required("name", Kind::Text, "The function."),
        NAMESPACE,
        Field::required("arguments", Kind::Text, "Its arguments, a JSON object as text; empty is `{}`."),
        ID,
        STATUS,
        CREATED_BY,
    ],
);

const CUSTOM_CALL: Fields = Fields::strict(
    "CustomToolCallItem",
    &[
        Field::required("type", Kind::Only("\"custom_tool_call\""), "Its type."),
        Field::required("call_id", Kind::Text, "The call's id."),
        Field::required("name", Kind::Text, "The tool."),
        NAMESPACE,
        Field::required("input", Kind::Text, "What it was given."),
        ID,
        STATUS,
        CREATED_BY,
    ],
);

const FUNCTION_OUTPUT: Fields = Fields::strict(
    "FunctionCallOutputItem",
    &[
        Field::required("type", Kind::Only("\"function_call_output\""), "Its type."),
        Field::required("call_id", Kind::Text, "The call that it answers."),
        Field::required("output", CONTENT, "The result: a text or parts."),
        ID,
        STATUS,
        CREATED_BY,
    ],
);

const CUSTOM_OUTPUT: Fields = Fields::strict(
    "CustomToolCallOutputItem",
    &[
        Field::required("type", Kind::Only("\"custom_tool_call_output\""), "Its type."),
        Field::required("call_id", Kind::Text, "The call that it answers."),
        Field::required("output", CONTENT, "The result: a text or parts."),
        Field::inert("name", Kind::Text),
        ID,
        STATUS,
        CREATED_BY,
    ],
);

/// The conversation in the template's form.
///
/// # Errors
/// Names the item that is wrong.
pub fn messages(fields: &Object) -> Result<Vec<Value>, Refusal> {
    let mut reader = Reader::default();
    if let Some(instructions) = text(fields, "instructions") {
        reader.talk.system(instructions.to_owned(), "instructions")?;
    }
    match fields.get("input") {
        Some(Value::String(text)) => reader.talk.user(text.clone(), "input")?,
        _ => {
            for (at, item) in list(fields, "input").iter().enumerate() {
                let Some(item) = item.as_object() else { continue };
                reader.item(item, &format!("input[{at}]"))?;
            }
        }
    }
    reader.finish()
}

/// A conversation, with the turn of the model that is being gathered.
#[derive(Default)]
struct Reader {
    talk: Conversation,
    turn: Option<(Said, String)>,
}

impl Reader {
    fn item(&mut self, item: &Object, path: &str) -> Result<(), Refusal> {
        let content = |name: &str| content(item, name, &format!("{path}.{name}"));
        match text(item, "type").unwrap_or("message") {
            "reasoning" => join(&mut self.turn(path).reasoning, &thoughts(item)),
            "function_call" => {
                let written = text(item, "arguments").unwrap_or_default();
                let arguments = arguments(written, &format!("{path}.arguments"))?;
                self.call(item, arguments, path);
            }
            "custom_tool_call" => {
                let input = json!(text(item, "input").unwrap_or_default());
                self.call(item, Map::from_iter([("input".to_owned(), input)]), path);
            }
            "function_call_output" | "custom_tool_call_output" => {
                let (id, text) = (text(item, "call_id").map(str::to_owned), content("output")?);
                self.settle()?;
                self.talk.result(CallResult { id, name: None, text }, path)?;
            }
            _ => {
                let content = content("content")?;
                match text(item, "role").unwrap_or_default() {
                    "assistant" => join(&mut self.turn(path).text, &content),
                    "user" => self.settle().and_then(|()| self.talk.user(content, path))?,
                    _ => self.settle().and_then(|()| self.talk.system(content, path))?,
                }
            }
        }
        Ok(())
    }

    /// The model's turn, which begins here if it has not.
    fn turn(&mut self, path: &str) -> &mut Said {
        &mut self.turn.get_or_insert_with(|| (Said::default(), path.to_owned())).0
    }

    fn call(&mut self, item: &Object, arguments: Map<String, Value>, path: &str) {
        let name = full_name(text(item, "namespace"), text(item, "name").unwrap_or_default());
        let id = text(item, "call_id").map(str::to_owned);
        self.turn(path).calls.push(MadeCall { id, name, arguments });
    }

    /// The model's turn is over.
    fn settle(&mut self) -> Result<(), Refusal> {
        match self.turn.take() {
            // A turn of which nothing is known, as of thoughts without a summary, is none.
            Some((said, _)) if said == Said::default() => Ok(()),
            Some((said, path)) => self.talk.assistant(said, &path),
            None => Ok(()),
        }
    }

    fn finish(mut self) -> Result<Vec<Value>, Refusal> {
        if self.turn.as_ref().is_some_and(|(said, _)| said.calls.is_empty()) {
            return Err(Refusal::field(
                "input",
                "`input` ends with an item of the assistant: going on with a reply is not supported; add a user message",
            ));
        }
        self.settle()?;
        self.talk.finish("input")
    }
}

/// Adds a text of the same turn, in a paragraph of its own.
fn join(all: &mut String, more: &str) {
    if !all.is_empty() && !more.is_empty() && !all.ends_with('\n') {
        all.push_str("\n\n");
    }
    all.push_str(more);
}

/// The thoughts of a reasoning item.
fn thoughts(item: &Object) -> String {
    let of = |name: &str| {
        let mut joined = String::new();
        list(item, name).iter().filter_map(|part| part["text"].as_str()).for_each(|text| join(&mut joined, text));
        joined
    };
    Some(of("content")).filter(|text| !text.is_empty()).unwrap_or_else(|| of("summary"))
}

/// A text, or parts joined without a separator.
fn content(item: &Object, name: &str, path: &str) -> Result<String, Refusal> {
    if let Some(text) = text(item, name) {
        return Ok(text.to_owned());
    }
    let mut joined = String::new();
    for (at, part) in list(item, name).iter().enumerate() {
        let path = format!("{path}[{at}]");
        let kind = part["type"].as_str().unwrap_or_default();
        let field = match kind {
            "input_text" | "output_text" | "text" => "text",
            "refusal" => "refusal",
            "input_image" | "image_url" | "image" => return Err(no_pictures(&path)),
            other => {
                let other: String = other.chars().take(40).collect();
                let path = format!("{path}.type");
                return Err(Refusal::field(&path, format!("`{path}` is `{other}`: only parts of text are read")));
            }
        };
        match part[field].as_str() {
            Some(text) => joined += text,
            None => {
                let path = format!("{path}.{field}");
                return Err(Refusal::field(&path, format!("`{path}` is missing: it must be a text")));
            }
        }
    }
    Ok(joined)
}
