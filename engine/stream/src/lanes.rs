//! Owns: the threads that read, and how many reads are in flight at once (engine.md section 5.2).
//! Refuses: what is read and why.
//! Invariants: at most as many reads of one call at once as it has lanes, the caller being one of them; a call returns
//! when all of its work has ended; which lane does what never shows in the result.

use std::num::NonZeroU16;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rayon::{Scope, ThreadPool, ThreadPoolBuilder};
use ss_checkpoint::FileRange;

use crate::{Error, RecordSource, Result};

/// Default number of lanes for bulk reads (engine.md section 5.2).
const BULK: NonZeroU16 = NonZeroU16::new(12).unwrap();
/// Default number of lanes for demand reads.
const DEMAND: NonZeroU16 = NonZeroU16::new(32).unwrap();
/// More lanes than any disk has queues for are a mistake.
const MOST: u16 = 256;
/// A read that somebody waits for is divided at multiples of so many bytes of the file: few misses use all lanes then, and
/// parts begin where a direct read may begin.
const PART: u64 = 512 << 10;
/// A copy that somebody waits for is divided into parts of so many bytes: 50 us each where one lane writes 14 GB/s.
const COPIED_PART: usize = 704 << 10;
/// How many others each lane wakes when there is work left.
const WAKES: usize = 2;

/// Who waits for a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// A prompt: many reads, throughput counts.
    Bulk,
    /// A decode step: few reads, all of them waited for.
    Demand,
}

/// How many reads may be in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneCounts {
    bulk: NonZeroU16,
    demand: NonZeroU16,
}

impl Default for LaneCounts {
    /// 12 for bulk, 32 for demand.
    fn default() -> Self {
        LaneCounts { bulk: BULK, demand: DEMAND }
    }
}

impl LaneCounts {
    /// So many lanes for bulk and for demand reads, 1 to 256 each.
    ///
    /// # Errors
    /// [`Error::LaneCount`] outside that range.
    pub fn new(bulk: u16, demand: u16) -> Result<Self> {
        Ok(LaneCounts { bulk: lane_count("bulk", bulk)?, demand: lane_count("demand", demand)? })
    }

    /// Lanes of a kind.
    pub fn of(self, lane: Lane) -> usize {
        match lane {
            Lane::Bulk => self.bulk.get().into(),
            Lane::Demand => self.demand.get().into(),
        }
    }
}

fn lane_count(lane: &'static str, found: u16) -> Result<NonZeroU16> {
    NonZeroU16::new(found).filter(|n| n.get() <= MOST).ok_or(Error::LaneCount { lane, found, most: MOST })
}

/// A read: a range of a file, and the memory that it fills.
pub(crate) struct Read<'a> {
    pub range: FileRange,
    pub into: &'a mut [u8],
}

impl<'a> Read<'a> {
    /// The read in parts that end where a multiple of [`PART`] does.
    fn parts(self) -> impl Iterator<Item = Read<'a>> {
        let mut rest = Some(self);
        std::iter::from_fn(move || {
            let Read { range, into } = rest.take()?;
            let take = PART - range.offset % PART;
            if range.bytes <= take {
                return Some(Read { range, into });
            }
            // The memory is shorter than the range only by a fault, which the source refuses.
            let (now, later) = into.split_at_mut(into.len().min(take as usize));
            let left = FileRange { offset: range.offset + take, bytes: range.bytes - take, ..range };
            rest = Some(Read { range: left, into: later });
            Some(Read { range: FileRange { bytes: take, ..range }, into: now })
        })
    }
}

/// The lanes; clones share them. Threads start with the first call that can use more than one lane.
#[derive(Clone)]
pub struct Lanes(Arc<Pools>);

struct Pools {
    counts: LaneCounts,
    bulk: OnceLock<ThreadPool>,
    demand: OnceLock<ThreadPool>,
}

impl Lanes {
    /// Lanes of these numbers, no thread started.
    pub fn new(counts: LaneCounts) -> Self {
        Lanes(Arc::new(Pools { counts, bulk: OnceLock::new(), demand: OnceLock::new() }))
    }

    /// How many there are.
    pub fn counts(&self) -> LaneCounts {
        self.0.counts
    }

    /// Does all reads and returns the number of bytes.
    pub(crate) fn read(&self, lane: Lane, source: &dyn RecordSource, reads: Vec<Read<'_>>) -> Result<u64> {
        let bytes = reads.iter().map(|read| read.into.len() as u64).sum();
        let reads = match lane {
            Lane::Demand => reads.into_iter().flat_map(Read::parts).collect(),
            Lane::Bulk => reads,
        };
        self.run(lane, reads, |read| Ok(source.read(read.range, read.into)?))?;
        Ok(bytes)
    }

    /// Copies a record to memory of its length; what somebody waits for on several lanes at once.
    pub(crate) fn copy(&self, lane: Lane, from: &[u8], into: &mut [u8]) -> Result<()> {
        let part = match lane {
            Lane::Demand => COPIED_PART,
            Lane::Bulk => from.len().max(1),
        };
        let parts = from.chunks(part).zip(into.chunks_mut(part)).collect();
        self.run(lane, parts, |(from, into): (&[u8], &mut [u8])| {
            into.copy_from_slice(from);
            Ok(())
        })
    }

    /// Runs `work` on every item, on as many lanes as there are. After a failure no more items are begun.
    ///
    /// # Errors
    /// Of the failures that happened, that of the earliest item.
    pub(crate) fn run<T: Send>(&self, lane: Lane, items: Vec<T>, work: impl Fn(T) -> Result<()> + Sync) -> Result<()> {
        let helpers = self.0.counts.of(lane).min(items.len()).saturating_sub(1);
        self.run_with(lane, items, work, helpers, Beside { begun: || (), caller: || Ok(()) })
    }

    /// As [`Lanes::run`], with something to do beside.
    pub(crate) fn run_beside<T: Send>(
        &self,
        lane: Lane,
        items: Vec<T>,
        work: impl Fn(T) -> Result<()> + Sync,
        beside: Beside<impl FnOnce() + Send, impl FnOnce() -> Result<()>>,
    ) -> Result<()> {
        let helpers = self.0.counts.of(lane).saturating_sub(1).min(items.len());
        self.run_with(lane, items, work, helpers, beside)
    }

    fn run_with<T: Send>(
        &self,
        lane: Lane,
        items: Vec<T>,
        work: impl Fn(T) -> Result<()> + Sync,
        helpers: usize,
        beside: Beside<impl FnOnce() + Send, impl FnOnce() -> Result<()>>,
    ) -> Result<()> {
        let Beside { begun, caller: beside } = beside;
        let queue = Queue {
            left: Mutex::new(items.into_iter().enumerate()),
            failure: Mutex::new(None),
            helpers: AtomicUsize::new(helpers),
            work,
            begun: Mutex::new(Some(begun)),
        };
        let aside = if helpers == 0 {
            let aside = beside();
            queue.drain();
            aside
        } else {
            self.0.pool(lane)?.in_place_scope(|scope| {
                queue.wake(scope);
                let aside = beside();
                queue.drain();
                aside
            })
        };
        aside?;
        match queue.failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some((_, error)) => Err(error),
            None => Ok(()),
        }
    }
}

impl Pools {
    fn pool(&self, lane: Lane) -> Result<&ThreadPool> {
        let (cell, name) = match lane {
            Lane::Bulk => (&self.bulk, "bulk"),
            Lane::Demand => (&self.demand, "demand"),
        };
        if let Some(pool) = cell.get() {
            return Ok(pool);
        }
        // The caller of `run` is a lane itself.
        let threads = self.counts.of(lane).saturating_sub(1).max(1);
        let pool = ThreadPoolBuilder::new()
            .num_threads(threads)
            .thread_name(move |n| format!("ss-read-{name}-{n}"))
            .build()
            .map_err(|cause| Error::Threads { threads, cause: cause.to_string() })?;
        Ok(cell.get_or_init(|| pool))
    }
}

/// What is done beside the items of a call.
pub(crate) struct Beside<B, C> {
    /// As soon as no item waits for a lane any more, by the lane that took the last; not at all where none was taken.
    pub begun: B,
    /// By the caller, before it becomes a lane itself.
    pub caller: C,
}

/// The items of one call.
struct Queue<I: Iterator, F, B> {
    left: Mutex<I>,
    /// The failure of the earliest item so far.
    failure: Mutex<Option<(usize, Error)>>,
    /// Lanes that may still be woken.
    helpers: AtomicUsize,
    work: F,
    /// See [`Beside`].
    begun: Mutex<Option<B>>,
}

impl<T, I, F, B> Queue<I, F, B>
where
    T: Send,
    I: ExactSizeIterator<Item = (usize, T)> + Send,
    F: Fn(T) -> Result<()> + Sync,
    B: FnOnce() + Send,
{
    fn take_part<'s>(&'s self, scope: &Scope<'s>) {
        self.wake(scope);
        self.drain();
    }

    /// Wakes two more lanes while there is work, each of which wakes others. Waking in a tree costs a cached read next to
    /// nothing, for the caller is done before the others are up, and a slow disk has all lanes busy after a few wake-ups.
    fn wake<'s>(&'s self, scope: &Scope<'s>) {
        for _ in 0..WAKES {
            let one_less = |n: usize| n.checked_sub(1);
            let enough = lock(&self.left).len() == 0;
            if enough || self.helpers.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_err() {
                break;
            }
            scope.spawn(|scope| self.take_part(scope));
        }
    }

    fn drain(&self) {
        loop {
            let Some((place, item)) = self.take() else { return };
            if let Err(error) = (self.work)(item) {
                self.fail(place, error);
                return;
            }
        }
    }

    /// The next item; behind the last, all have begun.
    fn take(&self) -> Option<(usize, T)> {
        let mut left = lock(&self.left);
        let next = left.next()?;
        let last = left.len() == 0;
        // The lock is gone before anything is done.
        drop(left);
        let begun = if last { lock(&self.begun).take() } else { None };
        if let Some(begun) = begun {
            begun();
        }
        Some(next)
    }

    fn fail(&self, place: usize, error: Error) {
        let mut left = lock(&self.left);
        while left.next().is_some() {}
        let mut failure = lock(&self.failure);
        if failure.as_ref().is_none_or(|(earliest, _)| place < *earliest) {
            *failure = Some((place, error));
        }
    }
}

/// What a panicking thread left behind is whole: each critical section is one call.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;
    use std::time::Duration;

    use super::*;

    fn lanes(bulk: u16, demand: u16) -> Lanes {
        Lanes::new(LaneCounts::new(bulk, demand).expect("counts in range"))
    }

    /// Gives other threads the time they need, but not for ever.
    fn wait_for(condition: impl Fn() -> bool) {
        let patience = std::time::Instant::now() + Duration::from_secs(20);
        while !condition() && std::time::Instant::now() < patience {
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    #[test]
    fn every_item_is_worked_on_once_whatever_the_number_of_lanes() {
        for count in [1, 2, 7, 32] {
            let seen: Vec<AtomicU64> = (0..500).map(|_| AtomicU64::new(0)).collect();
            let items = (0..seen.len()).collect();
            let done = lanes(count, 1).run(Lane::Bulk, items, |i: usize| {
                seen[i].fetch_add(1, Ordering::Relaxed);
                Ok(())
            });
            assert!(done.is_ok());
            assert!(seen.iter().all(|n| n.load(Ordering::Relaxed) == 1), "{count} lanes");
        }
    }

    #[test]
    fn what_comes_behind_is_told_once_when_no_item_waits_and_the_last_still_runs() {
        for (demand, items) in [(1, 1), (1, 5), (4, 3), (4, 50)] {
            let (begun, done) = (AtomicU64::new(0), AtomicU64::new(0));
            let beside = Beside {
                begun: || {
                    assert!(done.load(Ordering::Relaxed) < items, "the last item has not ended");
                    begun.fetch_add(1, Ordering::Relaxed);
                },
                caller: || Ok(()),
            };
            let began = AtomicU64::new(0);
            let ran = lanes(1, demand).run_beside(
                Lane::Demand,
                (0..items).collect(),
                |_: u64| {
                    let before = began.fetch_add(1, Ordering::Relaxed);
                    assert!(before + 1 == items || demand > 1 || begun.load(Ordering::Relaxed) == 0, "an item waits");
                    done.fetch_add(1, Ordering::Relaxed);
                    Ok(())
                },
                beside,
            );
            assert!(ran.is_ok());
            assert_eq!((begun.into_inner(), done.into_inner()), (1, items), "{demand} lanes");
        }
    }

    #[test]
    fn slow_work_runs_on_all_lanes_at_once_and_on_no_more() {
        for count in [1u16, 3, 16] {
            let (running, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
            let done = lanes(1, count).run(Lane::Demand, vec![(); 64], |()| {
                most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                wait_for(|| most.load(Ordering::SeqCst) >= usize::from(count));
                running.fetch_sub(1, Ordering::SeqCst);
                Ok(())
            });
            assert!(done.is_ok());
            assert_eq!(most.load(Ordering::SeqCst), usize::from(count));
        }
    }

    #[test]
    fn a_failure_stops_the_rest_and_the_lanes_work_again() {
        let lanes = lanes(4, 4);
        let begun = AtomicUsize::new(0);
        let failed = lanes.run(Lane::Bulk, (0..1000).collect(), |i: u32| {
            begun.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(Duration::from_micros(50));
            if i >= 20 { Err(Error::Fault(format!("item {i}"))) } else { Ok(()) }
        });
        assert!(matches!(failed, Err(Error::Fault(_))), "{failed:?}");
        assert!(begun.load(Ordering::Relaxed) <= 24, "each lane fails at most once");
        assert!(lanes.run(Lane::Bulk, vec![(); 10], |()| Ok(())).is_ok());
    }

    #[test]
    fn of_several_failures_the_earliest_item_s_is_told() {
        let failed = lanes(4, 4).run(Lane::Bulk, vec![3u64, 2, 1, 0], |i| {
            std::thread::sleep(Duration::from_millis(20 * i));
            Err(Error::Fault(format!("item {}", 3 - i)))
        });
        let earliest = failed.map_err(|error| error.to_string()).err().unwrap_or_default();
        assert!(earliest.contains("item 0"), "{earliest}");
    }

    #[test]
    fn lanes_are_named_threads_and_none_is_started_for_a_single_lane() {
        let named = |lanes: &Lanes| {
            let names = Mutex::new(std::collections::BTreeSet::new());
            let done = lanes.run(Lane::Demand, vec![(); 40], |()| {
                lock(&names).insert(std::thread::current().name().unwrap_or_default().to_owned());
                wait_for(|| lock(&names).len() >= lanes.counts().of(Lane::Demand));
                Ok(())
            });
            assert!(done.is_ok());
            names.into_inner().unwrap_or_default().into_iter().filter(|n| n.starts_with("ss-read-demand-")).count()
        };
        let single = lanes(1, 1);
        assert_eq!(named(&single), 0);
        assert!(single.0.demand.get().is_none() && single.0.bulk.get().is_none());
        let several = lanes(9, 5);
        assert_eq!(named(&several), 4, "and the caller");
        assert!(several.0.bulk.get().is_none(), "the other kind is not started");
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        assert!(matches!(LaneCounts::new(0, 32), Err(Error::LaneCount { lane: "bulk", found: 0, .. })));
        assert!(matches!(LaneCounts::new(12, 257), Err(Error::LaneCount { lane: "demand", found: 257, .. })));
        assert_eq!(LaneCounts::new(12, 32).ok(), Some(LaneCounts::default()));
    }
}
