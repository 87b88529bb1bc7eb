//! Owns: values that a call writes as plain text, as regular expressions (chat-template.md section 5.3).
//! Refuses: patterns that look around, and number bounds where the type of a value is told from its text.
//! Invariants: a text that is allowed is a value that the schema allows, read by the rules that read it.

use llguidance::derivre::{RegexAst, RegexBuilder};
use regex_syntax::hir::{Hir, HirKind, Look};
use serde_json::{Value, json};

use crate::schema::{Normal, shorten};
use crate::{Error, Result};

/// Texts that are matched as a whole.
#[derive(Clone, Debug)]
pub(crate) enum Terminal {
    /// An expression, in the syntax of Rust's `regex`.
    Regex(String),
    /// One text.
    Literal(String),
    /// What all match.
    All(Vec<Terminal>),
    /// What any matches.
    Any(Vec<Terminal>),
    /// What it does not match.
    Not(Box<Terminal>),
}

/// Any text.
const ANY: &str = "(?s:.*)";

/// Tags that end a value wherever they stand.
const ENDS: &str = "(?s:.*)(<parameter=|</parameter>|</function>|</tool_call>)(?s:.*)";

/// Texts that are read as something else where no type is declared: objects, lists, booleans and integers.
const TYPED: &str = r"\s*([\[{](?s:.*)|(true|false|-?[0-9]+)\s*)";

/// What the engine may spend on finding out whether anything matches.
const EMPTINESS_FUEL: u64 = 20_000;

impl Terminal {
    fn regex(text: &str) -> Self {
        Terminal::Regex(text.to_owned())
    }

    fn but(self, text: &str) -> Self {
        Terminal::All(vec![self, Terminal::Not(Box::new(Terminal::regex(text)))])
    }

    /// A value's text, without the tags that would end it.
    pub fn untagged(self) -> Self {
        self.but(ENDS)
    }

    /// Texts that are read as text where no type is declared.
    pub fn undeclared(self) -> Self {
        self.but(TYPED)
    }

    /// Any value's text.
    pub fn any() -> Self {
        Terminal::regex(ANY).untagged()
    }

    /// What any of some match; none if there are none.
    pub fn either(mut terminals: Vec<Terminal>) -> Option<Self> {
        if terminals.len() < 2 { terminals.pop() } else { Some(Terminal::Any(terminals)) }
    }

    /// As the engine's grammar writes it.
    pub fn lark(&self) -> String {
        let list = |terminals: &[Terminal], sign: &str| {
            let written: Vec<String> = terminals.iter().map(Terminal::lark).collect();
            format!("({})", written.join(sign))
        };
        match self {
            Terminal::Regex(text) if text.is_empty() => literal(""),
            Terminal::Regex(text) => regex(text),
            Terminal::Literal(text) => literal(text),
            Terminal::All(terminals) => list(terminals, " & "),
            Terminal::Any(terminals) => list(terminals, " | "),
            Terminal::Not(terminal) => format!("~{}", terminal.lark()),
        }
    }

    fn ast(&self) -> RegexAst {
        match self {
            Terminal::Regex(text) => RegexAst::Regex(text.clone()),
            Terminal::Literal(text) => RegexAst::Literal(text.clone()),
            Terminal::All(terminals) => RegexAst::And(terminals.iter().map(Terminal::ast).collect()),
            Terminal::Any(terminals) => RegexAst::Or(terminals.iter().map(Terminal::ast).collect()),
            Terminal::Not(terminal) => RegexAst::Not(Box::new(terminal.ast())),
        }
    }

    /// Whether no text matches.
    ///
    /// # Errors
    /// When it takes too much to find out.
    pub fn is_empty(&self) -> Result<bool> {
        let costly = |_| Error::TooLarge("a pattern takes too much to keep to".to_owned());
        let mut builder = RegexBuilder::new();
        let expression = builder.mk(&self.ast()).map_err(costly)?;
        Ok(builder.to_regex_limited(expression, EMPTINESS_FUEL).map_err(costly)?.always_empty())
    }
}

/// A literal, as the engine's grammar writes it.
pub(crate) fn literal(text: &str) -> String {
    // The grammar's texts are JSON's, and may not hold the character that JSON alone leaves as it is.
    Value::from(text).to_string().replace('\x7f', "\\u007f")
}

/// A regular expression, as the engine's grammar writes it.
pub(crate) fn regex(text: &str) -> String {
    format!("/{}/", llguidance::regex_to_lark(text, ""))
}

/// Where a schema's texts are told apart.
pub(crate) struct Reader<'s> {
    schema: &'s Normal,
}

impl<'s> Reader<'s> {
    pub fn new(schema: &'s Normal) -> Self {
        Reader { schema }
    }

    /// The texts that the schema allows; none if it allows no text.
    pub fn strings(&self, schema: &Value) -> Result<Option<Terminal>> {
        self.terminal(schema, "string", 0)
    }

    /// The integers and booleans that it allows, as they are written.
    pub fn scalars(&self, schema: &Value) -> Result<Option<Terminal>> {
        let integers = self.terminal(schema, "integer", 0)?;
        let booleans = self.terminal(schema, "boolean", 0)?;
        Ok(Terminal::either(integers.into_iter().chain(booleans).collect()))
    }

    /// Whether it may allow an object or a list.
    pub fn holds_structures(&self, schema: &Value) -> bool {
        ["object", "array"].iter().any(|kind| self.may_be(schema, kind, 0))
    }

    fn target(&self, reference: &Value, depth: usize) -> Result<&'s Value> {
        const MOST: usize = 32;
        let circular = || Error::Grammar { kind: "schema", reason: "its `$ref`s lead in a circle".to_owned() };
        match self.schema.target(reference) {
            Some(target) if depth < MOST => Ok(target),
            _ => Err(circular()),
        }
    }

    fn may_be(&self, schema: &Value, kind: &str, depth: usize) -> bool {
        let Value::Object(keys) = schema else { return schema != &Value::Bool(false) };
        let within = |branch: &Value| self.may_be(branch, kind, depth);
        let list = |name: &str| keys.get(name).and_then(Value::as_array);
        is_typed(schema, kind)
            && keys.get("const").is_none_or(|value| is_of(value, kind))
            && list("enum").is_none_or(|values| values.iter().any(|value| is_of(value, kind)))
            && list("allOf").is_none_or(|all| all.iter().all(within))
            && list("anyOf").is_none_or(|any| any.iter().any(within))
            && list("oneOf").is_none_or(|one| one.iter().any(within))
            && keys.get("$ref").is_none_or(|reference| {
                self.target(reference, depth).is_ok_and(|target| self.may_be(target, kind, depth + 1))
            })
    }

    /// The texts of the values of one scalar type.
    fn terminal(&self, schema: &Value, kind: &str, depth: usize) -> Result<Option<Terminal>> {
        if !self.may_be(schema, kind, depth) {
            return Ok(None);
        }
        let mut all = vec![Terminal::regex(base(kind))];
        for (keyword, value) in schema.as_object().into_iter().flatten() {
            let terminal = match keyword.as_str() {
                "const" => spelt(std::slice::from_ref(value), kind),
                "enum" => spelt(value.as_array().map_or(&[][..], Vec::as_slice), kind),
                "$ref" => self.terminal(self.target(value, depth)?, kind, depth + 1)?,
                "anyOf" => Terminal::either(self.branches(value, kind, depth)?),
                "oneOf" => {
                    let mut branches = self.branches(value, kind, depth)?;
                    if branches.len() > 1 {
                        return Err(refuse("oneOf", "two of its branches may allow the same text"));
                    }
                    branches.pop()
                }
                "allOf" => {
                    let branches = self.branches(value, kind, depth)?;
                    let every = branches.len() == value.as_array().map_or(0, Vec::len);
                    every.then_some(Terminal::All(branches))
                }
                _ => match restriction(keyword, value, kind)? {
                    Some(terminal) => Some(terminal),
                    None => continue,
                },
            };
            let Some(terminal) = terminal else { return Ok(None) };
            all.push(terminal);
        }
        lengths(schema, kind, &mut all);
        Ok(Some(Terminal::All(all)))
    }

    fn branches(&self, value: &Value, kind: &str, depth: usize) -> Result<Vec<Terminal>> {
        let branches = value.as_array().into_iter().flatten();
        let terminals = branches.map(|branch| self.terminal(branch, kind, depth)).collect::<Result<Vec<_>>>()?;
        Ok(terminals.into_iter().flatten().collect())
    }
}

fn refuse(keyword: &str, reason: impl Into<String>) -> Error {
    Error::Keyword { keyword: keyword.to_owned(), at: "#".to_owned(), reason: reason.into() }
}

/// Every text of a scalar type.
fn base(kind: &str) -> &'static str {
    match kind {
        "string" => ANY,
        "integer" => "0|-?[1-9][0-9]{0,17}",
        _ => "true|false",
    }
}

fn is_typed(schema: &Value, kind: &str) -> bool {
    match schema.get("type") {
        Some(Value::String(only)) => fits(only, kind),
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).any(|name| fits(name, kind)),
        _ => true,
    }
}

fn fits(name: &str, kind: &str) -> bool {
    name == kind || (name, kind) == ("number", "integer")
}

fn is_of(value: &Value, kind: &str) -> bool {
    match value {
        Value::Null => kind == "null",
        Value::Bool(_) => kind == "boolean",
        Value::Number(number) => kind == "integer" && !number.is_f64(),
        Value::String(_) => kind == "string",
        Value::Array(_) => kind == "array",
        Value::Object(_) => kind == "object",
    }
}

/// The values of one type, as they are written.
fn spelt(values: &[Value], kind: &str) -> Option<Terminal> {
    let written = values.iter().filter(|value| is_of(value, kind));
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    Terminal::either(written.map(|value| Terminal::Literal(text(value))).collect())
}

/// What a keyword alone says of texts.
fn restriction(keyword: &str, value: &Value, kind: &str) -> Result<Option<Terminal>> {
    match (keyword, kind) {
        ("pattern", "string") => Ok(Some(pattern(value.as_str().unwrap_or_default())?)),
        ("minimum" | "maximum", "integer") if value.as_f64().is_some_and(|bound| bound.abs() >= 1e18) => Ok(None),
        ("minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" | "multipleOf", "integer") => {
            Err(refuse(keyword, "a parameter that is an integer or something else cannot be bounded"))
        }
        _ => Ok(None),
    }
}

fn lengths(schema: &Value, kind: &str, all: &mut Vec<Terminal>) {
    let count = |name: &str| schema.get(name).and_then(Value::as_u64);
    let (least, most) = (count("minLength"), count("maxLength"));
    if kind == "string" && (least.is_some() || most.is_some()) {
        let most = most.map(|most| most.to_string()).unwrap_or_default();
        all.push(Terminal::Regex(format!("(?s:.{{{},{most}}})", least.unwrap_or(0))));
    }
}

/// A pattern, which may match anywhere, as a terminal, which matches the whole.
fn pattern(pattern: &str) -> Result<Terminal> {
    let whole = read_pattern(pattern).map_err(|reason| refuse("pattern", reason))?;
    Ok(Terminal::Regex(whole.to_string()))
}

/// Checks a pattern of a schema.
///
/// # Errors
/// Says what is wrong with it.
pub(crate) fn check_pattern(pattern: &str) -> std::result::Result<(), String> {
    read_pattern(pattern).map(|_| ())
}

fn read_pattern(pattern: &str) -> std::result::Result<Hir, String> {
    // The classes of JSON Schema's patterns are of ASCII.
    let ascii = llguidance::regex_to_lark(pattern, "dw").replace("\\/", "/");
    let hir = read_regex(&ascii)?;
    let looks = || format!("{:?} may look around only by `^` at its beginning and `$` at its end", shorten(pattern));
    anchored(&hir).ok_or_else(looks)
}

/// Longest text that an expression may require.
const LONGEST: usize = 64 << 10;

/// Reads an expression.
///
/// # Errors
/// Says what is wrong with it.
pub(crate) fn read_regex(text: &str) -> std::result::Result<Hir, String> {
    let hir = regex_syntax::parse(text).map_err(|error| {
        let said = error.to_string();
        let last = said.lines().last().unwrap_or("it cannot be read").trim_start_matches("error: ").trim();
        format!("{:?} is no regular expression ({last})", shorten(text))
    })?;
    match hir.properties().minimum_len() {
        Some(least) if least > LONGEST => Err(format!("it matches no text under {LONGEST} bytes")),
        Some(_) => Ok(hir),
        None => Err(format!("{:?} matches nothing", shorten(text))),
    }
}

/// An expression that matches a whole text where `hir` matches a part of it.
fn anchored(hir: &Hir) -> Option<Hir> {
    let (parts, any) = match hir.kind() {
        HirKind::Capture(capture) => return anchored(&capture.sub),
        HirKind::Alternation(branches) => {
            return Some(Hir::alternation(branches.iter().map(anchored).collect::<Option<_>>()?));
        }
        HirKind::Concat(parts) => (parts.as_slice(), Hir::repetition(any_text())),
        _ => (std::slice::from_ref(hir), Hir::repetition(any_text())),
    };
    let look = |part: &&Hir, look: Look| matches!(part.kind(), HirKind::Look(found) if *found == look);
    let starts = parts.iter().take_while(|part| look(part, Look::Start)).count();
    let ends = parts[starts..].iter().rev().take_while(|part| look(part, Look::End)).count();
    let middle = &parts[starts..parts.len() - ends];
    let mut whole = Vec::new();
    whole.extend((starts == 0).then(|| any.clone()));
    whole.extend(middle.iter().cloned());
    whole.extend((ends == 0).then_some(any));
    middle.iter().all(|part| part.properties().look_set().is_empty()).then(|| Hir::concat(whole))
}

fn any_text() -> regex_syntax::hir::Repetition {
    let sub = Box::new(Hir::dot(regex_syntax::hir::Dot::AnyChar));
    regex_syntax::hir::Repetition { min: 0, max: None, greedy: true, sub }
}

/// A schema that allows the objects and lists of another.
pub(crate) fn structures(normal: &Normal) -> Normal {
    let root = json!({ "type": ["object", "array"], "allOf": [normal.root] });
    Normal { root, defs: normal.defs.clone() }
}
