//! Owns: tool calls in the template's form as a grammar (chat-template.md section 3 rule 9, section 5).
//! Refuses: names that the form cannot carry, and strict parameters whose values it cannot.
//! Invariants: a call that the grammar allows is read back as a complete call of a declared function; of a strict tool, with
//! arguments that its schema allows, each parameter at most once.

use std::fmt::Write;

use serde_json::{Map, Value};
use ss_text::ValueKind;

use crate::schema::{Normal, normalise, shorten};
use crate::text::{self, Reader, Terminal};
use crate::{Error, Result, ToolRule};

/// Keywords that a strict tool's parameters may have as a whole.
const WHOLE: [&str; 16] = [
    "type",
    "properties",
    "required",
    "additionalProperties",
    "$defs",
    "definitions",
    "$schema",
    "$id",
    "id",
    "$comment",
    "title",
    "description",
    "default",
    "examples",
    "strict",
    "deprecated",
];

/// A grammar while it is written.
#[derive(Default)]
pub(crate) struct Calls {
    /// Rules and terminals.
    text: String,
    /// Schemas that rules refer to by their numbers.
    pub schemas: Vec<Value>,
    terminals: usize,
    rules: usize,
}

impl Calls {
    /// The rules of the calls of some tools: `body` is a call from behind its opening tag on.
    ///
    /// # Errors
    /// When a tool cannot be held to.
    pub fn write(tools: &[&ToolRule]) -> Result<Self> {
        let mut calls = Calls::default();
        let mut bodies = Vec::new();
        for tool in tools {
            check_name("function", &tool.name).map_err(|reason| in_tool(tool, reason))?;
            let parameters = if tool.strict { calls.strict(tool)? } else { calls.free() };
            let open = text::literal(&format!("\n<function={}>\n", tool.name));
            let close = text::literal("</function>\n</tool_call>");
            bodies.push(format!("{open} {parameters} {close}"));
        }
        let bodies = bodies.join("\n    | ");
        writeln!(calls.text, "body: {bodies}").ok();
        Ok(calls)
    }

    /// The rules and terminals.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Any parameters with any values.
    fn free(&mut self) -> String {
        let value = self.terminal(&Terminal::any());
        let name = self.name_of_rule();
        writeln!(self.text, "{name}: \"<parameter=\" /[^<>\\n]{{1,128}}/ \">\\n\" {value}").ok();
        format!("{name}*")
    }

    /// The parameters of a strict tool, in the order declared.
    fn strict(&mut self, tool: &ToolRule) -> Result<String> {
        let schema = match &tool.parameters {
            Value::Null => return Ok(String::new()),
            Value::Object(keys) => keys,
            _ => return Err(in_tool(tool, "its parameters must be a schema of an object".to_owned())),
        };
        let required = check_whole(tool, schema)?;
        let empty = Map::new();
        let properties = schema.get("properties").and_then(Value::as_object).unwrap_or(&empty);
        if let Some(name) = required.iter().find(|name| !properties.contains_key(**name)) {
            let reason = format!("it requires the parameter {:?}, which it does not declare", shorten(name));
            return Err(in_tool(tool, reason));
        }
        let mut sequence = Vec::new();
        for (name, declared) in properties {
            check_name("parameter", name).map_err(|reason| in_tool(tool, reason))?;
            let needed = required.contains(&name.as_str());
            let rule = match self.parameter(&tool.parameters, name, declared) {
                Ok(rule) => rule,
                Err(Error::Unsatisfiable(_)) if !needed => continue,
                Err(error) => return Err(error),
            };
            sequence.push(if needed { rule } else { format!("{rule}?") });
        }
        Ok(sequence.join(" "))
    }

    /// The rule of one parameter.
    fn parameter(&mut self, whole: &Value, name: &str, declared: &Value) -> Result<String> {
        let at = format!("/properties/{}", name.replace('~', "~0").replace('/', "~1"));
        let normal = normalise(whole, &at)?;
        let value = match ValueKind::of_schema(declared) {
            ValueKind::Text => {
                let strings = Reader::new(&normal).strings(&normal.root)?;
                let strings = strings.ok_or_else(|| nothing(name))?;
                self.plain(name, strings.untagged())?
            }
            ValueKind::Any => self.undeclared(name, &normal)?,
            ValueKind::Number { .. } | ValueKind::Boolean { .. } | ValueKind::Json { .. } => self.json(&normal),
        };
        let rule = self.name_of_rule();
        let open = text::literal(&format!("<parameter={name}>\n"));
        writeln!(self.text, "{rule}: {open} ({value})").ok();
        Ok(rule)
    }

    /// A value whose type is told from its text.
    fn undeclared(&mut self, name: &str, normal: &Normal) -> Result<String> {
        let reader = Reader::new(normal);
        let strings = reader.strings(&normal.root)?.map(Terminal::undeclared);
        let scalars = reader.scalars(&normal.root)?;
        let plain = Terminal::either(strings.into_iter().chain(scalars).collect()).map(Terminal::untagged);
        let mut ways = Vec::new();
        if let Some(plain) = plain
            && !plain.is_empty()?
        {
            ways.push(self.terminal(&plain));
        }
        if reader.holds_structures(&normal.root) {
            ways.push(self.json(&text::structures(normal)));
        }
        if ways.is_empty() { Err(nothing(name)) } else { Ok(ways.join(" | ")) }
    }

    /// A value that is written as JSON.
    fn json(&mut self, normal: &Normal) -> String {
        self.schemas.push(normal.document());
        format!("@{} {}", schema_name(self.schemas.len() - 1), text::literal(VALUE_END))
    }

    /// A text, with what ends it.
    fn plain(&mut self, name: &str, value: Terminal) -> Result<String> {
        if value.is_empty()? { Err(nothing(name)) } else { Ok(self.terminal(&value)) }
    }

    /// A value that is written as it is, with what ends it.
    fn terminal(&mut self, value: &Terminal) -> String {
        let name = format!("VALUE{}", self.terminals);
        self.terminals += 1;
        writeln!(self.text, "{name}: {} {}", value.lark(), text::literal(VALUE_END)).ok();
        name
    }

    fn name_of_rule(&mut self) -> String {
        self.rules += 1;
        format!("parameter{}", self.rules)
    }
}

/// What comes after a value.
const VALUE_END: &str = "\n</parameter>\n";

/// The name by which rules refer to a schema.
pub(crate) fn schema_name(number: usize) -> String {
    format!("schema{number}")
}

fn nothing(name: &str) -> Error {
    Error::Unsatisfiable(format!("the parameter {:?} has no value that a call can carry", shorten(name)))
}

fn in_tool(tool: &ToolRule, reason: String) -> Error {
    Error::Tool { tool: shorten(&tool.name), reason }
}

/// Refuses names that would not come back from the tags that carry them.
fn check_name(what: &str, name: &str) -> std::result::Result<(), String> {
    let carried = !name.is_empty() && name.trim() == name && !name.contains(['<', '>', '\n', '\r']);
    match carried {
        true => Ok(()),
        false => Err(format!("the {what} name {:?} cannot be written in a call", shorten(name))),
    }
}

/// Checks what a strict tool's parameters say as a whole, and gives the names of those that must be there.
fn check_whole<'t>(tool: &ToolRule, schema: &'t Map<String, Value>) -> Result<Vec<&'t str>> {
    for (keyword, value) in schema {
        let known = WHOLE.contains(&keyword.as_str()) || keyword.starts_with("x-") && keyword != "x-guidance";
        if !known && !value.is_null() {
            let reason = "a tool's parameters may have `properties`, `required` and `additionalProperties`";
            let keyword = shorten(keyword);
            return Err(Error::Keyword {
                keyword,
                at: format!("{} parameters", shorten(&tool.name)),
                reason: reason.to_owned(),
            });
        }
    }
    if schema.get("type").is_some_and(|kind| kind != "object") {
        return Err(in_tool(tool, "the type of its parameters must be `object`".to_owned()));
    }
    let listed = |name: &str| match schema.get(name) {
        None | Some(Value::Null) => Ok(()),
        Some(value) if value.is_object() => Ok(()),
        Some(_) => Err(in_tool(tool, format!("`{name}` of its parameters must be an object"))),
    };
    listed("properties")?;
    let names = match schema.get("required") {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(names) => names.as_array().map(|names| names.iter().map(Value::as_str).collect::<Option<Vec<_>>>()),
    };
    names.flatten().ok_or_else(|| in_tool(tool, "`required` of its parameters must be a list of names".to_owned()))
}
