//! Owns: how long records take to come in a replay: the disk, the lanes that wait for it, and what of it comes early.
//! Refuses: slots, and failures; every read ends well.
//! Invariants: the disk sends one record after the other, in the order in which their reads began; first bytes are waited for
//! all at once; a read that nobody waits for begins only while none that somebody waits for lacks a lane, as in the engine.

use std::collections::VecDeque;
use std::time::Duration;

use ss_stream::{Desk, ExpertId, Lane, LaneCounts};

/// How long things take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    /// From a layer's records being there to the choice of the next layer.
    pub layer: Duration,
    /// What the disk takes to send a record.
    pub record: Duration,
    /// From the beginning of a read to its first byte.
    pub latency: Duration,
}

/// A disk and its readers.
pub(crate) struct Reads {
    pace: Pace,
    /// When the disk has sent all that it was asked for.
    free_at: Duration,
    demand_lanes: usize,
    early_lanes: usize,
    /// Where reads stand that are made early: the engine's own.
    pub desk: Desk<()>,
    /// Those of them that are on a lane, by when they end.
    under_way: VecDeque<(Duration, ExpertId)>,
}

impl Reads {
    /// An idle disk, and so many lanes for early reads.
    pub fn new(pace: Pace, early_lanes: usize) -> Self {
        Reads {
            pace,
            free_at: Duration::ZERO,
            demand_lanes: LaneCounts::default().of(Lane::Demand),
            early_lanes,
            desk: Desk::default(),
            under_way: VecDeque::new(),
        }
    }

    /// Begins a read; tells when it ends. Reads are booked in the order of their beginnings.
    fn book(&mut self, now: Duration) -> Duration {
        self.free_at = self.free_at.max(now + self.pace.latency) + self.pace.record;
        self.free_at
    }

    /// Lets early reads end that end by now, and others begin in their place.
    pub fn until(&mut self, now: Duration) {
        while self.under_way.front().is_some_and(|&(end, _)| end <= now) {
            self.end_one();
        }
    }

    /// The early read that is the next to end does; tells when.
    fn end_one(&mut self) -> Option<Duration> {
        let (end, id) = self.under_way.pop_front()?;
        self.desk.end(id, true);
        self.begin(end);
        Some(end)
    }

    /// Gives queued early reads the lanes that are free, unless a demand goes first.
    fn begin(&mut self, now: Duration) {
        while self.under_way.len() < self.early_lanes {
            let Some((id, ())) = self.desk.take() else { return };
            let end = self.book(now);
            self.under_way.push_back((end, id));
        }
    }

    /// Reads so many records that somebody waits for; tells when they are there. What is queued early begins when the last of
    /// them has.
    pub fn demand(&mut self, now: Duration, records: usize) -> Duration {
        self.desk.demand();
        let (mut begun, mut ends) = (now, Vec::with_capacity(records));
        for number in 0..records {
            // Those that came first end first and give their lanes on.
            begun = number.checked_sub(self.demand_lanes).and_then(|done| ends.get(done).copied()).unwrap_or(now);
            ends.push(self.book(begun));
        }
        self.until(begun);
        self.desk.demand_over();
        self.begin(begun);
        let ended = ends.last().copied().unwrap_or(now);
        self.until(ended);
        ended
    }

    /// Waits for an early read that has begun, and forgets it; tells when its record is there.
    pub fn join(&mut self, now: Duration, id: ExpertId) -> Duration {
        let mut there = now;
        while self.desk.ended(id).is_none() {
            let Some(end) = self.end_one() else { break };
            there = there.max(end);
        }
        self.desk.forget(id);
        there
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn us(count: u64) -> Duration {
        Duration::from_micros(count)
    }

    fn reads(demand_lanes: usize, early_lanes: usize) -> Reads {
        let pace = Pace { layer: us(100), record: us(50), latency: us(10) };
        Reads { demand_lanes, ..Reads::new(pace, early_lanes) }
    }

    fn early(expert: u32) -> ExpertId {
        ExpertId { layer: 0, expert }
    }

    #[test]
    fn first_bytes_are_waited_for_together_and_records_come_one_after_the_other() {
        let mut reads = reads(32, 1);
        assert_eq!(reads.demand(us(0), 3), us(10 + 3 * 50));
        assert_eq!(reads.demand(us(155), 1), us(215), "the disk was about to be idle");
        assert_eq!(reads.demand(us(300), 1), us(360));
        assert_eq!(reads.demand(us(400), 0), us(400), "nothing is there at once");
    }

    #[test]
    fn a_demand_read_begins_when_one_before_it_leaves_a_lane_and_early_ones_when_none_lacks_one() {
        let mut reads = reads(1, 2);
        (0..3).for_each(|expert| reads.desk.issue(early(expert), ()));
        // The second begins when the first ends, at 60, and waits for its own first byte.
        assert_eq!(reads.demand(us(0), 2), us(120));
        assert_eq!(reads.desk.queued(), 1, "two lanes took a read each");
        reads.until(us(170));
        assert_eq!((reads.desk.ended(early(0)), reads.desk.ended(early(1))), (Some(true), None), "behind the demand's");
        assert_eq!(reads.desk.queued(), 0, "the free lane took the last");
        assert_eq!(reads.join(us(180), early(2)), us(270));
        assert_eq!(reads.desk.ended(early(1)), Some(true), "it came before");
    }

    #[test]
    fn what_is_on_a_lane_goes_before_a_later_demand() {
        let mut reads = reads(32, 16);
        reads.desk.issue(early(0), ());
        reads.demand(us(0), 0);
        assert_eq!(reads.demand(us(30), 1), us(60 + 50));
        assert_eq!(reads.join(us(500), early(0)), us(500), "it has long been there");
    }
}
