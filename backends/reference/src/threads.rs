//! Owns: the threads, and the decision whether an operation is worth splitting.
//! Invariants: splitting changes who computes an output, never how.

use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};
use ss_backend::{Error, Result};

use crate::tuning::{PARALLEL_WORK, PIECES_A_THREAD};

/// Threads of a backend; none besides the caller's when there is one.
pub struct Threads {
    pool: Option<ThreadPool>,
    count: usize,
    /// Multiply-adds below which nothing is split.
    pub worth: u64,
}

impl Threads {
    /// `count` threads, 0 for one a processor.
    ///
    /// # Errors
    /// [`Error::Unavailable`] where the system gives no threads.
    pub fn new(count: usize) -> Result<Self> {
        let count = match count {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            count => count,
        };
        if count == 1 {
            return Ok(Threads { pool: None, count, worth: PARALLEL_WORK });
        }
        let pool = ThreadPoolBuilder::new().num_threads(count).thread_name(|i| format!("ss-reference-{i}")).build();
        let pool =
            pool.map_err(|e| Error::Unavailable(format!("the system gave no {count} threads ({e}); use fewer")))?;
        Ok(Threads { pool: Some(pool), count, worth: PARALLEL_WORK })
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
        match &self.pool {
            Some(pool) if pieces > 1 => {
                let each = units.div_ceil(pieces);
                pool.install(|| {
                    items.par_chunks_mut(each * unit).enumerate().for_each(|(i, piece)| f(i * each, piece))
                });
            }
            _ if units > 0 => f(0, items),
            _ => {}
        }
    }
}
