//! Owns: a small machine around the real slot table, desk and tickets: a host that follows the order of a pass (engine.md
//! 5.3 to 5.6), a device that takes work in order, and lanes that read records.
//! Refuses: bytes; a slot holds an expert in whole, in part, or nothing.
//! Invariants: routers choose, forecasts expect, reads fail and slots are given up in every way there is.

mod device;
mod names;

use std::hash::{DefaultHasher, Hash, Hasher};

use device::{Device, Memory, Work};

use super::search::{self, Choices};
use crate::desk::Desk;
use crate::tickets::Tickets;
use crate::{Claim, Eviction, ExpertId, SlotTable};

/// How bytes reach a slot (engine.md 5.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writer {
    /// A copy takes its place among the device's work when the record is read.
    Ordered,
    /// The reader writes the slot itself, bit by bit.
    Direct,
}

/// A mistake that is made on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// What is read early gets its entry before it is read.
    EntryBeforeRecord,
    /// Slots that submitted halves name are not held while others are read.
    EarlyHalvesNotHeld,
    /// Slots that the last router of a submission found are not held until its experts are computed.
    FoundNotHeld,
    /// The device's table is brought up to date behind the work that looks slots up.
    LateTable,
    /// Of several routers only the first one's row of the table is brought up to date.
    FirstRowOnly,
    /// The slot of a ticket that is of no use any more is given back while it is read.
    StaleGivenBack,
    /// Reads may not begin while one that has not begun is waited for.
    GuardWhileJoining,
    /// A record counts as landed before its copy is handed over.
    LateCopy,
    /// A demand that fails forgets the slots that it set aside.
    LeakOnFailure,
}

/// What must never be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// Work reads a slot that holds something else than the expert that it wants.
    WrongRecord,
    /// A slot is written while work reads it, or read while it is written.
    WrittenWhileRead,
    /// Two readers have one slot.
    TwoReaders,
    /// Slots are lacking where there must be enough.
    NoSlot,
    /// Nobody can move, and it is not over.
    Deadlock,
    /// In the end a ticket is open, or a slot is held or lost.
    Leak,
}

/// The sizes of a world.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    pub writer: Writer,
    pub bug: Option<Bug>,
    pub experts: u32,
    pub choices: u32,
    pub slots: u32,
    pub reserve: usize,
    pub tokens: u8,
    /// Most reads that fail.
    pub failures: u8,
    /// Reads at once, of those made early.
    pub lanes: usize,
    /// Whether moves of the device that no other actor can tell from later ones are put in every place all the same.
    pub every_order: bool,
}

const LAYERS: u32 = 2;
/// Operations of a pass: a router and its experts a layer.
const PASS: u32 = 2 * LAYERS;
/// Where a pass goes on that began while its n-gram rows were read.
const ADVANCED: u32 = 2;

/// An expert and its slot.
type Placed = (ExpertId, u32);

/// A record on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Reading {
    id: ExpertId,
    slot: u32,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Stage {
    Begun,
    /// Part of it is in its slot.
    Part,
    /// It is in its slot, or its copy is handed over.
    There,
    Failed,
}

/// What the host brings for a router that missed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Bringing {
    layer: u32,
    /// Experts that are read early and waited for.
    joined: Vec<u32>,
    /// How many of them were waited for.
    waited: usize,
    /// What is claimed now: a slot each, and the misses.
    claimed: Vec<Placed>,
    misses: Vec<(Placed, bool)>,
    /// Whether all misses are on a lane, so that reads ahead may begin.
    begun: bool,
    /// What the next submission computes.
    late: Vec<Placed>,
}

impl Bringing {
    fn claim(&self) -> Claim {
        let miss = |&((id, slot), evicted): &(Placed, bool)| crate::Miss { id, slot, evicted };
        Claim {
            slots: self.claimed.iter().map(|(_, slot)| *slot).collect(),
            misses: self.misses.iter().map(miss).collect(),
        }
    }
}

/// What the host does next.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Host {
    /// Enter what was read early, bring the device's table up to date, to submit from this operation on.
    Sync(u32),
    /// Submit these operations, from the first up to the second.
    Launch(u32, u32),
    /// Wait until the operations before this one are finished, and see what they chose.
    Land(u32),
    /// Claim slots for what a layer chose.
    Claim(u32),
    /// Submit what has a slot, while the rest is read.
    Early(Bringing, Vec<Placed>),
    /// Wait for what is read on demand.
    Await(Bringing),
    /// Wait for what is read early.
    Join(Bringing),
    /// Ask for what a layer is expected to choose, all before it having found theirs.
    Forecast(u32),
    /// The same, with slots claimed for the layer before.
    Expect(Bringing, Vec<Placed>),
    /// Wait for the lanes, and close all tickets.
    Finish,
    Over,
}

#[derive(Clone, Copy, Debug)]
pub enum Actor {
    Host,
    Device,
    /// A lane takes a read from the desk.
    Take,
    /// A read that was made early goes on.
    Ahead(usize),
    /// A read that is waited for goes on.
    Demand(usize),
}

/// Gives up any slot that may go.
struct AnyVictim(Choices);

impl Eviction for AnyVictim {
    fn touch(&mut self, _: u32) {}

    fn forget(&mut self, _: u32) {}

    fn victim(&mut self, may_go: &dyn Fn(u32) -> bool) -> Option<u32> {
        let candidates: Vec<u32> = (0..u8::MAX.into()).filter(|&slot| may_go(slot)).collect();
        if candidates.is_empty() { None } else { Some(candidates[self.0.choose(candidates.len())]) }
    }
}

/// A state of the machine.
pub struct World {
    setup: Setup,
    choices: Choices,
    table: SlotTable,
    tickets: Tickets,
    desk: Desk<u32>,
    held: Vec<u32>,
    host: Host,
    /// The next operation of the pass.
    here: u32,
    token: u8,
    failures: u8,
    ahead: Vec<Reading>,
    demand: Vec<Reading>,
    device: Device,
}

impl Clone for World {
    fn clone(&self) -> Self {
        World {
            table: self.table.twin(Box::new(AnyVictim(self.choices.clone()))),
            choices: self.choices.clone(),
            tickets: self.tickets.clone(),
            desk: self.desk.clone(),
            held: self.held.clone(),
            host: self.host.clone(),
            ahead: self.ahead.clone(),
            demand: self.demand.clone(),
            device: self.device.clone(),
            ..*self
        }
    }
}

type Step = Result<(), Violation>;

impl World {
    pub fn new(setup: Setup, choices: Choices) -> Self {
        World {
            table: SlotTable::new(LAYERS, setup.experts, setup.slots, Box::new(AnyVictim(choices.clone()))),
            tickets: Tickets::new(1),
            desk: Desk::default(),
            held: Vec::new(),
            host: Host::Sync(0),
            here: 0,
            token: 0,
            failures: 0,
            ahead: Vec::new(),
            demand: Vec::new(),
            device: Device::new(setup),
            setup,
            choices,
        }
    }

    fn bug(&self, bug: Bug) -> bool {
        self.setup.bug == Some(bug)
    }

    fn push(&mut self, work: Work) {
        self.device.queue.push_back(work);
    }

    /// Brings the device's table up to date for the routers among some operations.
    fn upload_table(&mut self, from: u32, until: u32) {
        let routers = (from..until).filter(|op| op % 2 == 0).map(|op| op / 2);
        let routers = routers.take(if self.bug(Bug::FirstRowOnly) { 1 } else { LAYERS as usize });
        for layer in self.table.take_changed(routers) {
            let row = self.table.layer(layer).to_vec();
            self.push(Work::Table(layer, row));
        }
    }

    /// The move of the host, and what it does next.
    fn host(&mut self, host: Host) -> Result<Host, Violation> {
        match host {
            Host::Sync(from) => {
                self.tickets.admit(&mut self.table, &mut self.desk);
                // A pass begins with all of it, with its first router, or with what does not wait for rows.
                let until = if from == 0 { [PASS, 1, ADVANCED][self.choices.choose(3)] } else { PASS };
                if !self.bug(Bug::LateTable) {
                    self.upload_table(from, until);
                }
                Ok(Host::Launch(from, until))
            }
            Host::Launch(from, until) => Ok(self.launch(from, until)),
            Host::Land(until) => Ok(self.land(until)),
            Host::Claim(layer) => self.claim(layer),
            Host::Expect(mut bringing, ready) => {
                if self.bug(Bug::EarlyHalvesNotHeld) {
                    self.table.release(&ready.iter().map(|(_, slot)| *slot).collect::<Vec<_>>());
                    bringing.claimed.retain(|placed| !ready.contains(placed));
                }
                if bringing.layer + 1 < LAYERS {
                    self.forecast(bringing.layer + 1)?;
                }
                Ok(Host::Early(bringing, ready))
            }
            Host::Early(mut bringing, ready) => {
                // What is demanded may all be on its lanes at once, or only when it ends.
                if !bringing.misses.is_empty() && self.choices.choose(2) == 0 {
                    self.desk.demand_over();
                    bringing.begun = true;
                }
                if !ready.is_empty() {
                    self.push(Work::Slots(ready));
                    self.push(Work::Halves);
                }
                Ok(Host::Await(bringing))
            }
            Host::Await(bringing) => self.publish(bringing),
            Host::Join(bringing) => self.join(bringing),
            Host::Forecast(layer) => {
                self.forecast(layer)?;
                Ok(Host::Sync(self.here))
            }
            Host::Finish => {
                self.tickets.admit(&mut self.table, &mut self.desk);
                (0..LAYERS).for_each(|layer| self.tickets.close(layer, &[], &mut self.table, &mut self.desk));
                self.release();
                Ok(Host::Over)
            }
            Host::Over => Ok(Host::Over),
        }
    }

    fn launch(&mut self, from: u32, until: u32) -> Host {
        if from == 0 {
            self.push(Work::Clear);
        } else if from == ADVANCED && self.fails() {
            return self.next_token();
        }
        for op in from..until {
            self.push(if op % 2 == 0 { Work::Route(op / 2) } else { Work::Experts });
        }
        let advanced = until == ADVANCED;
        if !advanced {
            self.push(Work::Fence);
        }
        if self.bug(Bug::LateTable) {
            self.upload_table(from, until);
        }
        if advanced { Host::Sync(until) } else { Host::Land(until) }
    }

    fn release(&mut self) {
        self.table.release(&std::mem::take(&mut self.held));
    }

    /// Everything submitted is finished.
    fn land(&mut self, until: u32) -> Host {
        self.device.landed = false;
        self.release();
        self.tickets.admit(&mut self.table, &mut self.desk);
        let missed = self.device.missed;
        let routers = self.here.div_ceil(2)..missed.unwrap_or(until.div_ceil(2));
        for layer in routers {
            let chosen = self.device.chosen[layer as usize].clone();
            self.close(layer, &chosen);
            self.table.touch(layer, &chosen);
        }
        if let Some(layer) = missed {
            self.push(Work::Clear);
            self.here = 2 * layer + 1;
            return Host::Claim(layer);
        }
        if until == PASS {
            return self.next_token();
        }
        if !self.bug(Bug::FoundNotHeld) {
            self.held.extend(self.table.hold(0, &self.device.chosen[0]));
        }
        self.here = until;
        Host::Forecast(1)
    }

    fn next_token(&mut self) -> Host {
        self.here = 0;
        self.token += 1;
        // What nobody reads again does not tell states apart.
        self.device.chosen.iter_mut().for_each(Vec::clear);
        if self.token == self.setup.tokens { Host::Finish } else { Host::Sync(0) }
    }

    fn close(&mut self, layer: u32, chosen: &[u32]) {
        self.tickets.close(layer, chosen, &mut self.table, &mut self.desk);
        if self.bug(Bug::StaleGivenBack) {
            let stale: Vec<_> = self.tickets.open.iter().filter(|(_, t)| t.stale).map(|(id, _)| *id).collect();
            stale.into_iter().for_each(|id| self.tickets.drop(id, &mut self.table));
        }
    }

    /// Claims slots, and hands what has none to the demand lanes.
    fn claim_of(&mut self, bringing: &mut Bringing, experts: &[u32]) -> Step {
        let claim = self.table.claim(bringing.layer, experts).map_err(|_| Violation::NoSlot)?;
        let id = |&expert: &u32| ExpertId { layer: bringing.layer, expert };
        bringing.claimed = experts.iter().map(id).zip(claim.slots).collect();
        bringing.misses = claim.misses.iter().map(|miss| ((miss.id, miss.slot), miss.evicted)).collect();
        if !bringing.misses.is_empty() {
            self.desk.demand();
        }
        for &((id, slot), _) in &bringing.misses {
            self.open_slot(slot)?;
            self.demand.push(Reading { id, slot, stage: Stage::Begun });
        }
        Ok(())
    }

    fn claim(&mut self, layer: u32) -> Result<Host, Violation> {
        let chosen = self.device.chosen[layer as usize].clone();
        self.close(layer, &chosen);
        let (joined, wanted): (Vec<u32>, Vec<u32>) =
            chosen.iter().partition(|&&expert| self.is_on_its_way(ExpertId { layer, expert }));
        let mut bringing = Bringing { layer, joined, ..Bringing::default() };
        self.claim_of(&mut bringing, &wanted)?;
        if self.bug(Bug::GuardWhileJoining) {
            self.desk.demand();
        }
        let missing = |placed: &Placed| bringing.misses.iter().any(|(miss, _)| miss == placed);
        let (mut late, mut ready): (Vec<Placed>, Vec<Placed>) = bringing.claimed.iter().partition(|p| missing(p));
        if late.is_empty() && bringing.joined.is_empty() {
            late.append(&mut ready);
        }
        bringing.late = late;
        Ok(Host::Expect(bringing, ready))
    }

    fn is_on_its_way(&mut self, id: ExpertId) -> bool {
        if self.bug(Bug::GuardWhileJoining) {
            return self.tickets.open.get(&id).is_some_and(|ticket| !ticket.admitted);
        }
        self.tickets.is_on_its_way(id, &mut self.table, &mut self.desk)
    }

    /// All demands have ended.
    fn publish(&mut self, mut bringing: Bringing) -> Result<Host, Violation> {
        let failed = self.demand.iter().any(|reading| reading.stage == Stage::Failed);
        self.demand.clear();
        if !bringing.misses.is_empty() && !std::mem::take(&mut bringing.begun) {
            self.desk.demand_over();
        }
        let claim = bringing.claim();
        if failed {
            match self.bug(Bug::LeakOnFailure) {
                true => self.table.release(&claim.slots),
                false => self.table.abandon(&claim),
            }
            if self.bug(Bug::GuardWhileJoining) {
                self.desk.demand_over();
            }
            return Ok(self.next_token());
        }
        self.table.publish(&claim);
        self.held.extend(claim.slots);
        if bringing.waited < bringing.joined.len() {
            return Ok(Host::Join(bringing));
        }
        if self.bug(Bug::GuardWhileJoining) {
            self.desk.demand_over();
        }
        if !bringing.joined.is_empty() {
            let placed = std::mem::take(&mut bringing.claimed);
            bringing.late.extend(placed);
        }
        self.push(Work::Slots(bringing.late));
        Ok(Host::Sync(self.here))
    }

    /// The next of those that are waited for has ended.
    fn join(&mut self, mut bringing: Bringing) -> Result<Host, Violation> {
        let id = ExpertId { layer: bringing.layer, expert: bringing.joined[bringing.waited] };
        let well = self.desk.ended(id) == Some(true);
        self.desk.forget(id);
        self.tickets.joined(id, well, &mut self.table);
        bringing.waited += 1;
        if bringing.waited < bringing.joined.len() {
            return Ok(Host::Join(bringing));
        }
        let joined = bringing.joined.clone();
        self.claim_of(&mut bringing, &joined)?;
        Ok(Host::Await(bringing))
    }

    fn forecast(&mut self, layer: u32) -> Step {
        let mut left: Vec<u32> = (0..self.setup.experts).collect();
        while self.tickets.waiting() < self.setup.reserve {
            // The last way is to expect nothing more.
            let pick = self.choices.choose(left.len() + 1);
            if pick == left.len() {
                break;
            }
            let id = ExpertId { layer, expert: left.remove(pick) };
            let Some(slot) = self.tickets.open(id, &mut self.table) else { continue };
            self.open_slot(slot)?;
            self.desk.issue(id, slot);
            if self.bug(Bug::EntryBeforeRecord) {
                self.tickets.enter(id, &mut self.table);
                self.held.extend(self.table.hold(id.layer, &[id.expert]));
            }
        }
        Ok(())
    }

    /// A reader gets a slot.
    fn open_slot(&mut self, slot: u32) -> Step {
        let read = self.ahead.iter().chain(&self.demand).any(|reading| reading.slot == slot);
        if read || self.desk.queued_jobs().any(|open| *open == slot) { Err(Violation::TwoReaders) } else { Ok(()) }
    }

    fn fails(&mut self) -> bool {
        let fails = self.failures < self.setup.failures && self.choices.choose(2) == 1;
        self.failures += u8::from(fails);
        fails
    }

    /// A read goes on by one step.
    fn read(&mut self, mut reading: Reading) -> Result<Reading, Violation> {
        let Reading { id, slot, stage } = reading;
        if stage == Stage::Begun && self.setup.writer == Writer::Direct {
            self.write(slot, Memory::Part(id))?;
            reading.stage = Stage::Part;
            return Ok(reading);
        }
        if self.fails() {
            reading.stage = Stage::Failed;
            return Ok(reading);
        }
        match self.setup.writer {
            Writer::Ordered => self.push(Work::Copy((id, slot))),
            Writer::Direct => self.write(slot, Memory::Whole(id))?,
        }
        reading.stage = Stage::There;
        Ok(reading)
    }

    fn go_on_ahead(&mut self, index: usize) -> Step {
        let Reading { id, slot, stage } = self.ahead.remove(index);
        let reading = match stage {
            Stage::There | Stage::Failed => {
                match self.bug(Bug::LateCopy) {
                    true => self.push(Work::Copy((id, slot))),
                    false => self.desk.end(id, stage == Stage::There),
                }
                return Ok(());
            }
            Stage::Begun if self.bug(Bug::LateCopy) => {
                self.desk.end(id, true);
                Reading { id, slot, stage: Stage::There }
            }
            _ => self.read(Reading { id, slot, stage })?,
        };
        self.ahead.push(reading);
        self.ahead.sort_unstable();
        Ok(())
    }

    fn host_waits(&self) -> bool {
        match &self.host {
            Host::Land(_) => !self.device.landed,
            Host::Await(_) => !self.demand.iter().all(|r| matches!(r.stage, Stage::There | Stage::Failed)),
            Host::Join(bringing) => {
                let id = ExpertId { layer: bringing.layer, expert: bringing.joined[bringing.waited] };
                self.desk.ended(id).is_none()
            }
            Host::Finish => !self.ahead.is_empty() || self.desk.load() > 0,
            Host::Over => true,
            _ => false,
        }
    }
}

impl search::World for World {
    type Actor = Actor;
    type Violation = Violation;

    fn able(&self) -> Vec<Actor> {
        let mut able = Vec::new();
        if !self.device.queue.is_empty() {
            able.push(Actor::Device);
            if !self.setup.every_order && self.device_is_alone() {
                return able;
            }
        }
        if !self.host_waits() {
            able.push(Actor::Host);
        }
        if self.ahead.len() < self.setup.lanes && self.desk.clone().take().is_some() {
            able.push(Actor::Take);
        }
        able.extend((0..self.ahead.len()).map(Actor::Ahead));
        let goes_on = |i: &usize| matches!(self.demand[*i].stage, Stage::Begun | Stage::Part);
        able.extend((0..self.demand.len()).filter(goes_on).map(Actor::Demand));
        able
    }

    fn step(&mut self, actor: Actor) -> Step {
        match actor {
            Actor::Host => {
                let host = std::mem::replace(&mut self.host, Host::Over);
                self.host = self.host(host)?;
            }
            Actor::Device => self.device()?,
            Actor::Take => {
                if let Some((id, slot)) = self.desk.take() {
                    self.ahead.push(Reading { id, slot, stage: Stage::Begun });
                    self.ahead.sort_unstable();
                }
            }
            Actor::Ahead(index) => self.go_on_ahead(index)?,
            Actor::Demand(index) => self.demand[index] = self.read(self.demand[index])?,
        }
        Ok(())
    }

    fn end(&self) -> Step {
        if self.host != Host::Over {
            return Err(Violation::Deadlock);
        }
        let held = self.table.unpinned() < self.table.len();
        let lost = !self.table.is_whole() || self.table.reading() > 0;
        if held || lost || !self.tickets.open.is_empty() || self.desk != Desk::default() {
            return Err(Violation::Leak);
        }
        let there = |(id, slot): Placed| self.device.memory[slot as usize] == Memory::Whole(id);
        if self.table.residents().all(there) { Ok(()) } else { Err(Violation::WrongRecord) }
    }

    fn key(&mut self) -> u64 {
        self.rename();
        let mut hasher = DefaultHasher::new();
        self.table.hash(&mut hasher);
        let World { tickets, desk, held, host, here, token, failures, ahead, demand, device, .. } = self;
        (&tickets.open, desk, held, host, here, token, failures, ahead, demand, device).hash(&mut hasher);
        hasher.finish()
    }
}
