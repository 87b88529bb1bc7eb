//! Owns: the threads, and the decision whether an operation is worth splitting.
//! Invariants: splitting changes who computes an output, never how.

use parking_lot::Mutex;
use rayon::{ThreadPool, ThreadPoolBuilder};
use ss_backend::{Error, Result};

use crate::tuning::{MOST_THREADS_A_PROCESSOR, PARALLEL_WORK, PIECES_A_THREAD};

/// Threads of a backend: the caller's, and a pool of helpers where there are more.
pub struct Threads {
    helpers: Option<ThreadPool>,
    count: usize,
    /// Multiply-adds below which nothing is split.
    pub worth: u64,
}

impl Threads {
    /// `count` threads, 0 for one a processor; more than a few a processor would only wait for each other.
    ///
    /// # Errors
    /// [`Error::Unavailable`] where the system gives no threads.
    pub fn new(count: usize) -> Result<Self> {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let count = if count == 0 { processors } else { count.min(processors * MOST_THREADS_A_PROCESSOR) };
        let helpers = match count {
            1 => None,
            count => Some(helpers(count - 1)?),
        };
        Ok(Threads { helpers, count, worth: PARALLEL_WORK })
    }

    /// How many threads compute.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Into how many pieces an operation of `work` multiply-adds is split.
    pub fn pieces(&self, work: u64) -> usize {
        if self.count == 1 || work < self.worth { 1 } else { self.count * PIECES_A_THREAD }
    }

    /// Runs `f(first, piece)` over pieces of `items`, each of whole units of `unit` items; `first` counts units.
    pub fn split<T: Send>(&self, work: u64, items: &mut [T], unit: usize, f: impl Fn(usize, &mut [T]) + Sync) {
        let units = items.len() / unit;
        let pieces = self.pieces(work).min(units);
        match &self.helpers {
            Some(helpers) if pieces > 1 => {
                let each = units.div_ceil(pieces);
                let left = Mutex::new(items.chunks_mut(each * unit).enumerate());
                let take = || left.lock().next();
                let work = || {
                    while let Some((i, piece)) = take() {
                        f(i * each, piece);
                    }
                };
                helpers.in_place_scope(|scope| {
                    (1..self.count.min(pieces)).for_each(|_| scope.spawn(|_| work()));
                    work();
                });
            }
            _ if units > 0 => f(0, items),
            _ => {}
        }
    }
}

fn helpers(count: usize) -> Result<ThreadPool> {
    let pool = ThreadPoolBuilder::new().num_threads(count).thread_name(|i| format!("ss-reference-{i}")).build();
    pool.map_err(|e| {
        Error::Unavailable(format!("the system gave no {count} more threads ({e}); the reference backend needs them"))
    })
}
