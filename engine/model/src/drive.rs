//! Owns: the way of a pass's operations to the device (engine.md 5.3): a pass of few rows as one list whose routers look up
//! their slots on the device, a longer one layer by layer; and a layer's experts in groups that fit the pool (5.1).
//! Refuses: what the operations are.
//! Invariants: experts are given up only while everything submitted is finished; a router whose choices lack a slot is the
//! last operation that had an effect, and the list goes on right behind it.

use ss_backend::op::Lookup;
use ss_backend::{Backend, Buffer, NONE, Op, Readback, Recorder, Scope, Submission};
use ss_checkpoint::Geometry;
use ss_stream::{ExpertCache, Lane};

use crate::graph::Run;
use crate::weights::MoeLayer;
use crate::workspace::{Area, HEAD_ROWS, Workspace};
use crate::{Error, Result};

/// How the operations of a pass reach the device.
pub(crate) enum Drive<'a> {
    /// As one list, as far as the last passes found their experts: at most [`Lookups::MOST_ROWS`] rows.
    Listed(&'a mut Lookups),
    /// A router at a time, its choices read back.
    ByLayer,
    /// Not at all: recorded only, with the routers of both other ways.
    Dry(&'a Lookups),
}

/// A router whose slots the device looks up.
pub(crate) struct Mark {
    /// Its layer.
    pub layer: u32,
    /// Operations up to and with it.
    pub after: usize,
}

/// What routers look up on the device, and what they leave for the host.
pub(crate) struct Lookups {
    /// `[layers, experts]` u32: a copy of the slot table.
    table: Buffer,
    /// See [`Lookup::control`].
    control: Buffer,
    experts: u32,
    choices: u32,
    /// Routers that the next submission may hold: more after each that found all, one after a miss.
    span: usize,
}

impl Lookups {
    /// Most rows of a pass that is run as one list.
    pub const MOST_ROWS: u32 = HEAD_ROWS;

    /// Memory for a model; the draft layer has the last row.
    pub fn new(backend: &dyn Backend, g: &Geometry) -> Result<Self> {
        let layers = g.layers.len() as u32 + 1;
        let (experts, choices) = (g.experts, g.choices);
        let words = |count: u32| 4 * u64::from(count);
        let table = backend.alloc("slot table", words(layers * experts))?;
        let control = backend.alloc("control block", words(1 + layers * Self::MOST_ROWS * choices))?;
        backend.upload(&table, 0, bytemuck::cast_slice(&vec![NONE; (layers * experts) as usize]))?;
        Ok(Lookups { table, control, experts, choices, span: usize::MAX })
    }

    /// What the router of a layer looks up.
    pub fn of(&self, layer: u32, work: &Workspace) -> Lookup {
        Lookup { layer, table: self.table.clone(), slots: work.at(Area::Slots), control: self.control.clone() }
    }

    /// Brings the copy of the slot table up to date.
    fn sync(&self, backend: &dyn Backend, experts: &mut ExpertCache) -> Result<()> {
        for layer in experts.take_changed() {
            let row = experts.table().layer(layer);
            backend.upload(&self.table, 4 * u64::from(layer * self.experts), bytemuck::cast_slice(row))?;
        }
        Ok(())
    }

    /// Says that no router has missed.
    pub fn clear(&self, backend: &dyn Backend) -> Result<()> {
        Ok(backend.upload(&self.control, 0, &NONE.to_le_bytes())?)
    }
}

/// The control block of some rows, on the host.
struct Control {
    words: Vec<u32>,
    /// Choices of a layer.
    of_layer: usize,
}

impl Control {
    /// Room for the layers up to `last`.
    fn new(last: u32, rows: u32, choices: u32) -> Self {
        let of_layer = (rows * choices) as usize;
        Control { words: vec![0; 1 + (last as usize + 1) * of_layer], of_layer }
    }

    /// The layer whose router missed, if one did.
    fn halted(&self) -> Option<u32> {
        self.words.first().copied().filter(|&layer| layer != NONE)
    }

    /// What the rows of a layer chose, `[rows, choices]`.
    fn choices(&self, layer: u32, experts: u32) -> Result<&[u32]> {
        let begin = 1 + layer as usize * self.of_layer;
        existing(self.words.get(begin..begin + self.of_layer).unwrap_or_default(), experts)
    }
}

/// The same choices, all of them of experts that there are.
fn existing(choices: &[u32], experts: u32) -> Result<&[u32]> {
    match !choices.is_empty() && choices.iter().all(|&expert| expert < experts) {
        true => Ok(choices),
        false => Err(Error::Request("an expert that does not exist")),
    }
}

fn distinct(choices: &[u32]) -> Vec<u32> {
    let mut distinct = choices.to_vec();
    distinct.sort_unstable();
    distinct.dedup();
    distinct
}

impl Run<'_> {
    fn lane(&self) -> Lane {
        crate::model::lane(self.rows.form)
    }

    /// Hands what is recorded to the device and starts a new list.
    fn submit(&mut self) -> Result<Submission> {
        let submission = self.backend.submit(self.rec.all())?;
        self.rec.clear();
        Ok(submission)
    }

    /// Runs what is recorded to its end, then reads `parts`.
    pub fn finish(&mut self, parts: &mut [Readback<'_>]) -> Result<()> {
        if !matches!(self.drive, Drive::Listed(_)) || self.marks.is_empty() {
            self.submit()?;
            return if parts.is_empty() { Ok(()) } else { Ok(self.backend.read_all(parts)?) };
        }
        let list = std::mem::replace(&mut self.rec, Recorder::new(self.arithmetic));
        let marks = std::mem::take(&mut self.marks);
        let (mut from, mut next) = (0, 0);
        while from < list.steps().len() {
            self.cancel.check()?;
            let ahead = marks.get(next..).unwrap_or_default();
            (from, next) = match self.stretch(&list, from, ahead, parts)? {
                Stretch::Ran { marks, until } => (until, next + marks),
                Stretch::Missed { mark, choices } => {
                    let missed = &ahead[mark];
                    (self.bring(&list, missed, &choices)?, next + mark + 1)
                }
            };
        }
        Ok(())
    }

    /// Submits from operation `from` as far as the span goes, and reads what came of it, with `parts` at the end.
    fn stretch(&mut self, list: &Recorder, from: usize, ahead: &[Mark], parts: &mut [Readback<'_>]) -> Result<Stretch> {
        let (backend, rows) = (self.backend, self.rows.count);
        let Drive::Listed(lookups) = &mut self.drive else { return Err(Error::Request("a list in another pass")) };
        lookups.sync(backend, self.experts)?;
        let end = list.steps().len();
        let (marks, until) = match lookups.span.checked_sub(1).and_then(|last| Some((last, ahead.get(last)?))) {
            // What is left behind the last router is too little for a submission of its own.
            Some((last, mark)) if last + 1 < ahead.len() => (&ahead[..=last], mark.after),
            _ => (ahead, end),
        };
        backend.submit(list.part(from, until))?;
        let last = marks.last().map_or(0, |mark| mark.layer);
        let mut control = Control::new(last, rows, lookups.choices);
        let source = &lookups.control;
        let mut wanted = vec![Readback { source, offset: 0, into: bytemuck::cast_slice_mut(&mut control.words) }];
        if until == end {
            wanted.extend(parts.iter_mut().map(|part| Readback { into: &mut *part.into, ..*part }));
        }
        backend.read_all(&mut wanted)?;
        // Everything submitted is finished now, so that slots may be taken.
        self.experts.release();
        let missed = control.halted().and_then(|layer| marks.iter().position(|mark| mark.layer == layer));
        for mark in &marks[..missed.unwrap_or(marks.len())] {
            self.experts.found(mark.layer, &distinct(control.choices(mark.layer, lookups.experts)?));
        }
        match missed {
            None => {
                lookups.span = lookups.span.saturating_mul(2);
                Ok(Stretch::Ran { marks: marks.len(), until })
            }
            Some(mark) => {
                lookups.span = 1;
                lookups.clear(backend)?;
                let choices = control.choices(marks[mark].layer, lookups.experts)?.to_vec();
                Ok(Stretch::Missed { mark, choices })
            }
        }
    }

    /// Brings what a router missed; returns the operation that the list goes on with.
    fn bring(&mut self, list: &Recorder, missed: &Mark, choices: &[u32]) -> Result<usize> {
        let groups = self.experts.groups(missed.layer, &distinct(choices));
        if let [group] = &groups[..] {
            let slots = self.experts.acquire(missed.layer, group, self.lane())?;
            self.upload_slots(choices, group, &slots)?;
            return Ok(missed.after);
        }
        let halves = list.part(missed.after, missed.after + 2);
        let Some((site, _)) = halves.steps.first() else {
            return Err(Error::Request("experts that were not recorded"));
        };
        self.rec.at(site.scope, site.stage);
        let halves: Vec<Op> = halves.steps.iter().map(|(_, op)| op.clone()).collect();
        self.run_groups(missed.layer, choices, &groups, halves)?;
        Ok(missed.after + 2)
    }

    /// Runs the router and the experts of a layer whose router is recorded.
    pub fn run_layer_experts(&mut self, layer: u32, scope: Scope, w: &MoeLayer) -> Result<()> {
        self.submit()?;
        let mut choices = vec![0u32; (self.rows.count * self.geometry.choices) as usize];
        self.backend.read(&self.work.at(Area::Choices), 0, bytemuck::cast_slice_mut(&mut choices))?;
        existing(&choices, self.geometry.experts)?;
        // Everything submitted is finished now, so that slots of earlier layers may be taken.
        self.experts.release();
        let groups = self.experts.groups(layer, &distinct(&choices));
        self.experts(scope, w);
        let halves = self.rec.steps().iter().map(|(_, op)| op.clone()).collect();
        self.rec.clear();
        self.run_groups(layer, &choices, &groups, halves)
    }

    /// Records both halves of the experts behind operation `first` once more, as a group after the first has them.
    pub fn later_group(&mut self, first: usize) {
        let mut halves: Vec<Op> = self.rec.steps().iter().skip(first).map(|(_, op)| op.clone()).collect();
        halves.iter_mut().for_each(without_shared);
        halves.into_iter().for_each(|half| self.rec.push(half));
    }

    /// Runs both halves of a layer's experts once a group, the shared expert with the first.
    fn run_groups(&mut self, layer: u32, choices: &[u32], groups: &[Vec<u32>], mut halves: Vec<Op>) -> Result<()> {
        let mut earlier = None;
        for group in groups {
            if let Some(submission) = earlier {
                self.backend.wait(submission)?;
                self.experts.release();
                self.cancel.check()?;
            }
            let slots = self.experts.acquire(layer, group, self.lane())?;
            self.upload_slots(choices, group, &slots)?;
            halves.iter().for_each(|half| self.rec.push(half.clone()));
            earlier = Some(self.submit()?);
            halves.iter_mut().for_each(without_shared);
        }
        Ok(())
    }

    /// Writes the slot of each choice in this group, and [`NONE`] for the others.
    fn upload_slots(&self, choices: &[u32], group: &[u32], slots: &[u32]) -> Result<()> {
        let mut table = vec![NONE; self.geometry.experts as usize];
        for (&expert, &slot) in group.iter().zip(slots) {
            table[expert as usize] = slot;
        }
        let of_choices: Vec<u32> = choices.iter().map(|&expert| table[expert as usize]).collect();
        Ok(self.backend.upload(&self.work.at(Area::Slots), 0, bytemuck::cast_slice(&of_choices))?)
    }
}

/// What came of a part of a list.
enum Stretch {
    /// All of it ran.
    Ran {
        /// Routers in it.
        marks: usize,
        /// The operation to go on with.
        until: usize,
    },
    /// It ended at a router.
    Missed {
        /// Which of those ahead.
        mark: usize,
        /// What its rows chose.
        choices: Vec<u32>,
    },
}

fn without_shared(half: &mut Op) {
    match half {
        Op::ExpertsIn(half) => half.shared = None,
        Op::ExpertsOut(half) => half.shared = None,
        _ => {}
    }
}
