//! Owns: a device that is handed one operation at a time: to read what each leaves, to count what each costs, or to go on
//! where a submission should have ended.
//! Refuses: arithmetic; the device behind it computes.
//! Invariants: the rule of `Backend::submit` holds across the pieces: behind a router that missed nothing runs, unless that
//! is the fault that a test asked for.

use std::slice;
use std::sync::{Arc, Mutex};

use ss_backend::{
    Backend, Buffer, Counters, DeviceFacts, NONE, Op, Pool, Readback, RecordLayout, Result, Site, SlotWriter, Steps,
    Submission, Work,
};

use crate::rig::Taps;
use crate::tapped::Tapper;

/// Why the operations go one at a time.
#[derive(Clone)]
pub enum Stepping {
    /// To read what each leaves.
    Tapped(Taps),
    /// To count the dispatches of each.
    Counted(Dispatches),
    /// A deliberate fault: operations behind a router that missed run all the same.
    BeyondHalts,
}

/// Dispatches of one operation after the other.
#[derive(Clone, Default)]
pub struct Dispatches(Arc<Mutex<Vec<(Site, u64)>>>);

impl Dispatches {
    /// Takes everything so far.
    pub fn take(&self) -> Vec<(Site, u64)> {
        std::mem::take(&mut self.0.lock().expect("no test panics while it counts"))
    }
}

/// A device that is handed one operation at a time.
pub struct Stepwise {
    inner: Arc<dyn Backend>,
    stepping: Stepping,
}

impl Stepwise {
    /// Steps through what another device computes.
    pub fn new(inner: Arc<dyn Backend>, stepping: Stepping) -> Self {
        Stepwise { inner, stepping }
    }

    fn step(&self, work: Work<'_>, step: &(Site, Op)) -> Result<Submission> {
        let (backend, steps) = (self.inner.as_ref(), slice::from_ref(step));
        let submit = || backend.submit(Work { steps, ..work });
        match &self.stepping {
            Stepping::BeyondHalts => submit(),
            Stepping::Counted(dispatches) => {
                let before = backend.counters().dispatches;
                let submission = submit()?;
                let count = backend.counters().dispatches - before;
                dispatches.0.lock().expect("no test panics while it counts").push((step.0, count));
                Ok(submission)
            }
            Stepping::Tapped(taps) => {
                let tapper = Tapper { backend, site: step.0, taps };
                tapper.before(&step.1)?;
                let submission = submit()?;
                tapper.after(&step.1)?;
                Ok(submission)
            }
        }
    }

    /// Whether this operation was the last to have an effect.
    fn halted(&self, op: &Op) -> Result<bool> {
        let lookup = match op {
            Op::Route(route) => route.lookup.as_ref(),
            _ => None,
        };
        let (Some(lookup), false) = (lookup, matches!(self.stepping, Stepping::BeyondHalts)) else { return Ok(false) };
        let mut layer = NONE;
        self.inner.read(&lookup.control, 0, bytemuck::bytes_of_mut(&mut layer))?;
        Ok(layer != NONE)
    }
}

impl Backend for Stepwise {
    fn facts(&self) -> &DeviceFacts {
        self.inner.facts()
    }

    fn counters(&self) -> Counters {
        self.inner.counters()
    }

    fn alloc(&self, label: &str, bytes: u64) -> Result<Buffer> {
        self.inner.alloc(label, bytes)
    }

    fn upload(&self, target: &Buffer, offset: u64, bytes: &[u8]) -> Result<()> {
        self.inner.upload(target, offset, bytes)
    }

    fn read_all(&self, parts: &mut [Readback<'_>]) -> Result<()> {
        self.inner.read_all(parts)
    }

    fn alloc_pool(&self, layout: &RecordLayout, slots: u32) -> Result<Pool> {
        self.inner.alloc_pool(layout, slots)
    }

    fn open_slot(&self, pool: &Pool, slot: u32) -> Result<Box<dyn SlotWriter>> {
        self.inner.open_slot(pool, slot)
    }

    fn flush(&self) -> Result<()> {
        self.inner.flush()
    }

    fn prepare(&self, work: &[Work<'_>], progress: Steps<'_>) -> Result<()> {
        self.inner.prepare(work, progress)
    }

    fn submit(&self, work: Work<'_>) -> Result<Submission> {
        let mut last = None;
        for step in work.steps {
            last = Some(self.step(work, step)?);
            if self.halted(&step.1)? {
                break;
            }
        }
        last.map_or_else(|| self.inner.submit(work), Ok)
    }

    fn wait(&self, submission: Submission) -> Result<()> {
        self.inner.wait(submission)
    }
}
