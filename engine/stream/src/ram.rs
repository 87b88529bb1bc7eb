//! Owns: expert records kept in host memory, between the device's slots and the disk (engine.md section 5.7).
//! Refuses: planning how many; what a record is checked for before it is kept.
//! Invariants: a kept record has all the bytes that were read, and is one (layer, expert); a record is kept only when its
//! reading ended well; a prompt, which passes once over all records, never displaces one.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use ss_checkpoint::Checkpoint;

use crate::block::Block;
use crate::throttle::Throttle;
use crate::way::{Goal, Way};
use crate::{Clock, Eviction, ExpertId, Lane, Mutation, Result};

/// Bytes of a gigabyte, decimal as everywhere.
const GIGABYTE: f64 = 1e9;
/// Most gigabytes: more than any machine has.
const MOST_GB: f64 = 1e6;

/// How much host memory keeps records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RamSize {
    /// As many whole records as fit into so many bytes; 0 keeps nothing.
    Bytes(u64),
    /// All records.
    All,
}

impl FromStr for RamSize {
    type Err = String;

    /// Gigabytes, or `all`.
    fn from_str(text: &str) -> std::result::Result<Self, String> {
        if text == "all" {
            return Ok(RamSize::All);
        }
        let gb = text.parse::<f64>().ok().filter(|gb| (0.0..=MOST_GB).contains(gb));
        let gb = gb.ok_or("expected gigabytes, as 8 or 0.5, or all")?;
        Ok(RamSize::Bytes((gb * GIGABYTE) as u64))
    }
}

impl RamSize {
    /// How many records are kept.
    pub fn records(self, checkpoint: &Checkpoint) -> u32 {
        let geometry = checkpoint.geometry();
        let all = (geometry.layers.len() as u64 + u64::from(checkpoint.has_mtp())) * u64::from(geometry.experts);
        let records = match self {
            RamSize::All => all,
            RamSize::Bytes(bytes) => (bytes / Block::footprint(checkpoint.expert_layout().bytes)).min(all),
        };
        u32::try_from(records).unwrap_or(u32::MAX)
    }

    /// Bytes of memory that come of it at most: the planner's charge.
    pub fn bytes(self, checkpoint: &Checkpoint) -> u64 {
        u64::from(self.records(checkpoint)).saturating_mul(Block::footprint(checkpoint.expert_layout().bytes))
    }
}

/// How records are kept in host memory (engine.md section 5.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RamOptions {
    /// How much of it.
    pub size: RamSize,
    /// Whether what comes from it takes as long as from the disk that [`StoreOptions::pace`](crate::StoreOptions::pace) describes, for measurements
    /// where the disk at hand is slower than that.
    pub paced: bool,
}

impl Default for RamOptions {
    /// None.
    fn default() -> Self {
        RamOptions { size: RamSize::Bytes(0), paced: false }
    }
}

/// What host memory has served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RamCounters {
    /// Records that came from it, those that were wanted early included.
    pub hits: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Records put into it.
    pub kept: u64,
    /// Records that made room for others.
    pub evictions: u64,
}

impl RamCounters {
    /// What was done since `earlier`.
    pub fn since(self, earlier: Self) -> Self {
        RamCounters {
            hits: self.hits - earlier.hits,
            bytes: self.bytes - earlier.bytes,
            kept: self.kept - earlier.kept,
            evictions: self.evictions - earlier.evictions,
        }
    }
}

/// Whether a record may displace another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// Only unused memory is taken.
    Unused,
    /// The record that the clock points out may go.
    Displace,
}

impl From<Lane> for Room {
    fn from(lane: Lane) -> Self {
        match lane {
            Lane::Bulk => Room::Unused,
            Lane::Demand => Room::Displace,
        }
    }
}

/// The records in host memory.
pub(crate) struct RamRecords {
    /// `[records]`, each allocated when it is first needed.
    blocks: Vec<RwLock<Block>>,
    index: Mutex<Index>,
    /// The pace of the disk that this memory stands in for.
    throttle: Option<Arc<Throttle>>,
    mutation: Mutation,
}

struct Index {
    places: BTreeMap<ExpertId, u32>,
    /// `[records]`: whose record a place holds; a place that is being filled has nobody's.
    owners: Vec<Option<ExpertId>>,
    /// `[records]`: how many read or write a place.
    busy: Vec<u32>,
    /// Places that hold nothing and are not being filled.
    unused: Vec<u32>,
    clock: Clock,
    counters: RamCounters,
}

/// A place set aside for a record.
struct Claimed {
    place: u32,
    displaced: bool,
}

impl RamRecords {
    /// Room for records, nothing allocated; none where no record fits.
    pub fn open(
        options: RamOptions,
        checkpoint: &Checkpoint,
        throttle: Option<Arc<Throttle>>,
        mutation: Mutation,
    ) -> Option<Self> {
        let records = options.size.records(checkpoint);
        let throttle = throttle.filter(|_| options.paced);
        (records > 0).then(|| Self::new(records, checkpoint.expert_layout().bytes, throttle, mutation))
    }

    fn new(records: u32, bytes: u64, throttle: Option<Arc<Throttle>>, mutation: Mutation) -> Self {
        let count = records as usize;
        let index = Index {
            places: BTreeMap::new(),
            owners: vec![None; count],
            busy: vec![0; count],
            unused: (0..records).rev().collect(),
            clock: Clock::new(count),
            counters: RamCounters::default(),
        };
        let blocks = (0..count).map(|_| RwLock::new(Block::new(bytes as usize))).collect();
        RamRecords { blocks, index: Mutex::new(index), throttle, mutation }
    }

    /// What was done so far.
    pub fn counters(&self) -> RamCounters {
        self.index.lock().counters
    }

    /// How many more records fit without displacing one.
    pub fn unused(&self) -> usize {
        self.index.lock().unused.len()
    }

    /// Brings a record to its goal: from here, else with `read`, which checks what it reads and returns the bytes that came
    /// from the disk. What was read is kept if there is room.
    pub fn bring(
        &self,
        id: ExpertId,
        room: Room,
        (way, goal): (Way<'_>, Goal<'_>),
        read: impl FnOnce(&mut [u8]) -> Result<u64>,
    ) -> Result<u64> {
        if let Some((place, block)) = self.hold(id) {
            let served = self.serve(block, way, goal);
            self.let_go(place, served.as_ref().ok().copied());
            return served.map(|_| 0);
        }
        match self.claim(id, room) {
            Some(claimed) => self.fill(id, claimed, Some((way, goal)), read),
            None => way.read(goal, read),
        }
    }

    /// Reads a record into memory that is unused, for nobody yet.
    pub fn keep(&self, id: ExpertId, read: impl FnOnce(&mut [u8]) -> Result<u64>) -> Result<u64> {
        match self.claim(id, Room::Unused) {
            Some(claimed) => self.fill(id, claimed, None, read),
            None => Ok(0),
        }
    }

    /// Copies a record that is here, and returns its bytes.
    fn serve(&self, block: &RwLock<Block>, way: Way<'_>, goal: Goal<'_>) -> Result<u64> {
        let bytes = goal.len() as u64;
        let copy = || way.copy(block.read().bytes(), goal);
        match &self.throttle {
            Some(throttle) => throttle.pace(bytes, copy)?,
            None => copy()?,
        }
        Ok(bytes)
    }

    /// Lets a record be displaced again, and counts what it served.
    fn let_go(&self, place: u32, served: Option<u64>) {
        let mut index = self.index.lock();
        index.let_go(place);
        if let Some(bytes) = served {
            index.counters.hits += 1;
            index.counters.bytes += bytes;
        }
    }

    /// Keeps a record from being displaced while it is copied.
    fn hold(&self, id: ExpertId) -> Option<(u32, &RwLock<Block>)> {
        let mut index = self.index.lock();
        let place = *index.places.get(&id)?;
        let block = self.blocks.get(place as usize)?;
        index.clock.touch(place);
        *index.busy.get_mut(place as usize)? += 1;
        Some((place, block))
    }

    fn claim(&self, id: ExpertId, room: Room) -> Option<Claimed> {
        let mut index = self.index.lock();
        // It is there by now: another lane was faster.
        if index.places.contains_key(&id) {
            return None;
        }
        let claimed = match (index.unused.pop(), room) {
            (Some(place), _) => Claimed { place, displaced: false },
            (None, Room::Unused) => return None,
            (None, Room::Displace) => Claimed { place: index.displace()?, displaced: true },
        };
        *index.busy.get_mut(claimed.place as usize)? += 1;
        Some(claimed)
    }

    /// Reads a record into its place and carries it on, and enters it if that went well.
    fn fill(
        &self,
        id: ExpertId,
        claimed: Claimed,
        on: Option<(Way<'_>, Goal<'_>)>,
        read: impl FnOnce(&mut [u8]) -> Result<u64>,
    ) -> Result<u64> {
        let done = self.read_into(&claimed, on, read);
        let mut index = self.index.lock();
        index.let_go(claimed.place);
        match &done {
            Ok((_, true)) => index.enter(id, claimed.place),
            Ok((_, false)) | Err(_) => index.unused.push(claimed.place),
        }
        done.map(|(bytes, _)| bytes)
    }

    /// The bytes read, and whether the place holds them.
    fn read_into(
        &self,
        claimed: &Claimed,
        on: Option<(Way<'_>, Goal<'_>)>,
        read: impl FnOnce(&mut [u8]) -> Result<u64>,
    ) -> Result<(u64, bool)> {
        let mut block = self.blocks.get(claimed.place as usize).map(RwLock::write);
        let Some(held) = block.as_mut().and_then(|block| block.bytes_mut()) else {
            // The system has no more memory: the record goes past this tier.
            return Ok((on.map_or(Ok(0), |(way, goal)| way.read(goal, read))?, false));
        };
        let stale = self.mutation == Mutation::StaleRam && claimed.displaced;
        let bytes = if stale { 0 } else { read(held)? };
        if let Some((way, goal)) = on {
            way.copy(held, goal)?;
        }
        Ok((bytes, true))
    }
}

impl Index {
    fn let_go(&mut self, place: u32) {
        if let Some(busy) = self.busy.get_mut(place as usize) {
            *busy -= 1;
        }
    }

    fn enter(&mut self, id: ExpertId, place: u32) {
        // Two lanes may have read one record: the first has entered it.
        if self.places.contains_key(&id) {
            return self.unused.push(place);
        }
        if let Some(owner) = self.owners.get_mut(place as usize) {
            *owner = Some(id);
            self.places.insert(id, place);
            self.counters.kept += 1;
        }
    }

    /// Empties a place that nobody uses.
    fn displace(&mut self) -> Option<u32> {
        let Index { owners, busy, clock, .. } = self;
        let idle = |place: u32| {
            let place = place as usize;
            busy.get(place) == Some(&0) && owners.get(place).is_some_and(Option::is_some)
        };
        let place = clock.victim(&idle)?;
        if let Some(owner) = self.owners.get_mut(place as usize).and_then(Option::take) {
            self.places.remove(&owner);
            self.counters.evictions += 1;
        }
        Some(place)
    }
}
