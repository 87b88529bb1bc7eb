//! Owns: the tests that records from host memory are those of the file, whatever was displaced (promise I1, engine.md 5.7).

use std::sync::Arc;

use ss_checkpoint::Checkpoint;

use super::support::{Disk, NAN, Outcome, Random, Stored, dev, dev_copy, patch, system_error};
use crate::{Candidate, Lane, LookaheadOptions, Mutation, RamOptions, RamSize, StoreOptions};

/// Memory for so many records of the dev checkpoint.
fn room_for(checkpoint: &Checkpoint, records: u64) -> RamOptions {
    // A place takes a page more than its record.
    let size = RamSize::Bytes(records * (checkpoint.expert_layout().bytes + (16 << 10)));
    assert_eq!(u64::from(size.records(checkpoint)), records);
    RamOptions { size, paced: false }
}

fn options(ram: RamOptions) -> StoreOptions {
    StoreOptions { ram, ..StoreOptions::new(12) }
}

/// Random experts of random layers, as prompt and reply ask for them; what every slot held after each step.
fn wander(stored: &mut Stored, steps: u32, seed: u64) -> crate::Result<(bool, Vec<Vec<u8>>)> {
    let mut random = Random(seed);
    let (mut right, mut slots) = (true, Vec::new());
    for _ in 0..steps {
        let lane = if random.below(4) == 0 { Lane::Bulk } else { Lane::Demand };
        let (layer, experts) = (random.below(9) as u32, random.distinct(4, 16));
        right &= stored.acquire(layer, &experts, lane)?;
        stored.store.experts.release();
        slots.push(stored.slot_bytes((random.below(12)) as u32));
    }
    Ok((right, slots))
}

#[test]
fn records_are_the_same_with_host_memory_of_any_size_and_the_disk_is_read_less() -> Outcome {
    let checkpoint = dev();
    let mut without = Stored::new(&checkpoint, options(RamOptions::default()))?;
    let (right, expected) = wander(&mut without, 300, 5)?;
    assert!(right);
    let all_read = without.store.counters();
    assert_eq!(all_read.ram, crate::RamCounters::default());
    for records in [1, 20, 60, 100] {
        let mut stored = Stored::new(&checkpoint, options(room_for(&checkpoint, records)))?;
        let (right, slots) = wander(&mut stored, 300, 5)?;
        assert!(right && slots == expected, "{records} records in host memory");
        let counters = stored.store.counters();
        let record: u64 = checkpoint.expert_layout().pieces().map(|span| span.bytes).sum();
        assert!(counters.ram.evictions > 0, "{records} records: {:?}", counters.ram);
        // What one place holds is in a slot, too.
        assert_eq!(counters.ram.hits > 0, records > 1, "{records} records: {:?}", counters.ram);
        assert_eq!(counters.ram.bytes, counters.ram.hits * checkpoint.expert_layout().bytes);
        assert_eq!(counters.experts.bytes_read, all_read.experts.bytes_read - counters.ram.hits * record);
        assert_eq!(counters.experts.misses, all_read.experts.misses, "the pool does not notice");
    }
    Ok(())
}

#[test]
fn memory_for_all_records_is_filled_by_preload_and_no_record_is_read_again() -> Outcome {
    let checkpoint = dev();
    let ram = RamOptions { size: RamSize::All, paced: false };
    let mut stored = Stored::new(&checkpoint, options(ram))?;
    let mut told = Vec::new();
    stored.store.preload(&mut |done, total| told.push((done, total)))?;
    let total = 144 * checkpoint.expert_layout().bytes;
    assert_eq!(told.last(), Some(&(total, total)));
    assert!(told.len() > 1 && told.is_sorted());
    assert!(wander(&mut stored, 200, 6)?.0);
    let counters = stored.store.counters();
    assert_eq!((counters.ram.kept, counters.ram.evictions, counters.experts.bytes_read), (144, 0, 0));
    assert_eq!(counters.ram.hits, counters.experts.misses);
    stored.store.preload(&mut |_, _| panic!("there is nothing left to read"))?;
    Ok(())
}

#[test]
fn a_prompt_takes_unused_memory_and_displaces_nothing() -> Outcome {
    let checkpoint = dev();
    let mut stored = Stored::new(&checkpoint, options(room_for(&checkpoint, 20)))?;
    for layer in 0..9 {
        for first in [0, 8] {
            let experts: Vec<u32> = (first..first + 8).collect();
            assert!(stored.acquire(layer, &experts, Lane::Bulk)?);
            stored.store.experts.release();
        }
    }
    let ram = stored.store.counters().ram;
    assert_eq!((ram.kept, ram.evictions, ram.hits), (20, 0, 0));
    assert!(stored.acquire(0, &[0, 1, 2, 3], Lane::Bulk)?);
    assert_eq!(stored.store.counters().ram.hits, 4, "the first records are still there");
    Ok(())
}

#[test]
fn records_that_are_read_early_pass_through_host_memory_too() -> Outcome {
    let checkpoint = dev();
    let lookahead = LookaheadOptions { margin: 0.0, ..LookaheadOptions::default() };
    let ram = RamOptions { size: RamSize::All, paced: false };
    let options = StoreOptions { ram, lookahead, ..StoreOptions::new(64) };
    let mut stored = Stored::new(&checkpoint, options)?;
    stored.store.preload(&mut |_, _| {})?;
    let likely = [3, 5, 8].map(|expert| Candidate { expert, margin: 1.0 });
    stored.store.experts.forecast(1, &likely)?;
    assert!(stored.acquire(1, &[3, 5, 8], Lane::Demand)?);
    let counters = stored.store.counters();
    assert_eq!((counters.early.issued, counters.ram.hits, counters.experts.bytes_read), (3, 3, 0));
    Ok(())
}

#[test]
fn a_record_that_was_not_read_well_is_not_kept() -> Outcome {
    let checkpoint = dev();
    let (on, mut count) = (checkpoint.clone(), 0);
    let disk = Disk::failing(&checkpoint, move |range| {
        count += 1;
        (count % 40 == 0).then(|| system_error(&on, range, 5))
    });
    let source: Option<Arc<dyn crate::RecordSource>> = Some(disk);
    let ram = room_for(&checkpoint, 10);
    let mut stored = Stored::new(&checkpoint, StoreOptions { source, ..options(ram) })?;
    let mut random = Random(9);
    let mut failures = 0;
    for _ in 0..300 {
        match stored.acquire(random.below(9) as u32, &random.distinct(4, 16), Lane::Demand) {
            Ok(right) => assert!(right, "a wrong record was handed out"),
            Err(_) => failures += 1,
        }
        stored.store.experts.release();
    }
    let ram = stored.store.counters().ram;
    assert!(failures > 10 && ram.hits > 10 && ram.evictions > 10, "{failures} failures, {ram:?}");

    let copy = dev_copy()?;
    let damaged = Arc::new(Checkpoint::open(copy.path())?);
    let scales = damaged.experts(2).and_then(|files| files.pieces(6).nth(1)).ok_or("no scales")?;
    patch(damaged.file(scales.range.file)?.path(), scales.range.offset + 4, &NAN)?;
    let mut stored = Stored::new(&damaged, options(room_for(&damaged, 10)))?;
    for _ in 0..2 {
        let text = stored.acquire(2, &[6], Lane::Demand).map_err(|error| error.to_string()).err().unwrap_or_default();
        assert!(text.contains("gate_proj.scales"), "{text}");
    }
    assert_eq!(stored.store.counters().ram, crate::RamCounters::default());
    Ok(())
}

#[test]
fn a_stale_record_in_host_memory_is_noticed_where_records_are_displaced_and_only_there() -> Outcome {
    let checkpoint = dev();
    let mutation = Mutation::StaleRam;
    let ram = room_for(&checkpoint, 20);
    assert!(!wander(&mut Stored::new(&checkpoint, StoreOptions { mutation, ..options(ram) })?, 60, 3)?.0);
    let ram = RamOptions { size: RamSize::All, paced: false };
    assert!(wander(&mut Stored::new(&checkpoint, StoreOptions { mutation, ..options(ram) })?, 60, 3)?.0);
    Ok(())
}

#[test]
fn sizes_are_gigabytes_or_all_and_never_more_than_there_are_records() {
    let checkpoint = dev();
    assert_eq!("0.5".parse(), Ok(RamSize::Bytes(500_000_000)));
    assert_eq!("all".parse(), Ok(RamSize::All));
    for text in ["", "-1", "NaN", "inf", "1e9", "half", "auto"] {
        assert!(text.parse::<RamSize>().is_err(), "{text}");
    }
    assert_eq!(RamSize::Bytes(0).records(&checkpoint), 0);
    assert_eq!(RamSize::Bytes(u64::MAX).bytes(&checkpoint), RamSize::All.bytes(&checkpoint));
    assert_eq!(RamSize::All.records(&checkpoint), 144);
}
