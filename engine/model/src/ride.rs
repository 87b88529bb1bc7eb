//! Owns: a pass that is one list of operations, on its way through the device: cut into submissions as long as its experts
//! are found, each encoded while the one before it runs, and taken up again behind a router that missed (engine.md 5.3, 5.4).
//! Refuses: what the operations are, and where a token's own inputs come from.
//! Invariants: a router whose choices lack a slot is the last operation that had an effect, and the list goes on right
//! behind it; slots are given up only when no unfinished work can name them; how a list is cut changes no bit.

use ss_backend::{Backend, Buffer, Encoded, NONE, Recorder, Rows, Wanted};
use ss_checkpoint::Geometry;
use ss_stream::{Candidate, ExpertCache};

use crate::drive::{Lookups, distinct, existing};
use crate::groups::{Groups, slots_of};
use crate::trace::Tracer;
use crate::{Cancel, Error, Result};

/// A router whose slots the device looks up.
#[derive(Clone, Copy)]
pub(crate) struct Mark {
    /// Its layer.
    pub layer: u32,
    /// Operations up to and with it.
    pub after: usize,
    /// The layer whose choices are forecast in front of it, if it is one's.
    pub forecast: Option<u32>,
}

/// A pass as one list.
pub(crate) struct Listing {
    pub list: Recorder,
    /// Its routers, in order.
    pub marks: Vec<Mark>,
    /// The first operation that reads rows of n-grams, if one does.
    pub rows_at: Option<usize>,
}

impl Listing {
    fn end(&self) -> usize {
        self.list.steps().len()
    }
}

/// A place in a list: the next operation, and the next router.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Here {
    pub op: usize,
    pub mark: usize,
}

/// A part of a list, encoded as one submission.
pub(crate) struct Stretch {
    pub from: Here,
    pub until: Here,
    /// Whether it holds the rest of the list.
    pub last: bool,
    /// Layers whose routers it holds.
    layers: Vec<u32>,
    /// Whether what comes before the n-gram rows can go first.
    cut: bool,
    encoded: Encoded,
}

impl Stretch {
    /// Whether what comes before the n-gram rows can go first.
    pub fn has_cut(&self) -> bool {
        self.cut
    }

    fn layers(&self) -> impl Iterator<Item = u32> {
        self.layers.iter().copied()
    }
}

/// How many routers a submission may hold, by how often routers missed of late.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Span {
    /// Share of routers that missed, recent ones counting most.
    missed: f32,
    /// Routers that found all since one missed.
    found: usize,
}

impl Span {
    /// Routers that the share looks back on, about: more than a token of the released model has.
    const MEMORY: f32 = 64.0;
    /// Twice what a readback costs, in layers that are skipped and encoded once more after a miss in the middle of a
    /// submission. H200: a readback and its launch 110 us, such a layer 75 us.
    const READBACKS: f32 = 3.0;

    /// Takes in whether a router found all.
    fn see(&mut self, missed: bool) {
        self.missed += (f32::from(u8::from(missed)) - self.missed) / Self::MEMORY;
        self.found = if missed { 0 } else { self.found.saturating_add(1) };
    }

    /// Routers of the next submission: the number for which readbacks and repeated layers cost the least, or as many as
    /// found all in a row.
    fn routers(self) -> usize {
        ((Self::READBACKS / self.missed).sqrt() as usize).max(self.found).max(1)
    }

    /// Whether routers miss often enough for forecasts to be worth their time.
    pub fn misses(self) -> bool {
        self.missed > 1.0 / Self::MEMORY
    }
}

/// What came of a stretch.
pub(crate) enum Outcome {
    /// The list is over; what was to be read.
    Over(Vec<u8>),
    /// It goes on from here.
    At(Here),
}

/// Takes lists through the device.
pub(crate) struct Rider<'a> {
    pub backend: &'a dyn Backend,
    pub experts: &'a mut ExpertCache,
    pub lookups: &'a mut Lookups,
    /// Where the slots of a layer's choices lie.
    pub slots: Buffer,
    pub rows: Rows,
    pub geometry: &'a Geometry,
    pub cancel: &'a Cancel,
    pub tracer: &'a mut Tracer,
}

impl Rider<'_> {
    /// Runs a list to its end, then reads.
    pub fn ride(&mut self, listing: &Listing, ends: &[Wanted]) -> Result<Vec<u8>> {
        let mut now = self.stretch(listing, Here::default(), ends)?;
        loop {
            self.cancel.check()?;
            self.launch(&mut now)?;
            let next = match now.last {
                true => None,
                false => Some(self.stretch(listing, now.until, ends)?),
            };
            match self.settle(listing, now)? {
                Outcome::Over(bytes) => return Ok(bytes),
                Outcome::At(here) => now = self.next(listing, here, next, ends)?,
            }
        }
    }

    /// The stretch that begins here: the one encoded ahead, if it does.
    pub fn next(&self, listing: &Listing, here: Here, ahead: Option<Stretch>, ends: &[Wanted]) -> Result<Stretch> {
        match ahead.filter(|ahead| ahead.from == here) {
            Some(ahead) => Ok(ahead),
            None => self.stretch(listing, here, ends),
        }
    }

    /// Encodes from a place as far as the span goes, with a cut where n-gram rows are needed, and what is read behind it.
    pub fn stretch(&self, listing: &Listing, from: Here, ends: &[Wanted]) -> Result<Stretch> {
        let ahead = listing.marks.get(from.mark..).unwrap_or_default();
        let routers = self.lookups.span.routers();
        // What is left behind the last router is too little for a submission of its own, unless that is likely to miss: then it
        // is encoded while the router runs, and not skipped first.
        let most = listing.marks.len().saturating_sub(usize::from(routers > 1));
        let (until, last) = match ahead.get(routers - 1) {
            Some(mark) if from.mark + routers <= most => (Here { op: mark.after, mark: from.mark + routers }, false),
            _ => (Here { op: listing.end(), mark: listing.marks.len() }, true),
        };
        let marks = listing.marks.get(from.mark..until.mark).unwrap_or_default();
        let mut reads = vec![self.control_up_to(marks)];
        reads.extend(marks.iter().flat_map(|mark| self.forecast_of(mark)));
        reads.extend(marks.iter().filter_map(|mark| self.traced_of(mark)));
        reads.extend(ends.iter().filter(|_| last).cloned());
        let parts: Vec<_> = match listing.rows_at.filter(|&at| from.op < at && at < until.op) {
            Some(at) => vec![listing.list.part(from.op, at), listing.list.part(at, until.op)],
            None => vec![listing.list.part(from.op, until.op)],
        };
        let encoded = self.backend.encode(&parts, &reads)?;
        let layers = marks.iter().map(|mark| mark.layer).collect();
        Ok(Stretch { from, until, last, layers, cut: parts.len() > 1, encoded })
    }

    /// The control block with the choices of these routers.
    fn control_up_to(&self, marks: &[Mark]) -> Wanted {
        let layers = marks.last().map_or(0, |mark| u64::from(mark.layer) + 1);
        let words = 1 + layers * u64::from(self.rows.count * self.geometry.choices);
        Wanted { source: self.lookups.control.clone(), offset: 0, bytes: 4 * words }
    }

    /// What a router's forecast left: experts, then their weights.
    fn forecast_of(&self, mark: &Mark) -> Vec<Wanted> {
        let bytes = (WORD * self.of_forecast()) as u64;
        let buffers = mark.forecast.and_then(|layer| self.lookups.forecast_of(layer));
        let wanted = |source: &Buffer| Wanted { source: source.clone(), offset: 0, bytes };
        buffers.into_iter().flatten().map(wanted).collect()
    }

    /// The weights of a router's choices, if somebody wants to know them.
    fn traced_of(&self, mark: &Mark) -> Option<Wanted> {
        let source = self.tracer.weights_of(mark.layer)?.clone();
        Some(Wanted { source, offset: 0, bytes: 4 * self.of_layer() as u64 })
    }

    /// Hands over what comes before the n-gram rows.
    pub fn advance(&mut self, stretch: &mut Stretch) -> Result<()> {
        self.experts.admit_early();
        self.lookups.sync(self.backend, self.experts, stretch.layers())?;
        Ok(self.backend.advance(&mut stretch.encoded)?)
    }

    /// Hands over the rest.
    pub fn launch(&mut self, stretch: &mut Stretch) -> Result<()> {
        self.experts.admit_early();
        self.lookups.sync(self.backend, self.experts, stretch.layers())?;
        Ok(self.backend.launch(&mut stretch.encoded)?)
    }

    /// Waits for a stretch, and brings what its last router missed.
    pub fn settle(&mut self, listing: &Listing, stretch: Stretch) -> Result<Outcome> {
        let Stretch { from, until, last, encoded, .. } = stretch;
        let marks = listing.marks.get(from.mark..until.mark).unwrap_or_default();
        let bytes = self.backend.land(encoded)?;
        let words = to_words(&bytes);
        let (head, mut tail) = words
            .split_at_checked(self.control_up_to(marks).bytes as usize / WORD)
            .ok_or(Error::Request("a short readback"))?;
        let control = Control { words: head.to_vec(), of_layer: self.of_layer() };
        let mut forecasts = Vec::new();
        for layer in marks.iter().filter_map(|mark| mark.forecast) {
            let (forecast, rest) =
                tail.split_at_checked(2 * self.of_forecast()).ok_or(Error::Request("a short readback"))?;
            forecasts.push((layer, forecast));
            tail = rest;
        }
        // Everything submitted is finished now, so that slots may be taken, and what has landed meanwhile is there for the
        // router that missed it.
        self.experts.release();
        self.experts.admit_early();
        let missed = control.halted().and_then(|layer| marks.iter().position(|mark| mark.layer == layer));
        let chose = missed.map_or(marks.len(), |mark| mark + 1);
        tail = self.tell(marks, chose, (&control, &forecasts), tail)?;
        for mark in &marks[..missed.unwrap_or(marks.len())] {
            self.experts.found(mark.layer, &distinct(control.choices(mark.layer, self.geometry.experts)?));
            self.lookups.span.see(false);
        }
        // Forecasts for layers that have chosen since are of no use any more.
        let ran = marks.get(missed.unwrap_or(marks.len().saturating_sub(1))).map_or(0, |mark| mark.layer);
        let of_use = self.experts.looks_ahead();
        let expected = forecasts.into_iter().find(|(layer, _)| of_use && *layer == ran + 1);
        let expected = expected.map(|(layer, forecast)| (layer, self.candidates(forecast)));
        let Some(mark) = missed else {
            // What the last router found is computed by the next stretch.
            if let Some(mark) = marks.last().filter(|_| !last) {
                let choices = control.choices(mark.layer, self.geometry.experts)?;
                self.experts.hold(mark.layer, &distinct(choices));
            }
            if let Some((layer, candidates)) = &expected {
                self.experts.forecast(*layer, candidates)?;
            }
            return Ok(if last { Outcome::Over(bytemuck::cast_slice(tail).to_vec()) } else { Outcome::At(until) });
        };
        self.lookups.span.see(true);
        self.lookups.clear(self.backend)?;
        let here = Here { op: marks[mark].after, mark: from.mark + mark + 1 };
        let missed = Missed { layer: marks[mark].layer, here, expected };
        let choices = control.choices(missed.layer, self.geometry.experts)?;
        Ok(Outcome::At(self.bring(listing, &missed, choices)?))
    }

    /// Tells what the first `chose` of some routers chose, and what was forecast beside them, if somebody wants to know; gives
    /// what follows their weights.
    fn tell<'t>(
        &mut self,
        marks: &[Mark],
        chose: usize,
        (control, forecasts): (&Control, &[(u32, &[u32])]),
        mut tail: &'t [u32],
    ) -> Result<&'t [u32]> {
        for (number, mark) in marks.iter().enumerate() {
            if !self.tracer.wants(mark.layer) {
                continue;
            }
            let (weights, rest) = tail.split_at_checked(self.of_layer()).ok_or(Error::Request("a short readback"))?;
            if number < chose {
                let choices = control.choices(mark.layer, self.geometry.experts)?;
                self.tracer.tell(mark.layer, choices, bytemuck::cast_slice(weights));
                if let Some((layer, forecast)) = forecasts.iter().find(|(layer, _)| mark.forecast == Some(*layer)) {
                    // As many as a row chooses.
                    let (choices, width) = (self.geometry.choices as usize, self.lookups.forecast_width() as usize);
                    let cut = |all: &[u32]| all.chunks_exact(width).flat_map(|row| &row[..choices]).copied().collect();
                    let (experts, weights) = forecast.split_at(self.of_forecast());
                    let (experts, weights): (Vec<u32>, Vec<u32>) = (cut(experts), cut(weights));
                    self.tracer.foretell(*layer, &experts, bytemuck::cast_slice(&weights));
                }
            }
            tail = rest;
        }
        Ok(tail)
    }

    /// The experts of a forecast, those of several rows together.
    fn candidates(&self, forecast: &[u32]) -> Vec<Candidate> {
        let (choices, width) = (self.geometry.choices as usize, self.lookups.forecast_width() as usize);
        let (experts, weights) = forecast.split_at(self.of_forecast());
        let rows = experts.chunks_exact(width).zip(weights.chunks_exact(width));
        rows.flat_map(|(experts, weights)| {
            let weight = |bits: u32| f32::from_bits(bits);
            // The softmax keeps the differences of logits; what is expected behind the last choice lies below it.
            let last = weights.get(choices - 1).copied().map_or(1.0, weight);
            experts
                .iter()
                .zip(weights)
                .map(move |(&expert, &bits)| Candidate { expert, margin: (weight(bits) / last).ln() })
        })
        .filter(|candidate| candidate.expert < self.geometry.experts)
        .collect()
    }

    /// Experts of a forecast.
    fn of_forecast(&self) -> usize {
        (self.rows.count * self.lookups.forecast_width()) as usize
    }

    fn of_layer(&self) -> usize {
        (self.rows.count * self.geometry.choices) as usize
    }

    /// Brings what a router missed; returns where the list goes on.
    fn bring(&mut self, listing: &Listing, missed: &Missed, choices: &[u32]) -> Result<Here> {
        let &Missed { layer, here, ref expected } = missed;
        let expected = expected.as_ref().map(|(layer, candidates)| (*layer, &candidates[..]));
        let (experts, lane) = (self.geometry.experts, crate::model::lane(self.rows.form));
        let groups = self.experts.groups(layer, &distinct(choices));
        let halves = listing.list.part(here.op, here.op + HALVES);
        let [group] = &groups[..] else {
            let slots = &self.slots.clone();
            let (backend, cancel) = (self.backend, self.cancel);
            Groups { backend, experts: self.experts, slots, lane, cancel, count: experts }
                .run(layer, choices, halves)?;
            if let Some((layer, candidates)) = expected {
                self.experts.forecast(layer, candidates)?;
            }
            return Ok(Here { op: here.op + HALVES, ..here });
        };
        let (backend, slots) = (self.backend, &self.slots);
        // The choices that have a slot start at once, the others follow when their bytes are there.
        let early = |placed: &[(u32, u32)]| -> ss_backend::Result<()> {
            let table = slots_of(choices, placed.iter().copied(), experts);
            backend.upload(slots, 0, bytemuck::cast_slice(&table))?;
            backend.submit(halves)?;
            Ok(())
        };
        let late = self.experts.acquire_beside(layer, group, lane, expected, early)?;
        let table = slots_of(choices, late.into_iter(), experts);
        backend.upload(slots, 0, bytemuck::cast_slice(&table))?;
        Ok(here)
    }
}

/// A router that missed.
struct Missed {
    layer: u32,
    /// Where the list goes on behind it.
    here: Here,
    /// What the layer behind it is expected to choose.
    expected: Option<(u32, Vec<Candidate>)>,
}

const WORD: usize = size_of::<u32>();

/// Bytes as the words that they are; a readback may lie anywhere.
pub(crate) fn to_words(bytes: &[u8]) -> Vec<u32> {
    let mut words = vec![0; bytes.len() / WORD];
    bytemuck::cast_slice_mut(&mut words).copy_from_slice(bytes);
    words
}

/// Operations of a layer's experts: their first and their second half.
const HALVES: usize = 2;

/// The control block of some rows, on the host.
struct Control {
    words: Vec<u32>,
    /// Choices of a layer.
    of_layer: usize,
}

impl Control {
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
