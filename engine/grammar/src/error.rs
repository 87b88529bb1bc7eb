//! Owns: why a reply cannot be held to what was asked, in words for a person.

/// The result of compiling a grammar.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a grammar was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A schema says something that cannot be enforced, or is no schema.
    #[error("the schema's `{keyword}` at `{at}` cannot be enforced: {reason}")]
    Keyword {
        /// The keyword.
        keyword: String,
        /// JSON pointer to the schema that has it, `#` for the whole.
        at: String,
        /// What was expected.
        reason: String,
    },
    /// No finite text is an instance of the schema.
    #[error("no value satisfies the schema: {0}")]
    Unsatisfiable(String),
    /// Compiling it, or keeping to it, would take too much memory or time.
    #[error("{0}")]
    TooLarge(String),
    /// A regular expression or a grammar that cannot be read.
    #[error("the {kind} cannot be used: {reason}")]
    Grammar {
        /// What it is: `regular expression`, `grammar`, `schema`.
        kind: &'static str,
        /// Why.
        reason: String,
    },
    /// A tool that no call can be written for.
    #[error("the tool {tool:?} cannot be held to: {reason}")]
    Tool {
        /// Its name.
        tool: String,
        /// Why.
        reason: String,
    },
    /// The tokenizer has no token that ends a reply.
    #[error("the model has no token that ends a reply, so a reply cannot be held to a grammar")]
    NoEnd,
}
