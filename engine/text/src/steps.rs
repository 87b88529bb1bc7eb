//! Owns: which steps a tokenizer file may ask for: those of the family, byte-level BPE over Qwen's split.
//! Refuses: every other step by name, before the tokenizer library sees the file: some of them lose text, draw lots, or
//! make the library fail.
//! Invariants: what is accepted turns one text into the same ids every time, and loses none of it.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

/// The longest text of an added token in bytes; the family's longest has 20.
const LONGEST_ADDED: usize = 1024;

#[derive(Deserialize)]
struct File {
    #[serde(default)]
    added_tokens: Vec<Added>,
    #[serde(default)]
    normalizer: Value,
    #[serde(default)]
    pre_tokenizer: Value,
    #[serde(default)]
    decoder: Value,
    model: Model,
}

#[derive(Deserialize)]
struct Added {
    content: String,
}

#[derive(Deserialize)]
struct Model {
    #[serde(rename = "type")]
    kind: Option<String>,
    dropout: Option<f64>,
    continuing_subword_prefix: Option<String>,
    end_of_word_suffix: Option<String>,
    byte_fallback: Option<bool>,
    #[serde(rename = "vocab")]
    _vocab: IgnoredAny,
    #[serde(rename = "merges")]
    _merges: IgnoredAny,
}

/// Checks the steps of a tokenizer file; the reason is for a sentence that names the file.
pub(crate) fn check(json: &[u8]) -> Result<(), String> {
    let file: File = serde_json::from_slice(json).map_err(|error| format!("it is not a tokenizer file ({error})"))?;
    if file.added_tokens.iter().any(|token| token.content.len() > LONGEST_ADDED) {
        return Err(format!("an added token is longer than {LONGEST_ADDED} bytes"));
    }
    model(&file.model)?;
    if !(file.normalizer.is_null() || kind(&file.normalizer) == "NFC") {
        return Err(format!("its normalizer must be NFC or none, and it is of type {}", kind(&file.normalizer)));
    }
    splitter(&file.pre_tokenizer)?;
    match kind(&file.decoder) {
        "ByteLevel" => Ok(()),
        other => Err(format!("its decoder must be of type ByteLevel, and it is of type {other}")),
    }
}

fn model(model: &Model) -> Result<(), String> {
    let empty = |text: &Option<String>| text.as_ref().is_none_or(String::is_empty);
    match model.kind.as_deref() {
        None | Some("BPE") => {}
        Some(other) => return Err(format!("its model must be of type BPE, and it is of type {other:.40}")),
    }
    if model.dropout.is_some_and(|dropout| dropout != 0.0) {
        return Err("its model has a dropout, which would draw lots over every prompt".to_owned());
    }
    if !empty(&model.continuing_subword_prefix) || !empty(&model.end_of_word_suffix) {
        return Err("its model marks the inside or the end of words, which byte-level models do not".to_owned());
    }
    match model.byte_fallback {
        Some(true) => Err("its model falls back to bytes, which byte-level models do not".to_owned()),
        _ => Ok(()),
    }
}

fn splitter(step: &Value) -> Result<(), String> {
    match kind(step) {
        "none" | "ByteLevel" => Ok(()),
        "Sequence" => step["pretokenizers"].as_array().into_iter().flatten().try_for_each(splitter),
        "Split" if step["behavior"] == "Isolated" => Ok(()),
        "Split" => Err("its pre-tokenizer's Split must have the behavior Isolated: others lose text".to_owned()),
        other => Err(format!("its pre-tokenizer may split and go to bytes, and it holds a {other}")),
    }
}

/// The type of a step, fit for a message.
fn kind(step: &Value) -> &str {
    match step["type"].as_str() {
        Some(kind) => kind.get(..40).unwrap_or(kind),
        None if step.is_null() => "none",
        None => "an unnamed type",
    }
}
