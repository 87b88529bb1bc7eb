//! Owns: how long the device itself works on a submission, by its own timestamps.
//! Refuses: adapters without timestamps; then nothing is measured.
//! Invariants: a submission that is timed is finished before the next is made, so that its two marks are its own.

use std::time::Duration;

use ss_backend::{Error, Result};
use wgpu::{BufferUsages, Features};

use crate::device::{Block, Device};

/// Marks at the beginning and at the end.
const MARKS: u32 = 2;
const MARK_BYTES: u64 = size_of::<u64>() as u64;
const BYTES: u64 = MARKS as u64 * MARK_BYTES;

/// What timing takes of an adapter.
pub(crate) const FEATURES: Features = Features::TIMESTAMP_QUERY;

/// A place for the marks of one submission.
pub(crate) struct Clock {
    marks: wgpu::QuerySet,
    resolved: Block,
    read: Block,
}

impl Clock {
    /// A clock, if the device was opened with one.
    pub(crate) fn new(device: &Device) -> Result<Option<Self>> {
        if !device.raw.features().contains(FEATURES) {
            return Ok(None);
        }
        let marks = device.raw.create_query_set(&wgpu::QuerySetDescriptor {
            label: Some("clock"),
            ty: wgpu::QueryType::Timestamp,
            count: MARKS,
        });
        let resolved = device.block("clock", BYTES, BufferUsages::QUERY_RESOLVE | BufferUsages::COPY_SRC)?;
        let read = device.block("clock", BYTES, BufferUsages::MAP_READ | BufferUsages::COPY_DST)?;
        Ok(Some(Clock { marks, resolved, read }))
    }

    /// The marks that a pass makes: the first of a submission begins it, the last ends it.
    pub(crate) fn writes(&self, first: bool, last: bool) -> Option<wgpu::ComputePassTimestampWrites<'_>> {
        (first || last).then(|| wgpu::ComputePassTimestampWrites {
            query_set: &self.marks,
            beginning_of_pass_write_index: first.then_some(0),
            end_of_pass_write_index: last.then_some(MARKS - 1),
        })
    }

    /// Records that the marks are to be read.
    pub(crate) fn resolve(&self, encoder: &mut wgpu::CommandEncoder) {
        encoder.resolve_query_set(&self.marks, 0..MARKS, &self.resolved.raw, 0);
        encoder.copy_buffer_to_buffer(&self.resolved.raw, 0, &self.read.raw, 0, BYTES);
    }

    /// Waits for the submission that was just made, and says how long it took.
    pub(crate) fn measure(&self, device: &Device) -> Result<Duration> {
        // Whether it worked is seen when the range is asked for.
        self.read.raw.map_async(wgpu::MapMode::Read, .., |_| ());
        device.wait(None)?;
        let view = self.read.raw.get_mapped_range(..).map_err(|error| Error::Refused(error.to_string()))?;
        let mark =
            |at: u64| view.get(at as usize..).and_then(|rest| rest.first_chunk()).copied().map(u64::from_le_bytes);
        let ticks = mark(MARK_BYTES).zip(mark(0)).map_or(0, |(end, begin)| end.saturating_sub(begin));
        drop(view);
        self.read.raw.unmap();
        Ok(Duration::from_nanos((ticks as f64 * f64::from(device.queue.get_timestamp_period())) as u64))
    }
}
