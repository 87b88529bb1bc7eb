//! Owns: the fields by which the last object of a reply tells what was done, in both of its forms (server.md section 10).

use crate::shape::{ANY_WHOLE, Field, Kind};

/// `done`.
pub const DONE: Field = Field::required("done", Kind::Flag, "Whether this is the last object.");
/// `done_reason`.
pub const DONE_REASON: Field =
    Field::new("done_reason", Kind::Choice(&["stop", "length", "load", "unload"]), "Why it is.");
/// `total_duration`.
pub const TOTAL: Field = Field::new("total_duration", ANY_WHOLE, "Nanoseconds since the request came.");
/// `load_duration`.
pub const LOADING: Field = Field::new("load_duration", ANY_WHOLE, "Nanoseconds of loading: none.");
/// `prompt_eval_count`.
pub const PROMPT_TOKENS: Field = Field::new("prompt_eval_count", ANY_WHOLE, "Tokens of the prompt.");
/// `prompt_eval_duration`.
pub const PROMPT_TIME: Field = Field::new("prompt_eval_duration", ANY_WHOLE, "Nanoseconds of the prompt.");
/// `eval_count`.
pub const TOKENS: Field = Field::new("eval_count", ANY_WHOLE, "Tokens of the reply.");
/// `eval_duration`.
pub const TIME: Field = Field::new("eval_duration", ANY_WHOLE, "Nanoseconds of the reply.");
