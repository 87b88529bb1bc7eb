//! Grammars over the tokens of the shipped model and of the released vocabulary: what they allow, what they refuse, and what
//! they take.

mod hostile;
mod property;
mod schemas;
mod timing;
mod tools;
mod walk;
