//! Owns: the tests that a slot holds what the file holds, whatever came before and however it was read (promise I1).

use std::collections::BTreeSet;

use super::support::{Bench, Disk, Outcome, Random, Setup, dev};
use crate::{Error, Lane, Mutation};

/// Random layers, the draft layer included, with random experts; releases between most of them.
fn wander(bench: &mut Bench, steps: u32, seed: u64) -> crate::Result<bool> {
    let mut random = Random(seed);
    let geometry = bench.checkpoint.geometry().clone();
    let layers = geometry.layers.len() as u64 + 1;
    let mut right = true;
    for _ in 0..steps {
        let count = 1 + random.below(u64::from(geometry.choices)) as usize;
        let experts = random.distinct(count, geometry.experts);
        // Three tokens' experts may be held at once in the smallest pool, so two of them are left alone.
        right &= bench.acquire(random.below(layers) as u32, &experts)?;
        if bench.cache.table().unpinned() < geometry.choices as usize || random.below(2) == 0 {
            bench.cache.release();
        }
    }
    Ok(right)
}

#[test]
fn every_slot_holds_its_expert_s_record_after_any_sequence() -> Outcome {
    let checkpoint = dev();
    for slots in [12, 32, 144] {
        let mut bench = Bench::new(&checkpoint, Setup { slots, ..Setup::default() })?;
        assert!(wander(&mut bench, 400, slots.into())?, "{slots} slots: a wrong record was handed out");
        assert_eq!(bench.wrong_residents(), []);
        let counters = bench.cache.counters();
        assert!(counters.hits > 0 && counters.misses > 0, "{counters:?}");
        assert_eq!(counters.evictions > 0, slots < 144, "{counters:?}: 144 slots hold everything");
    }
    Ok(())
}

#[test]
fn the_smallest_pool_evicts_inside_a_layer_and_serves_all_of_it_in_groups() -> Outcome {
    let checkpoint = dev();
    let mut bench = Bench::new(&checkpoint, Setup::default())?;
    let all: Vec<u32> = (0..checkpoint.geometry().experts).collect();
    for layer in 0..3 {
        let mut served = BTreeSet::new();
        for group in bench.cache.groups(layer, &all) {
            assert!(group.len() <= 12);
            assert!(bench.acquire(layer, &group)?, "layer {layer}: a wrong record was handed out");
            served.extend(group);
            bench.cache.release();
        }
        assert_eq!(served.into_iter().collect::<Vec<_>>(), all);
        let evicted = bench.cache.counters().evictions;
        assert_eq!(evicted, 4 + 16 * u64::from(layer), "12 slots, 16 experts a layer");
    }
    Ok(())
}

#[test]
fn groups_take_resident_experts_first_so_that_none_is_read_twice() -> Outcome {
    let mut bench = Bench::new(&dev(), Setup::default())?;
    bench.acquire(2, &[15, 3, 9])?;
    bench.cache.release();
    let groups = bench.cache.groups(2, &(0..16).collect::<Vec<_>>());
    assert_eq!(groups.iter().map(Vec::len).collect::<Vec<_>>(), [12, 4]);
    assert_eq!(groups[0][..3], [3, 9, 15]);
    for group in groups {
        bench.acquire(2, &group)?;
        bench.cache.release();
    }
    assert_eq!(bench.cache.counters().records, 16);
    assert!(bench.cache.groups(2, &[]).is_empty());
    Ok(())
}

#[test]
fn held_slots_stay_until_they_are_released() -> Outcome {
    let mut bench = Bench::new(&dev(), Setup::default())?;
    let held = bench.cache.acquire(0, &[0, 1, 2, 3], Lane::Demand)?;
    bench.acquire(1, &[0, 1, 2, 3])?;
    bench.acquire(2, &[0, 1, 2, 3])?;
    let busy = bench.acquire(3, &[5]);
    assert!(matches!(busy, Err(Error::PoolBusy { wanted: 1, available: 0, slots: 12 })), "{busy:?}");
    assert_eq!(bench.cache.acquire(0, &[0, 1, 2, 3], Lane::Demand)?, held, "hits need no slot");
    assert_eq!(bench.wrong_residents(), []);
    assert_eq!(bench.cache.counters().evictions, 0);
    bench.cache.release();
    assert!(bench.acquire(3, &[5])?);
    assert_eq!(bench.cache.counters().evictions, 1);
    Ok(())
}

#[test]
fn what_the_device_found_is_held_for_the_work_to_come_until_it_is_released() -> Outcome {
    let mut bench = Bench::new(&dev(), Setup::default())?;
    for layer in 0..3 {
        bench.acquire(layer, &[0, 1, 2, 3])?;
    }
    bench.cache.release();
    bench.cache.found(0, &[1, 3]);
    bench.cache.hold(0, &[1, 3]);
    let others: Vec<u32> = (0..10).collect();
    assert!(bench.acquire(3, &others)?, "all but two slots can be given up");
    assert!(bench.acquire(0, &[1, 3])?);
    assert_eq!(bench.cache.counters().records, 22, "what is held is not read again");
    bench.cache.release();
    assert_eq!(bench.cache.table().unpinned(), 12);
    Ok(())
}

#[test]
fn the_number_of_lanes_and_the_order_in_which_reads_end_change_nothing() -> Outcome {
    let checkpoint = dev();
    let slots_after = |lanes, source| -> crate::Result<_> {
        let mut bench = Bench::new(&checkpoint, Setup { lanes, source, ..Setup::default() })?;
        assert!(wander(&mut bench, 60, 7)?, "{lanes} lanes: a wrong record was handed out");
        let bytes: Vec<Vec<u8>> = (0..12).map(|slot| bench.slot_bytes(slot)).collect();
        let table: Vec<_> = bench.cache.table().residents().collect();
        Ok((bytes, table, bench.cache.counters().bytes_read))
    };
    let alone = slots_after(1, None)?;
    for lanes in [2, 5, 32] {
        assert!(slots_after(lanes, None)? == alone, "{lanes} lanes");
        assert!(slots_after(lanes, Some(Disk::slow(&checkpoint)))? == alone, "{lanes} lanes, slow disk");
    }
    Ok(())
}

#[test]
fn counters_tell_what_happened() -> Outcome {
    let mut bench = Bench::new(&dev(), Setup::default())?;
    bench.acquire(0, &[1, 2, 3])?;
    bench.cache.release();
    bench.acquire(0, &[3, 4])?;
    let record: u64 = bench.cache.pool().layout().pieces().map(|span| span.bytes).sum();
    let counters = bench.cache.counters();
    assert_eq!((counters.hits, counters.misses, counters.records, counters.evictions), (1, 4, 4, 0));
    assert_eq!(counters.bytes_read, 4 * record);
    assert!(!counters.waited.is_zero());
    Ok(())
}

#[test]
fn the_draft_layer_shares_the_pool_and_no_layer_follows_it() -> Outcome {
    let mut bench = Bench::new(&dev(), Setup::default())?;
    let draft = bench.checkpoint.geometry().mtp_layer() as u32;
    assert!(bench.acquire(draft, &[0, 15])?);
    let beyond = bench.acquire(draft + 1, &[0]);
    assert!(matches!(beyond, Err(Error::Fault(_))), "{beyond:?}");
    Ok(())
}

#[test]
fn each_mutation_is_noticed_where_slots_are_used_again_and_only_there() -> Outcome {
    let checkpoint = dev();
    for mutation in [Mutation::StaleSlot, Mutation::SwapPieces, Mutation::MisorderedSlots] {
        let mut bench = Bench::new(&checkpoint, Setup { mutation, ..Setup::default() })?;
        assert!(!wander(&mut bench, 60, 3)?, "{mutation:?} went unnoticed");
    }
    for mutation in [Mutation::StaleSlot, Mutation::SwapPieces] {
        let mut bench = Bench::new(&checkpoint, Setup { slots: 144, mutation, ..Setup::default() })?;
        assert!(wander(&mut bench, 60, 3)?, "{mutation:?} shows without evictions");
    }
    Ok(())
}
