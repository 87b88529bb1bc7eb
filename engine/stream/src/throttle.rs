//! Owns: reading as slowly as another disk would, to measure on one machine for another.
//! Refuses: rates that are none.
//! Invariants: no read ends before that disk would have ended it; bytes are the same; reads share the rate in the order in
//! which they begin.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use ss_checkpoint::FileRange;

use crate::{Error, RecordSource, Result};

/// Sleep ends about this much too late, so that the rest is waited for awake: as little as can be, for a disk takes no
/// processor time.
const AWAKE: Duration = Duration::from_micros(if cfg!(target_os = "linux") { 15 } else { 150 });
/// Fastest disk: above that of memory.
const MOST_GBPS: f64 = 1000.0;
/// Longest latency in microseconds: a second.
const MOST_LATENCY_US: f64 = 1e6;

/// How fast a disk is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DiskPace {
    /// Seconds that a byte takes of the shared rate; 0 where only latency counts.
    seconds_per_byte: f64,
    latency: Duration,
}

impl DiskPace {
    /// A disk of so many GB/s, all reads together (none: as fast as it is), and so many microseconds to the first byte of
    /// each read.
    ///
    /// # Errors
    /// [`Error::Pace`] outside 0.001 to 1000 GB/s or 0 to a second.
    pub fn new(gbps: Option<f64>, latency_us: f64) -> Result<Self> {
        let seconds_per_byte = match gbps {
            None => 0.0,
            Some(gbps) if (1e-3..=MOST_GBPS).contains(&gbps) => 1e-9 / gbps,
            Some(_) => return Err(Error::Pace { flag: "--disk-gbps", expected: "a number from 0.001 to 1000" }),
        };
        if !(0.0..=MOST_LATENCY_US).contains(&latency_us) {
            return Err(Error::Pace { flag: "--disk-latency-us", expected: "a number from 0 to 1000000" });
        }
        Ok(DiskPace { seconds_per_byte, latency: Duration::from_secs_f64(latency_us * 1e-6) })
    }
}

/// A disk's time table: one for all that is read from it.
#[derive(Debug)]
pub(crate) struct Throttle {
    pace: DiskPace,
    /// When the disk has sent all that it was asked for.
    free_at: Mutex<Instant>,
}

impl Throttle {
    /// A disk that is idle.
    pub fn new(pace: DiskPace) -> Arc<Self> {
        Arc::new(Throttle { pace, free_at: Mutex::new(Instant::now()) })
    }

    /// Books a read that begins now, does `work` meanwhile, and returns when the disk would have.
    pub fn pace<T>(&self, bytes: u64, work: impl FnOnce() -> T) -> T {
        let due = self.book(bytes);
        let done = work();
        wait_until(due);
        done
    }

    fn book(&self, bytes: u64) -> Instant {
        let takes = Duration::from_secs_f64(bytes as f64 * self.pace.seconds_per_byte);
        let mut free_at = self.free_at.lock();
        // Latencies overlap, with each other and with what is being sent; the sending does not.
        let begins = (Instant::now() + self.pace.latency).max(*free_at);
        *free_at = begins + takes;
        *free_at
    }
}

/// Asks for sleeps that end on time: Linux may put them off by 50 us to save power.
#[cfg(target_os = "linux")]
fn sleep_on_time() {
    thread_local! {
        // Refused or not, there is nothing else to do.
        static ASKED: bool = rustix::thread::set_current_timer_slack(Some(std::num::NonZeroU64::MIN)).is_ok();
    }
    ASKED.with(|_| ());
}

#[cfg(not(target_os = "linux"))]
fn sleep_on_time() {}

fn wait_until(due: Instant) {
    sleep_on_time();
    loop {
        let left = due.saturating_duration_since(Instant::now());
        match left.checked_sub(AWAKE) {
            _ if left.is_zero() => return,
            Some(asleep) => std::thread::sleep(asleep),
            None => std::thread::yield_now(),
        }
    }
}

/// A source that is read at another disk's pace.
pub(crate) struct Throttled {
    pub source: Arc<dyn RecordSource>,
    pub throttle: Arc<Throttle>,
}

impl RecordSource for Throttled {
    fn read(&self, range: FileRange, into: &mut [u8]) -> ss_checkpoint::Result<()> {
        self.throttle.pace(range.bytes, || self.source.read(range, into))
    }
}
