//! Owns: which experts are being read early or were, the slots set aside for them, and how each ticket ends (engine.md 5.5
//! and 5.6).
//! Refuses: forecasting and reading; it decides between the slot table and the desk.
//! Invariants: a ticket's slot has no entry in the table until its read has ended well, and is given back only when no
//! reader has it any more.

use std::collections::BTreeMap;

use crate::desk::Desk;
use crate::{ExpertId, LookaheadCounters, SlotTable};

/// An expert read early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket {
    /// Where its record goes.
    pub slot: u32,
    /// Whether it has an entry already.
    pub admitted: bool,
    /// Whether its layer has chosen without it: its slot is given back when its read ends.
    pub stale: bool,
    /// Whether it is of the hot set: it stays, whatever its layer chooses.
    pub hot: bool,
}

/// Experts that are read early, or were and have not been chosen yet.
#[derive(Clone, Debug)]
pub struct Tickets {
    /// Those whose layer has not chosen yet, and those whose reads have not ended.
    pub open: BTreeMap<ExpertId, Ticket>,
    /// How tickets ended so far.
    pub counters: LookaheadCounters,
    /// Records of the hot set that were read.
    pub warmed: u64,
    record_bytes: u64,
}

impl Tickets {
    /// None, for records of so many bytes.
    pub fn new(record_bytes: u64) -> Self {
        Tickets { open: BTreeMap::new(), counters: LookaheadCounters::default(), warmed: 0, record_bytes }
    }

    /// Tickets of forecasts that hold a slot without an entry.
    pub fn waiting(&self) -> usize {
        self.open.values().filter(|ticket| !ticket.admitted && !ticket.hot).count()
    }

    /// Tickets of the hot set.
    pub fn warming(&self) -> usize {
        self.open.values().filter(|ticket| ticket.hot).count()
    }

    /// As [`Tickets::open`] for an expert of the hot set; `None` too where no slot is free.
    pub fn open_hot(&mut self, id: ExpertId, table: &mut SlotTable) -> Option<u32> {
        if self.open.contains_key(&id) {
            return None;
        }
        let slot = table.reserve_free(id)?;
        self.open.insert(id, Ticket { slot, admitted: false, stale: false, hot: true });
        Some(slot)
    }

    /// Whether an expert has neither a ticket nor a slot.
    pub fn lacks(&self, id: ExpertId, table: &SlotTable) -> bool {
        !self.open.contains_key(&id) && table.layer(id.layer).get(id.expert as usize) == Some(&ss_backend::NONE)
    }

    /// Opens a ticket and sets a slot aside for it; `None` where the expert has a ticket or a slot, or no slot can be emptied.
    pub fn open(&mut self, id: ExpertId, table: &mut SlotTable) -> Option<u32> {
        if self.open.contains_key(&id) {
            return None;
        }
        let slot = table.reserve(id)?;
        self.open.insert(id, Ticket { slot, admitted: false, stale: false, hot: false });
        Some(slot)
    }

    /// Ends a ticket whose slot no reader has and which has no entry.
    pub fn drop(&mut self, id: ExpertId, table: &mut SlotTable) {
        if let Some(ticket) = self.open.remove(&id) {
            table.give_back(ticket.slot);
        }
    }

    /// Enters what has landed, and gives back the slots of what failed or is of no use any more.
    pub fn admit<J>(&mut self, table: &mut SlotTable, desk: &mut Desk<J>) {
        for (id, well) in desk.take_ended() {
            let Some(ticket) = self.open.get(&id).filter(|ticket| !ticket.admitted) else { continue };
            if well && !ticket.stale {
                self.enter(id, table);
                continue;
            }
            if well {
                self.counters.wasted_bytes += self.record_bytes;
            }
            self.drop(id, table);
        }
    }

    /// Enters the expert of a ticket, whose bytes are in its slot.
    pub fn enter(&mut self, id: ExpertId, table: &mut SlotTable) {
        if let Some(ticket) = self.open.get_mut(&id) {
            table.admit(id, ticket.slot);
            ticket.admitted = true;
            if ticket.hot {
                self.warmed += 1;
                self.open.remove(&id);
            }
        }
    }

    /// Ends the tickets of a layer that has chosen: what was not chosen gives its slot back.
    pub fn close<J>(&mut self, layer: u32, chosen: &[u32], table: &mut SlotTable, desk: &mut Desk<J>) {
        let of_layer: Vec<_> = self.open.range(first_of(layer)..first_of(layer + 1)).map(|(id, t)| (*id, *t)).collect();
        for (id, ticket) in of_layer {
            match (chosen.contains(&id.expert), ticket.admitted) {
                (true, true) => {
                    self.counters.adopted += 1;
                    self.open.remove(&id);
                }
                // It is joined, or read anew where its read has not begun.
                (true, false) => {}
                (false, _) if ticket.hot => {}
                (false, true) => {
                    table.expire(id);
                    self.counters.wasted_bytes += self.record_bytes;
                    self.counters.expired += 1;
                    self.open.remove(&id);
                }
                (false, false) => {
                    self.counters.expired += u64::from(!ticket.stale);
                    if desk.cancel(id) {
                        self.drop(id, table);
                    } else if let Some(ticket) = self.open.get_mut(&id) {
                        ticket.stale = true;
                    }
                }
            }
        }
    }

    /// Whether an expert is being read early. A ticket whose read has not begun is taken back: the demand reads it.
    pub fn is_on_its_way<J>(&mut self, id: ExpertId, table: &mut SlotTable, desk: &mut Desk<J>) -> bool {
        if self.open.get(&id).is_none_or(|ticket| ticket.admitted) {
            return false;
        }
        if desk.cancel(id) {
            self.drop(id, table);
            return false;
        }
        true
    }

    /// Ends a ticket that somebody waited for, and whose read has ended, well or not.
    pub fn joined(&mut self, id: ExpertId, well: bool, table: &mut SlotTable) {
        if !well {
            self.drop(id, table);
        } else if let Some(ticket) = self.open.remove(&id) {
            table.admit(id, ticket.slot);
            self.counters.joined += u64::from(!ticket.hot);
            self.warmed += u64::from(ticket.hot);
        }
    }
}

/// The first expert of a layer.
fn first_of(layer: u32) -> ExpertId {
    ExpertId { layer, expert: 0 }
}
