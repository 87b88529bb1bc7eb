//! Owns: where reads that are made early stand between those who ask for them and the lanes: which are queued, under way
//! and ended, and whether reads may begin at all (engine.md 5.6).
//! Refuses: threads, bytes and slots; it is a table that its owner locks.
//! Invariants: a read is taken by one lane or taken back, never both; none begins while something demanded waits to begin.

use std::collections::{BTreeMap, VecDeque};

use crate::ExpertId;

/// How far a read has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Progress {
    /// No byte is read yet.
    Queued,
    /// On a lane.
    Reading,
    /// Its record is in its slot, as soon as the device has done what it was handed so far.
    Landed,
    /// It could not be read, or is damaged.
    Failed,
}

/// The desk; `J` is what a lane needs to make a read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Desk<J> {
    queue: VecDeque<(ExpertId, J)>,
    /// Reads that come after all in the queue.
    late: VecDeque<(ExpertId, J)>,
    progress: BTreeMap<ExpertId, Progress>,
    /// Demands of which something waits to begin.
    demands: usize,
    /// Lanes that are at work.
    busy: usize,
}

impl<J> Default for Desk<J> {
    fn default() -> Self {
        Desk { queue: VecDeque::new(), late: VecDeque::new(), progress: BTreeMap::new(), demands: 0, busy: 0 }
    }
}

impl<J> Desk<J> {
    /// Queues a read.
    pub fn issue(&mut self, id: ExpertId, job: J) {
        self.progress.insert(id, Progress::Queued);
        self.queue.push_back((id, job));
    }

    /// Queues a read that all others go before.
    pub fn issue_late(&mut self, id: ExpertId, job: J) {
        self.progress.insert(id, Progress::Queued);
        self.late.push_back((id, job));
    }

    /// Reads that are queued or on a lane: as many lanes are of use.
    pub fn load(&self) -> usize {
        self.queued() + self.busy
    }

    /// Reads that wait for a lane.
    pub fn queued(&self) -> usize {
        self.queue.len() + self.late.len()
    }

    /// The next read for a lane, unless a demand goes first.
    pub fn take(&mut self) -> Option<(ExpertId, J)> {
        let mut next = || self.queue.pop_front().or_else(|| self.late.pop_front());
        let (id, job) = if self.demands == 0 { next() } else { None }?;
        self.progress.insert(id, Progress::Reading);
        self.busy += 1;
        Some((id, job))
    }

    /// A lane has ended a read that it took, well or not.
    pub fn end(&mut self, id: ExpertId, well: bool) {
        self.busy -= 1;
        self.progress.insert(id, if well { Progress::Landed } else { Progress::Failed });
    }

    /// Takes a read back that has not begun, and says whether it had not.
    pub fn cancel(&mut self, id: ExpertId) -> bool {
        if self.progress.get(&id) != Some(&Progress::Queued) {
            return false;
        }
        self.queue.retain(|(queued, _)| *queued != id);
        self.late.retain(|(queued, _)| *queued != id);
        self.progress.remove(&id);
        true
    }

    /// Whether a read ended well, once it has ended; one that is not known has failed.
    pub fn ended(&self, id: ExpertId) -> Option<bool> {
        match self.progress.get(&id) {
            Some(Progress::Queued | Progress::Reading) => None,
            Some(Progress::Landed) => Some(true),
            Some(Progress::Failed) | None => Some(false),
        }
    }

    /// All reads that have ended, and whether well. They are forgotten.
    pub fn take_ended(&mut self) -> Vec<(ExpertId, bool)> {
        let known: Vec<ExpertId> = self.progress.keys().copied().collect();
        let ended: Vec<_> = known.into_iter().filter_map(|id| Some((id, self.ended(id)?))).collect();
        ended.iter().for_each(|(id, _)| self.forget(*id));
        ended
    }

    /// Forgets a read that has ended.
    pub fn forget(&mut self, id: ExpertId) {
        self.progress.remove(&id);
    }

    /// A demand begins.
    pub fn demand(&mut self) {
        self.demands += 1;
    }

    /// All of a demand has begun, or it is over.
    pub fn demand_over(&mut self) {
        self.demands -= 1;
    }

    /// Takes back all that has not begun.
    pub fn clear(&mut self) {
        self.queue.clear();
        self.late.clear();
        self.progress.retain(|_, progress| *progress != Progress::Queued);
    }

    /// What waits for a lane.
    #[cfg(test)]
    pub fn queued_jobs(&mut self) -> impl Iterator<Item = &mut J> {
        self.queue.iter_mut().chain(&mut self.late).map(|(_, job)| job)
    }
}
