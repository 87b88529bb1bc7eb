//! Owns: how long the device itself works on a submission and on each of its kernels, by its own timestamps.
//! Refuses: adapters without timestamps; then nothing is measured.
//! Invariants: a submission that is timed is finished before its clock times another, so that its marks are its own.

use std::sync::Arc;
use std::time::Duration;

use ss_backend::{Error, Result};
use wgpu::{BufferUsages, Features};

use crate::backend::Dispatch;
use crate::device::{Block, Device};

/// Marks that a query set can hold.
const MOST_MARKS: u32 = wgpu::QUERY_SET_MAX_QUERIES;
/// Marks at the beginning and at the end.
const ENDS: u32 = 2;
const MARK_BYTES: u64 = size_of::<u64>() as u64;

/// What timing takes of an adapter.
pub(crate) const FEATURES: Features = Features::TIMESTAMP_QUERY;

/// What timing of each kernel takes besides.
pub(crate) const INSIDE: Features =
    Features::TIMESTAMP_QUERY_INSIDE_PASSES.union(Features::TIMESTAMP_QUERY_INSIDE_ENCODERS);

/// What is timed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Timed {
    /// Nothing.
    #[default]
    Nothing,
    /// Submissions, each as a whole.
    Submissions,
    /// Each kernel of them too, where the adapter can: a mark behind every dispatch, which takes time of its own.
    Kernels,
}

impl Timed {
    /// What it takes of an adapter, where the adapter has it.
    pub(crate) fn features(self) -> Features {
        match self {
            Timed::Nothing => Features::empty(),
            Timed::Submissions => FEATURES,
            Timed::Kernels => FEATURES.union(INSIDE),
        }
    }
}

/// A place for the marks of one submission.
pub(crate) struct Clock {
    marks: wgpu::QuerySet,
    /// How many there are room for: two, or more where kernels are timed.
    room: u32,
    resolved: Block,
    read: Block,
}

/// What a clock found.
pub(crate) struct Measured {
    /// From the first mark to the last.
    pub(crate) whole: Duration,
    /// From each mark to the next: a dispatch with what it waits for. Only the whole where kernels are not timed.
    pub(crate) between: Vec<Duration>,
}

impl Clock {
    /// A clock, if the device was opened with one.
    pub(crate) fn new(device: &Device) -> Result<Option<Self>> {
        let features = device.raw.features();
        if !features.contains(FEATURES) {
            return Ok(None);
        }
        let room = if features.contains(INSIDE) { MOST_MARKS } else { ENDS };
        let marks = device.raw.create_query_set(&wgpu::QuerySetDescriptor {
            label: Some("clock"),
            ty: wgpu::QueryType::Timestamp,
            count: room,
        });
        let bytes = u64::from(room) * MARK_BYTES;
        let resolved = device.block("clock", bytes, BufferUsages::QUERY_RESOLVE | BufferUsages::COPY_SRC)?;
        let read = device.block("clock", bytes, BufferUsages::MAP_READ | BufferUsages::COPY_DST)?;
        Ok(Some(Clock { marks, room, resolved, read }))
    }

    /// Whether there is a mark behind every dispatch. A submission of more than there is room for is timed as a whole.
    fn marks_each(&self, dispatches: u32) -> bool {
        self.room > ENDS && dispatches < self.room
    }

    /// Marks of a submission.
    fn count(&self, dispatches: u32) -> u32 {
        if self.marks_each(dispatches) { dispatches + 1 } else { ENDS }
    }

    /// The labels of the dispatches, if there is a mark behind every one.
    pub(crate) fn labels<'a>(&self, dispatches: impl Iterator<Item = &'a Dispatch>) -> Vec<Arc<str>> {
        if self.room == ENDS {
            return Vec::new();
        }
        let labels: Vec<_> = dispatches.map(|dispatch| Arc::clone(&dispatch.pipeline.label)).collect();
        if self.marks_each(labels.len() as u32) { labels } else { Vec::new() }
    }

    /// The marks that a pass makes of `dispatches` in the submission: the first pass begins it, the last ends it.
    pub(crate) fn writes(
        &self,
        first: bool,
        last: bool,
        dispatches: u32,
    ) -> Option<wgpu::ComputePassTimestampWrites<'_>> {
        let last = last && !self.marks_each(dispatches);
        (first || last).then(|| wgpu::ComputePassTimestampWrites {
            query_set: &self.marks,
            beginning_of_pass_write_index: first.then_some(0),
            end_of_pass_write_index: last.then_some(ENDS - 1),
        })
    }

    /// Makes the mark behind dispatch `number` of `dispatches`, if there is one.
    pub(crate) fn behind(&self, pass: &mut wgpu::ComputePass<'_>, number: u32, dispatches: u32) {
        if self.marks_each(dispatches) {
            pass.write_timestamp(&self.marks, number + 1);
        }
    }

    /// Records that the marks of a submission of `dispatches` are to be read.
    pub(crate) fn resolve(&self, encoder: &mut wgpu::CommandEncoder, dispatches: u32) {
        let count = self.count(dispatches);
        encoder.resolve_query_set(&self.marks, 0..count, &self.resolved.raw, 0);
        encoder.copy_buffer_to_buffer(&self.resolved.raw, 0, &self.read.raw, 0, u64::from(count) * MARK_BYTES);
    }

    /// Waits for the submission of `dispatches` that was just made, and says how long it took.
    pub(crate) fn measure(&self, device: &Device, dispatches: u32) -> Result<Measured> {
        // Whether it worked is seen when the range is asked for.
        self.read.raw.map_async(wgpu::MapMode::Read, .., |_| ());
        device.wait(None)?;
        let view = self.read.raw.get_mapped_range(..).map_err(|error| Error::Refused(error.to_string()))?;
        let (all, _) = view.as_chunks();
        let marks: Vec<u64> =
            all.iter().take(self.count(dispatches) as usize).copied().map(u64::from_le_bytes).collect();
        drop(view);
        self.read.raw.unmap();
        let period = f64::from(device.queue.get_timestamp_period());
        let apart = |begin: u64, end: u64| Duration::from_nanos((end.saturating_sub(begin) as f64 * period) as u64);
        let between: Vec<Duration> = marks.windows(2).map(|pair| apart(pair[0], pair[1])).collect();
        let ends = marks.first().zip(marks.last());
        Ok(Measured { whole: ends.map_or(Duration::ZERO, |(begin, end)| apart(*begin, *end)), between })
    }
}
