//! Decode and prefill of the small trained model: vector loops and threads beside the straightforward implementation, and
//! the price of a small pool. Compare rows of one run only.

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput};
use ss_backend::Arithmetic;
use ss_benches::{Kernels, model};
use ss_model::{Cancel, Pass, Want};
use ss_stream::PoolSize;

/// Tokens in the state before a decode step.
const CONTEXT: u32 = 200;

/// Rows of a prefill pass.
const ROWS: u32 = 256;

/// Any ids will do: the work does not depend on what they say.
fn ids(count: u32) -> Vec<u32> {
    (0..count).map(|i| 100 + 37 * i % 3900).collect()
}

fn decode(c: &mut Criterion) {
    let mut group = c.benchmark_group("decode");
    group.throughput(Throughput::Elements(1));
    let kernels = Kernels::ALL.map(|kernels| (kernels, PoolSize::All));
    let pools = [PoolSize::Smallest, PoolSize::Floor, PoolSize::Percent(50)].map(|slots| (Kernels::Fast, slots));
    for (kernels, slots) in kernels.into_iter().chain(pools) {
        let mut model = model(kernels, slots, Arithmetic::Exact);
        let cancel = Cancel::default();
        let mut state = model.new_state().expect("room for a state");
        model.forward(&mut state, &Pass::prompt(&ids(CONTEXT), Want::Nothing), &cancel).expect("a prompt is read");
        let mut next = ids(4000).into_iter().cycle();
        group.bench_function(BenchmarkId::new(format!("{kernels:?}"), slots), |b| {
            b.iter_batched(
                || (state.fork(), next.next().unwrap_or_default()),
                |(mut state, id)| {
                    model.forward(&mut state, &Pass::generated(&[id], Want::Last), &cancel).expect("a step").logits
                },
                BatchSize::SmallInput,
            );
        });
    }
    group.finish();
}

fn prefill(c: &mut Criterion) {
    let mut group = c.benchmark_group("prefill");
    group.throughput(Throughput::Elements(ROWS.into())).sample_size(20);
    for kernels in Kernels::ALL {
        let mut model = model(kernels, PoolSize::All, Arithmetic::Exact);
        let (ids, empty) = (ids(ROWS), model.new_state().expect("room for a state"));
        group.bench_function(BenchmarkId::new(format!("{kernels:?}"), ROWS), |b| {
            b.iter_batched(
                || empty.fork(),
                |mut state| {
                    model
                        .forward(&mut state, &Pass::prompt(&ids, Want::Last), &Cancel::default())
                        .expect("a pass")
                        .logits
                },
                BatchSize::LargeInput,
            );
        });
    }
    group.finish();
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    decode(&mut criterion);
    prefill(&mut criterion);
    criterion.final_summary();
}
