//! Owns: the tests that a hot set fills free slots behind everybody's back, and does nothing else (engine.md 5.9).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::support::{Bench, Disk, Outcome, Random, Setup, dev, system_error};
use crate::{ExpertId, HotExpert, Lane};

/// Experts of a layer, the first the hottest.
fn hot(layer: u32, experts: impl IntoIterator<Item = u32>) -> Vec<HotExpert> {
    let of = |expert| HotExpert { id: ExpertId { layer, expert }, uses: 100.0 - expert as f32 };
    experts.into_iter().map(of).collect()
}

/// Lets what was read in, until `done` says that it is enough.
fn let_in(bench: &mut Bench, done: impl Fn(&Bench) -> bool) {
    let patience = Instant::now() + Duration::from_secs(20);
    while !done(bench) {
        assert!(Instant::now() < patience, "{} records came", bench.cache.warmed());
        bench.cache.admit_early();
        std::thread::yield_now();
    }
}

#[test]
fn the_hot_set_fills_free_slots_and_is_found_there() -> Outcome {
    let mut bench = Bench::new(&dev(), Setup { slots: 32, ..Setup::default() })?;
    bench.cache.warm(&hot(2, 0..16));
    let_in(&mut bench, |bench| bench.cache.warmed() == 16);
    assert_eq!((bench.cache.table().residents().count(), bench.wrong_residents()), (16, vec![]));
    assert_eq!(bench.cache.table().unpinned(), 32, "nothing is held");
    bench.acquire(2, &[3, 9])?;
    let counters = bench.cache.counters();
    assert_eq!((counters.hits, counters.misses), (2, 0));
    assert_eq!(bench.cache.early(), Default::default(), "forecasts have nothing to do with it");
    Ok(())
}

#[test]
fn nothing_is_given_up_for_the_hot_set() -> Outcome {
    let mut bench = Bench::new(&dev(), Setup { slots: 16, ..Setup::default() })?;
    for experts in [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]] {
        bench.acquire(0, &experts)?;
        bench.cache.release();
    }
    // Six slots are free.
    bench.cache.warm(&hot(1, 0..16));
    let_in(&mut bench, |bench| bench.cache.warmed() == 6);
    std::thread::sleep(Duration::from_millis(5));
    bench.cache.admit_early();
    assert_eq!(bench.cache.warmed(), 6);
    let residents: Vec<_> = bench.cache.table().residents().map(|(id, _)| (id.layer, id.expert)).collect();
    assert!((0..10).all(|expert| residents.contains(&(0, expert))), "{residents:?}");
    assert!((0..6).all(|expert| residents.contains(&(1, expert))), "the hottest: {residents:?}");
    Ok(())
}

#[test]
fn layers_that_choose_otherwise_leave_the_hot_set_alone() -> Outcome {
    let checkpoint = dev();
    let mut bench =
        Bench::new(&checkpoint, Setup { slots: 32, source: Some(Disk::slow(&checkpoint)), ..Setup::default() })?;
    bench.cache.warm(&hot(3, 0..8));
    // A record under way is not taken back because its layer chose without it.
    for _ in 0..4 {
        assert!(bench.acquire(3, &[14, 15])?);
        bench.cache.found(3, &[14]);
        bench.cache.release();
    }
    let_in(&mut bench, |bench| bench.cache.warmed() == 8);
    assert_eq!(bench.wrong_residents(), []);
    Ok(())
}

#[test]
fn whatever_is_asked_for_meanwhile_is_right() -> Outcome {
    let checkpoint = dev();
    for (slots, seed) in [(12, 1), (24, 2), (64, 3), (144, 4)] {
        let setup = Setup { slots, source: Some(Disk::slow(&checkpoint)), ..Setup::default() };
        let mut bench = Bench::new(&checkpoint, setup)?;
        let all: Vec<_> = (0..9).flat_map(|layer| hot(layer, 0..16)).collect();
        bench.cache.warm(&all);
        let mut random = Random(seed);
        for _ in 0..60 {
            let experts = random.distinct(4, 16);
            assert!(bench.acquire(random.below(9) as u32, &experts)?, "{slots} slots: a wrong record");
            bench.cache.release();
            bench.cache.admit_early();
        }
        assert_eq!(bench.wrong_residents(), []);
        assert!(bench.cache.warmed() > 0, "{slots} slots");
    }
    Ok(())
}

#[test]
fn a_record_that_cannot_be_read_is_only_the_demand_s_business() -> Outcome {
    let checkpoint = dev();
    let broken = Arc::new(AtomicBool::new(true));
    let (here, disk) = (broken.clone(), checkpoint.clone());
    let fault = move |range| here.load(Ordering::Relaxed).then(|| system_error(&disk, range, 5));
    let setup = Setup { slots: 32, source: Some(Disk::failing(&checkpoint, fault)), ..Setup::default() };
    let mut bench = Bench::new(&checkpoint, setup)?;
    bench.cache.warm(&hot(0, 0..3));
    while bench.cache.table().unpinned() < 32 {
        bench.cache.admit_early();
        std::thread::yield_now();
    }
    assert_eq!((bench.cache.warmed(), bench.cache.table().residents().count()), (0, 0));
    assert!(bench.cache.acquire(0, &[1], Lane::Demand).is_err());
    broken.store(false, Ordering::Relaxed);
    assert!(bench.acquire(0, &[1])?);
    Ok(())
}

#[test]
fn uses_are_counted_and_taken_over() -> Outcome {
    let mut bench = Bench::new(&dev(), Setup { slots: 32, ..Setup::default() })?;
    bench.cache.warm(&hot(1, [7]));
    bench.acquire(1, &[4, 7])?;
    bench.cache.found(1, &[4]);
    let found: Vec<_> = bench.cache.uses().hottest().iter().map(|hot| (hot.id.expert, hot.uses)).collect();
    assert_eq!(found, [(7, 94.0), (4, 2.0)]);
    Ok(())
}
