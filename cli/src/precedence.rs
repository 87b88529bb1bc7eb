//! Owns: settings that exclude each other.
//! Refuses: two of them from one source, by name.
//! Invariants: of two that exclude each other the nearer source wins: flag, variable, `config.toml` (engine.md
//! section 9).

use std::cmp::Ordering;

use clap::ArgMatches;
use clap::parser::ValueSource;

use crate::args::{BackendChoice, DeviceArgs, LoadArgs, PoolArgs, ReplayArgs, ReplyArgs, RunArgs, ServeArgs};

/// Two settings that exclude each other, given in the same place.
#[derive(Debug, thiserror::Error)]
#[error("`--{0}` and `--{1}` exclude each other; give one of them")]
pub struct Conflict(String, String);

/// Drops what a nearer setting of a run excludes.
///
/// # Errors
/// [`Conflict`] where neither is nearer.
pub fn settle(args: &mut RunArgs, matches: &ArgMatches) -> Result<(), Conflict> {
    settle_load(&mut args.load, matches)?;
    settle_pool(&mut args.pool, matches)?;
    settle_reply(&mut args.reply, matches)
}

/// The same for a server.
///
/// # Errors
/// As [`settle`].
pub fn settle_serve(args: &mut ServeArgs, matches: &ArgMatches) -> Result<(), Conflict> {
    settle_load(&mut args.load, matches)?;
    settle_pool(&mut args.pool, matches)
}

/// The same for what is loaded: one reads early always, or never.
///
/// # Errors
/// As [`settle`].
pub fn settle_load(load: &mut LoadArgs, matches: &ArgMatches) -> Result<(), Conflict> {
    settle_device(&mut load.device, matches)?;
    match nearer(matches, ("no_lookahead", load.no_lookahead), ("lookahead_always", load.lookahead_always))? {
        Some(Ordering::Greater) => load.lookahead_always = false,
        Some(_) => load.no_lookahead = false,
        None => {}
    }
    Ok(())
}

fn settle_pool(pool: &mut PoolArgs, matches: &ArgMatches) -> Result<(), Conflict> {
    match nearer(matches, ("slots", pool.slots.is_some()), ("experts_per_layer", pool.experts_per_layer.is_some()))? {
        Some(Ordering::Greater) => pool.experts_per_layer = None,
        Some(_) => pool.slots = None,
        None => {}
    }
    Ok(())
}

/// The same for the device: the reference backend has no adapter.
///
/// # Errors
/// As [`settle`].
pub fn settle_device(device: &mut DeviceArgs, matches: &ArgMatches) -> Result<(), Conflict> {
    let reference = device.backend == BackendChoice::Reference;
    match nearer(matches, ("adapter", device.adapter.is_some()), ("backend reference", reference))? {
        Some(Ordering::Greater) => device.backend = BackendChoice::Wgpu,
        Some(_) => device.adapter = None,
        None => {}
    }
    Ok(())
}

/// The same for a replay: a trace in a file has its own model, tokens and seed, and only lookahead takes time.
///
/// # Errors
/// Names the flag that a file, or a replay without lookahead, leaves without meaning; and as [`settle`].
pub fn settle_replay(args: &mut ReplayArgs, matches: &ArgMatches) -> anyhow::Result<()> {
    let typed = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
    for id in ["lookahead_margin", "lookahead_always", "layer_us", "record_us", "disk_gbps", "disk_latency_us"] {
        let idle = typed(id) && !args.ahead.lookahead;
        anyhow::ensure!(!idle, "`--{}` says how lookahead is replayed; add `--lookahead`", id.replace('_', "-"));
    }
    // A made-up trace that is asked for is nearer than a setting that only a file can follow.
    args.ahead.lookahead &= typed("lookahead") || !typed("synthetic");
    if args.ahead.lookahead {
        let (record_us, disk_gbps) = (args.ahead.record_us.is_some(), args.ahead.disk_gbps.is_some());
        match nearer(matches, ("record_us", record_us), ("disk_gbps", disk_gbps))? {
            Some(Ordering::Greater) => args.ahead.disk_gbps = None,
            Some(_) => args.ahead.record_us = None,
            None => {}
        }
        anyhow::ensure!(
            !typed("record_bytes") || args.ahead.disk_gbps.is_some(),
            "with `--lookahead`, `--record-bytes` says what a disk of `--disk-gbps` has to send; give that too, or leave it out"
        );
    }
    let Some(file) = &args.file else { return Ok(()) };
    if typed("synthetic") {
        anyhow::bail!("FILE and `--synthetic` exclude each other; give one of them");
    }
    for id in ["tokens", "seed"] {
        let file = file.display();
        anyhow::ensure!(!typed(id), "`--{id}` is for traces that `--synthetic` makes up; leave it out for `{file}`");
    }
    // A variable or a setting is further away than the file.
    args.synthetic = None;
    Ok(())
}

fn settle_reply(reply: &mut ReplyArgs, matches: &ArgMatches) -> Result<(), Conflict> {
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

/// Which of two settings is nearer, each named as it is typed; none unless both are set.
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
    // A setting may be named with its value.
    let id = id.split_once(' ').map_or(id, |(id, _)| id);
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
        let error = run(&[], &["--adapter", "llvmpipe", "--backend", "reference"]).unwrap_err().to_string();
        assert_eq!(error, "`--adapter` and `--backend reference` exclude each other; give one of them");
    }

    #[test]
    fn reading_early_is_always_or_never_and_the_nearer_source_says_which() {
        let of = |args: RunArgs| (args.load.no_lookahead, args.load.lookahead_always);
        let typed = run(&[("no_lookahead", "true")], &["--lookahead-always"]).unwrap();
        assert_eq!(of(typed), (false, true));
        let typed = run(&[("lookahead_always", "true")], &["--no-lookahead"]).unwrap();
        assert_eq!(of(typed), (true, false));
        assert!(run(&[], &["--no-lookahead", "--lookahead-always"]).is_err());
    }

    #[test]
    fn the_nearer_source_wins() {
        let args = run(&[("slots", "all")], &["--experts-per-layer", "3"]).unwrap();
        assert!(args.pool.slots.is_none() && args.pool.experts_per_layer.is_some());
        let args = run(&[("system", "Be brief."), ("think", "low")], &["--raw"]).unwrap();
        assert!(args.reply.raw && args.reply.system.is_none() && args.reply.think.is_none());
        let args = run(&[("raw", "true")], &["--system", "Be brief."]).unwrap();
        assert!(!args.reply.raw && args.reply.system.is_some());
        let args = run(&[("adapter", "llvmpipe")], &["--backend", "reference"]).unwrap();
        assert!(args.load.device.adapter.is_none());
        let args = run(&[("backend", "reference")], &["--adapter", "llvmpipe"]).unwrap();
        assert_eq!(args.load.device.backend, BackendChoice::Wgpu);
    }
}
