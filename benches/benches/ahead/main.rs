//! Lookahead on against off: replies of the small trained model with a quarter of its experts in slots, from a disk that
//! is throttled until a record costs as much beside a layer's work as it would for the released model (engine.md 5.6).
//!
//! `cargo bench -p ss-benches --bench ahead`. Each reply is written once with and once without, one after the other, by two
//! models that never share a pool; which goes first alternates. `SS_ROUNDS=N` repeats all of it, `SS_SLOTS=25%` is the pool,
//! `SS_RATIOS=0.5,2` says what the read of a record takes beside a layer's work, `SS_KERNELS=plain|fast` who computes.

mod pairs;
mod texts;

use std::str::FromStr;
use std::time::Instant;

use pairs::{Disk, Pair, Reply, Tally};
use ss_backend::Arithmetic;
use ss_benches::{Kernels, model};
use ss_stream::PoolSize;
use texts::Text;

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
fn seconds_a_layer(texts: &[Text], kernels: Kernels) -> f64 {
    let mut model = model(kernels, PoolSize::All, Arithmetic::Exact);
    let layers = model.geometry().layers.len() as f64;
    texts.iter().for_each(|text| _ = Reply::write(&mut model, text));
    let started = Instant::now();
    let tokens: usize = texts.iter().map(|text| Reply::write(&mut model, text).ids.len()).sum();
    started.elapsed().as_secs_f64() / tokens as f64 / layers
}

fn main() {
    // `cargo test` and `cargo bench` hand flags over that mean nothing here.
    let slots: PoolSize = setting("SS_SLOTS", PoolSize::Percent(25));
    let rounds: usize = setting("SS_ROUNDS", 3);
    let ratios: String = setting("SS_RATIOS", "0.5,2".to_owned());
    let kernels = match setting("SS_KERNELS", "fast".to_owned()).as_str() {
        "plain" => Kernels::Plain,
        "one" => Kernels::OneThread,
        _ => Kernels::Fast,
    };
    let mut texts = texts::all();
    texts.truncate(setting("SS_TEXTS", texts.len()));
    let layer = seconds_a_layer(&texts[..2], kernels);
    println!("{} replies, {slots} slots, {:.0} us a layer resident", texts.len(), 1e6 * layer);
    for ratio in ratios.split(',') {
        let Ok(ratio) = f64::from_str(ratio) else { continue };
        let mut pair = Pair::new(slots, kernels, |record| Disk {
            gbps: record as f64 / (ratio * layer) / 1e9,
            latency_us: 1e6 * LATENCY * layer,
        });
        let mut tally = Tally::default();
        for round in 0..rounds {
            texts.iter().enumerate().for_each(|(number, text)| tally.add(pair.write(text, (round + number) % 2 == 0)));
        }
        println!("\na record takes {ratio} of a layer ({})\n{tally}", pair.disk);
    }
}
