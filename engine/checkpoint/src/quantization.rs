//! Owns: what `config.json` says about quantisation, to be held against the tensors (checkpoint.md section 3).
//! Refuses: modes other than affine, and entries that are neither an object nor false.
//! Invariants: it never decides that a weight is quantised; the tensors do.

use std::collections::HashMap;

use serde_json::Value;

use crate::config::Fields;
use crate::error::{Error, Result};

/// Bits and group as configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Affine {
    pub bits: u64,
    pub group: u64,
}

/// The quantisation part of a configuration.
pub(crate) struct Quantization {
    /// Whether there is such a part at all.
    pub present: bool,
    default: Option<Affine>,
    modules: HashMap<String, Option<Affine>>,
}

/// What the configuration says about one weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    /// Quantised so, by an entry of its own.
    Own(Affine),
    /// Not quantised, by an entry of its own.
    Dense,
    /// If quantised, then so.
    Default(Affine),
    /// Nothing.
    Nothing,
}

impl Quantization {
    /// Reads `quantization`, or `quantization_config` where there is no other.
    pub fn from_config(config: &Value, path: &std::path::Path) -> Result<Quantization> {
        let root = Fields::root(config, path)?;
        let part = match root.object("quantization")? {
            Some(part) => Some(part),
            None => root.object("quantization_config")?,
        };
        let Some(part) = part else {
            return Ok(Quantization { present: false, default: None, modules: HashMap::new() });
        };
        part.fixed("mode", &Value::from("affine"))?;
        let mut modules = HashMap::new();
        for (name, value) in part.entries() {
            let said = match value {
                Value::Bool(false) => None,
                Value::Object(_) => part.object(name)?.map(|own| affine(&own)).transpose()?.flatten(),
                // Plain settings beside the modules.
                _ if !name.contains('.') => continue,
                _ => return Err(part.wrong(name, "an object or false")),
            };
            let name = name.strip_prefix("language_model.").unwrap_or(name);
            modules.insert(name.to_owned(), said);
        }
        Ok(Quantization { present: true, default: affine(&part)?, modules })
    }

    /// What is said about the weight with this base name.
    pub fn of(&self, base: &str) -> Said {
        match (self.modules.get(base), self.default) {
            (Some(Some(own)), _) => Said::Own(*own),
            (Some(None), _) => Said::Dense,
            (None, Some(default)) => Said::Default(default),
            (None, None) => Said::Nothing,
        }
    }
}

/// The two numbers of an entry. Which of them are supported is decided where a tensor uses them.
fn affine(entry: &Fields) -> Result<Option<Affine>> {
    entry.fixed("mode", &Value::from("affine"))?;
    let range = 1..=u64::from(u32::MAX);
    match (entry.number("bits", range.clone())?, entry.number("group_size", range)?) {
        (Some(bits), Some(group)) => Ok(Some(Affine { bits, group })),
        (None, None) => Ok(None),
        (None, _) => Err(entry.wrong("bits", "a whole number")),
        (_, None) => Err(entry.wrong("group_size", "a whole number")),
    }
}

/// The error for a weight whose tensors say otherwise than the configuration.
pub(crate) fn disagrees(path: &std::path::Path, base: &str, tensors: &str, said: Said) -> Error {
    let found = match said {
        Said::Own(affine) | Said::Default(affine) => format!("bits {}, group_size {}", affine.bits, affine.group),
        Said::Dense => "false".into(),
        Said::Nothing => "nothing".into(),
    };
    let own = matches!(said, Said::Own(_) | Said::Dense);
    let field = if own { format!("quantization.{base}") } else { "quantization".into() };
    let expected = if own { tensors.into() } else { format!("{tensors} for {base}") };
    Error::Field { path: path.to_owned(), field, expected, found }
}
