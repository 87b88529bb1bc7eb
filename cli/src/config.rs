//! Owns: `config.toml` in `$SS_HOME`: settings named like flags, used where neither flag nor variable is given.
//! Refuses: names that are no flag.
//! Invariants: the file only ever replaces a flag's default.

use std::path::Path;

use anyhow::{Context, Result, bail};
use clap::Command;

/// Gives the flags of every command the defaults that the file names.
///
/// # Errors
/// When the file is not TOML, or names something that is no flag.
pub fn apply(command: Command, path: &Path) -> Result<Command> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(command),
        Err(error) => return Err(error).with_context(|| format!("`{}` cannot be read", path.display())),
    };
    let settings: toml::Table = text.parse().with_context(|| format!("`{}` is not TOML", path.display()))?;
    let mut command = command;
    for (name, value) in settings {
        let value = match value {
            toml::Value::String(text) => text,
            toml::Value::Integer(_) | toml::Value::Float(_) | toml::Value::Boolean(_) => value.to_string(),
            _ => bail!("`{}`: `{name}` must be a text, a number or true or false", path.display()),
        };
        command = set_default(command, path, &name, &value)?;
    }
    Ok(command)
}

fn set_default(mut command: Command, path: &Path, name: &str, value: &str) -> Result<Command> {
    let long = name.replace('_', "-");
    let mut found = false;
    let names: Vec<String> = command.get_subcommands().map(|sub| sub.get_name().to_string()).collect();
    for sub in names {
        command = command.mut_subcommand(sub, |sub| {
            let id = sub.get_arguments().find(|arg| arg.get_long() == Some(&long) && arg.get_action().takes_values());
            let Some(id) = id.map(|arg| arg.get_id().clone()) else { return sub };
            found = true;
            sub.mut_arg(id, |arg| arg.default_value(value.to_string()))
        });
    }
    if found { Ok(command) } else { bail!("`{}`: `{name}` is no setting; `ss run --help` lists them", path.display()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command as What};
    use clap::{CommandFactory, FromArgMatches};

    fn parse(toml: &str, line: &[&str]) -> Result<Cli> {
        let file = std::env::temp_dir().join(format!("ss-config-{}-{:?}.toml", std::process::id(), std::thread::current().id()));
        std::fs::write(&file, toml)?;
        let command = apply(Cli::command(), &file);
        std::fs::remove_file(&file)?;
        Ok(Cli::from_arg_matches(&command?.try_get_matches_from(line)?)?)
    }

    #[test]
    fn the_file_sets_what_no_flag_sets() {
        let of = |cli: Cli| match cli.command {
            What::Run(run) => (run.reply.max_tokens, run.sampling.temperature),
            _ => (None, None),
        };
        let file = "max-tokens = 7\ntemperature = 0.5\n";
        assert_eq!(of(parse(file, &["ss", "run", "x"]).unwrap()), (Some(7), Some(0.5)));
        assert_eq!(of(parse(file, &["ss", "run", "x", "-n", "9"]).unwrap()), (Some(9), Some(0.5)));
    }

    #[test]
    fn a_name_that_is_no_flag_is_refused_by_name() {
        let error = parse("temprature = 1", &["ss", "run"]).unwrap_err().to_string();
        assert!(error.contains("`temprature` is no setting"), "{error}");
    }
}
