//! Owns: what a model asked of its device, so that a test can say that what it is about did occur.
//! Refuses: to touch it; everything is handed on as it is, and what the device answers is handed back.

use std::sync::{Arc, Mutex};

use ss_backend::{
    Backend, Buffer, Counters, DeviceFacts, NONE, Op, Pool, Readback, RecordLayout, Result, SlotWriter, Steps,
    Submission, Work,
};

/// What was seen so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Submissions.
    pub submissions: u64,
    /// Readbacks.
    pub readbacks: u64,
    /// Routers that looked up slots on the device.
    pub lookups: u64,
    /// Submissions that ended at a router whose choices lacked a slot.
    pub halts: u64,
    /// Runs of a layer's experts after the first group of them: the choices did not fit the pool at once.
    pub later_groups: u64,
}

impl Seen {
    /// What happened since an earlier look.
    pub fn since(self, before: Seen) -> Seen {
        Seen {
            submissions: self.submissions - before.submissions,
            readbacks: self.readbacks - before.readbacks,
            lookups: self.lookups - before.lookups,
            halts: self.halts - before.halts,
            later_groups: self.later_groups - before.later_groups,
        }
    }
}

/// Counts of one model; clones look at the same ones.
#[derive(Clone, Default)]
pub struct Watch(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    seen: Seen,
    /// The control block that routers write.
    control: Option<Buffer>,
}

impl Watch {
    /// Everything so far.
    pub fn seen(&self) -> Seen {
        self.with(|state| state.seen)
    }

    fn with<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        f(&mut self.0.lock().expect("no test panics while it counts"))
    }

    fn submitted(&self, work: &Work<'_>) {
        self.with(|state| {
            state.seen.submissions += 1;
            for (_, op) in work.steps {
                match op {
                    Op::Route(route) => {
                        let Some(lookup) = &route.lookup else { continue };
                        state.seen.lookups += 1;
                        state.control = Some(lookup.control.clone());
                    }
                    Op::ExpertsIn(experts) if experts.shared.is_none() => state.seen.later_groups += 1,
                    _ => {}
                }
            }
        });
    }

    fn read(&self, parts: &[Readback<'_>]) {
        self.with(|state| {
            state.seen.readbacks += 1;
            let Some(control) = &state.control else { return };
            let halted = |part: &Readback<'_>| {
                part.source.same(control) && part.offset == 0 && !part.into.starts_with(&NONE.to_le_bytes())
            };
            state.seen.halts += u64::from(parts.iter().any(halted));
        });
    }
}

/// A device under watch.
pub struct Watched {
    inner: Arc<dyn Backend>,
    watch: Watch,
}

impl Watched {
    /// Watches a device.
    pub fn new(inner: Arc<dyn Backend>, watch: &Watch) -> Self {
        Watched { inner, watch: watch.clone() }
    }
}

impl Backend for Watched {
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
        self.inner.read_all(parts)?;
        self.watch.read(parts);
        Ok(())
    }

    fn alloc_pool(&self, layout: &RecordLayout, slots: u32) -> Result<Pool> {
        self.inner.alloc_pool(layout, slots)
    }

    fn open_slot(&self, pool: &Pool, slot: u32) -> Result<Box<dyn SlotWriter>> {
        self.inner.open_slot(pool, slot)
    }

    fn prepare(&self, work: &[Work<'_>], progress: Steps<'_>) -> Result<()> {
        self.inner.prepare(work, progress)
    }

    fn submit(&self, work: Work<'_>) -> Result<Submission> {
        self.watch.submitted(&work);
        self.inner.submit(work)
    }

    fn wait(&self, submission: Submission) -> Result<()> {
        self.inner.wait(submission)
    }
}
