//! Owns: `config.toml` in `$SS_HOME`: settings named like flags, used where neither flag nor variable is given.
//! Refuses: names that are no flag, and values that their flag would not take.
//! Invariants: the file only ever replaces a flag's default.

use std::path::Path;

use anyhow::{Context, Result, bail};
use clap::{Arg, ArgAction, Command};
use toml::{Table, Value};

use crate::variables::TYPED;
use crate::{intake, usage};

/// Gives the flags of every command the defaults that the file names.
///
/// # Errors
/// When the file cannot be read, is not TOML, or names something that is no flag.
pub fn apply(command: Command, path: &Path) -> Result<Command> {
    if !path.exists() {
        return Ok(command);
    }
    let text = intake::read_file(path)?;
    let settings = parse(&text).with_context(|| format!("`{}`", path.display()))?;
    settings.into_iter().try_fold(command, |command, (name, value)| {
        set_default(command, &name, &value).with_context(|| format!("`{}`: `{name}`", path.display()))
    })
}

fn parse(text: &str) -> Result<Table> {
    match text.parse() {
        Ok(table) => Ok(table),
        Err(error) => {
            let error: toml::de::Error = error;
            let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
            bail!("line {} is not TOML: {}", before.matches('\n').count() + 1, error.message().replace('\n', ", "))
        }
    }
}

fn set_default(mut command: Command, name: &str, value: &Value) -> Result<Command> {
    let long = name.replace('_', "-");
    if TYPED.contains(&long.as_str()) {
        bail!("this cannot be undone, so it is no setting; type `--{long}`");
    }
    let mut found = false;
    let subs: Vec<String> = command.get_subcommands().map(|sub| sub.get_name().to_string()).collect();
    let listed = command.get_subcommands().flat_map(Command::get_arguments);
    let listed = listed.filter(|flag| flag.get_long() == Some(&long)).any(takes_lists);
    for sub in subs {
        let flag =
            command.find_subcommand(&sub).and_then(|sub| sub.get_arguments().find(|arg| arg.get_long() == Some(&long)));
        let Some(flag) = flag.cloned() else { continue };
        // Where commands differ in how many values a flag takes, a list is for those that take several.
        if value.is_array() && !takes_lists(&flag) && listed {
            continue;
        }
        let values = values(&flag, value)?;
        found = true;
        command = command.mut_subcommand(sub, |sub| sub.mut_arg(flag.get_id(), |arg| arg.default_values(values)));
    }
    if found {
        Ok(command)
    } else {
        bail!("this is no setting; `--help` of a command lists its flags, which are its settings")
    }
}

fn takes_lists(flag: &Arg) -> bool {
    matches!(flag.get_action(), ArgAction::Append)
}

/// The values of a setting, as a command line would give them.
fn values(flag: &Arg, value: &Value) -> Result<Vec<String>> {
    let values = match (value, flag.get_action()) {
        (Value::Array(list), _) if takes_lists(flag) => list.iter().map(one).collect::<Result<_>>()?,
        (Value::Boolean(_), ArgAction::SetTrue) => return Ok(vec![one(value)?]),
        (_, ArgAction::SetTrue) => bail!("expected true or false"),
        _ => vec![one(value)?],
    };
    let long = flag.get_long().unwrap_or_default();
    let line = values.iter().map(|value| format!("--{long}={value}"));
    match Command::new("config").no_binary_name(true).arg(flag).try_get_matches_from(line) {
        Ok(_) => Ok(values),
        Err(error) => bail!("{}", usage::sentence(&error)),
    }
}

fn one(value: &Value) -> Result<String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Integer(_) | Value::Float(_) | Value::Boolean(_) => Ok(value.to_string()),
        _ => bail!("expected a text, a number, or true or false"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command as What, RunArgs};
    use clap::FromArgMatches;

    fn parse(toml: &str, line: &[&str]) -> Result<RunArgs> {
        let file = tempfile::NamedTempFile::new()?;
        std::fs::write(file.path(), toml)?;
        let command = apply(Cli::definition(), file.path())?;
        match Cli::from_arg_matches(&command.try_get_matches_from(line)?)?.command {
            What::Run(run) => Ok(*run),
            other => bail!("{other:?}"),
        }
    }

    #[test]
    fn what_cannot_be_undone_is_no_setting() {
        let error = set_default(crate::args::Cli::definition(), "reclaim", &Value::Boolean(true)).unwrap_err();
        assert!(error.to_string().contains("type `--reclaim`"), "{error}");
    }

    #[test]
    fn the_file_sets_what_no_flag_sets() {
        let of = |run: RunArgs| (run.reply.max_tokens, run.sampling.temperature);
        let file = "max-tokens = 7\ntemperature = 0.5\n";
        assert_eq!(of(parse(file, &["ss", "run", "x"]).unwrap()), (Some(7), Some(0.5)));
        assert_eq!(of(parse(file, &["ss", "run", "x", "-n", "9"]).unwrap()), (Some(9), Some(0.5)));
    }

    #[test]
    fn lists_and_switches_can_be_set() {
        let run = parse("stop = [\"a\", \"b\"]\nverbose = true\n", &["ss", "run", "x"]).unwrap();
        assert_eq!((run.reply.stop, run.verbose), (vec!["a".to_string(), "b".to_string()], true));
    }

    #[test]
    fn a_list_is_for_the_commands_whose_flag_takes_several_values() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "slots = [\"floor\", \"50%\"]\ndepth = [0, 100]\n").unwrap();
        let settled = |line: &[&str]| {
            let command = apply(Cli::definition(), file.path()).unwrap();
            Cli::from_arg_matches(&command.try_get_matches_from(line).unwrap()).unwrap().command
        };
        let (run, bench) = (settled(&["ss", "run", "x"]), settled(&["ss", "bench"]));
        let What::Bench(bench) = bench else { panic!("{bench:?}") };
        assert_eq!((bench.slots.len(), bench.depth), (2, vec![0, 100]));
        let What::Run(run) = run else { panic!("{run:?}") };
        assert!(run.pool.slots.is_none(), "it takes one size");
    }

    #[test]
    fn what_cannot_be_used_is_refused_in_one_line_that_names_file_and_setting() {
        let wrong = [
            ("temprature = 1", "`temprature`: this is no setting"),
            ("prompt = \"x\"", "`prompt`: this is no setting"),
            ("temperature = \"hot\"", "`temperature`: invalid value 'hot'"),
            ("temperature = nan", "`temperature`: invalid value 'nan'"),
            ("temperature = [0.1]", "`temperature`: expected a text, a number"),
            ("arithmetic = \"half\"", "`arithmetic`: invalid value 'half'"),
            ("raw = 1", "`raw`: expected true or false"),
            ("stop = [[]]", "`stop`: expected a text"),
            ("[run]\nslots = 3", "`run`: this is no setting"),
            ("a = 1\nx =", "line 2 is not TOML"),
        ];
        for (toml, expected) in wrong {
            let error = format!("{:#}", parse(toml, &["ss", "run", "x"]).unwrap_err());
            assert!(error.contains(expected) && !error.contains('\n'), "{error}");
        }
    }
}
