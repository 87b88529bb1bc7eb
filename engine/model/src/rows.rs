//! Owns: the n-gram rows of a prompt's passes on their way to the device, read while earlier passes run (engine.md
//! section 6): a ring of buffers, one set a pass, which one thread fills and the passes use up in order.
//! Refuses: reading; what fills a set is told which.
//! Invariants: a set is filled only when the pass that used it last has submitted all that reads it; a pass gets its set
//! only when it is full; the memory is that of the sets.

use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use ss_backend::Buffer;

use crate::{Error, PassMutation, Result};

/// The sets, and how far both sides have come.
pub(crate) struct RowRing {
    /// A buffer a table each.
    sets: Vec<Vec<Buffer>>,
    progress: Mutex<Progress>,
    changed: Condvar,
    mutation: PassMutation,
}

#[derive(Default)]
struct Progress {
    /// Passes whose rows are there.
    filled: usize,
    /// Passes that have asked for theirs.
    taken: usize,
    /// Passes that are done with theirs.
    done: usize,
    /// Nobody will ask any more.
    closed: bool,
    failure: Option<Error>,
    came: Came,
}

/// How rows came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Came {
    /// Passes, by number, whose rows were there when they were asked for.
    pub early: Vec<usize>,
    /// How long the others waited.
    pub waited: Duration,
}

/// Closes a ring when its passes are over, however they end.
pub(crate) struct Closing<'a>(pub &'a RowRing);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.progress.lock().closed = true;
        self.0.changed.notify_all();
    }
}

impl RowRing {
    /// An empty ring over these sets.
    pub fn new(sets: Vec<Vec<Buffer>>, mutation: PassMutation) -> Self {
        RowRing { sets, progress: Mutex::default(), changed: Condvar::new(), mutation }
    }

    /// Has `read` fill a set for each of `passes` passes in order, until that is done, fails, or nobody will ask any more.
    pub fn fill(&self, passes: usize, mut read: impl FnMut(usize, &[Buffer]) -> Result<()>) {
        for pass in 0..passes {
            if !self.wait_for_room(pass) {
                return;
            }
            let filled = read(pass, self.set(pass));
            let mut progress = self.progress.lock();
            match filled {
                Ok(()) => progress.filled = pass + 1,
                Err(error) => progress.failure = Some(error),
            }
            self.changed.notify_all();
            if progress.failure.is_some() {
                return;
            }
        }
    }

    /// Whether the set of a pass is free, after waiting for it; not when nobody will ask any more.
    fn wait_for_room(&self, pass: usize) -> bool {
        let mut progress = self.progress.lock();
        while !progress.closed && pass >= progress.done + self.sets.len() {
            self.changed.wait(&mut progress);
        }
        !progress.closed
    }

    /// The rows of a table for a pass, once they are there.
    ///
    /// # Errors
    /// Why they could not be read.
    pub fn take(&self, pass: usize, table: usize) -> Result<Buffer> {
        let mut progress = self.progress.lock();
        if pass >= progress.taken {
            progress.taken = pass + 1;
            if pass < progress.filled {
                progress.came.early.push(pass);
            }
        }
        let started = Instant::now();
        while pass >= progress.filled {
            if let Some(error) = progress.failure.take() {
                return Err(error);
            }
            self.changed.wait(&mut progress);
        }
        progress.came.waited += started.elapsed();
        let pass = match self.mutation {
            PassMutation::OtherRows => pass + 1,
            _ => pass,
        };
        self.set(pass).get(table).cloned().ok_or(Error::Request("rows of an n-gram table that does not exist"))
    }

    /// Says that all that reads the rows of so many passes is submitted.
    pub fn done(&self, passes: usize) {
        self.progress.lock().done = passes;
        self.changed.notify_all();
    }

    /// How rows came so far.
    pub fn came(&self) -> Came {
        self.progress.lock().came.clone()
    }

    fn set(&self, pass: usize) -> &[Buffer] {
        self.sets.get(pass % self.sets.len().max(1)).map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(sets: usize) -> RowRing {
        RowRing::new(vec![Vec::new(); sets], PassMutation::None)
    }

    #[test]
    fn no_more_sets_are_filled_than_there_are() {
        let ring = ring(3);
        let filled = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                ring.fill(8, |pass, _| {
                    filled.lock().push(pass);
                    Ok(())
                })
            });
            for done in 0..8 {
                let most = (done + 3).min(8);
                while filled.lock().len() < most {
                    std::thread::yield_now();
                }
                // A reader that went too far would do so at once.
                std::thread::sleep(Duration::from_millis(2));
                assert_eq!(*filled.lock(), (0..most).collect::<Vec<_>>(), "{done} passes are done");
                ring.done(done + 1);
            }
        });
    }

    #[test]
    fn a_pass_waits_for_its_rows_and_hears_why_there_are_none() {
        let ring = ring(2);
        std::thread::scope(|scope| {
            let _closing = Closing(&ring);
            scope.spawn(|| {
                ring.fill(3, |pass, _| {
                    std::thread::sleep(Duration::from_millis(5));
                    if pass == 1 { Err(Error::Request("a test")) } else { Ok(()) }
                })
            });
            assert!(matches!(ring.take(0, 0), Err(Error::Request(why)) if why.contains("does not exist")));
            assert!(ring.came().waited >= Duration::from_millis(1) && ring.came().early.is_empty());
            assert!(matches!(ring.take(1, 0), Err(Error::Request("a test"))));
        });
    }

    #[test]
    fn a_reader_ends_when_nobody_will_ask_any_more() {
        let ring = ring(1);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| ring.fill(100, |_, _| Ok(())));
            drop(Closing(&ring));
            assert!(reader.join().is_ok());
        });
        assert!(ring.progress.lock().filled <= 1);
    }
}
