//! Owns: the tests that memory which is slow to read is written only, and gets the bytes of the file all the same.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ss_checkpoint::Checkpoint;

use super::support::{Device, NAN, Outcome, Watched, dev, dev_copy, holds, patch};
use crate::{Candidate, ExpertId, Lane, LookaheadOptions, RamOptions, RamSize, Store, StoreOptions};

/// What was read straight into slots, and elsewhere, while records of all kinds were brought.
fn brought(checkpoint: &Arc<Checkpoint>, slow_to_read: bool, ram: RamOptions) -> crate::Result<(u32, u32)> {
    let device = Device::new();
    device.slow_to_read.store(slow_to_read, Ordering::Relaxed);
    let watched = Arc::new(Watched {
        checkpoint: checkpoint.clone(),
        device: device.clone(),
        straight: 0.into(),
        elsewhere: 0.into(),
    });
    let lookahead = LookaheadOptions { margin: 0.0, ..LookaheadOptions::default() };
    let options = StoreOptions { ram, source: Some(watched.clone()), lookahead, ..StoreOptions::new(32) };
    let mut store = Store::open(device, checkpoint.clone(), options)?;
    // Rows of n-grams were read already.
    let before = watched.elsewhere.load(Ordering::Relaxed);
    let experts = &mut store.experts;
    experts.acquire(0, &[3, 1, 4], Lane::Demand)?;
    experts.acquire(1, &[1, 5, 9], Lane::Bulk)?;
    experts.forecast(2, &[Candidate { expert: 2, margin: 1.0 }])?;
    let early = experts.acquire(2, &[2], Lane::Demand)?;
    assert_eq!(experts.early().issued, 1);
    let slots = experts.acquire(2, &[6], Lane::Demand)?;
    assert!(holds(experts, checkpoint, early[0], ExpertId { layer: 2, expert: 2 }));
    assert!(holds(experts, checkpoint, slots[0], ExpertId { layer: 2, expert: 6 }));
    let wrong = |(id, slot)| !holds(experts, checkpoint, slot, id);
    assert!(!experts.table().residents().any(wrong));
    Ok((watched.straight.load(Ordering::Relaxed), watched.elsewhere.load(Ordering::Relaxed) - before))
}

#[test]
fn memory_that_is_slow_to_read_is_written_only_and_holds_the_same_records() -> Outcome {
    let checkpoint = dev();
    let (straight, elsewhere) = brought(&checkpoint, false, RamOptions::default())?;
    assert!(straight > 0 && elsewhere == 0, "quick memory is read into: {straight} and {elsewhere} reads");
    for size in [RamSize::Bytes(0), RamSize::Bytes(2 * (checkpoint.expert_layout().bytes + (16 << 10))), RamSize::All] {
        let (slow, all) = brought(&checkpoint, true, RamOptions { size, paced: false })?;
        assert_eq!((slow, all), (0, straight), "{size:?}");
    }
    Ok(())
}

#[test]
fn a_damaged_record_is_found_before_it_goes_to_memory_that_is_slow_to_read() -> Outcome {
    let copy = dev_copy()?;
    let damaged = Checkpoint::open(copy.path())?;
    let piece = damaged.experts(1).and_then(|files| files.pieces(5).nth(1)).ok_or("scales of an expert")?;
    let path = damaged.file(piece.range.file)?.path().to_owned();
    patch(&path, piece.range.offset, &NAN)?;
    let error = brought(&Arc::new(Checkpoint::open(copy.path())?), true, RamOptions::default());
    assert!(error.is_err_and(|error| error.to_string().contains("NaN")));
    Ok(())
}
