//! Owns: the way of a pass's operations to the device (engine.md 5.3): a pass of few rows as one list whose routers look up
//! their slots on the device, a longer one layer by layer.
//! Refuses: what the operations are, and how a list is cut into submissions, which is `ride`'s business.
//! Invariants: experts are given up only while everything submitted is finished, or no unfinished work names them.

use ss_backend::op::Lookup;
use ss_backend::{Backend, Buffer, Form, NONE, Op, Readback, Recorder, Scope, Submission};
use ss_checkpoint::Geometry;
use ss_stream::ExpertCache;

use crate::graph::Run;
use crate::groups::{Groups, without_shared};
use crate::ride::{Listing, Rider, Span};
use crate::sweep::over;
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

/// What routers look up on the device, and what they leave for the host.
pub(crate) struct Lookups {
    /// `[layers, experts]` u32: a copy of the slot table.
    table: Buffer,
    /// See [`Lookup::control`].
    pub control: Buffer,
    experts: u32,
    /// How many routers a submission may hold.
    pub span: Span,
    /// What each layer is expected to choose, where that is of use.
    forecasts: Option<Forecasts>,
}

/// Where forecasts leave what they expect, a layer at a time (engine.md 5.6).
pub(crate) struct Forecasts {
    /// `[rows, width]` u32 each: experts.
    pub choices: Vec<Buffer>,
    /// `[rows, width]` F32 each: their softmax.
    pub weights: Vec<Buffer>,
    /// Experts that are expected of a row: more than it chooses, since what is close to being chosen often is.
    pub width: u32,
    /// `[rows, experts]` F32.
    pub logits: Buffer,
    /// `[rows, hidden]` F32: what the router of the layer ahead reads.
    pub u: Buffer,
    /// `[rows, streams]` F32; nobody reads it.
    pub inject: Buffer,
}

/// Experts that a forecast lists of a row, where there are so many: what kernels have room for.
const FORECAST_WIDTH: u32 = 16;

impl Forecasts {
    fn new(backend: &dyn Backend, g: &Geometry) -> Result<Self> {
        let alloc = |what: &str, width: u32| backend.alloc(what, 4 * u64::from(Lookups::MOST_ROWS * width));
        let width = g.choices.max(FORECAST_WIDTH).min(g.experts);
        let layers = |what: &'static str| -> Result<Vec<Buffer>> {
            Ok(g.layers.iter().map(|_| alloc(what, width)).collect::<std::result::Result<_, _>>()?)
        };
        Ok(Forecasts {
            choices: layers("forecast choices")?,
            weights: layers("forecast weights")?,
            width,
            logits: alloc("forecast logits", g.experts)?,
            u: alloc("forecast u", g.hidden)?,
            inject: alloc("forecast inject", g.streams)?,
        })
    }
}

impl Lookups {
    /// Most rows of a pass that is run as one list.
    pub const MOST_ROWS: u32 = HEAD_ROWS;

    /// Memory for a model; the draft layer has the last row.
    pub fn new(backend: &dyn Backend, g: &Geometry, forecasts: bool) -> Result<Self> {
        let layers = g.layers.len() as u32 + 1;
        let (experts, choices) = (g.experts, g.choices);
        let words = |count: u32| 4 * u64::from(count);
        let table = backend.alloc("slot table", words(layers * experts))?;
        let control = backend.alloc("control block", words(1 + layers * Self::MOST_ROWS * choices))?;
        backend.upload(&table, 0, bytemuck::cast_slice(&vec![NONE; (layers * experts) as usize]))?;
        let forecasts = forecasts.then(|| Forecasts::new(backend, g)).transpose()?;
        Ok(Lookups { table, control, experts, span: Span::default(), forecasts })
    }

    /// What the router of a layer looks up.
    pub fn of(&self, layer: u32, work: &Workspace) -> Lookup {
        Lookup { layer, table: self.table.clone(), slots: work.at(Area::Slots), control: self.control.clone() }
    }

    /// Makes room for forecasts where there is none.
    pub fn foretell(&mut self, backend: &dyn Backend, g: &Geometry) -> Result<()> {
        if self.forecasts.is_none() {
            self.forecasts = Some(Forecasts::new(backend, g)?);
        }
        Ok(())
    }

    /// Where forecasts go, while somebody wants to know them or routers miss often enough for them to be worth their time.
    pub fn forecasts(&self, told: bool) -> Option<&Forecasts> {
        self.forecasts.as_ref().filter(|_| told || self.span.misses())
    }

    /// Experts that a forecast lists of a row.
    pub fn forecast_width(&self) -> u32 {
        self.forecasts.as_ref().map_or(0, |forecasts| forecasts.width)
    }

    /// Where the forecast for a layer lies, once one was made: choices and weights.
    pub fn forecast_of(&self, layer: u32) -> Option<[&Buffer; 2]> {
        let forecasts = self.forecasts.as_ref()?;
        Some([forecasts.choices.get(layer as usize)?, forecasts.weights.get(layer as usize)?])
    }

    /// Brings the copy of the slot table up to date, of those layers whose routers are about to run: most others will have
    /// changed again when theirs do.
    pub fn sync(
        &self,
        backend: &dyn Backend,
        experts: &mut ExpertCache,
        layers: impl Iterator<Item = u32>,
    ) -> Result<()> {
        for layer in experts.take_changed(layers) {
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

/// The same choices, all of them of experts that there are.
pub(crate) fn existing(choices: &[u32], experts: u32) -> Result<&[u32]> {
    match !choices.is_empty() && choices.iter().all(|&expert| expert < experts) {
        true => Ok(choices),
        false => Err(Error::Request("an expert that does not exist")),
    }
}

pub(crate) fn distinct(choices: &[u32]) -> Vec<u32> {
    let mut distinct = choices.to_vec();
    distinct.sort_unstable();
    distinct.dedup();
    distinct
}

impl Run<'_> {
    /// Hands what is recorded to the device and starts a new list.
    pub fn submit(&mut self) -> Result<Submission> {
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
        let listing = self.take_listing();
        let wanted: Vec<_> = parts.iter().map(Readback::wanted).collect();
        let bytes = self.rider()?.ride(&listing, &wanted)?;
        let mut rest = &bytes[..];
        for part in parts {
            let (these, others) = rest.split_at_checked(part.into.len()).ok_or(Error::Request("a short readback"))?;
            part.into.copy_from_slice(these);
            rest = others;
        }
        Ok(())
    }

    /// What is recorded so far, for good.
    pub fn take_listing(&mut self) -> Listing {
        let list = std::mem::replace(&mut self.rec, Recorder::new(self.arithmetic));
        Listing { list, marks: std::mem::take(&mut self.marks), rows_at: self.rows_at.take() }
    }

    fn rider(&mut self) -> Result<Rider<'_>> {
        let Drive::Listed(lookups) = &mut self.drive else { return Err(Error::Request("a list in another pass")) };
        Ok(Rider {
            backend: self.backend,
            experts: self.experts,
            lookups,
            slots: self.work.at(Area::Slots),
            rows: self.rows,
            geometry: self.geometry,
            cancel: self.cancel,
            tracer: self.tracer,
        })
    }

    /// Runs the router and the experts of a layer whose router is recorded.
    pub fn run_layer_experts(&mut self, layer: u32, scope: Scope, w: &MoeLayer) -> Result<()> {
        self.submit()?;
        let mut choices = vec![0u32; (self.rows.count * self.geometry.choices) as usize];
        self.backend.read(&self.work.at(Area::Choices), 0, bytemuck::cast_slice_mut(&mut choices))?;
        existing(&choices, self.geometry.experts)?;
        self.tell(layer, &choices)?;
        // Everything submitted is finished now, so that slots of earlier layers may be taken.
        self.experts.release();
        self.experts.admit_early();
        self.experts(scope, w);
        let list = std::mem::replace(&mut self.rec, Recorder::new(self.arithmetic));
        let mut groups = Groups {
            backend: self.backend,
            slots: &self.work.at(Area::Slots),
            lane: crate::model::lane(self.rows.form),
            experts: self.experts,
            cancel: self.cancel,
            count: self.geometry.experts,
        };
        groups.run(layer, &choices, list.all())
    }

    /// Tells what a layer chose whose router has run, if somebody wants to know.
    pub fn tell(&mut self, layer: u32, choices: &[u32]) -> Result<()> {
        if self.tracer.wants(layer) {
            let mut weights = vec![0f32; choices.len()];
            self.backend.read(&self.work.at(Area::ChoiceWeights), 0, bytemuck::cast_slice_mut(&mut weights))?;
            self.tracer.tell(layer, choices, &weights);
        }
        Ok(())
    }

    /// Records both halves of the experts behind operation `first` once more, as a group after the first has them.
    pub fn later_group(&mut self, first: usize) {
        let halves: Vec<Op> = self.rec.steps().iter().skip(first).map(|(_, op)| without_shared(op.clone())).collect();
        halves.into_iter().for_each(|half| self.rec.push(half));
    }

    /// Records both halves of the experts behind operation `first` once more, over staging slots, if there are any.
    pub fn staged_group(&mut self, first: usize) {
        let staging = self.sweep.staging().filter(|_| self.rows.form == Form::Prompt);
        let Some(staging) = staging.cloned() else { return };
        let halves: Vec<Op> = self.rec.steps().iter().skip(first).map(|(_, op)| over(op.clone(), &staging)).collect();
        halves.into_iter().for_each(|half| self.rec.push(half));
    }
}
