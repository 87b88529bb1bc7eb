//! Owns: reading JSON files whole (they are small) and taking typed, bounded values out of them.
//! Refuses: files over the limit, what is not JSON, fields of another type or out of range.
//! Invariants: every error carries the file and the field with its parents.

use std::fs::{self, File};
use std::io::Read;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::error::{Error, Result, shown};

/// Largest JSON file that is read: the released index has 318 KB, `config.json` 33 KB. Parsed, it can take twenty times as much.
const JSON_LIMIT: u64 = 8 << 20;

/// Whether something, even a dangling link, stands at `path`.
pub(crate) fn present(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

/// Opens a regular file; links are followed. A pipe is refused unopened, as opening one can wait for ever.
pub(crate) fn open_file(path: &Path) -> Result<(File, u64)> {
    let metadata = fs::metadata(path).map_err(|cause| Error::io(path, "open", cause))?;
    if !metadata.is_file() {
        let found = if metadata.is_dir() { "a directory" } else { "neither a file nor a directory" };
        return Err(Error::NotAFile { path: path.to_owned(), found });
    }
    let file = File::open(path).map_err(|cause| Error::io(path, "open", cause))?;
    Ok((file, metadata.len()))
}

/// The bytes of a small file.
pub(crate) fn read_small(path: &Path) -> Result<Vec<u8>> {
    let (file, bytes) = open_file(path)?;
    if bytes > JSON_LIMIT {
        return Err(Error::TooLarge { path: path.to_owned(), bytes, limit: JSON_LIMIT });
    }
    let mut content = Vec::new();
    // The limit again: the file may grow meanwhile.
    file.take(JSON_LIMIT).read_to_end(&mut content).map_err(|cause| Error::io(path, "read", cause))?;
    Ok(content)
}

/// A JSON file, parsed.
pub(crate) fn read_json(path: &Path) -> Result<Value> {
    let content = read_small(path)?;
    serde_json::from_slice(&content)
        .map_err(|cause| Error::Json { path: path.to_owned(), cause: shown(&cause.to_string()) })
}

/// A value, fit for a message.
pub(crate) fn shown_value(value: &Value) -> String {
    match value {
        Value::Array(items) if items.len() > 8 => format!("a list of {} values", items.len()),
        Value::Object(fields) => format!("an object of {} fields", fields.len()),
        other => shown(&other.to_string()),
    }
}

/// A JSON object that knows where it stands.
#[derive(Clone)]
pub(crate) struct Fields<'a> {
    path: PathBuf,
    prefix: String,
    map: &'a Map<String, Value>,
}

impl<'a> Fields<'a> {
    /// The outermost object of a file.
    pub fn root(value: &'a Value, path: &Path) -> Result<Self> {
        let map = value.as_object().ok_or_else(|| Error::Field {
            path: path.to_owned(),
            field: "the outermost value".into(),
            expected: "an object".into(),
            found: shown_value(value),
        })?;
        Ok(Fields { path: path.to_owned(), prefix: String::new(), map })
    }

    /// The file this stands in.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The field, unless absent or null.
    pub fn get(&self, name: &str) -> Option<&'a Value> {
        self.map.get(name).filter(|value| !value.is_null())
    }

    /// All fields.
    pub fn entries(&self) -> impl Iterator<Item = (&'a str, &'a Value)> + use<'a> {
        self.map.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// An object inside, if there is one.
    pub fn object(&self, name: &str) -> Result<Option<Fields<'a>>> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let map = value.as_object().ok_or_else(|| self.wrong(name, "an object"))?;
        Ok(Some(Fields { path: self.path.clone(), prefix: format!("{}{name}.", self.prefix), map }))
    }

    /// A whole number inside `range`, if there is one.
    pub fn number(&self, name: &str, range: RangeInclusive<u64>) -> Result<Option<u64>> {
        let Some(value) = self.get(name) else { return Ok(None) };
        match value.as_u64() {
            Some(number) if range.contains(&number) => Ok(Some(number)),
            _ => Err(self.wrong(name, format!("a whole number from {} to {}", range.start(), range.end()))),
        }
    }

    /// A whole number inside `range`; the field must exist.
    pub fn need(&self, name: &str, range: RangeInclusive<u32>) -> Result<u32> {
        let wide = u64::from(*range.start())..=u64::from(*range.end());
        let number = self.number(name, wide.clone())?;
        let number = number.and_then(|n| u32::try_from(n).ok());
        number.ok_or_else(|| self.wrong(name, format!("a whole number from {} to {}", wide.start(), wide.end())))
    }

    /// A finite number, if there is one.
    pub fn real(&self, name: &str) -> Result<Option<f64>> {
        let Some(value) = self.get(name) else { return Ok(None) };
        match value.as_f64() {
            Some(number) if number.is_finite() => Ok(Some(number)),
            _ => Err(self.wrong(name, "a finite number")),
        }
    }

    /// A string, if there is one.
    pub fn text(&self, name: &str) -> Result<Option<&'a str>> {
        let Some(value) = self.get(name) else { return Ok(None) };
        value.as_str().map(Some).ok_or_else(|| self.wrong(name, "a string"))
    }

    /// A field that, where present, must have one given value.
    pub fn fixed(&self, name: &str, value: &Value) -> Result<()> {
        match self.get(name) {
            Some(found) if found != value => Err(self.wrong(name, shown_value(value))),
            _ => Ok(()),
        }
    }

    /// The error for a field whose value is wrong or absent.
    pub fn wrong(&self, name: &str, expected: impl Into<String>) -> Error {
        let found = self.map.get(name).map_or_else(|| "nothing".to_string(), shown_value);
        Error::Field {
            path: self.path.clone(),
            field: format!("{}{name}", self.prefix),
            expected: expected.into(),
            found,
        }
    }
}
