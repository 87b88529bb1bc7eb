//! Owns: the tests that two copies are read as one, evenly, and that one of them may fail.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ss_checkpoint::{Checkpoint, FileRange};

use super::support::{Disk, Outcome, Random, Stored, dev, dev_copy, system_error};
use crate::mirror::Mirrored;
use crate::{Lane, MirrorOptions, RecordSource, StoreOptions};

const EIO: i32 = 5;

/// What was said of copies that failed.
type Heard = Arc<Mutex<Vec<String>>>;

fn mirror(copy: Arc<dyn RecordSource>) -> (MirrorOptions, Heard) {
    let heard = Heard::default();
    let hears = heard.clone();
    let told = Arc::new(move |error: &ss_checkpoint::Error| {
        hears.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(error.to_string());
    });
    (MirrorOptions { copy, told }, heard)
}

fn heard(heard: &Heard) -> Vec<String> {
    heard.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
}

fn wander(stored: &mut Stored, steps: u32) -> crate::Result<bool> {
    let mut random = Random(4);
    let mut right = true;
    for _ in 0..steps {
        right &= stored.acquire(random.below(9) as u32, &random.distinct(4, 16), Lane::Demand)?;
        stored.store.experts.release();
    }
    Ok(right)
}

fn read_from(checkpoint: &Checkpoint) -> u64 {
    checkpoint.files().iter().map(|file| file.bytes_read()).sum()
}

#[test]
fn both_copies_are_read_to_the_same_end() -> Outcome {
    let (checkpoint, dir) = (dev(), dev_copy()?);
    let copy = Arc::new(Checkpoint::open(dir.path())?);
    checkpoint.check_copy(&copy)?;
    let (mirror, said) = mirror(copy.clone());
    let before = read_from(&copy);
    let options = StoreOptions { mirror: Some(mirror), ..StoreOptions::new(12) };
    let mut stored = Stored::new(&checkpoint, options)?;
    assert!(wander(&mut stored, 200)?);
    let (all, there) = (stored.store.counters().experts.bytes_read, read_from(&copy) - before);
    assert!(there > all / 5 && there < all - all / 5, "{there} of {all} bytes from the second copy");
    assert!(heard(&said).is_empty());
    Ok(())
}

/// Gives other threads the time they need, but not for ever.
fn wait_for(condition: impl Fn() -> bool) {
    let patience = Instant::now() + Duration::from_secs(20);
    while !condition() && Instant::now() < patience {
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// A source that holds every read until it is let go.
#[derive(Default)]
struct Gate {
    asked: AtomicU64,
    open: AtomicU64,
}

impl RecordSource for Gate {
    fn read(&self, range: FileRange, _: &mut [u8]) -> ss_checkpoint::Result<()> {
        self.asked.fetch_add(range.bytes, Ordering::SeqCst);
        wait_for(|| self.open.load(Ordering::SeqCst) > 0);
        Ok(())
    }
}

#[test]
fn a_read_goes_to_the_shorter_queue_and_in_turn_where_they_are_equal() -> Outcome {
    let range = dev().experts(0).and_then(|files| files.pieces(0).next()).ok_or("no experts")?.range;
    let (first, second) = (Arc::new(Gate::default()), Arc::new(Gate::default()));
    let both = Mirrored::new(first.clone(), mirror(second.clone()).0);
    std::thread::scope(|scope| {
        // A long read occupies one copy, so that short ones go to the other until its queue is as long.
        let reads = [(5000, [0, 5000]), (1000, [1000, 5000]), (5000, [6000, 5000]), (500, [6000, 5500])];
        for (bytes, expected) in reads {
            let both = &both;
            scope.spawn(move || both.read(FileRange { bytes, ..range }, &mut []));
            let asked = || [&first, &second].map(|gate| gate.asked.load(Ordering::SeqCst));
            wait_for(|| asked().iter().sum::<u64>() >= expected.iter().sum());
            assert_eq!(asked(), expected);
        }
        [&first, &second].into_iter().for_each(|gate| gate.open.store(1, Ordering::SeqCst));
    });
    let before = [&first, &second].map(|gate| gate.asked.load(Ordering::SeqCst));
    for _ in 0..10 {
        both.read(FileRange { bytes: 100, ..range }, &mut [])?;
    }
    let after = [&first, &second].map(|gate| gate.asked.load(Ordering::SeqCst));
    assert_eq!([after[0] - before[0], after[1] - before[1]], [500, 500]);
    Ok(())
}

#[test]
fn a_copy_that_fails_is_told_once_left_alone_and_missed_by_no_one() -> Outcome {
    let checkpoint = dev();
    for failing_first in [true, false] {
        let (on, asked) = (checkpoint.clone(), Arc::new(AtomicU64::new(0)));
        let counted = asked.clone();
        let bad: Arc<dyn RecordSource> = Disk::failing(&checkpoint, move |range| {
            let count = counted.fetch_add(1, Ordering::SeqCst);
            (count >= 100).then(|| system_error(&on, range, EIO))
        });
        let (source, copy) =
            if failing_first { (bad, checkpoint.clone() as _) } else { (checkpoint.clone() as _, bad) };
        let (mirror, said) = mirror(copy);
        let options = StoreOptions { source: Some(source), mirror: Some(mirror), ..StoreOptions::new(12) };
        let mut stored = Stored::new(&checkpoint, options)?;
        assert!(wander(&mut stored, 200)?, "a wrong record was handed out");
        let said = heard(&said);
        assert!(said.len() == 1 && said[0].contains("cannot read"), "{said:?}");
        // Reads of other lanes may have been on their way.
        assert!(asked.load(Ordering::SeqCst) < 100 + 64, "{asked:?} reads of a copy that fails from the 100th on");
    }
    Ok(())
}

#[test]
fn where_both_copies_fail_the_request_fails_and_the_last_copy_is_asked_again() -> Outcome {
    let checkpoint = dev();
    let failures = Arc::new(AtomicU64::new(u64::MAX));
    let disk = |left: &Arc<AtomicU64>| -> Arc<dyn RecordSource> {
        let (on, left) = (checkpoint.clone(), left.clone());
        Disk::failing(&checkpoint, move |range| {
            let one_less = |n: u64| n.checked_sub(1);
            left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).ok().map(|_| system_error(&on, range, EIO))
        })
    };
    let (mirror, said) = mirror(disk(&failures));
    let options = StoreOptions { source: Some(disk(&failures)), mirror: Some(mirror), ..StoreOptions::new(12) };
    let mut stored = Stored::new(&checkpoint, options)?;
    assert!(stored.acquire(0, &[1, 2], Lane::Demand).is_err());
    assert_eq!(heard(&said).len(), 1);
    failures.store(0, Ordering::SeqCst);
    assert!(stored.acquire(0, &[1, 2], Lane::Demand)?);
    Ok(())
}
