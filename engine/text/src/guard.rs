//! Owns: the difference between what a template writes and what people and tools typed (chat-template.md section 4).
//! Refuses: conversations that leave no private-use character to mark typed text with.
//! Invariants: a marked text has the characters of the plain one, one for one, so trimming and slicing act alike; no added
//! token that begins or ends in typed text survives the marking, even when it straddles two bodies.

use std::borrow::Cow;
use std::collections::HashSet;

use minijinja::Value as Templated;
use serde_json::{Map, Value};

use crate::error::TextError;

/// Marks are taken from private-use plane 16, which no script uses.
const MARKS: std::ops::RangeInclusive<char> = '\u{100000}'..='\u{10FFFD}';

/// Bytes that a JSON value counts for beside its text, when the size of a conversation bounds its rendering.
const VALUE_BYTES: u64 = 16;

/// Pairs of a character that must not act in typed text and its mark.
#[derive(Clone, Debug, Default)]
pub(crate) struct Guard {
    pairs: Vec<(char, char)>,
}

impl Guard {
    /// A mark for each of `edges`, none of which occurs in the typed text.
    pub(crate) fn choose(edges: &[char], typed: &Typed) -> Result<Self, TextError> {
        let mut free = MARKS.filter(|mark| !typed.marks.contains(mark));
        let mut pairs = Vec::new();
        for &edge in edges {
            pairs.push((edge, free.next().ok_or(TextError::NoMarkLeft)?));
        }
        Ok(Guard { pairs })
    }

    /// `text` with every edge replaced by its mark.
    pub(crate) fn mark<'t>(&self, text: &'t str) -> Cow<'t, str> {
        self.replace(text, |&(edge, mark)| (edge, mark))
    }

    /// `text` with every mark replaced by its edge.
    pub(crate) fn reveal<'t>(&self, text: &'t str) -> Cow<'t, str> {
        self.replace(text, |&(edge, mark)| (mark, edge))
    }

    /// Whether `text` holds a mark.
    pub(crate) fn is_marked(&self, text: &str) -> bool {
        text.chars().any(|c| self.pairs.iter().any(|&(_, mark)| mark == c))
    }

    /// A JSON value for the template, its texts and names marked, the order of keys kept.
    pub(crate) fn value(&self, value: &Value) -> Templated {
        match value {
            Value::Null => Templated::from(()),
            Value::Bool(flag) => Templated::from(*flag),
            Value::Number(number) => match (number.as_i64(), number.as_u64()) {
                (Some(whole), _) => Templated::from(whole),
                (None, Some(whole)) => Templated::from(whole),
                (None, None) => Templated::from(number.as_f64().unwrap_or(f64::NAN)),
            },
            Value::String(text) => Templated::from(self.mark(text).as_ref()),
            Value::Array(items) => self.list(items),
            Value::Object(fields) => Templated::from_pairs(
                fields.iter().map(|(key, field)| (self.mark(key).into_owned(), self.value(field))),
            ),
        }
    }

    /// A list of JSON values for the template.
    pub(crate) fn list(&self, items: &[Value]) -> Templated {
        Templated::from(items.iter().map(|item| self.value(item)).collect::<Vec<_>>())
    }

    fn replace<'t>(&self, text: &'t str, turn: impl Fn(&(char, char)) -> (char, char)) -> Cow<'t, str> {
        let swap = |c: char| self.pairs.iter().map(&turn).find(|&(from, _)| from == c).map_or(c, |(_, to)| to);
        if text.chars().all(|c| swap(c) == c) { Cow::Borrowed(text) } else { text.chars().map(swap).collect() }
    }
}

/// What is known of the typed text before it is marked.
#[derive(Debug, Default)]
pub(crate) struct Typed {
    /// Characters of the marks' plane that occur in it.
    marks: HashSet<char>,
    /// Its size.
    pub(crate) bytes: u64,
}

impl Typed {
    /// Counts one text.
    pub(crate) fn text(&mut self, text: &str) {
        self.bytes = self.bytes.saturating_add(text.len() as u64);
        self.marks.extend(text.chars().filter(|c| MARKS.contains(c)));
    }

    /// Counts every text of `value`.
    pub(crate) fn value(&mut self, value: &Value) {
        self.bytes = self.bytes.saturating_add(VALUE_BYTES);
        match value {
            Value::String(text) => self.text(text),
            Value::Array(items) => items.iter().for_each(|item| self.value(item)),
            Value::Object(fields) => self.object(fields),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// Counts every text of `fields`, names included.
    pub(crate) fn object(&mut self, fields: &Map<String, Value>) {
        for (key, field) in fields {
            self.text(key);
            self.value(field);
        }
    }
}

/// A text that is to become ids, with its typed parts marked.
#[derive(Clone, Debug)]
pub struct Prompt {
    marked: String,
    guard: Guard,
}

impl Prompt {
    /// A text of which every part may name control tokens, such as a raw prompt.
    pub fn trusted(text: impl Into<String>) -> Self {
        Prompt { marked: text.into(), guard: Guard::default() }
    }

    pub(crate) fn marked_by(guard: Guard, marked: String) -> Self {
        Prompt { marked, guard }
    }

    /// The text as people read it, marks removed: what Hugging Face's `apply_chat_template` gives.
    pub fn text(&self) -> Cow<'_, str> {
        self.guard.reveal(&self.marked)
    }

    pub(crate) fn marked(&self) -> &str {
        &self.marked
    }

    pub(crate) fn reveal<'t>(&self, part: &'t str) -> Cow<'t, str> {
        self.guard.reveal(part)
    }
}
