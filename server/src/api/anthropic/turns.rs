//! Owns: from Anthropic's messages and their blocks to a conversation (server.md section 9).
//! Refuses: blocks that are not known, pictures, and results without their calls.
//! Invariants: messages of one role in a row are one turn, in which results come first; thoughts that were left out of a reply
//! come back by their signature, and whatever else is in that place does no harm.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::fields::needed;
use crate::api::common::{Object, flag, list, text};
use crate::conversation::{CallResult, Conversation, MadeCall, Said};
use crate::refusal::Refusal;

/// How a signature of this server begins; the thoughts follow in base64.
const SIGNATURE: &str = "slotstream.thinking.v1.";
/// A line in which a client tells its own server something; it differs from one conversation to the next.
const BILLING: &str = "x-anthropic-billing-header:";
/// Between texts that were apart.
const GAP: &str = "\n\n";

/// What a thinking block is signed with.
pub fn signature(reasoning: &str) -> String {
    format!("{SIGNATURE}{}", STANDARD.encode(reasoning))
}

/// The thoughts of a block.
fn thoughts(block: &Object) -> String {
    match text(block, "thinking").unwrap_or_default() {
        "" => {
            let signed = text(block, "signature").and_then(|signature| signature.strip_prefix(SIGNATURE));
            let bytes = signed.and_then(|signed| STANDARD.decode(signed).ok());
            bytes.and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default()
        }
        shown => shown.to_owned(),
    }
}

/// A turn being gathered.
enum Turn {
    /// The user's: results with their paths, texts.
    User(Vec<(CallResult, String)>, Vec<String>),
    /// The model's.
    Model(Said),
}

/// The conversation of a body, with whether the model spoke last.
///
/// # Errors
/// Names the message or block that is wrong.
pub fn read(fields: &Object) -> Result<(Conversation, bool), Refusal> {
    let mut talk = Conversation::default();
    let told = system(fields);
    if !told.is_empty() {
        talk.system(told, "system")?;
    }
    // The turn being gathered, and where it began.
    let mut open: Option<(Turn, String)> = None;
    for (index, message) in list(fields, "messages").iter().filter_map(Value::as_object).enumerate() {
        let path = format!("messages[{index}]");
        let role = text(message, "role").unwrap_or_default();
        if role == "system" && open.is_none() {
            match late_system(message, &path)? {
                told if told.is_empty() => {}
                told => talk.system(told, &path)?,
            }
            continue;
        }
        let (mut turn, began) = match open.take() {
            Some((turn @ Turn::Model(_), began)) if role == "assistant" => (turn, began),
            Some((turn @ Turn::User(..), began)) if role != "assistant" => (turn, began),
            other => {
                if let Some((turn, began)) = other {
                    turn.close(&mut talk, &began)?;
                }
                let fresh = match role {
                    "assistant" => Turn::Model(Said::default()),
                    _ => Turn::User(Vec::new(), Vec::new()),
                };
                (fresh, path.clone())
            }
        };
        turn.add(message, role, &path)?;
        open = Some((turn, began));
    }
    let by_model = matches!(open, Some((Turn::Model(_), _)));
    if let Some((turn, began)) = open {
        turn.close(&mut talk, &began)?;
    }
    Ok((talk, by_model))
}

impl Turn {
    /// Adds a message of this turn's role.
    fn add(&mut self, message: &Object, role: &str, path: &str) -> Result<(), Refusal> {
        match self {
            Turn::Model(said) => add_said(said, message, path),
            Turn::User(_, texts) if role == "system" => {
                texts.push(late_system(message, path)?);
                Ok(())
            }
            Turn::User(results, texts) => match message.get("content") {
                Some(Value::String(text)) => {
                    texts.push(text.clone());
                    Ok(())
                }
                _ => blocks(message, path).try_for_each(|(block, path)| user_block(block, path, results, texts)),
            },
        }
    }

    /// Puts the turn into the conversation.
    fn close(self, talk: &mut Conversation, path: &str) -> Result<(), Refusal> {
        match self {
            Turn::Model(said) => talk.assistant(said, path),
            Turn::User(results, mut texts) => {
                texts.retain(|text| !text.is_empty());
                let silent = texts.is_empty() && !results.is_empty();
                for (result, path) in results {
                    talk.result(result, &path)?;
                }
                if silent { Ok(()) } else { talk.user(texts.join(GAP), path) }
            }
        }
    }
}

/// Blocks of a message with their paths.
fn blocks<'m>(message: &'m Object, path: &str) -> impl Iterator<Item = (&'m Object, String)> {
    let blocks = list(message, "content").iter().filter_map(Value::as_object);
    blocks.enumerate().map(move |(index, block)| (block, format!("{path}.content[{index}]")))
}

fn user_block(
    block: &Object,
    path: String,
    results: &mut Vec<(CallResult, String)>,
    texts: &mut Vec<String>,
) -> Result<(), Refusal> {
    match text(block, "type").unwrap_or_default() {
        "tool_result" => results.push((tool_result(block, &path)?, path)),
        "text" => texts.push(needed(text(block, "text"), &path, "text", "a text")?.to_owned()),
        "document" => texts.push(document(block, &path)?),
        "search_result" => texts.push(search_result(block, &path)?),
        "image" => return Err(picture(&path)),
        kind => return Err(unknown(kind, &path, "`text`, `tool_result`, `document` and `search_result`")),
    }
    Ok(())
}

/// Adds what the model said in one message to what it said in those before.
fn add_said(said: &mut Said, message: &Object, path: &str) -> Result<(), Refusal> {
    let mut spoken = String::new();
    if let Some(text) = text(message, "content") {
        spoken += text;
    }
    for (block, path) in blocks(message, path) {
        match text(block, "type").unwrap_or_default() {
            // A sentence may lie in several blocks.
            "text" => spoken += needed(text(block, "text"), &path, "text", "a text")?,
            "thinking" => join(&mut said.reasoning, &thoughts(block)),
            "redacted_thinking" => {}
            "tool_use" => said.calls.push(MadeCall {
                id: Some(needed(text(block, "id"), &path, "id", "a text")?.to_owned()),
                name: needed(text(block, "name"), &path, "name", "a text")?.to_owned(),
                arguments: needed(block.get("input").and_then(Value::as_object), &path, "input", "an object")?.clone(),
            }),
            kind => {
                return Err(unknown(kind, &path, "`text`, `thinking`, `redacted_thinking` and `tool_use`"));
            }
        }
    }
    join(&mut said.text, &spoken);
    Ok(())
}

fn join(whole: &mut String, text: &str) {
    if !whole.is_empty() && !text.is_empty() {
        *whole += GAP;
    }
    *whole += text;
}

fn tool_result(block: &Object, path: &str) -> Result<CallResult, Refusal> {
    let id = needed(text(block, "tool_use_id"), path, "tool_use_id", "a text")?;
    let mut texts = Vec::new();
    for (part, path) in blocks(block, path) {
        texts.push(match text(part, "type").unwrap_or_default() {
            "text" => needed(text(part, "text"), &path, "text", "a text")?.to_owned(),
            "document" => document(part, &path)?,
            "search_result" => search_result(part, &path)?,
            "tool_reference" => {
                format!("Tool: {}", needed(text(part, "tool_name"), &path, "tool_name", "a text")?)
            }
            "image" => return Err(picture(&path)),
            kind => return Err(unknown(kind, &path, "`text`, `document`, `search_result` and `tool_reference`")),
        });
    }
    let told = text(block, "content").map_or_else(|| texts.join(GAP), str::to_owned);
    let told = if flag(block, "is_error") { format!("Error: {told}") } else { told };
    Ok(CallResult { id: Some(id.to_owned()), name: None, text: told })
}

/// A document as text; of one that is no text, a note that says so.
fn document(block: &Object, path: &str) -> Result<String, Refusal> {
    let source = needed(block.get("source").and_then(Value::as_object), path, "source", "an object")?;
    let source_path = format!("{path}.source");
    let mut lines = Vec::new();
    lines.extend(text(block, "title").map(|title| format!("Document: {title}")));
    lines.extend(text(block, "context").map(str::to_owned));
    lines.push(match text(source, "type").unwrap_or_default() {
        "text" => needed(text(source, "data"), &source_path, "data", "a text")?.to_owned(),
        "content" => plain(source, &source_path)?,
        _ => "(A document was attached here. It cannot be read: only documents of plain text can.)".to_owned(),
    });
    Ok(lines.join("\n"))
}

fn search_result(block: &Object, path: &str) -> Result<String, Refusal> {
    let (title, source) = (text(block, "title").unwrap_or_default(), text(block, "source"));
    let source = needed(source, path, "source", "a text")?;
    Ok(format!("Search result: {title} ({source})\n{}", plain(block, path)?))
}

/// The text of `content`: itself, or the text of its blocks.
fn plain(holder: &Object, path: &str) -> Result<String, Refusal> {
    if let Some(text) = text(holder, "content") {
        return Ok(text.to_owned());
    }
    let mut texts = Vec::new();
    for (block, path) in blocks(holder, path) {
        match text(block, "type").unwrap_or_default() {
            "text" => texts.push(needed(text(block, "text"), &path, "text", "a text")?),
            "image" => return Err(picture(&path)),
            kind => return Err(unknown(kind, &path, "`text`")),
        }
    }
    Ok(texts.join(GAP))
}

/// The text of a system message between others; what it says of tools that come and go is left out.
fn late_system(message: &Object, path: &str) -> Result<String, Refusal> {
    if let Some(text) = text(message, "content") {
        return Ok(text.to_owned());
    }
    let mut texts = Vec::new();
    for (block, path) in blocks(message, path) {
        match text(block, "type").unwrap_or_default() {
            "text" => texts.push(needed(text(block, "text"), &path, "text", "a text")?),
            "tool_addition" | "tool_removal" => {}
            kind => return Err(unknown(kind, &path, "`text`, `tool_addition` and `tool_removal`")),
        }
    }
    Ok(texts.join(GAP))
}

/// The system text, without the line that differs from one conversation to the next.
fn system(fields: &Object) -> String {
    let mut texts: Vec<String> = match fields.get("system") {
        Some(Value::String(text)) => vec![text.clone()],
        _ => list(fields, "system").iter().filter_map(|block| block["text"].as_str().map(str::to_owned)).collect(),
    };
    for text in &mut texts {
        let mut lines = text.split_inclusive('\n');
        let Some(at) = lines.position(|line| line.starts_with(BILLING)) else { continue };
        *text = text.split_inclusive('\n').enumerate().filter(|(line, _)| *line != at).map(|(_, line)| line).collect();
        break;
    }
    texts.retain(|text| !text.is_empty());
    texts.join(GAP)
}

fn picture(path: &str) -> Refusal {
    Refusal::field(
        path,
        format!("Could not process image: `{path}` is a picture, and this server's model reads text only"),
    )
}

fn unknown(kind: &str, path: &str, known: &str) -> Refusal {
    let kind: String = kind.chars().take(64).filter(|letter| !letter.is_control()).collect();
    let path = format!("{path}.type");
    Refusal::field(&path, format!("`{path}` is `{kind}`: here {known} blocks are read"))
}
