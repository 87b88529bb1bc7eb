//! Owns: what a model asked of its device, so that a test can say that what it is about did occur.
//! Refuses: to touch it; everything is handed on as it is, and what the device answers is handed back.

use std::sync::{Arc, Mutex};

use ss_backend::{
    Backend, Buffer, Counters, DeviceFacts, Encoded, NONE, Op, Pool, Readback, RecordLayout, Result, SlotWriter, Steps,
    Submission, Wanted, Work,
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

    fn handed_over(&self, parts: impl Iterator<Item = Part>) {
        self.with(|state| {
            state.seen.submissions += 1;
            for part in parts {
                state.seen.lookups += part.lookups;
                state.seen.later_groups += part.later_groups;
                state.control = part.control.or(state.control.take());
            }
        });
    }

    /// A readback that began with `source`.
    fn landed(&self, source: Option<&Buffer>, bytes: &[u8]) {
        self.with(|state| {
            state.seen.readbacks += 1;
            let control = state.control.as_ref().zip(source).is_some_and(|(control, source)| control.same(source));
            state.seen.halts += u64::from(control && !bytes.starts_with(&NONE.to_le_bytes()));
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

/// What is of interest in a part of some work.
#[derive(Default)]
struct Part {
    lookups: u64,
    later_groups: u64,
    control: Option<Buffer>,
}

impl Part {
    fn of(work: &Work<'_>) -> Self {
        let mut part = Part::default();
        for (_, op) in work.steps {
            match op {
                Op::Route(route) => {
                    let Some(lookup) = &route.lookup else { continue };
                    part.lookups += 1;
                    part.control = Some(lookup.control.clone());
                }
                Op::ExpertsIn(experts) if experts.shared.is_none() => part.later_groups += 1,
                _ => {}
            }
        }
        part
    }
}

/// Encoded work under watch.
struct Flight {
    inner: Encoded,
    seen: Vec<Part>,
    /// What is read first.
    control: Option<Buffer>,
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

    fn flush(&self) -> Result<()> {
        self.inner.flush()
    }

    fn prepare(&self, work: &[Work<'_>], progress: Steps<'_>) -> Result<()> {
        self.inner.prepare(work, progress)
    }

    fn submit(&self, work: Work<'_>) -> Result<Submission> {
        self.watch.handed_over(std::iter::once(Part::of(&work)));
        self.inner.submit(work)
    }

    fn encode(&self, parts: &[Work<'_>], reads: &[Wanted]) -> Result<Encoded> {
        let seen = parts.iter().map(Part::of).collect();
        let control = reads.first().map(|wanted| wanted.source.clone());
        let inner = self.inner.encode(parts, reads)?;
        Ok(Encoded::new(Flight { inner, seen, control }))
    }

    fn advance(&self, work: &mut Encoded) -> Result<()> {
        let flight = work.work::<Flight>()?;
        self.watch.handed_over(flight.seen.drain(..1));
        self.inner.advance(&mut flight.inner)
    }

    fn launch(&self, work: &mut Encoded) -> Result<()> {
        let flight = work.work::<Flight>()?;
        self.watch.handed_over(flight.seen.drain(..));
        self.inner.launch(&mut flight.inner)
    }

    fn land(&self, work: Encoded) -> Result<Vec<u8>> {
        let flight = work.into_work::<Flight>()?;
        let bytes = self.inner.land(flight.inner)?;
        self.watch.landed(flight.control.as_ref(), &bytes);
        Ok(bytes)
    }

    fn wait(&self, submission: Submission) -> Result<()> {
        self.inner.wait(submission)
    }
}
