//! Owns: which of two copies of a model a read goes to (a second disk).
//! Refuses: whether they are copies, which `Checkpoint::check_copy` has found before.
//! Invariants: a read goes to the copy with fewer bytes in flight, in turn where they are equal; a copy that fails a read is
//! left alone from then on, and the last one never is.

use std::sync::Arc;

use parking_lot::Mutex;
use ss_checkpoint::{Error, FileRange, Result};

use crate::RecordSource;

/// Hears that a copy is left alone, and why.
pub type Told = Arc<dyn Fn(&Error) + Send + Sync>;

/// A second copy of the checkpoint.
#[derive(Clone)]
pub struct MirrorOptions {
    /// Where its bytes come from; ranges mean the same in both.
    pub copy: Arc<dyn RecordSource>,
    /// Hears of a copy that failed.
    pub told: Told,
}

/// Two copies that are read as one.
pub(crate) struct Mirrored {
    first: Arc<dyn RecordSource>,
    second: Arc<dyn RecordSource>,
    desk: Mutex<Desk>,
    told: Told,
}

/// One of the copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    First,
    Second,
}

#[derive(Default)]
struct Desk {
    /// Whose turn it was last when the queues were equal.
    second_had: bool,
    first: Queue,
    second: Queue,
}

/// What is asked of one copy.
#[derive(Default)]
struct Queue {
    in_flight: u64,
    left_alone: bool,
}

impl Side {
    fn other(self) -> Self {
        match self {
            Side::First => Side::Second,
            Side::Second => Side::First,
        }
    }
}

impl Desk {
    fn queue(&mut self, side: Side) -> &mut Queue {
        match side {
            Side::First => &mut self.first,
            Side::Second => &mut self.second,
        }
    }

    fn choose(&mut self) -> Side {
        let key = |queue: &Queue| (queue.left_alone, queue.in_flight);
        match key(&self.first).cmp(&key(&self.second)) {
            std::cmp::Ordering::Less => Side::First,
            std::cmp::Ordering::Greater => Side::Second,
            std::cmp::Ordering::Equal => {
                self.second_had = !self.second_had;
                if self.second_had { Side::Second } else { Side::First }
            }
        }
    }
}

impl Mirrored {
    /// Copies of the same bytes.
    pub fn new(first: Arc<dyn RecordSource>, mirror: MirrorOptions) -> Self {
        Mirrored { first, second: mirror.copy, desk: Mutex::default(), told: mirror.told }
    }

    fn read_from(&self, side: Side, range: FileRange, into: &mut [u8]) -> Result<()> {
        let source = match side {
            Side::First => &self.first,
            Side::Second => &self.second,
        };
        let read = source.read(range, into);
        self.desk.lock().queue(side).in_flight -= range.bytes;
        read
    }

    /// Leaves a copy alone that has failed, and says whether the other one may be asked.
    fn leave(&self, side: Side, error: &Error, bytes: u64) -> bool {
        let mut desk = self.desk.lock();
        if desk.queue(side.other()).left_alone {
            return false;
        }
        let news = !std::mem::replace(&mut desk.queue(side).left_alone, true);
        desk.queue(side.other()).in_flight += bytes;
        drop(desk);
        if news {
            (self.told)(error);
        }
        true
    }
}

impl RecordSource for Mirrored {
    fn read(&self, range: FileRange, into: &mut [u8]) -> Result<()> {
        let side = {
            let mut desk = self.desk.lock();
            let side = desk.choose();
            desk.queue(side).in_flight += range.bytes;
            side
        };
        match self.read_from(side, range, into) {
            // Anything else is the caller's fault, and no copy's.
            Err(error @ (Error::Io { .. } | Error::Short { .. })) if self.leave(side, &error, range.bytes) => {
                self.read_from(side.other(), range, into)
            }
            read => read,
        }
    }
}
