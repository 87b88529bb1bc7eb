//! Owns: JSON as Python's `json.dumps(..., ensure_ascii=False)` writes it, which is what templates were trained with
//! (chat-template.md section 3, rule 4).
//! Refuses: values that JSON cannot hold.
//! Invariants: keys keep their order, and nothing is escaped for HTML.

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error, ErrorKind, Value};

/// Lists nested deeper than this are refused: a template can build them, a client cannot.
const MAX_DEPTH: usize = 256;

/// A deeper indent is refused: it only makes a listing larger.
const MAX_INDENT: usize = 32;

/// A longer listing is refused: a template can refer to one value many times over.
const MAX_BYTES: usize = 64 << 20;

/// Decimal exponents that Python writes out in full.
const PLAIN_EXPONENTS: std::ops::Range<i32> = -4..16;

/// The template filter `tojson`, with Hugging Face's `indent` argument.
pub(crate) fn tojson(value: &Value, kwargs: Kwargs) -> Result<Value, Error> {
    let indent: Option<usize> = kwargs.get("indent")?;
    let ascii: Option<bool> = kwargs.get("ensure_ascii")?;
    kwargs.assert_all_used()?;
    if ascii == Some(true) {
        return Err(Error::new(ErrorKind::InvalidOperation, "tojson cannot write with ensure_ascii=true"));
    }
    if indent.is_some_and(|indent| indent > MAX_INDENT) {
        return Err(Error::new(ErrorKind::InvalidOperation, format!("tojson indents by {MAX_INDENT} at most")));
    }
    let mut writer = Writer { text: String::new(), indent };
    writer.value(value, 0)?;
    Ok(Value::from_safe_string(writer.text))
}

struct Writer {
    text: String,
    indent: Option<usize>,
}

impl Writer {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        if self.text.len() > MAX_BYTES {
            return Err(Error::new(ErrorKind::InvalidOperation, "tojson met a value that is too large"));
        }
        if depth > MAX_DEPTH {
            return Err(Error::new(ErrorKind::InvalidOperation, "tojson met a value nested too deeply"));
        }
        match value.kind() {
            ValueKind::None => self.text.push_str("null"),
            ValueKind::Bool => self.text.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number if value.is_integer() => self.text.push_str(&value.to_string()),
            ValueKind::Number => self.text.push_str(&python_float(f64::try_from(value.clone())?)),
            ValueKind::String => self.string(&value.to_string()),
            ValueKind::Seq | ValueKind::Iterable => self.list(value, depth)?,
            ValueKind::Map => self.map(value, depth)?,
            kind => return Err(Error::new(ErrorKind::InvalidOperation, format!("tojson cannot write {kind}"))),
        }
        Ok(())
    }

    fn list(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        self.text.push('[');
        let mut empty = true;
        for item in value.try_iter()? {
            self.separate(empty, depth + 1);
            empty = false;
            self.value(&item, depth + 1)?;
        }
        self.close(empty, depth, ']');
        Ok(())
    }

    fn map(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        self.text.push('{');
        let mut empty = true;
        for key in value.try_iter()? {
            self.separate(empty, depth + 1);
            empty = false;
            self.string(&key.to_string());
            self.text.push_str(": ");
            self.value(&value.get_item(&key)?, depth + 1)?;
        }
        self.close(empty, depth, '}');
        Ok(())
    }

    fn separate(&mut self, first: bool, depth: usize) {
        match (self.indent, first) {
            (None, true) => {}
            (None, false) => self.text.push_str(", "),
            (Some(_), first) => {
                self.text.push_str(if first { "" } else { "," });
                self.new_line(depth);
            }
        }
    }

    fn close(&mut self, empty: bool, depth: usize, bracket: char) {
        if !empty && self.indent.is_some() {
            self.new_line(depth);
        }
        self.text.push(bracket);
    }

    fn new_line(&mut self, depth: usize) {
        self.text.push('\n');
        self.text.extend(std::iter::repeat_n(' ', self.indent.unwrap_or(0).saturating_mul(depth)));
    }

    fn string(&mut self, text: &str) {
        // serde_json escapes exactly what Python escapes: quote, backslash and the controls below U+0020.
        self.text.push_str(&serde_json::Value::from(text).to_string());
    }
}

/// `repr(float)`: the shortest digits that read back, with an exponent outside 1e-4..1e16.
fn python_float(number: f64) -> String {
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if PLAIN_EXPONENTS.contains(&exponent) {
        let plain = number.to_string();
        return if plain.contains('.') { plain } else { plain + ".0" };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_written_as_python_writes_them() {
        let cases = [
            (1.0, "1.0"),
            (-0.0, "-0.0"),
            (0.5, "0.5"),
            (1e22, "1e+22"),
            (1e16, "1e+16"),
            (1e15, "1000000000000000.0"),
            (123456789012345680.0, "1.2345678901234568e+17"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1.5e-7, "1.5e-07"),
            (1e-100, "1e-100"),
            (5e-324, "5e-324"),
            (1.7976931348623157e308, "1.7976931348623157e+308"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-Infinity"),
        ];
        for (number, text) in cases {
            assert_eq!(python_float(number), text);
        }
    }
}
