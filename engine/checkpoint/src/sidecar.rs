//! Owns: the small files beside the weights: tokenizer, chat template, generation settings.
//! Refuses: a model that needs one of them and lacks it, naming the file.
//! Invariants: none is needed to open a checkpoint; each is read when it is asked for.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::config::{Fields, open_file, present, read_json, read_small};
use crate::error::{Error, Result};

pub(crate) const TOKENIZER: &str = "tokenizer.json";
pub(crate) const TEMPLATE: &str = "chat_template.jinja";
pub(crate) const TOKENIZER_CONFIG: &str = "tokenizer_config.json";
pub(crate) const GENERATION: &str = "generation_config.json";

/// Where the tokenizer is, once it is known to be a file.
pub(crate) fn tokenizer_path(dir: &Path) -> Result<PathBuf> {
    let path = dir.join(TOKENIZER);
    if !present(&path) {
        return Err(Error::Missing { path, needed: "text needs a tokenizer; copy it from the model's repository" });
    }
    open_file(&path)?;
    Ok(path)
}

/// The chat template: its own file, else the entry in `tokenizer_config.json`.
pub(crate) fn chat_template(dir: &Path) -> Result<String> {
    let path = dir.join(TEMPLATE);
    if present(&path) {
        return String::from_utf8(read_small(&path)?).map_err(|cause| {
            Error::io(&path, "read", std::io::Error::new(std::io::ErrorKind::InvalidData, cause.utf8_error()))
        });
    }
    let config = dir.join(TOKENIZER_CONFIG);
    if present(&config) {
        let json = read_json(&config)?;
        if let Some(template) = Fields::root(&json, &config)?.text("chat_template")? {
            return Ok(template.to_owned());
        }
    }
    Err(Error::Missing { path, needed: "chat needs a template; copy it from the model's repository, or use --raw" })
}

/// `generation_config.json`, if there is one.
pub(crate) fn generation_config(dir: &Path) -> Result<Option<Value>> {
    let path = dir.join(GENERATION);
    if !present(&path) {
        return Ok(None);
    }
    let json = read_json(&path)?;
    Fields::root(&json, &path)?;
    Ok(Some(json))
}

/// The ids that end an answer: those of `generation_config.json`, else those of `text_config` (checkpoint.md section 6).
pub(crate) fn stop_ids(dir: &Path, config: &Value, config_path: &Path, vocab: u32) -> Result<Vec<u32>> {
    if let Some(generation) = generation_config(dir)? {
        let path = dir.join(GENERATION);
        let root = Fields::root(&generation, &path)?;
        if root.get("eos_token_id").is_some() {
            return ids(&root, vocab);
        }
    }
    let root = Fields::root(config, config_path)?;
    ids(&root.object("text_config")?.unwrap_or(root), vocab)
}

fn ids(fields: &Fields, vocab: u32) -> Result<Vec<u32>> {
    let id = |value: &Value| value.as_u64().filter(|&id| id < u64::from(vocab)).map(|id| id as u32);
    let ids = match fields.get("eos_token_id") {
        Some(Value::Array(list)) => list.iter().map(id).collect::<Option<Vec<u32>>>().filter(|ids| !ids.is_empty()),
        Some(value) => id(value).map(|id| vec![id]),
        None => None,
    };
    ids.ok_or_else(|| fields.wrong("eos_token_id", format!("a token id below {vocab}, or a list of them")))
}
