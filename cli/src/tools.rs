//! Owns: the file of `--tools`.
//! Refuses: what is not a list of functions in OpenAI's form, names that a call cannot carry, and names given twice.

use std::collections::HashSet;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

/// Reads and checks the file.
///
/// # Errors
/// Names the file, the entry and what was expected.
pub fn read(path: &Path) -> Result<Vec<Value>> {
    let text = crate::intake::read_file(path).context("`--tools`")?;
    parse(&text).with_context(|| format!("`--tools`: `{}`", path.display()))
}

fn parse(text: &str) -> Result<Vec<Value>> {
    let Value::Array(tools) = serde_json::from_str(text).context("this is not JSON")? else {
        bail!("expected a list of tools, as in [{{\"type\": \"function\", \"function\": {{\"name\": ...}}}}]");
    };
    let mut names = HashSet::new();
    for (i, tool) in tools.iter().enumerate() {
        let name = check(tool).with_context(|| format!("entry {i}"))?;
        ensure!(names.insert(name), "entry {i}: `{name}` is the name of an earlier entry");
    }
    Ok(tools)
}

/// The name of a tool.
fn check(tool: &Value) -> Result<&str> {
    if !matches!(tool.get("type").and_then(Value::as_str), Some("function")) {
        bail!("expected an object whose `type` is \"function\"");
    }
    let Some(function) = tool.get("function").filter(|function| function.is_object()) else {
        bail!("expected an object `function`");
    };
    let name = function.get("name").and_then(Value::as_str).unwrap_or_default();
    // A call is written `<function=NAME>`.
    if name.is_empty() || name.contains(|c: char| c.is_whitespace() || "<>=".contains(c)) {
        bail!("expected a `function.name` without spaces, `<`, `>` and `=`");
    }
    let fits =
        |key: &str, kind: fn(&Value) -> bool| function.get(key).is_none_or(|value| value.is_null() || kind(value));
    ensure!(fits("description", Value::is_string), "expected `function.description` to be a text");
    ensure!(fits("parameters", Value::is_object), "expected `function.parameters` to be an object, a JSON schema");
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_taken_as_they_are() {
        let text = r#"[{"type":"function","function":{"name":"a.b-c","parameters":{}}},{"type":"function","function":{"name":"d"}}]"#;
        assert_eq!(serde_json::to_string(&parse(text).unwrap()).unwrap(), text);
        assert!(parse("[]").unwrap().is_empty());
    }

    #[test]
    fn every_other_shape_is_refused_by_entry() {
        let named = |function: &str| {
            format!(r#"[{{"type":"function","function":{{"name":"a"}}}},{{"type":"function","function":{function}}}]"#)
        };
        let wrong = [
            ("{}".into(), "a list of tools"),
            ("\"x\"".into(), "a list of tools"),
            ("{not".into(), "not JSON"),
            ("".into(), "not JSON"),
            ("[".repeat(100_000), "not JSON"),
            ("[1]".into(), "entry 0: expected an object"),
            ("[null]".into(), "entry 0: expected an object"),
            (r#"[{"type":"retrieval"}]"#.into(), "entry 0: expected an object whose `type`"),
            (r#"[{"type":"function"}]"#.into(), "entry 0: expected an object `function`"),
            (named("3"), "entry 1: expected an object `function`"),
            (named("{}"), "entry 1: expected a `function.name`"),
            (named(r#"{"name":""}"#), "entry 1: expected a `function.name`"),
            (named(r#"{"name":5}"#), "entry 1: expected a `function.name`"),
            (named(r#"{"name":"a>b"}"#), "entry 1: expected a `function.name`"),
            (named(r#"{"name":"b","parameters":[]}"#), "entry 1: expected `function.parameters`"),
            (named(r#"{"name":"b","description":1}"#), "entry 1: expected `function.description`"),
            (named(r#"{"name":"a"}"#), "entry 1: `a` is the name of an earlier entry"),
        ];
        for (text, expected) in wrong {
            let error = format!("{:#}", parse(&text).unwrap_err());
            assert!(error.contains(expected), "{error}");
        }
    }
}
