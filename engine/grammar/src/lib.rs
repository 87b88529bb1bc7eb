//! Owns: which tokens may come next in a reply that is held to a JSON schema, a regular expression, a grammar or a choice of
//! tools (server.md section 5, "grammar mask"). One verb: it says what may come next.
//! Refuses: drawing, and everything that it could keep to only nearly: a schema that cannot be enforced whole is an error that
//! names the keyword.
//! Invariants: a reply can end exactly where its grammar may; the tags of reasoning and calls are text, so that a vocabulary
//! with tokens for them and one that spells them are held alike.
//!
//! JSON is written compactly or with white space: between two tokens of it a space, or a line feed and up to 64 spaces or tabs,
//! never more, so that white space cannot go on. Properties come in the order in which the schema has them. Integers have at most
//! 18 digits unless the schema says otherwise. Numbers and texts that the schema does not bound end where the model ends them.
//!
//! Not enforced, and so refused: `not`, `if`, `contains`, `uniqueItems`, `dependent*`, `unevaluated*`, `propertyNames`,
//! `$dynamicRef`, references out of the document, `oneOf` whose branches are not plainly apart, formats other than ten, patterns
//! that look around, counts of properties that may be absent. What a call's text cannot carry is refused too: null where the
//! type of a value is told from its text, and bounds of integers there.
//!
//! At the released vocabulary of 248 thousand tokens (release build, two cores of a shared Intel Xeon that others were using;
//! `tests/it/timing.rs`): what depends on the tokens alone takes 1.7 s, once ([`Grammars::warm`]); a grammar compiles in 3 to 9 ms,
//! its first mask included. A mask takes 15 to 22 µs where the grammar was in that state before, which is the median of JSON and of
//! calls; a new state of JSON takes up to 1 ms, one of a call's text up to 7 ms; a bounded repetition of a class, whose states are
//! all new, 1.3 ms each. Reasoning and free prose take no mask.

mod compile;
mod error;
mod formats;
mod held;
mod schema;
mod text;
mod tokens;
mod tools;
mod watch;

use serde_json::Value;

pub use compile::Grammars;
pub use error::{Error, Result};
pub use held::Compiled;

/// What a reply is held to.
#[derive(Clone, Debug, PartialEq)]
pub enum Grammar {
    /// A JSON object of any kind.
    JsonObject,
    /// A JSON text that satisfies a schema.
    JsonSchema(Value),
    /// A text that a regular expression matches as a whole, in the syntax of Rust's `regex` crate without look-around.
    Regex(String),
    /// A text of a context-free grammar in llguidance's variant of Lark's syntax; its first rule is `start`.
    Lark(String),
    /// Tool calls, in the form of the chat template.
    Tools {
        /// The tools that may be called.
        tools: Vec<ToolRule>,
        /// Whether the reply must be calls, at least one, and nothing else. Without it text is free, and a call is held to
        /// from its opening tag on.
        required: bool,
        /// Whether the reply must end behind its first call.
        at_most_one: bool,
        /// The one tool that must be called; a call is required then.
        named: Option<String>,
    },
    /// A JSON text that satisfies a schema, or tool calls.
    JsonOrTools {
        /// The schema.
        schema: Value,
        /// The tools that may be called.
        tools: Vec<ToolRule>,
        /// Whether the reply must end behind its first call.
        at_most_one: bool,
    },
}

/// A tool, and how calls of it are held.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolRule {
    /// The function's name.
    pub name: String,
    /// The schema of its parameters, an object's; null when it has none.
    pub parameters: Value,
    /// Whether a call must satisfy that schema: required parameters present, others than those declared absent, values as
    /// declared. Otherwise parameters and values are free.
    pub strict: bool,
}

/// How a reply begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Whether the prompt opened the reasoning: everything may come up to its closing tag, the grammar holds what follows.
    pub thinking: bool,
}
