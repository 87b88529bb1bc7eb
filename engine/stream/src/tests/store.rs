//! Owns: the tests that a store brings both kinds of weights over shared lanes and counts them together.

use super::support::{Device, Outcome, dev};
use crate::{Lane, PoolGeometry, PoolSize, Store, StoreOptions};

#[test]
fn a_store_brings_experts_and_rows_and_opening_it_reads_next_to_nothing() -> Outcome {
    let checkpoint = dev();
    let read_before: u64 = checkpoint.files().iter().map(|file| file.bytes_read()).sum();
    let slots = PoolSize::Floor.resolve(PoolGeometry::from(checkpoint.geometry()))?;
    let mut store = Store::open(Device::new(), checkpoint.clone(), StoreOptions::new(slots))?;
    assert_eq!((store.experts.pool().slots(), store.ngrams.len()), (32, 1));
    let read_after: u64 = checkpoint.files().iter().map(|file| file.bytes_read()).sum();
    // A block of each shard of the table shows that it was filled.
    assert_eq!(read_after - read_before, 4 * 4096);

    store.experts.acquire(0, &[1, 2], Lane::Bulk)?;
    store.experts.release();
    let rows = &mut store.ngrams[0];
    let mut out = vec![0.0; 2 * rows.width()];
    rows.fetch(&[5, 600], Lane::Demand, &mut out)?;
    assert!(out.iter().any(|&number| number != 0.0));
    let counters = store.counters();
    assert_eq!((counters.experts.records, counters.ngrams.misses), (2, 2));
    let read: u64 = checkpoint.files().iter().map(|file| file.bytes_read()).sum();
    assert_eq!(counters.bytes_read(), read - read_after);
    Ok(())
}
