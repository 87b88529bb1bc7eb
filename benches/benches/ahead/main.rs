//! Lookahead on against off: replies of the small trained model with a quarter of its experts in slots, from a disk that
//! is throttled until a record costs as much beside a layer's work as it would for the released model (engine.md 5.6).
//!
//! `cargo bench -p ss-benches --bench ahead`. Each reply is written once with and once without, one after the other, by two
//! models that never share a pool; which goes first alternates. `SS_ROUNDS=N` repeats all of it, `SS_SLOTS=25%` is the pool,
//! `SS_MARGIN=X` the least margin of a forecast, `SS_RATIOS=0.5,2` what the read of a record takes beside a layer's work.
//! `SS_MODEL_DIR=DIR` is a copy of the model, as `ss pack` lays it out for one.

mod pairs;
mod texts;

use std::str::FromStr;

use pairs::{Disk, Pair, Reply, Tally};
use ss_backend::Arithmetic;
use ss_benches::{Kernels, model};
use ss_stream::{LookaheadOptions, PoolSize};
use texts::Text;

/// What the read of a record takes beside a layer's work. The released model's 2.76 MB at 17.3 GB/s take 160 us, and a layer
/// takes 300 us where memory gives 300 GB/s (its weights and ten experts are 89 MB): 0.5. Beside a layer of 83 us, or at
/// 3.7 GB/s: 2 and more.
const RATIOS: &str = "0.5";
/// How often each reply is written in each way.
const ROUNDS: usize = 2;
/// Replies that are written to see how long a layer takes.
const TRIALS: usize = 2;
/// Time until the first byte of a read, as a part of a layer's work: 80 us where a layer takes 300.
const LATENCY: f64 = 0.27;

/// A setting from the environment, or its default.
fn setting<T: FromStr>(name: &str, otherwise: T) -> T {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| {
            eprintln!("{name}={text} is not understood");
            std::process::exit(2)
        }),
        Err(_) => otherwise,
    }
}

/// Seconds that a layer takes while all experts are there.
fn seconds_a_layer(texts: &[Text]) -> f64 {
    let mut model = model(Kernels::Fast, PoolSize::All, Arithmetic::Exact);
    let layers = model.geometry().layers.len() as f64;
    let mut trial =
        || texts.iter().take(TRIALS).map(|text| Reply::write(&mut model, text).took.as_secs_f64()).sum::<f64>();
    // The first reads the experts.
    trial();
    trial() / (TRIALS.min(texts.len()) * texts::REPLY) as f64 / layers
}

fn main() {
    let slots: PoolSize = setting("SS_SLOTS", PoolSize::Percent(25));
    let usual = LookaheadOptions::new(setting("SS_WEIGH", true), None);
    let lookahead = LookaheadOptions { margin: setting("SS_MARGIN", usual.margin), ..usual };
    let ratios: String = setting("SS_RATIOS", RATIOS.to_owned());
    let mut texts = texts::all();
    // Without this flag it is a test, which is to end soon.
    let measures = std::env::args().any(|flag| flag == "--bench");
    let rounds = if measures { setting("SS_ROUNDS", ROUNDS) } else { 1 };
    texts.truncate(if measures { texts.len() } else { 1 });
    let layer = seconds_a_layer(&texts);
    println!("{} replies, {slots} of the slots, {:.0} us a layer with all experts there", texts.len(), 1e6 * layer);
    for ratio in ratios.split(',').filter_map(|ratio| f64::from_str(ratio).ok()) {
        let disk = |record| Disk { gbps: record as f64 / (ratio * layer) / 1e9, latency_us: 1e6 * LATENCY * layer };
        let mut pair = Pair::new(slots, lookahead, disk);
        let mut tally = Tally::default();
        for round in 0..rounds {
            texts.iter().enumerate().for_each(|(number, text)| tally.add(pair.write(text, (round + number) % 2 == 0)));
        }
        println!("\na record takes {ratio} of a layer ({})\n{tally}", pair.disk);
    }
}
