//! Owns: the device of the simulation: work in the order in which it came, and what slots hold.
//! Refuses: deciding what is submitted.
//! Invariants: experts are computed in two moves where slots can be written meanwhile, and look at their slots in both.

use std::collections::VecDeque;

use super::{LAYERS, Placed, Setup, Step, Violation, World, Writer};
use crate::ExpertId;

/// What the device is handed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Work {
    /// A layer of the slot table.
    Table(u32, Vec<u32>),
    /// A record into its slot.
    Copy(Placed),
    /// Slots of the choices that the next experts compute.
    Slots(Vec<Placed>),
    /// No router has missed.
    Clear,
    Route(u32),
    Experts,
    /// Experts whose router has missed: they run all the same.
    Halves,
    /// The host is told.
    Fence,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Memory {
    Empty,
    Part(ExpertId),
    Whole(ExpertId),
}

/// What the device knows.
#[derive(Clone, Hash)]
pub(super) struct Device {
    pub queue: VecDeque<Work>,
    pub table: Vec<Vec<u32>>,
    pub slots: Vec<Placed>,
    pub memory: Vec<Memory>,
    /// What each layer chose.
    pub chosen: Vec<Vec<u32>>,
    pub missed: Option<u32>,
    /// Whether experts are being computed.
    pub running: bool,
    pub landed: bool,
}

impl Device {
    pub fn new(setup: Setup) -> Self {
        Device {
            queue: VecDeque::new(),
            table: vec![vec![ss_backend::NONE; setup.experts as usize]; LAYERS as usize],
            slots: Vec::new(),
            memory: vec![Memory::Empty; setup.slots as usize],
            chosen: vec![Vec::new(); LAYERS as usize],
            missed: None,
            running: false,
            landed: false,
        }
    }
}

impl World {
    /// The device does its next work, or a part of it.
    pub(super) fn device(&mut self) -> Step {
        let Some(work) = self.device.queue.front().cloned() else { return Ok(()) };
        let halted = self.device.missed.is_some();
        match work {
            Work::Table(layer, row) => self.device.table[layer as usize] = row,
            Work::Copy((id, slot)) => self.write(slot, Memory::Whole(id))?,
            Work::Slots(slots) => self.device.slots = slots,
            Work::Clear => self.device.missed = None,
            Work::Route(_) if halted => {}
            Work::Route(layer) => self.route(layer),
            Work::Experts if halted => {}
            Work::Experts | Work::Halves => {
                self.check_slots()?;
                // Nothing comes between where all that writes slots is in the queue too.
                if self.setup.writer == Writer::Direct && !self.device.running {
                    self.device.running = true;
                    return Ok(());
                }
                self.device.running = false;
                self.device.slots.clear();
            }
            Work::Fence => self.device.landed = true,
        }
        self.device.queue.pop_front();
        Ok(())
    }

    fn route(&mut self, layer: u32) {
        let chosen = self.some_experts();
        let row = &self.device.table[layer as usize];
        let placed: Vec<Placed> =
            chosen.iter().map(|&expert| (ExpertId { layer, expert }, row[expert as usize])).collect();
        match placed.iter().any(|(_, slot)| *slot == ss_backend::NONE) {
            true => self.device.missed = Some(layer),
            false => self.device.slots = placed,
        }
        self.device.chosen[layer as usize] = chosen;
    }

    /// Whether the slots that the experts read hold these experts, and nobody writes them.
    fn check_slots(&self) -> Step {
        for (id, slot) in &self.device.slots {
            match self.device.memory[*slot as usize] {
                Memory::Whole(whole) if whole == *id => {}
                Memory::Part(_) => return Err(Violation::WrittenWhileRead),
                Memory::Whole(_) | Memory::Empty => return Err(Violation::WrongRecord),
            }
        }
        Ok(())
    }

    /// Whether the device's next move commutes with all that others can do: only it sees what it changes, and it stays
    /// possible whatever they do. Where all that writes slots is in its queue, that holds for every one.
    pub(super) fn device_is_alone(&self) -> bool {
        let computes = matches!(self.device.queue.front(), Some(Work::Experts | Work::Halves));
        self.setup.writer == Writer::Ordered || !computes
    }

    /// Bytes reach a slot.
    pub(super) fn write(&mut self, slot: u32, memory: Memory) -> Step {
        if self.device.running && self.device.slots.iter().any(|(_, read)| *read == slot) {
            return Err(Violation::WrittenWhileRead);
        }
        self.device.memory[slot as usize] = memory;
        Ok(())
    }

    /// What a router chooses.
    fn some_experts(&self) -> Vec<u32> {
        let of_size = |set: &u32| set.count_ones() == self.setup.choices;
        let sets: Vec<u32> = (0..1 << self.setup.experts).filter(of_size).collect();
        let set = sets[self.choices.choose(sets.len())];
        (0..self.setup.experts).filter(|expert| set >> expert & 1 == 1).collect()
    }
}
