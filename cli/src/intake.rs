//! Owns: text from outside: standard input and small files.
//! Refuses: more of it than any model reads, and what is not UTF-8.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, bail};

/// More bytes than the longest window holds, many times over.
const MOST_BYTES: u64 = 64 << 20;

/// Everything that `source` holds; `name` is what an error calls it.
///
/// # Errors
/// When it cannot be read, is too long, or is not UTF-8.
pub fn read(source: impl Read, name: &str) -> Result<String> {
    let mut bytes = Vec::new();
    source.take(MOST_BYTES + 1).read_to_end(&mut bytes).with_context(|| format!("{name} cannot be read"))?;
    if bytes.len() as u64 > MOST_BYTES {
        bail!("{name} holds more than {} MB, which no model reads; give less of it", MOST_BYTES >> 20);
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok(text),
        Err(error) => bail!("{name} is not UTF-8 text: its byte {} is wrong", error.utf8_error().valid_up_to()),
    }
}

/// The text of a file.
///
/// # Errors
/// As [`read`], naming the file.
pub fn read_file(path: &Path) -> Result<String> {
    let file = File::open(path).with_context(|| format!("`{}` cannot be opened", path.display()))?;
    read(file, &format!("`{}`", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endless_source_is_refused() {
        let error = read(std::io::repeat(b'a'), "standard input").unwrap_err().to_string();
        assert!(error.starts_with("standard input holds more than 64 MB"), "{error}");
    }

    #[test]
    fn what_is_not_text_is_refused_with_the_place() {
        let error = read(&b"ab\xff"[..], "standard input").unwrap_err().to_string();
        assert_eq!(error, "standard input is not UTF-8 text: its byte 2 is wrong");
    }
}
