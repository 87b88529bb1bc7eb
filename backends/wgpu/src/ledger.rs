//! Owns: the counts that a backend keeps of its own work.
//! Invariants: bytes in use are added when memory is made and taken off when it is freed, by [`Charge`] alone.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use ss_backend::{Counters, KernelTime};

use crate::clock::Measured;

/// Name of the one stage that is timed: everything that the device does.
pub const WHOLE: &str = "device";

/// Counts since the device was opened.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) dispatches: AtomicU64,
    pub(crate) submissions: AtomicU64,
    pub(crate) readbacks: AtomicU64,
    pub(crate) uploaded: AtomicU64,
    /// Time on the device, in nanoseconds, if submissions are timed.
    pub(crate) busy: AtomicU64,
    /// Time in flight and time encoding beside nothing, in nanoseconds.
    pub(crate) in_flight: AtomicU64,
    pub(crate) encoding: AtomicU64,
    /// Time of each kernel, if kernels are timed.
    pub(crate) kernels: Mutex<BTreeMap<Arc<str>, KernelTime>>,
    /// Works that are handed over and not yet seen to be finished.
    pub(crate) flights: AtomicU64,
    memory: AtomicU64,
    peak: AtomicU64,
}

impl Ledger {
    /// The counts as they are now.
    pub(crate) fn counters(&self) -> Counters {
        Counters {
            dispatches: self.dispatches.load(Relaxed),
            submissions: self.submissions.load(Relaxed),
            readbacks: self.readbacks.load(Relaxed),
            uploaded_bytes: self.uploaded.load(Relaxed),
            memory_bytes: self.memory.load(Relaxed),
            peak_memory_bytes: self.peak.load(Relaxed),
            in_flight: Duration::from_nanos(self.in_flight.load(Relaxed)),
            encoding: Duration::from_nanos(self.encoding.load(Relaxed)),
            stages: Some(self.busy.load(Relaxed)).filter(|&busy| busy > 0).map(stage).into_iter().collect(),
            kernels: self.kernels.lock().clone(),
        }
    }
}

impl Ledger {
    /// Counts what a clock found of a submission; the labels of its dispatches, if each was timed.
    pub(crate) fn timed(&self, measured: &Measured, labels: &[Arc<str>]) {
        self.busy.fetch_add(measured.whole.as_nanos() as u64, Relaxed);
        let mut kernels = self.kernels.lock();
        for (label, time) in labels.iter().zip(&measured.between) {
            let kernel = kernels.entry(Arc::clone(label)).or_default();
            kernel.calls += 1;
            kernel.time += *time;
        }
    }

    /// Counts the time since `started` as time in flight.
    pub(crate) fn flew(&self, started: Instant) {
        self.in_flight.fetch_add(started.elapsed().as_nanos() as u64, Relaxed);
    }

    /// Counts the time since `started` as time of encoding, unless something is in flight: then it is hidden.
    pub(crate) fn encoded(&self, started: Instant) {
        if self.flights.load(Relaxed) == 0 {
            self.encoding.fetch_add(started.elapsed().as_nanos() as u64, Relaxed);
        }
    }
}

/// All stages as one: a kernel serves several.
fn stage(busy: u64) -> (&'static str, Duration) {
    (WHOLE, Duration::from_nanos(busy))
}

/// Device memory in use, for as long as this lives.
#[derive(Debug)]
pub(crate) struct Charge {
    ledger: Arc<Ledger>,
    bytes: u64,
}

impl Charge {
    /// Counts `bytes` as in use.
    pub(crate) fn new(ledger: &Arc<Ledger>, bytes: u64) -> Self {
        let now = ledger.memory.fetch_add(bytes, Relaxed) + bytes;
        ledger.peak.fetch_max(now, Relaxed);
        Charge { ledger: Arc::clone(ledger), bytes }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.ledger.memory.fetch_sub(self.bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_counted_while_it_lives_and_the_peak_stays() {
        let ledger = Arc::new(Ledger::default());
        let first = Charge::new(&ledger, 100);
        drop(Charge::new(&ledger, 50));
        assert_eq!((ledger.counters().memory_bytes, ledger.counters().peak_memory_bytes), (100, 150));
        drop(first);
        assert_eq!(ledger.counters().memory_bytes, 0);
    }
}
