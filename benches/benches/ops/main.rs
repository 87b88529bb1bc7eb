//! Every operation at the released geometry: generated rows in bytes a second beside a copy in the same run, prompt rows in
//! operations a second.
//!
//! `cargo bench -p ss-benches --bench ops -- [FILTER]`. The environment names the device: `SS_ADAPTER=NAME` for an adapter,
//! `SS_BACKEND=reference` for the plain twin, else the first GPU. On a processor everything is small (`SS_SIZES=small`):
//! one operation a submission, one expert a row, a part of the vocabulary, a short prompt. `SS_ROWS=N` is the length of a prompt elsewhere, `SS_ARITHMETIC=exact` the other
//! profile. `SS_TABLE=FILE` keeps the table.

mod ends;
mod gdn;
mod hyper;
mod moe;
mod qsa;
mod rig;
mod table;

use std::time::Duration;

use criterion::{Criterion, SamplingMode};
use rig::{Case, Rig};

fn main() {
    let rig = Rig::open().unwrap_or_else(|error| {
        eprintln!("{error}");
        std::process::exit(2);
    });
    let (warm_up, measured) = (Duration::from_millis(200), Duration::from_millis(500));
    let criterion =
        Criterion::default().sample_size(10).nresamples(1000).warm_up_time(warm_up).measurement_time(measured);
    let mut criterion = criterion.configure_from_args();
    let families: [fn(&Rig) -> Vec<Case>; 5] = [ends::cases, hyper::cases, gdn::cases, qsa::cases, moe::cases];
    let mut group = criterion.benchmark_group("ops");
    group.sampling_mode(SamplingMode::Flat);
    families.iter().flat_map(|cases| cases(&rig)).for_each(|case| rig.measure(&mut group, &case));
    group.finish();
    criterion.final_summary();

    let facts = rig.backend.facts();
    let text = table::table(&format!("{} {}", facts.device, facts.driver), &rig.lines.borrow());
    println!("{text}");
    if let Some(path) = std::env::var_os("SS_TABLE") {
        std::fs::write(&path, text).unwrap_or_else(|error| eprintln!("{}: {error}", path.display()));
    }
}
