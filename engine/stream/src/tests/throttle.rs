//! Owns: the tests that a throttled source gives the same bytes no sooner than the imitated disk would.
//! Invariants: margins are wide, for test machines are busy.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::support::{Outcome, Stored, dev};
use crate::throttle::Throttle;
use crate::{DiskPace, Error, Lane, RamOptions, RamSize, StoreOptions};

/// How long `readers` threads take that read `count` times `bytes` each.
fn reading(pace: DiskPace, readers: usize, count: usize, bytes: u64) -> Duration {
    let throttle = Throttle::new(pace);
    let started = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..readers {
            scope.spawn(|| (0..count).for_each(|_| throttle.pace(bytes, || ())));
        }
    });
    started.elapsed()
}

#[test]
fn lanes_share_the_rate_and_their_latencies_overlap() -> Outcome {
    // 16 readers of 6 MB each at 0.5 GB/s: 192 ms, whatever the size of a read.
    for (count, bytes) in [(60, 100_000), (2, 3_000_000)] {
        let took = reading(DiskPace::new(Some(0.5), 100.0)?, 16, count, bytes);
        assert!(took >= Duration::from_millis(192), "{took:?}");
        assert!(took < Duration::from_millis(5 * 192), "{took:?}");
    }
    // Ten reads of 20 ms each, one after the other; the readers wait at the same time.
    let took = reading(DiskPace::new(None, 20_000.0)?, 16, 10, 1_000_000);
    assert!(took >= Duration::from_millis(200) && took < Duration::from_millis(5 * 200), "{took:?}");
    Ok(())
}

#[test]
fn a_store_on_a_slow_disk_reads_the_same_and_takes_its_time() -> Outcome {
    let checkpoint = dev();
    // A megabyte a second.
    let pace = Some(DiskPace::new(Some(0.001), 0.0)?);
    // Gaps between pieces are not read.
    let record: u64 = checkpoint.expert_layout().pieces().map(|span| span.bytes).sum();
    let due = Duration::from_micros(8 * record);
    assert!(due > Duration::from_millis(100), "{due:?}");
    let all = RamSize::All;
    for (size, paced, slow) in [(RamSize::Bytes(0), false, true), (all, true, true), (all, false, false)] {
        let ram = RamOptions { size, paced };
        let mut stored = Stored::new(&checkpoint, StoreOptions { pace, ram, ..StoreOptions::new(12) })?;
        let started = Instant::now();
        stored.store.preload(&mut |_, _| {})?;
        assert!(started.elapsed() < 18 * due, "preloading is not paced");
        let started = Instant::now();
        assert!(stored.acquire(0, &[1, 2, 3, 4, 5, 6, 7, 8], Lane::Demand)?);
        let took = started.elapsed();
        assert_eq!(took >= due, slow, "{size:?}, paced {paced}: {took:?}");
        assert!(took < 5 * due, "{took:?}");
    }
    Ok(())
}

#[test]
fn a_device_is_kept_awake_where_reads_are_known_to_be_long_and_somebody_waits() -> Outcome {
    let checkpoint = dev();
    let kept = |lane: Lane| -> crate::Result<[u32; 2]> {
        let pace = Some(DiskPace::new(None, 20_000.0)?);
        let mut stored = Stored::new(&checkpoint, StoreOptions { pace, ..StoreOptions::new(12) })?;
        let mut kept = [0; 2];
        for (layer, kept) in (0..).zip(&mut kept) {
            stored.acquire(layer, &[1, 2], lane)?;
            *kept = stored.device.kept_awake.load(Ordering::Relaxed);
        }
        Ok(kept)
    };
    assert_eq!(kept(Lane::Demand)?, [0, 1], "the first reads say how long they take");
    assert_eq!(kept(Lane::Bulk)?, [0, 0], "prompts keep it busy");
    Ok(())
}

#[test]
fn disks_that_cannot_be_are_refused() {
    for gbps in [0.0, -1.0, f64::NAN, f64::INFINITY, 1001.0] {
        assert!(matches!(DiskPace::new(Some(gbps), 0.0), Err(Error::Pace { flag: "--disk-gbps", .. })), "{gbps}");
    }
    for latency in [-1.0, f64::NAN, 2e6] {
        assert!(
            matches!(DiskPace::new(None, latency), Err(Error::Pace { flag: "--disk-latency-us", .. })),
            "{latency}"
        );
    }
}
