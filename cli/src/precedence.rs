//! Owns: settings that exclude each other.
//! Refuses: two of them from one source, by name.
//! Invariants: of two that exclude each other the nearer source wins: flag, variable, `config.toml` (engine.md
//! section 9).

use std::cmp::Ordering;

use clap::ArgMatches;
use clap::parser::ValueSource;

use crate::args::RunArgs;

/// Two settings that exclude each other, given in the same place.
#[derive(Debug, thiserror::Error)]
#[error("`--{0}` and `--{1}` exclude each other; give one of them")]
pub struct Conflict(String, String);

/// Drops what a nearer setting excludes.
///
/// # Errors
/// [`Conflict`] where neither is nearer.
pub fn settle(args: &mut RunArgs, matches: &ArgMatches) -> Result<(), Conflict> {
    let (load, reply) = (&mut args.load, &mut args.reply);
    match nearer(matches, ("slots", load.slots.is_some()), ("experts_per_layer", load.experts_per_layer.is_some()))? {
        Some(Ordering::Greater) => load.experts_per_layer = None,
        Some(_) => load.slots = None,
        None => {}
    }
    let with_template =
        [("think", reply.think.is_some()), ("system", reply.system.is_some()), ("tools", reply.tools.is_some())];
    for other in with_template {
        match (nearer(matches, ("raw", reply.raw), other)?, other.0) {
            (Some(Ordering::Less), _) => reply.raw = false,
            (Some(_), "think") => reply.think = None,
            (Some(_), "system") => reply.system = None,
            (Some(_), _) => reply.tools = None,
            (None, _) => {}
        }
    }
    Ok(())
}

/// Which of two settings is nearer; none unless both are set.
fn nearer(matches: &ArgMatches, a: (&str, bool), b: (&str, bool)) -> Result<Option<Ordering>, Conflict> {
    if !(a.1 && b.1) {
        return Ok(None);
    }
    match rank(matches, a.0).cmp(&rank(matches, b.0)) {
        Ordering::Equal => Err(Conflict(a.0.replace('_', "-"), b.0.replace('_', "-"))),
        order => Ok(Some(order)),
    }
}

fn rank(matches: &ArgMatches, id: &str) -> u8 {
    match matches.value_source(id) {
        Some(ValueSource::CommandLine) => 2,
        Some(ValueSource::EnvVariable) => 1,
        // The file sets defaults.
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use clap::FromArgMatches;

    /// The run that comes of a file's defaults and a line.
    fn run(file: &[(&'static str, &'static str)], line: &[&str]) -> Result<RunArgs, Conflict> {
        let mut command = Cli::definition();
        for &(id, value) in file {
            command = command.mut_subcommand("run", |sub| sub.mut_arg(id, |arg| arg.default_value(value)));
        }
        let matches = command.get_matches_from([&["ss", "run", "hi"], line].concat());
        let Ok(Cli { command: Command::Run(mut args) }) = Cli::from_arg_matches(&matches) else { panic!("{line:?}") };
        settle(&mut args, matches.subcommand_matches("run").unwrap()).map(|()| *args)
    }

    #[test]
    fn two_from_one_source_are_refused_by_name() {
        let error = run(&[], &["--slots", "all", "--experts-per-layer", "3"]).unwrap_err().to_string();
        assert_eq!(error, "`--slots` and `--experts-per-layer` exclude each other; give one of them");
        assert!(run(&[], &["--raw", "--think"]).is_err());
        assert!(run(&[("slots", "all"), ("experts_per_layer", "3")], &[]).is_err());
    }

    #[test]
    fn the_nearer_source_wins() {
        let args = run(&[("slots", "all")], &["--experts-per-layer", "3"]).unwrap();
        assert!(args.load.slots.is_none() && args.load.experts_per_layer.is_some());
        let args = run(&[("system", "Be brief."), ("think", "low")], &["--raw"]).unwrap();
        assert!(args.reply.raw && args.reply.system.is_none() && args.reply.think.is_none());
        let args = run(&[("raw", "true")], &["--system", "Be brief."]).unwrap();
        assert!(!args.reply.raw && args.reply.system.is_some());
    }
}
