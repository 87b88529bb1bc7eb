//! Owns: what a written tool argument means under the declared schema (chat-template.md section 5.3).
//! Refuses: nothing: text that does not fit its declared type stays text.
//! Invariants: every value is valid, compact JSON that this program's own parser reads back; numbers keep the digits they
//! were written with, so an integer beyond 64 bits loses nothing.

use std::collections::HashMap;

use serde_json::Value;

/// Deepest nesting of an argument's JSON; the parser stops at 128, and the argument lies inside an object.
const MAX_DEPTH: usize = 100;

/// How the text of one parameter becomes JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueKind {
    /// `string`, nullable or not: the text as it is.
    Text,
    /// `integer` or `number`: a JSON number if it is one.
    Number {
        /// Whether the text `null` is JSON null.
        nullable: bool,
    },
    /// `boolean`: `true` or `false`.
    Boolean {
        /// Whether the text `null` is JSON null.
        nullable: bool,
    },
    /// `array` or `object`: JSON if it parses.
    Json {
        /// Whether the text `null` is JSON null.
        nullable: bool,
    },
    /// Undeclared, or a union: JSON if it looks like an object, an array, a boolean or an integer.
    Any,
}

impl ValueKind {
    /// The kind that a JSON Schema declares.
    pub fn of_schema(schema: &Value) -> Self {
        let mut types = Vec::new();
        if !collect_types(schema, &mut types) {
            return ValueKind::Any;
        }
        let nullable = types.contains(&"null");
        types.retain(|&name| name != "null");
        types.sort_unstable();
        types.dedup();
        match types.as_slice() {
            ["string"] => ValueKind::Text,
            ["integer" | "number"] => ValueKind::Number { nullable },
            ["boolean"] => ValueKind::Boolean { nullable },
            ["array" | "object"] => ValueKind::Json { nullable },
            _ => ValueKind::Any,
        }
    }

    /// `text` as compact JSON.
    pub fn json(self, text: &str) -> String {
        self.typed(text.trim()).unwrap_or_else(|| Value::from(text).to_string())
    }

    fn typed(self, text: &str) -> Option<String> {
        let (nullable, fits) = match self {
            ValueKind::Text => (false, false),
            ValueKind::Number { nullable } => (nullable, is_number(text)),
            ValueKind::Boolean { nullable } => (nullable, is_boolean(text)),
            ValueKind::Json { nullable } => (nullable, true),
            ValueKind::Any => (false, text.starts_with(['{', '[']) || is_boolean(text) || is_integer(text)),
        };
        if nullable && text == "null" {
            return Some(text.to_owned());
        }
        if fits { compact(text) } else { None }
    }
}

/// The declared parameters of the functions that a conversation offers.
#[derive(Clone, Debug, Default)]
pub struct ToolSchemas {
    functions: HashMap<String, HashMap<String, ValueKind>>,
}

impl ToolSchemas {
    /// The functions of `tools`, each `{"function": {"name", "parameters"}}` or the inner object alone.
    pub fn new(tools: &[Value]) -> Self {
        let functions = tools.iter().filter_map(|tool| {
            let function = tool.get("function").unwrap_or(tool);
            let name = function["name"].as_str()?;
            let kinds = function["parameters"]["properties"].as_object().into_iter().flatten();
            let kinds = kinds.map(|(key, schema)| (key.clone(), ValueKind::of_schema(schema))).collect();
            Some((name.to_owned(), kinds))
        });
        ToolSchemas { functions: functions.collect() }
    }

    /// Whether `function` is declared.
    pub fn declares(&self, function: &str) -> bool {
        self.functions.contains_key(function)
    }

    /// The kind of a parameter; undeclared ones are [`ValueKind::Any`].
    pub fn kind(&self, function: &str, parameter: &str) -> ValueKind {
        let declared = self.functions.get(function).and_then(|kinds| kinds.get(parameter));
        declared.copied().unwrap_or(ValueKind::Any)
    }
}

/// The type names that a schema allows; false when some branch of it declares none.
fn collect_types<'s>(schema: &'s Value, types: &mut Vec<&'s str>) -> bool {
    match &schema["type"] {
        Value::String(name) => {
            types.push(name);
            true
        }
        Value::Array(names) => {
            types.extend(names.iter().filter_map(Value::as_str));
            true
        }
        _ => {
            let branches = ["anyOf", "oneOf"].iter().find_map(|&key| schema[key].as_array());
            branches.is_some_and(|branches| branches.iter().all(|branch| collect_types(branch, types)))
        }
    }
}

fn is_boolean(text: &str) -> bool {
    matches!(text, "true" | "false")
}

fn is_integer(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_number(text: &str) -> bool {
    text.starts_with(|c: char| c == '-' || c.is_ascii_digit())
}

/// `text` without the spaces between its tokens, if it is JSON that parses (so finite numbers and paired surrogates only).
fn compact(text: &str) -> Option<String> {
    serde_json::from_str::<Value>(text).ok()?;
    let mut compact = String::with_capacity(text.len());
    let (mut quoted, mut escaped, mut depth) = (false, false, 0usize);
    for c in text.chars() {
        if quoted {
            quoted = escaped || c != '"';
            escaped = !escaped && c == '\\';
        } else {
            match c {
                ' ' | '\t' | '\n' | '\r' => continue,
                '"' => quoted = true,
                '{' | '[' => depth += 1,
                '}' | ']' => depth = depth.saturating_sub(1),
                _ => {}
            }
        }
        if depth > MAX_DEPTH {
            return None;
        }
        compact.push(c);
    }
    Some(compact)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn typed(schema: Value, text: &str) -> String {
        ValueKind::of_schema(&schema).json(text)
    }

    #[test]
    fn a_declared_string_is_the_text_as_it_is() {
        for text in ["null", "007", "{\"a\":1}", " x ", "", "true", "a\"b\\\n\u{1}é"] {
            assert_eq!(typed(json!({"type": "string"}), text), json!(text).to_string());
            assert_eq!(typed(json!({"type": ["string", "null"]}), text), json!(text).to_string());
            assert_eq!(typed(json!({"anyOf": [{"type": "null"}, {"type": "string"}]}), text), json!(text).to_string());
        }
    }

    #[test]
    fn numbers_are_numbers_only_if_json_says_so() {
        for schema in [json!({"type": "integer"}), json!({"type": "number"})] {
            for number in ["3", "-0", "3.5", "1e20", "123456789012345678901234567890", "-1.5E-3"] {
                assert_eq!(typed(schema.clone(), number), number);
            }
            for text in ["", "inf", "NaN", "Infinity", "-", "007", "+1", "1.", "0x10", "1e999", "null", "true", "1 2"] {
                assert_eq!(typed(schema.clone(), text), json!(text).to_string());
            }
        }
        assert_eq!(typed(json!({"type": ["integer", "null"]}), "null"), "null");
        assert_eq!(typed(json!({"oneOf": [{"type": "number"}, {"type": "null"}]}), "null"), "null");
    }

    #[test]
    fn booleans_are_true_and_false() {
        assert_eq!(typed(json!({"type": "boolean"}), "true"), "true");
        assert_eq!(typed(json!({"type": "boolean"}), "True"), "\"True\"");
        assert_eq!(typed(json!({"type": "boolean"}), "1"), "\"1\"");
    }

    #[test]
    fn arrays_and_objects_are_parsed_and_compacted() {
        let object = json!({"type": "object"});
        assert_eq!(
            typed(object.clone(), "{ \"a b\" : [ 1,\n 2.50 ], \"c\\\" \": \" \" }"),
            "{\"a b\":[1,2.50],\"c\\\" \":\" \"}"
        );
        assert_eq!(typed(json!({"type": "array"}), "[NaN]"), "\"[NaN]\"");
        assert_eq!(typed(object.clone(), "{\"a\":}"), "\"{\\\"a\\\":}\"");
        assert_eq!(typed(object.clone(), r#"{"a":"\ud800"}"#), json!(r#"{"a":"\ud800"}"#).to_string());
        let deep = "[".repeat(120) + &"]".repeat(120);
        assert_eq!(typed(object, &deep), json!(deep).to_string());
    }

    #[test]
    fn what_is_not_declared_is_json_only_if_it_plainly_looks_like_it() {
        for schema in [
            json!({}),
            json!({"type": ["string", "integer"]}),
            json!({"enum": [1]}),
            json!({"anyOf": [{"type": "string"}, {}]}),
        ] {
            for json in ["{\"a\":1}", "[1]", "true", "false", "12", "-3", "99999999999999999999"] {
                assert_eq!(typed(schema.clone(), json), json);
            }
            for text in ["null", "1.5", "007", "x", "{a", "", "\"q\""] {
                assert_eq!(typed(schema.clone(), text), json!(text).to_string());
            }
        }
    }

    #[test]
    fn functions_are_found_in_both_forms() {
        let parameters = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
        let schemas = ToolSchemas::new(&[
            json!({"type": "function", "function": {"name": "f", "parameters": parameters}}),
            json!({"name": "g"}),
            json!(3),
        ]);
        assert!(schemas.declares("f") && schemas.declares("g") && !schemas.declares("h"));
        assert_eq!(schemas.kind("f", "n"), ValueKind::Number { nullable: false });
        assert_eq!(schemas.kind("g", "n"), ValueKind::Any);
    }
}
