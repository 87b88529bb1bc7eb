//! Owns: work that is encoded while other work runs, and handed over later without another look (engine.md 5.3).
//! Refuses: nothing; what is encoded here was checked like any submission.
//! Invariants: what its commands name lives until they are finished; a readback buffer is in the hands of one work at a
//! time; the workgroups of its dispatches are uploaded with its first part.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use ss_backend::{Error, Result, Wanted, Work};

use crate::backend::{Queue, Series, Shared, Step, encode};
use crate::clock::Clock;
use crate::device::Block;
use crate::ledger::Ledger;
use crate::memory::Stored;

/// Encoded work.
pub(crate) struct Ahead {
    parts: VecDeque<wgpu::CommandBuffer>,
    /// Workgroups of all dispatches, until they are uploaded, where one decides about others.
    grids: Option<Vec<[u32; 3]>>,
    dispatches: u64,
    /// Where readbacks land, and how many bytes of it they fill.
    read: Option<Block>,
    bytes: u64,
    /// Scratch buffers that the commands name.
    _scratch: Vec<Arc<Block>>,
    clock: Option<Clock>,
    /// Labels of the dispatches, where each is timed.
    labels: Vec<Arc<str>>,
    /// Dispatches that the clock sees.
    timed: u32,
    /// Since its first part was handed over.
    flight: Option<Flight>,
    /// Once all is handed over.
    submitted: Option<(u64, wgpu::SubmissionIndex)>,
    /// Set when what it read has landed.
    landed: Arc<AtomicBool>,
}

/// Work in flight, counted as such until this is gone.
struct Flight {
    ledger: Arc<Ledger>,
    started: Instant,
}

impl Flight {
    fn new(ledger: &Arc<Ledger>) -> Self {
        ledger.flights.fetch_add(1, Relaxed);
        Flight { ledger: Arc::clone(ledger), started: Instant::now() }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.ledger.flights.fetch_sub(1, Relaxed);
        self.ledger.flew(self.started);
    }
}

impl Shared {
    /// Encodes parts and what is read behind them.
    pub(crate) fn encode_ahead(&self, parts: &[Work<'_>], reads: &[Wanted]) -> Result<Ahead> {
        self.device.check()?;
        let started = Instant::now();
        // Held throughout, since the scratch buffers are shared.
        let _queue = self.queue.lock();
        let mut lists = Vec::with_capacity(parts.len());
        for part in parts {
            let mut steps = Vec::new();
            self.encode(*part, &mut steps, None)?;
            lists.push(steps);
        }
        let all = || lists.iter().flatten().filter_map(Step::dispatch);
        let grids = self.grids_of(all())?;
        let buffer = grids.is_some().then(|| self.grids_buffer()).transpose()?;
        let dispatches = all().count() as u32;
        let clock = self.take_clock(dispatches)?;
        let labels = clock.as_ref().map_or_else(Vec::new, |clock| clock.labels(all()));
        let bytes = reads.iter().map(|wanted| wanted.bytes).sum();
        let read = (bytes > 0).then(|| self.take_readback(bytes)).transpose()?;
        let mut buffers = VecDeque::with_capacity(lists.len());
        let mut first = 0;
        for (i, steps) in lists.iter().enumerate() {
            let mut encoder = self.device.raw.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
            first = encode(&mut encoder, steps, Series { first, dispatches, grids: buffer.as_ref() }, clock.as_ref());
            if i + 1 == lists.len() {
                if let Some(clock) = &clock {
                    clock.resolve(&mut encoder, dispatches);
                }
                if let Some(block) = &read {
                    copy_out(&mut encoder, reads, block)?;
                }
            }
            buffers.push_back(encoder.finish());
        }
        let scratch = self.scratch.held().into_iter().chain(self.tickets.held()).collect();
        self.device.ledger.encoded(started);
        Ok(Ahead {
            parts: buffers,
            grids,
            dispatches: u64::from(dispatches),
            read,
            bytes,
            _scratch: scratch,
            clock,
            labels,
            timed: dispatches,
            flight: None,
            submitted: None,
            landed: Arc::default(),
        })
    }

    /// Hands `count` parts over, behind pending slot writes, as one submission.
    pub(crate) fn hand_over(&self, work: &mut Ahead, count: usize) -> Result<()> {
        self.device.check()?;
        let mut queue = self.queue.lock();
        if let Some(grids) = work.grids.take() {
            self.write(&mut queue, (&self.grids_buffer()?, 0), bytemuck::cast_slice(&grids));
        }
        work.flight.get_or_insert_with(|| Flight::new(&self.device.ledger));
        let count = count.min(work.parts.len());
        let parts: Vec<_> = work.parts.drain(..count).collect();
        let (number, index) = self.submit_buffers(&mut queue, parts);
        self.scratch.submitted();
        self.tickets.submitted();
        self.device.ledger.dispatches.fetch_add(std::mem::take(&mut work.dispatches), Relaxed);
        if work.parts.is_empty() {
            if let Some(block) = &work.read {
                map(block, work.bytes, &work.landed);
            }
            work.submitted = Some((number, index));
        }
        Ok(())
    }

    /// Waits for work that was handed over whole, and gives what it read.
    pub(crate) fn land(&self, work: Ahead) -> Result<Vec<u8>> {
        let Some((number, index)) = work.submitted else {
            return Err(Error::Refused("work was waited for before it was handed over".to_owned()));
        };
        match work.read {
            Some(_) => self.device.wait_awake(index, &work.landed)?,
            None => self.device.wait(Some(index))?,
        }
        self.forget(number);
        drop(work.flight);
        if let Some(clock) = work.clock {
            self.device.ledger.timed(&clock.measure(&self.device, work.timed)?, &work.labels);
            self.give_clock(clock);
        }
        work.read.map_or_else(|| Ok(Vec::new()), |block| self.read_out(block, work.bytes))
    }

    /// What a readback brought, once it is finished; the buffer goes back.
    pub(crate) fn read_out(&self, block: Block, bytes: u64) -> Result<Vec<u8>> {
        let view = block.raw.get_mapped_range(..bytes).map_err(|error| Error::Refused(error.to_string()))?;
        let read = view.to_vec();
        drop(view);
        block.raw.unmap();
        self.give_readback(block);
        self.device.ledger.readbacks.fetch_add(1, Relaxed);
        Ok(read)
    }

    /// Submits small uploads and slot writes that wait, then these commands.
    pub(crate) fn submit_buffers(
        &self,
        queue: &mut Queue,
        parts: Vec<wgpu::CommandBuffer>,
    ) -> (u64, wgpu::SubmissionIndex) {
        let copies = queue.is_pending().then(|| {
            let mut encoder = self.device.raw.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
            queue.encode_uploads(&mut encoder);
            queue.slots.iter().for_each(|copy| copy.encode(&mut encoder));
            encoder.finish()
        });
        let slots = std::mem::take(&mut queue.slots);
        let index = self.device.queue.submit(copies.into_iter().chain(parts));
        slots.into_iter().for_each(crate::staging::SlotCopy::recycle);
        self.device.ledger.submissions.fetch_add(1, Relaxed);
        queue.uploaded = 0;
        queue.last += 1;
        queue.unfinished.insert(queue.last, index.clone());
        (queue.last, index)
    }
}

impl Ahead {
    /// How many parts are not handed over yet.
    pub(crate) fn left(&self) -> usize {
        self.parts.len()
    }
}

/// Asks for what was copied to the beginning of a buffer; `landed` is set when it can be read, or cannot, which is seen when it
/// is read.
pub(crate) fn map(block: &Block, bytes: u64, landed: &Arc<AtomicBool>) {
    let landed = Arc::clone(landed);
    block.raw.map_async(wgpu::MapMode::Read, ..bytes, move |_| landed.store(true, Relaxed));
}

/// Records the copies of what is to be read, one after the other.
pub(crate) fn copy_out(encoder: &mut wgpu::CommandEncoder, reads: &[Wanted], block: &Block) -> Result<()> {
    let mut at = 0;
    for Wanted { source, offset, bytes } in reads.iter().filter(|wanted| wanted.bytes > 0) {
        let raw = Stored::of(source)?.range(*offset, *bytes)?;
        encoder.copy_buffer_to_buffer(raw, *offset, &block.raw, at, *bytes);
        at += bytes;
    }
    Ok(())
}
