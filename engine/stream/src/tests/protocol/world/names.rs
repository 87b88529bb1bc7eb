//! Owns: which states are the same: slots are alike, so that states which differ in their numbers only are one.
//! Refuses: moves.
//! Invariants: a new number depends on where a state mentions a slot, never on the old one, but for slots that are lost.

use super::device::{Device, Memory, Work};
use super::{Host, Placed, World};

impl World {
    /// New numbers for the slots, in the order in which a state mentions them.
    fn names(&self) -> Vec<u32> {
        let reserved = self.tickets.open.values().map(|ticket| ticket.slot);
        let read = self.demand.iter().map(|reading| reading.slot);
        let mut names = vec![ss_backend::NONE; self.setup.slots as usize];
        let mut next = 0..;
        for slot in self.table.settled().chain(reserved).chain(read).chain(0..self.setup.slots) {
            let name = &mut names[slot as usize];
            if *name == ss_backend::NONE {
                *name = next.next().unwrap_or_default();
            }
        }
        names
    }

    /// Gives the slots these numbers.
    pub(super) fn rename(&mut self) {
        let names = &self.names();
        if names.is_sorted() {
            return;
        }
        self.table.rename(names);
        let name = |slot: &mut u32| *slot = names.get(*slot as usize).copied().unwrap_or(*slot);
        let all = |placed: &mut Vec<Placed>| placed.iter_mut().for_each(|(_, slot)| name(slot));
        self.tickets.open.values_mut().for_each(|ticket| name(&mut ticket.slot));
        self.desk.queued_jobs().for_each(name);
        self.held.iter_mut().for_each(name);
        self.held.sort_unstable();
        self.ahead.iter_mut().chain(&mut self.demand).for_each(|reading| name(&mut reading.slot));
        if let Host::Expect(_, ready) | Host::Early(_, ready) = &mut self.host {
            all(ready);
        }
        if let Host::Expect(bringing, _) | Host::Early(bringing, _) | Host::Await(bringing) | Host::Join(bringing) =
            &mut self.host
        {
            all(&mut bringing.claimed);
            all(&mut bringing.late);
            bringing.misses.iter_mut().for_each(|((_, slot), _)| name(slot));
        }
        let Device { queue, table, slots, memory, .. } = &mut self.device;
        for work in queue {
            match work {
                Work::Table(_, row) => row.iter_mut().for_each(name),
                Work::Copy((_, slot)) => name(slot),
                Work::Slots(placed) => all(placed),
                Work::Clear | Work::Route(_) | Work::Experts | Work::Halves | Work::Fence => {}
            }
        }
        table.iter_mut().flatten().for_each(name);
        all(slots);
        let mut named: Vec<(u32, Memory)> = names.iter().copied().zip(memory.iter().copied()).collect();
        named.sort_unstable_by_key(|(name, _)| *name);
        *memory = named.into_iter().map(|(_, memory)| memory).collect();
    }
}
