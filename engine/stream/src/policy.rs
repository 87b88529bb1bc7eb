//! Owns: which slot is emptied when a new record needs one (engine.md section 5.1).
//! Refuses: what a slot holds, and IO; a policy sees slot numbers only.
//! Invariants: a victim is always one that the caller allows; the same calls give the same victims.

/// An eviction policy over a fixed number of slots.
pub trait Eviction: Send + Sync {
    /// The slot was filled, or what it holds was asked for.
    fn touch(&mut self, slot: u32);

    /// The slot was emptied by someone else.
    fn forget(&mut self, slot: u32);

    /// Chooses a slot for which `may_go` holds; `None` when there is none. Pinned and empty slots may not go.
    fn victim(&mut self, may_go: &dyn Fn(u32) -> bool) -> Option<u32>;
}

/// CLOCK: a hand walks the slots in a circle, spares one that was used since its last visit, and takes the next.
#[derive(Debug)]
pub struct Clock {
    used: Vec<bool>,
    hand: usize,
}

impl Clock {
    /// A clock over `slots` slots, none of them used.
    pub fn new(slots: usize) -> Self {
        Clock { used: vec![false; slots], hand: 0 }
    }

    fn mark(&mut self, slot: u32, used: bool) {
        if let Some(mark) = self.used.get_mut(slot as usize) {
            *mark = used;
        }
    }
}

impl Eviction for Clock {
    fn touch(&mut self, slot: u32) {
        self.mark(slot, true);
    }

    fn forget(&mut self, slot: u32) {
        self.mark(slot, false);
    }

    fn victim(&mut self, may_go: &dyn Fn(u32) -> bool) -> Option<u32> {
        // Two rounds suffice: the first takes every mark away from slots that may go.
        for _ in 0..2 * self.used.len() {
            let slot = self.hand;
            self.hand = (self.hand + 1) % self.used.len();
            if !may_go(slot as u32) {
                continue;
            }
            if !std::mem::take(&mut self.used[slot]) {
                return Some(slot as u32);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn any(_: u32) -> bool {
        true
    }

    #[test]
    fn a_slot_used_since_the_last_visit_is_spared_once() {
        let mut clock = Clock::new(3);
        (0..3).for_each(|slot| clock.touch(slot));
        assert_eq!(clock.victim(&any), Some(0), "all used: the marks go, then the first slot");
        clock.touch(1);
        assert_eq!(clock.victim(&any), Some(2));
        assert_eq!(clock.victim(&any), Some(0));
        assert_eq!(clock.victim(&any), Some(1), "spared once, not twice");
    }

    #[test]
    fn a_slot_that_may_not_go_keeps_its_mark_and_never_goes() {
        let mut clock = Clock::new(2);
        clock.touch(0);
        for _ in 0..5 {
            assert_eq!(clock.victim(&|slot| slot != 0), Some(1));
        }
        assert_eq!(clock.victim(&any), Some(1), "slot 0 is still marked as used");
    }

    #[test]
    fn without_a_slot_that_may_go_there_is_no_victim() {
        assert_eq!(Clock::new(4).victim(&|_| false), None);
        assert_eq!(Clock::new(0).victim(&any), None);
    }

    #[test]
    fn a_forgotten_slot_is_as_good_as_unused() {
        let mut clock = Clock::new(2);
        clock.touch(0);
        clock.touch(1);
        clock.forget(1);
        assert_eq!(clock.victim(&any), Some(1));
    }
}
