//! Owns: work that is encoded before it may run: a token's, while the token before it is on the device (engine.md 5.3).
//! Refuses: waiting, and what a device makes of operations.
//! Invariants: parts are handed over in their order, each once; what is dropped before it was handed over has no effect.

use std::any::Any;
use std::collections::VecDeque;

use crate::{Arithmetic, Backend, Buffer, Error, NONE, Op, Readback, Result, Site, Work};

/// A part of a buffer that is read behind some work.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Where it lies.
    pub source: Buffer,
    /// First byte, a multiple of 4.
    pub offset: u64,
    /// How many bytes, a multiple of 4.
    pub bytes: u64,
}

/// Encoded work, in parts that may be handed over one by one. Only the backend that made it can run it.
pub struct Encoded(Box<dyn Any + Send>);

impl Encoded {
    /// Wraps what a backend encoded.
    pub fn new<T: Any + Send>(work: T) -> Self {
        Encoded(Box::new(work))
    }

    /// What a backend encoded.
    ///
    /// # Errors
    /// When another kind of backend made it.
    pub fn work<T: Any>(&mut self) -> Result<&mut T> {
        self.0.downcast_mut().ok_or_else(foreign)
    }

    /// As [`Encoded::work`], for good.
    ///
    /// # Errors
    /// As [`Encoded::work`].
    pub fn into_work<T: Any>(self) -> Result<T> {
        self.0.downcast().map(|work| *work).map_err(|_| foreign())
    }
}

fn foreign() -> Error {
    Error::Refused("work of another backend was named".to_owned())
}

/// Encoded work of a backend that has nothing to encode: the operations themselves.
pub(crate) struct Listed {
    arithmetic: Arithmetic,
    parts: VecDeque<Vec<(Site, Op)>>,
    reads: Vec<Wanted>,
    /// Whether a router of an earlier part found a choice without a slot.
    halted: bool,
}

impl Listed {
    pub(crate) fn new(parts: &[Work<'_>], reads: &[Wanted]) -> Self {
        Listed {
            arithmetic: parts.first().map_or(Arithmetic::Exact, |part| part.arithmetic),
            parts: parts.iter().map(|part| part.steps.to_vec()).collect(),
            reads: reads.to_vec(),
            halted: false,
        }
    }

    /// Submits the next part.
    pub(crate) fn advance<B: Backend + ?Sized>(&mut self, backend: &B) -> Result<()> {
        let part = self.parts.pop_front().unwrap_or_default();
        self.submit(backend, &part)?;
        if let Some(control) = lookups(&part).last().filter(|_| !self.halted && !self.parts.is_empty()) {
            let mut missed = NONE.to_le_bytes();
            backend.read(control, 0, &mut missed)?;
            self.halted = missed != NONE.to_le_bytes();
        }
        Ok(())
    }

    /// Submits all that is left.
    pub(crate) fn launch<B: Backend + ?Sized>(&mut self, backend: &B) -> Result<()> {
        let rest: Vec<_> = self.parts.drain(..).flatten().collect();
        self.submit(backend, &rest)
    }

    fn submit<B: Backend + ?Sized>(&self, backend: &B, steps: &[(Site, Op)]) -> Result<()> {
        if !self.halted {
            backend.submit(Work { arithmetic: self.arithmetic, steps })?;
        }
        Ok(())
    }

    /// Reads what was to be read.
    pub(crate) fn land<B: Backend + ?Sized>(self, backend: &B) -> Result<Vec<u8>> {
        let total: u64 = self.reads.iter().map(|wanted| wanted.bytes).sum();
        let mut bytes = vec![0; total as usize];
        let mut rest = &mut bytes[..];
        let mut parts = Vec::with_capacity(self.reads.len());
        for Wanted { source, offset, bytes } in &self.reads {
            let (into, others) = std::mem::take(&mut rest).split_at_mut(*bytes as usize);
            rest = others;
            parts.push(Readback { source, offset: *offset, into });
        }
        backend.read_all(&mut parts)?;
        Ok(bytes)
    }
}

/// The control blocks that routers of these operations write.
fn lookups(steps: &[(Site, Op)]) -> impl Iterator<Item = &Buffer> {
    steps.iter().filter_map(|(_, op)| match op {
        Op::Route(route) => route.lookup.as_ref().map(|lookup| &lookup.control),
        _ => None,
    })
}
