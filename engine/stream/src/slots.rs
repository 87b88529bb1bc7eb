//! Owns: which expert lies in which slot, which slots are held, and which are given up (engine.md sections 5.1 and 5.5).
//! Refuses: bytes and devices; it is a table.
//! Invariants: an expert has at most one slot and a slot at most one expert; a slot is free, being read, or resident;
//! pinned slots and slots being read are never given up; a claim is all or nothing.

use std::collections::BTreeSet;

use ss_backend::NONE;

use crate::{Error, Eviction, Result};

/// One expert of one layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ExpertId {
    /// The layer; the number of main layers for the draft (MTP) layer.
    pub layer: u32,
    /// The expert.
    pub expert: u32,
}

/// An expert that must be read into the slot that was set aside for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Miss {
    /// What to read.
    pub id: ExpertId,
    /// Where to.
    pub slot: u32,
    /// Whether another expert was evicted for it.
    pub evicted: bool,
}

/// Slots for some experts of a layer: pinned, and to be published or abandoned once the misses are read or not.
#[derive(Debug)]
#[must_use]
pub struct Claim {
    /// A slot each, in the order of the experts asked for.
    pub slots: Vec<u32>,
    /// Those that must be read first.
    pub misses: Vec<Miss>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Slot {
    Free,
    Reading,
    Resident(ExpertId),
}

/// The slot table.
pub struct SlotTable {
    layers: u32,
    experts: u32,
    /// `[layers, experts]`: the slot where a resident expert lies, or [`NONE`].
    index: Vec<u32>,
    slots: Vec<Slot>,
    /// How often each slot is held.
    pins: Vec<u32>,
    pinned: usize,
    free: Vec<u32>,
    policy: Box<dyn Eviction>,
    /// Layers whose entries are other than when [`SlotTable::take_changed`] last named them.
    changed: BTreeSet<u32>,
}

impl SlotTable {
    /// An empty table of `slots` slots for `layers` layers (the draft layer included) of `experts` experts.
    pub fn new(layers: u32, experts: u32, slots: u32, policy: Box<dyn Eviction>) -> Self {
        SlotTable {
            layers,
            experts,
            index: vec![NONE; layers as usize * experts as usize],
            slots: vec![Slot::Free; slots as usize],
            pins: vec![0; slots as usize],
            pinned: 0,
            free: (0..slots).rev().collect(),
            policy,
            changed: BTreeSet::new(),
        }
    }

    /// Number of slots.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there are no slots at all.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Slots that no one holds.
    pub fn unpinned(&self) -> usize {
        self.slots.len() - self.pinned
    }

    /// The slot of a resident expert.
    pub fn slot(&self, id: ExpertId) -> Option<u32> {
        let slot = *self.index.get(self.place(id)?)?;
        (slot != NONE).then_some(slot)
    }

    /// The table of one layer, `[experts]`: slots, [`NONE`] for who has none; empty for a layer that does not exist.
    pub fn layer(&self, layer: u32) -> &[u32] {
        let experts = self.experts as usize;
        self.index.get(layer as usize * experts..).and_then(|rest| rest.get(..experts)).unwrap_or_default()
    }

    /// Those of some layers whose entries have changed since they were last named here: what a copy of the table elsewhere
    /// lacks of them.
    pub fn take_changed(&mut self, layers: impl Iterator<Item = u32>) -> Vec<u32> {
        layers.filter(|layer| self.changed.remove(layer)).collect()
    }

    /// Tells the policy that these experts of a layer were used where they lie.
    pub fn touch(&mut self, layer: u32, experts: &[u32]) {
        for &expert in experts {
            if let Some(slot) = self.slot(ExpertId { layer, expert }) {
                self.policy.touch(slot);
            }
        }
    }

    /// Every resident expert with its slot, in slot order.
    pub fn residents(&self) -> impl Iterator<Item = (ExpertId, u32)> + '_ {
        (0..).zip(&self.slots).filter_map(|(slot, state)| match state {
            Slot::Resident(id) => Some((*id, slot)),
            _ => None,
        })
    }

    /// Pins a slot for each of a layer's distinct experts: its own where it is resident, else a free one, else that of a
    /// victim, whose entry is removed.
    ///
    /// # Errors
    /// [`Error::Fault`] when an expert does not exist or is named twice; [`Error::PoolBusy`] when too few slots can be
    /// emptied. The table is then as it was.
    pub fn claim(&mut self, layer: u32, experts: &[u32]) -> Result<Claim> {
        self.check(layer, experts)?;
        let mut slots = Vec::with_capacity(experts.len());
        for &expert in experts {
            let slot = self.slot(ExpertId { layer, expert }).unwrap_or(NONE);
            self.pin(slot);
            slots.push(slot);
        }
        let wanted = slots.iter().filter(|&&slot| slot == NONE).count();
        let available = self.unpinned();
        if wanted > available {
            slots.iter().for_each(|&slot| self.unpin(slot));
            return Err(Error::PoolBusy { wanted, available, slots: self.slots.len() as u32 });
        }
        let mut misses = Vec::with_capacity(wanted);
        for (slot, &expert) in slots.iter_mut().zip(experts) {
            if *slot != NONE {
                self.policy.touch(*slot);
                continue;
            }
            let Some((found, evicted)) = self.empty_slot() else {
                self.abandon(&Claim { slots, misses });
                return Err(Error::Fault("a slot where the eviction policy finds none".to_owned()));
            };
            *slot = found;
            self.slots[found as usize] = Slot::Reading;
            self.pin(found);
            misses.push(Miss { id: ExpertId { layer, expert }, slot: found, evicted });
        }
        Ok(Claim { slots, misses })
    }

    /// Enters the misses of a claim, whose bytes are in their slots. The pins stay.
    pub fn publish(&mut self, claim: &Claim) {
        for miss in &claim.misses {
            if let Some(place) = self.place(miss.id) {
                self.index[place] = miss.slot;
                self.changed.insert(miss.id.layer);
                self.slots[miss.slot as usize] = Slot::Resident(miss.id);
                self.policy.touch(miss.slot);
            }
        }
    }

    /// Takes a claim back: the slots of its misses are free, and what it pinned is unpinned.
    pub fn abandon(&mut self, claim: &Claim) {
        for miss in &claim.misses {
            self.slots[miss.slot as usize] = Slot::Free;
            self.policy.forget(miss.slot);
            self.free.push(miss.slot);
        }
        claim.slots.iter().for_each(|&slot| self.unpin(slot));
    }

    /// Sets a slot aside for an expert that is read early; `None` when it has a slot, does not exist, or none can be emptied.
    /// The slot is held, and has no entry until [`SlotTable::admit`].
    pub fn reserve(&mut self, id: ExpertId) -> Option<u32> {
        if self.place(id).is_none() || self.slot(id).is_some() {
            return None;
        }
        let (slot, _) = self.empty_slot()?;
        self.slots[slot as usize] = Slot::Reading;
        self.pin(slot);
        Some(slot)
    }

    /// As [`SlotTable::reserve`], and `None` too when no slot is free: nothing is given up for the expert.
    pub fn reserve_free(&mut self, id: ExpertId) -> Option<u32> {
        if self.free.is_empty() { None } else { self.reserve(id) }
    }

    /// Enters an expert whose bytes are in the slot that was set aside for it, and lets go of the slot.
    pub fn admit(&mut self, id: ExpertId, slot: u32) {
        if let Some(place) = self.place(id).filter(|_| self.slot(id).is_none()) {
            self.index[place] = slot;
            self.changed.insert(id.layer);
            self.slots[slot as usize] = Slot::Resident(id);
            self.policy.touch(slot);
            self.unpin(slot);
        } else {
            self.give_back(slot);
        }
    }

    /// Frees a slot that was set aside.
    pub fn give_back(&mut self, slot: u32) {
        self.slots[slot as usize] = Slot::Free;
        self.policy.forget(slot);
        self.free.push(slot);
        self.unpin(slot);
    }

    /// Removes a resident expert that nobody holds, so that its slot is the next to be used.
    pub fn expire(&mut self, id: ExpertId) {
        let Some((slot, place)) = self.slot(id).zip(self.place(id)) else { return };
        if self.pins.get(slot as usize) == Some(&0) {
            self.index[place] = NONE;
            self.changed.insert(id.layer);
            self.slots[slot as usize] = Slot::Free;
            self.policy.forget(slot);
            self.free.push(slot);
        }
    }

    /// Pins the slots of those of a layer's experts that are resident, and returns these slots.
    pub fn hold(&mut self, layer: u32, experts: &[u32]) -> Vec<u32> {
        let slots: Vec<u32> = experts.iter().filter_map(|&expert| self.slot(ExpertId { layer, expert })).collect();
        slots.iter().for_each(|&slot| self.pin(slot));
        slots
    }

    /// Undoes one pin of each slot; [`NONE`] and slots that are not pinned are left alone.
    pub fn release(&mut self, slots: &[u32]) {
        slots.iter().for_each(|&slot| self.unpin(slot));
    }

    fn check(&self, layer: u32, experts: &[u32]) -> Result<()> {
        if layer >= self.layers {
            return Err(Error::Fault(format!("layer {layer} of {}", self.layers)));
        }
        let mut sorted = experts.to_vec();
        sorted.sort_unstable();
        if let Some(expert) = sorted.last().filter(|&&expert| expert >= self.experts) {
            return Err(Error::Fault(format!("expert {expert} of {}", self.experts)));
        }
        match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(Error::Fault(format!("expert {} of layer {layer} twice at once", pair[0]))),
            None => Ok(()),
        }
    }

    /// A slot without an entry, and whether one was evicted for it.
    fn empty_slot(&mut self) -> Option<(u32, bool)> {
        if let Some(slot) = self.free.pop() {
            return Some((slot, false));
        }
        let (slots, pins) = (&self.slots, &self.pins);
        let may_go = |slot: u32| {
            let slot = slot as usize;
            matches!(slots.get(slot), Some(Slot::Resident(_))) && pins.get(slot) == Some(&0)
        };
        let victim = self.policy.victim(&may_go).filter(|&slot| may_go(slot))?;
        if let Some(&Slot::Resident(id)) = self.slots.get(victim as usize)
            && let Some(place) = self.place(id)
        {
            self.index[place] = NONE;
            self.changed.insert(id.layer);
        }
        Some((victim, true))
    }

    fn place(&self, id: ExpertId) -> Option<usize> {
        let known = id.layer < self.layers && id.expert < self.experts;
        known.then_some(id.layer as usize * self.experts as usize + id.expert as usize)
    }

    fn pin(&mut self, slot: u32) {
        if let Some(pins) = self.pins.get_mut(slot as usize) {
            self.pinned += usize::from(*pins == 0);
            *pins += 1;
        }
    }

    fn unpin(&mut self, slot: u32) {
        if let Some(pins) = self.pins.get_mut(slot as usize).filter(|pins| **pins > 0) {
            *pins -= 1;
            self.pinned -= usize::from(*pins == 0);
        }
    }
}

#[cfg(test)]
impl SlotTable {
    /// The same table with another policy.
    pub(crate) fn twin(&self, policy: Box<dyn Eviction>) -> Self {
        SlotTable {
            index: self.index.clone(),
            slots: self.slots.clone(),
            pins: self.pins.clone(),
            free: self.free.clone(),
            changed: self.changed.clone(),
            policy,
            ..*self
        }
    }

    /// All that the table will do depends on this and on its policy.
    pub(crate) fn hash(&self, into: &mut impl std::hash::Hasher) {
        use std::hash::Hash;
        (&self.index, &self.slots, &self.pins, &self.free, &self.changed).hash(into);
    }

    /// Gives the slots other numbers: `names` are the numbers from 0 on, in another order.
    pub(crate) fn rename(&mut self, names: &[u32]) {
        let old = self.slots.iter().copied().zip(self.pins.iter().copied());
        let mut named: Vec<_> = names.iter().copied().zip(old).collect();
        named.sort_unstable_by_key(|(name, _)| *name);
        (self.slots, self.pins) = named.into_iter().map(|(_, slot)| slot).unzip();
        for slot in self.index.iter_mut().chain(&mut self.free) {
            *slot = names.get(*slot as usize).copied().unwrap_or(NONE);
        }
    }

    /// Slots that have an entry, in the order of their experts, then those that are free, in the order of their use.
    pub(crate) fn settled(&self) -> impl Iterator<Item = u32> {
        self.index.iter().chain(self.free.iter().rev()).copied().filter(|slot| *slot != NONE)
    }

    /// Slots that are being read into.
    pub(crate) fn reading(&self) -> usize {
        self.slots.iter().filter(|slot| **slot == Slot::Reading).count()
    }

    /// Whether every slot is either free, once, or the only one of an expert whose entry names it.
    pub(crate) fn is_whole(&self) -> bool {
        let free: BTreeSet<u32> = self.free.iter().copied().collect();
        let entered = self.residents().all(|(id, slot)| self.slot(id) == Some(slot));
        let named = self.index.iter().filter(|slot| **slot != NONE).count();
        entered
            && named == self.residents().count()
            && free.len() == self.free.len()
            && free.iter().all(|slot| self.slots.get(*slot as usize) == Some(&Slot::Free))
            && free.len() + named + self.reading() == self.slots.len()
    }
}
