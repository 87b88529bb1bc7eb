//! Owns: `ss replay`: what pools of some sizes would have found in a trace, under some policies (engine.md 5.8).
//! Refuses: what lookahead would have gained, which is `replay_ahead`'s business.
//! Invariants: every policy is shown the same trace; the table says what was left out of it.

use std::io::Write;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, bail};
use rayon::prelude::*;
use serde_json::{Value, json};
use ss_replay::{Made, Outcome, PERSISTENCE, Policy, Shape, Trace, TraceReader, simulate};
use ss_stream::{LookaheadOptions, PoolGeometry};
use ss_synth::{Order, Plan, Source};

use crate::args::ReplayArgs;
use crate::exit::Exit;
use crate::progress::Progress;
use crate::replay_ahead::Ahead;
use crate::report::bytes;

/// Replays and prints.
///
/// # Errors
/// When there is no trace, it is damaged, or a pool is none for its model.
pub fn replay(args: &ReplayArgs) -> Result<Exit> {
    let replay = Replay::new(args)?;
    let text = if args.json { format!("{:#}\n", replay.json()) } else { replay.text() };
    std::io::stdout().write_all(text.as_bytes()).context("standard output cannot be written")?;
    Ok(Exit::Answered)
}

/// A trace and what pools found in it.
struct Replay {
    name: String,
    trace: Trace,
    /// Whether the file ended in the middle of a token.
    cut: bool,
    found: Found,
}

/// What they found.
enum Found {
    /// For each size an outcome a policy.
    Pools(Vec<Vec<Outcome>>),
    /// The same without lookahead and with it.
    Ahead(Ahead),
}

impl Replay {
    fn new(args: &ReplayArgs) -> Result<Self> {
        let (name, mut trace, cut) = match (&args.file, &args.synthetic) {
            (Some(file), _) => read(file, args.ahead.lookahead)?,
            (None, Some(_)) if args.ahead.lookahead => bail!(
                "`--lookahead` needs forecasts, and a made-up trace has none; give a file that `ss run --trace-experts FILE` wrote"
            ),
            (None, Some(source)) => make(args, source)?,
            (None, None) => bail!(
                "there is nothing to replay: give a file that `ss run --trace-experts FILE` wrote, or `--synthetic released`"
            ),
        };
        if let Some(record_bytes) = args.record_bytes {
            trace.shape.record_bytes = record_bytes;
        }
        let sizes = args.slots.iter().map(|size| size.resolve(pool(&trace.shape)));
        let sizes = distinct(sizes.collect::<ss_stream::Result<Vec<u32>>>()?);
        let usual = if args.ahead.lookahead { &[Policy::Clock][..] } else { &Policy::ALL };
        let policies = if args.policy.is_empty() { usual.to_vec() } else { distinct(args.policy.clone()) };
        let grid = Grid { trace: &trace, policies: &policies, sizes: &sizes };
        let found = if args.ahead.lookahead {
            Found::Ahead(Ahead::new(&args.ahead, &grid)?)
        } else {
            Found::Pools(grid.run(1, |policy, slots, told| simulate(&trace, policy, slots, told))?)
        };
        Ok(Replay { name, trace, cut, found })
    }

    fn text(&self) -> String {
        let (shape, figures) = (self.trace.shape, &self.trace.figures);
        let text = format!(
            "{}: {} layers of {} experts, {} a token, {} each; {} reply tokens{}{}\n\
             the most used tenth of a layer's experts has {:.0} % of the uses, {:.0} % of the choices are those of the \
             token before,\n\
             {:.0} % of the choices but the last are within {} of it, too close to be read ahead by `ss run` as it is\n\n",
            self.name,
            shape.layers,
            shape.experts,
            shape.choices,
            bytes(shape.record_bytes),
            self.trace.tokens(),
            if self.trace.prompt_rows > 0 {
                format!(", {} of prompts left out", self.trace.prompt_rows)
            } else {
                String::new()
            },
            if self.cut { ", cut in the middle of the next" } else { "" },
            100.0 * figures.favoured(),
            100.0 * figures.repeated(),
            100.0 * figures.close(),
            LookaheadOptions::default().margin,
        );
        match &self.found {
            Found::Pools(outcomes) => text + &pools(&shape, outcomes),
            Found::Ahead(ahead) => text + &ahead.text(&shape),
        }
    }

    fn json(&self) -> Value {
        let (shape, figures) = (self.trace.shape, &self.trace.figures);
        let mut json = json!({
            "trace": self.name,
            "layers": shape.layers,
            "experts": shape.experts,
            "choices": shape.choices,
            "record_bytes": shape.record_bytes,
            "tokens": self.trace.tokens(),
            "prompt_rows": self.trace.prompt_rows,
            "cut": self.cut,
            "favoured": figures.favoured(),
            "repeated": figures.repeated(),
            "close": figures.close(),
            "outcomes": match &self.found {
                Found::Pools(outcomes) => outcomes.iter().flatten().map(|one| outcome(&shape, one)).collect(),
                Found::Ahead(ahead) => ahead.outcomes(),
            },
            "version": crate::VERSION,
        });
        if let Found::Ahead(ahead) = &self.found {
            json["lookahead"] = ahead.json();
        }
        json
    }
}

/// A table of outcomes, a line each size.
fn pools(shape: &Shape, outcomes: &[Vec<Outcome>]) -> String {
    let mut text = format!("{:>14}", "slots");
    outcomes.iter().take(1).flatten().for_each(|outcome| text += &format!("  {:>18}", outcome.policy.name()));
    for row in outcomes {
        text += &format!("\n{:>14}", size(shape, row.first().map_or(0, |outcome| outcome.slots)));
        for outcome in row {
            let read = bytes(outcome.warm.bytes_a_token(shape.record_bytes) as u64);
            text += &format!("  {:>18}", format!("{:.1} % {read:>9}", 100.0 * outcome.warm.hit_rate()));
        }
    }
    text + "\n\nhits and bytes read a token, once the pool was full, or in the second half of the tokens\n"
}

/// A number of slots as a person reads it.
pub fn size(shape: &Shape, slots: u32) -> String {
    format!("{slots} ({:.0} %)", 100.0 * f64::from(slots) / f64::from(pool(shape).all()))
}

fn outcome(shape: &Shape, outcome: &Outcome) -> Value {
    json!({
        "slots": outcome.slots,
        "policy": outcome.policy.name(),
        "tokens": outcome.warm.tokens,
        "hits": outcome.warm.hits,
        "misses": outcome.warm.misses,
        "hit_rate": outcome.warm.hit_rate(),
        "bytes_a_token": outcome.warm.bytes_a_token(shape.record_bytes),
        "cold": {
            "tokens": outcome.cold.tokens,
            "hits": outcome.cold.hits,
            "misses": outcome.cold.misses,
            "hit_rate": outcome.cold.hit_rate(),
            "bytes_a_token": outcome.cold.bytes_a_token(shape.record_bytes),
        },
    })
}

/// What is replayed: a trace under each policy in a pool of each size.
pub struct Grid<'a> {
    pub trace: &'a Trace,
    pub policies: &'a [Policy],
    pub sizes: &'a [u32],
}

impl Grid<'_> {
    /// Something for each size and policy, on all cores; each of them walks the trace so many times, and tells each pass.
    pub fn run<T: Clone + Send>(
        &self,
        walks: u64,
        one: impl Fn(Policy, u32, &mut dyn FnMut(u64, u64)) -> ss_replay::Result<T> + Sync,
    ) -> Result<Vec<Vec<T>>> {
        let policies = |slots| self.policies.iter().map(move |&policy| (policy, slots));
        let runs: Vec<_> = self.sizes.iter().flat_map(|&slots| policies(slots)).collect();
        let all = walks * (self.trace.passes.len() * runs.len()) as u64;
        let (bar, done) = (Mutex::new(Progress::replaying()), AtomicU64::new(0));
        let told = || {
            let done = 1 + done.fetch_add(1, Ordering::Relaxed);
            // Whoever finds it in use has nothing newer to show.
            if let Ok(mut bar) = bar.try_lock() {
                bar.update(done, all);
            }
        };
        let run = |&(policy, slots): &(Policy, u32)| one(policy, slots, &mut |_, _| told());
        let found = runs.par_iter().map(run).collect::<ss_replay::Result<Vec<T>>>()?;
        Ok(found.chunks(self.policies.len()).map(<[_]>::to_vec).collect())
    }
}

/// Each item once, in the order of the first ones.
fn distinct<T: PartialEq>(items: Vec<T>) -> Vec<T> {
    let mut kept = Vec::new();
    for item in items {
        if !kept.contains(&item) {
            kept.push(item);
        }
    }
    kept
}

fn read(file: &Path, lookahead: bool) -> Result<(String, Trace, bool)> {
    let mut reader = TraceReader::open(file)?;
    if lookahead {
        reader.require_forecasts()?;
    }
    let trace = reader.read()?;
    Ok((file.display().to_string(), trace, reader.was_cut()))
}

fn make(args: &ReplayArgs, source: &Source) -> Result<(String, Trace, bool)> {
    let plan = Plan::new(&Order::new(source.clone()))?;
    let shape = Shape::new(plan.geometry(), plan.record_bytes());
    let made = Made { shape, tokens: args.tokens, seed: args.seed, persistence: PERSISTENCE };
    let mut bar = Progress::making();
    let trace = made.trace(&mut |done, total| bar.update(done, total));
    Ok((format!("synthetic trace, seed {}", args.seed), trace, false))
}

fn pool(shape: &Shape) -> PoolGeometry {
    PoolGeometry { layers: shape.layers, experts: shape.experts, choices: shape.choices }
}
