//! Owns: `ss replay --lookahead`: what reading ahead on forecasts would have gained, by a model of the time that things take
//! (engine.md 5.6, 5.8).
//! Refuses: to stand for a measurement; layers take the same time, and the disk sends record after record.
//! Invariants: of a pool the same tokens count without lookahead and with it, and the report says what things were taken to
//! last.

use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};
use ss_replay::{Comparison, Pace, Shape, Tally, compare};
use ss_stream::{DiskPace, LookaheadOptions};

use crate::args::{AheadArgs, RECORD_US};
use crate::replay::{Grid, size};

/// What was assumed, and what came of it.
pub struct Ahead {
    pace: Pace,
    lookahead: LookaheadOptions,
    /// For each size one a policy.
    found: Vec<Vec<Comparison>>,
}

impl Ahead {
    /// Replays a grid without lookahead and with it.
    ///
    /// # Errors
    /// When the disk is none, or a pool none for its model.
    pub fn new(args: &AheadArgs, grid: &Grid<'_>) -> Result<Self> {
        let pace = pace(args, grid.trace.shape.record_bytes)?;
        let lookahead = LookaheadOptions::new(!args.lookahead_always, args.lookahead_margin);
        let one =
            |policy, slots, told: &mut dyn FnMut(u64, u64)| compare(grid.trace, policy, slots, (pace, lookahead), told);
        Ok(Ahead { pace, lookahead, found: grid.run(2, one)? })
    }

    /// A table, a line each size and policy.
    pub fn text(&self, shape: &Shape) -> String {
        let Pace { layer, record, latency } = self.pace;
        let mut text = format!(
            "a layer takes {} us, a record {} us, its first byte {} us; at most {} records are read early at once, of margins \
             from {} on, {}\n\n{:>14}  {:>10}",
            us(layer),
            us(record),
            us(latency),
            self.lookahead.lanes,
            self.lookahead.margin,
            if self.lookahead.weigh { "where that is worth their time" } else { "worth their time or not" },
            "slots",
            "policy",
        );
        let columns = ["misses off", "misses on", "fewer", "there", "waited for", "in vain", "ms off", "ms on", "rate"];
        columns.iter().for_each(|column| text += &format!("  {column:>10}"));
        for both in self.found.iter().flatten() {
            let Comparison { policy, off, on, .. } = both;
            text += &format!("\n{:>14}  {:>10}", size(shape, both.slots), policy.name());
            let a_token = |tally: &Tally, count: u64| format!("{:.2}", tally.a_token(count));
            for cell in [
                a_token(off, off.counts.misses),
                a_token(on, on.counts.misses),
                format!("{:.1} %", 100.0 * fewer(both)),
                a_token(on, on.early.adopted),
                a_token(on, on.early.joined),
                a_token(on, on.in_vain()),
                format!("{:.3}", off.us_a_token() / 1e3),
                format!("{:.3}", on.us_a_token() / 1e3),
                format!("{:.3}", both.rate()),
            ] {
                text += &format!("  {cell:>10}");
            }
        }
        text + "\n\nrecords and milliseconds a token, once the pool was full without lookahead, or in the second half of the \
                tokens;\nmisses: waited for, and nothing had begun to read them; there, waited for: read early and chosen; in \
                vain: read early\nand not chosen; rate: tokens a second with lookahead for one without\n"
    }

    /// What was assumed.
    pub fn json(&self) -> Value {
        let Pace { layer, record, latency } = self.pace;
        json!({
            "layer_us": us(layer),
            "record_us": us(record),
            "latency_us": us(latency),
            "margin": self.lookahead.margin,
            "weigh": self.lookahead.weigh,
            "lanes": self.lookahead.lanes,
            "per_layer": self.lookahead.per_layer,
            "reserve": self.lookahead.reserve,
        })
    }

    /// What came of it.
    pub fn outcomes(&self) -> Vec<Value> {
        let one = |both: &Comparison| {
            json!({
                "slots": both.slots,
                "policy": both.policy.name(),
                "tokens": both.off.counts.tokens,
                "off": tally(&both.off),
                "on": tally(&both.on),
                "fewer_misses": fewer(both),
                "rate": both.rate(),
            })
        };
        self.found.iter().flatten().map(one).collect()
    }
}

fn tally(tally: &Tally) -> Value {
    json!({
        "hits": tally.counts.hits,
        "misses": tally.counts.misses,
        "misses_a_token": tally.a_token(tally.counts.misses),
        "issued": tally.early.issued,
        "there": tally.early.adopted,
        "waited_for": tally.early.joined,
        "not_chosen": tally.early.expired,
        "in_vain": tally.in_vain(),
        "us_a_token": tally.us_a_token(),
    })
}

/// Share of the misses that lookahead spares.
fn fewer(both: &Comparison) -> f64 {
    match both.off.counts.misses {
        0 => 0.0,
        misses => 1.0 - both.on.counts.misses as f64 / misses as f64,
    }
}

/// How long things take, for records of so many bytes.
fn pace(args: &AheadArgs, record_bytes: u64) -> Result<Pace> {
    let micros = |us: f64| Duration::from_secs_f64(1e-6 * us);
    // What is no disk for a run is none here.
    DiskPace::new(args.disk_gbps, args.disk_latency_us)?;
    let sent = args.disk_gbps.map(|gbps| 1e-3 * record_bytes as f64 / gbps);
    let record = args.record_us.or(sent).unwrap_or(RECORD_US);
    Ok(Pace { layer: micros(args.layer_us), record: micros(record), latency: micros(args.disk_latency_us) })
}

fn us(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e3
}
