//! Owns: the lanes that read records early, because a forecast says that the next layer will want them (engine.md 5.6).
//! Refuses: forecasting, slots, and reads that somebody waits for; those go first.
//! Invariants: a lane has let go of a slot before the desk says that its read has ended; why a read failed is forgotten, so
//! that the error is the demand read's if there is one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex, MutexGuard};
use ss_backend::SlotWriter;
use ss_checkpoint::{Checkpoint, Piece};

use crate::desk::Desk;
use crate::experts::{carve, check};
use crate::ram::{RamRecords, Room};
use crate::way::{Bounces, Goal, Way};
use crate::{Candidate, ExpertId, Lane, Lanes, RecordSource, Result};

/// How records are read early.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LookaheadOptions {
    /// Whether they are at all.
    pub on: bool,
    /// A candidate is read if its logit exceeds that of the last choice by at least this, which may be less than nothing.
    pub margin: f32,
    /// Most records of a layer.
    pub per_layer: usize,
    /// Records that are read at once, all pieces of a record together: as many as keep the disk busy, for what is not begun when
    /// its layer chooses something else costs nothing.
    pub lanes: u16,
    /// Most slots that may wait for records at once; a small pool spares an eighth.
    pub reserve: usize,
    /// Whether a record is left to the demand where reading it early is not worth its time: its layer would choose before it
    /// is there, and probably something else. Which records are read then depends on how long things take.
    pub weigh: bool,
}

impl Default for LookaheadOptions {
    /// The figures of engine.md 5.6, but for two lanes instead of sixteen: on the trace of `docs/measurements.md` two are the
    /// better the longer a record takes (a rate of 1.27 instead of 1.23 where it is half a layer). Nothing is weighed.
    fn default() -> Self {
        LookaheadOptions { on: true, margin: MARGIN, per_layer: 16, lanes: 2, reserve: 64, weigh: false }
    }
}

/// The forecast is seldom right about closer candidates.
const MARGIN: f32 = 0.062;
/// Where what is read is weighed, by what it has learned of them: only what hardly ever comes true is left out beforehand.
const WEIGHED_MARGIN: f32 = -1.0;
/// Pieces of records that are read at once.
pub(crate) const PIECE_LANES: u16 = 16;

/// A pool spares one slot of so many for records that are read early.
const SPARED_SHARE: usize = 8;

impl LookaheadOptions {
    /// The usual ones, weighed or not, from this margin on or the usual one.
    pub fn new(weigh: bool, margin: Option<f32>) -> Self {
        let usual = if weigh { WEIGHED_MARGIN } else { MARGIN };
        LookaheadOptions { weigh, margin: margin.unwrap_or(usual), ..LookaheadOptions::default() }
    }

    /// The same with no more slots than a pool of so many spares.
    pub fn within(self, slots: usize) -> Self {
        LookaheadOptions { reserve: self.reserve.min(slots / SPARED_SHARE), ..self }
    }

    /// Whether anything is read early.
    pub fn reads(&self) -> bool {
        self.on && self.reserve > 0
    }

    /// The candidates that are worth a read, in the order in which they are asked for.
    pub fn likely(&self, candidates: &[Candidate]) -> Vec<Candidate> {
        let mut likely: Vec<Candidate> = candidates.iter().copied().filter(|c| c.margin >= self.margin).collect();
        likely.sort_by(|a, b| b.margin.total_cmp(&a.margin).then(a.expert.cmp(&b.expert)));
        likely
    }
}

/// What became of records that were read early.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LookaheadCounters {
    /// Reads asked for.
    pub issued: u64,
    /// Records that were in their slots when their layer chose them.
    pub adopted: u64,
    /// Records that were still being read then, and waited for.
    pub joined: u64,
    /// Records that were not chosen.
    pub expired: u64,
    /// Bytes of expired records that were read all the same.
    pub wasted_bytes: u64,
}

impl LookaheadCounters {
    /// What was done since `earlier`.
    pub fn since(self, earlier: Self) -> Self {
        LookaheadCounters {
            issued: self.issued - earlier.issued,
            adopted: self.adopted - earlier.adopted,
            joined: self.joined - earlier.joined,
            expired: self.expired - earlier.expired,
            wasted_bytes: self.wasted_bytes - earlier.wasted_bytes,
        }
    }
}

/// A read to be made.
pub(crate) struct Job {
    pub writer: Box<dyn SlotWriter>,
    pub pieces: Vec<Piece>,
    /// Whether it is for the hot set, which comes after all forecasts.
    pub hot: bool,
}

/// The lanes and their queue.
pub(crate) struct Lookahead {
    shared: Arc<Shared>,
    lanes: Vec<JoinHandle<()>>,
}

/// Where records that are read early come from, and how.
pub(crate) struct Early {
    pub source: Arc<dyn RecordSource>,
    pub ram: Option<Arc<RamRecords>>,
    /// Records that are read at once.
    pub records: usize,
    /// Lanes of the pieces of a record, so that it costs the latency of one.
    pub pieces: Lanes,
    pub bounces: Bounces,
}

struct Shared {
    checkpoint: Arc<Checkpoint>,
    early: Early,
    desk: Mutex<Desk<Job>>,
    /// Set once, when the last job is over.
    over: AtomicBool,
    /// Bytes that came from the disk.
    bytes_read: AtomicU64,
    /// A job came, a demand ended, or all is over.
    work: Condvar,
    /// A ticket has come further.
    done: Condvar,
}

impl Lookahead {
    /// No lane is started before the first job.
    pub fn new(checkpoint: Arc<Checkpoint>, early: Early) -> Self {
        let shared = Arc::new(Shared {
            checkpoint,
            early,
            desk: Mutex::default(),
            over: AtomicBool::new(false),
            bytes_read: AtomicU64::new(0),
            work: Condvar::new(),
            done: Condvar::new(),
        });
        Lookahead { shared, lanes: Vec::new() }
    }

    /// Queues a job. Where a lane that it needs cannot be started it is not queued, so that its slot is the caller's again.
    pub fn issue(&mut self, id: ExpertId, job: Job) -> Result<()> {
        let wanted = (self.desk().load() + 1).min(self.shared.early.records);
        while self.lanes.len() < wanted {
            let (shared, number) = (self.shared.clone(), self.lanes.len());
            let lane = std::thread::Builder::new()
                .name(format!("ss-read-ahead-{number}"))
                .spawn(move || shared.serve())
                .map_err(|cause| crate::Error::Threads { threads: wanted, cause: cause.to_string() })?;
            self.lanes.push(lane);
        }
        match job.hot {
            true => self.desk().issue_late(id, job),
            false => self.desk().issue(id, job),
        }
        self.shared.work.notify_one();
        Ok(())
    }

    /// Bytes that came from the disk so far.
    pub fn bytes_read(&self) -> u64 {
        self.shared.bytes_read.load(Ordering::Relaxed)
    }

    /// Where the jobs stand; no lane begins or ends one while it is held.
    pub fn desk(&self) -> MutexGuard<'_, Desk<Job>> {
        self.shared.desk.lock()
    }

    /// Waits for a job that has begun, says whether its record is there, and forgets it.
    pub fn join(&self, id: ExpertId) -> bool {
        let mut desk = self.desk();
        loop {
            match desk.ended(id) {
                Some(well) => {
                    desk.forget(id);
                    return well;
                }
                None => self.shared.done.wait(&mut desk),
            }
        }
    }

    /// Holds back reads that have not begun until the guard is gone.
    pub fn yield_to_demand(&self) -> Demand {
        self.desk().demand();
        Demand(self.shared.clone())
    }
}

impl Drop for Lookahead {
    fn drop(&mut self) {
        {
            let mut desk = self.desk();
            self.shared.over.store(true, Ordering::Relaxed);
            desk.clear();
        }
        self.shared.work.notify_all();
        for lane in self.lanes.drain(..) {
            // A lane that panicked has said so already.
            let _ = lane.join();
        }
    }
}

/// Of the lanes that lookahead has for itself, these: nobody waits for what they read.
const AHEAD: Lane = Lane::Bulk;

/// A demand of which something waits to begin.
pub(crate) struct Demand(Arc<Shared>);

impl Drop for Demand {
    fn drop(&mut self) {
        let mut desk = self.0.desk.lock();
        desk.demand_over();
        // Waking a lane for nothing costs the pass that goes on now its processor.
        for _ in 0..desk.queued() {
            self.0.work.notify_one();
        }
    }
}

impl Shared {
    /// A lane: job after job until all is over.
    fn serve(&self) {
        let mut desk = self.desk.lock();
        while !self.over.load(Ordering::Relaxed) {
            let Some((id, job)) = desk.take() else {
                self.work.wait(&mut desk);
                continue;
            };
            drop(desk);
            let well = self.read(id, job).is_ok();
            desk = self.desk.lock();
            desk.end(id, well);
            self.done.notify_all();
        }
    }

    fn read(&self, id: ExpertId, job: Job) -> Result<()> {
        let Job { mut writer, pieces, .. } = job;
        let Early { source, ram, pieces: lanes, bounces, .. } = &self.early;
        let read = |into: &mut [u8]| -> Result<u64> {
            let mut reads = Vec::new();
            carve(into, &pieces, &mut reads)?;
            let bytes = lanes.read(AHEAD, &**source, reads)?;
            check(&self.checkpoint, id, into)?;
            Ok(bytes)
        };
        let (way, goal) = (Way { lanes, lane: AHEAD, bounces }, Goal::of(&mut *writer));
        let bytes = match ram {
            Some(ram) => ram.bring(id, Room::Displace, (way, goal), read)?,
            None => way.read(goal, read)?,
        };
        self.bytes_read.fetch_add(bytes, Ordering::Relaxed);
        // On its way with the next work: a submission of its own holds up those that somebody waits for.
        Ok(writer.finish()?)
    }
}
