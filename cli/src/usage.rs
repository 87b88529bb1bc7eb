//! Owns: what a person is told of a command line that cannot be read.
//! Invariants: one sentence, which names the variable where the value came from one.

use clap::error::{ContextKind, ContextValue, Error};

use crate::variables;

/// The sentence.
pub fn sentence(error: &Error) -> String {
    let text = error.to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let parts =
        text.split("\n\n").filter(|part| !part.starts_with("Usage:") && !part.starts_with("For more information"));
    let parts: Vec<String> = parts.map(|part| part.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    let source = variable(error).map(|name| format!("`{name}`: ")).unwrap_or_default();
    format!("{source}{}; `--help` lists what can be given", parts.join("; "))
}

/// The variable that holds the wrong value, if one does.
fn variable(error: &Error) -> Option<String> {
    let of = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let (flag, value) = (of(ContextKind::InvalidArg)?, of(ContextKind::InvalidValue)?);
    let long = flag.strip_prefix("--")?.split([' ', '[', '=']).next()?;
    let name = variables::name(long);
    (std::env::var(&name).ok().as_deref() == Some(value)).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Cli;
    use clap::Parser;

    #[test]
    fn a_wrong_command_line_is_one_line_without_the_usage() {
        for line in [&["ss", "run", "--foo"][..], &["ss", "run", "--backend", "x"], &["ss", "frob"], &["ss", "inspect"]]
        {
            let text = Cli::try_parse_from(line).map(|_| String::new()).unwrap_or_else(|error| sentence(&error));
            assert!(!text.is_empty() && !text.contains('\n') && !text.contains("Usage"), "{text}");
        }
    }
}
