//! Owns: a prompt in passes, and the passes that share one read of each layer's experts (engine.md section 6).
//! Refuses: generated rows; and how a layer's experts are grouped, which is the sweep's business.
//! Invariants: passes of a read group go through a layer one after the other before any goes on to the next; they write
//! what a pass alone writes, bit for bit (I2); a group that fails leaves its state torn.

use std::sync::Arc;

use ss_backend::{Backend, Form, Rows, Scope};
use ss_checkpoint::{Checkpoint, NgramTables};
use ss_stream::{Lane, NgramRows};

use crate::graph::{Rowed, Run};
use crate::model::{RowsAhead, Scribe, Start, embed, ending, finite, ngram_rows};
use crate::rope::Position;
use crate::rows::{Closing, RowRing};
use crate::state::State;
use crate::trace::TracedPass;
use crate::weights::Weights;
use crate::workspace::{Area, group_passes};
use crate::{Cancel, Error, Model, Output, Pass, Result, Want};

/// Prompt text, read in passes.
#[derive(Clone, Copy, Debug)]
pub struct Prompt<'a> {
    /// Token ids, at least one.
    pub ids: &'a [u32],
    /// Positions, one an id; none for text that simply goes on.
    pub positions: Option<&'a [Position]>,
    /// Most rows of a pass.
    pub pass: u32,
    /// What to give back: of the last row or the last pass, but for [`Want::All`].
    pub want: Want,
}

impl<'a> Prompt<'a> {
    /// The ids from `first` on, `count` of them if there are as many, their last one being the prompt's or not.
    fn part(self, first: usize, count: usize) -> Prompt<'a> {
        let until = self.ids.len().min(first + count);
        let want = if until == self.ids.len() || self.want == Want::All { self.want } else { Want::Nothing };
        let positions = self.positions.and_then(|positions| positions.get(first..until));
        Prompt { ids: &self.ids[first..until], positions, want, ..self }
    }

    /// Its parts of up to `count` ids.
    fn parts(self, count: usize) -> impl Iterator<Item = Prompt<'a>> {
        (0..self.ids.len()).step_by(count.max(1)).map(move |first| self.part(first, count))
    }
}

impl Model {
    /// Reads a prompt, extending `state`, and tells `told` how many tokens are read. n-gram rows are read while earlier work
    /// runs. Where experts stream, passes share one read of each layer's experts, as many as the model's read group holds;
    /// told then is what layers amount to.
    ///
    /// # Errors
    /// As [`Model::forward`]; what was asked for is refused before the first pass, and the state is whole then.
    pub fn read(
        &mut self,
        state: &mut State,
        prompt: &Prompt<'_>,
        cancel: &Cancel,
        told: &mut dyn FnMut(u32),
    ) -> Result<Output> {
        self.read_with(state, prompt, None, cancel, told)
    }

    /// Reads a prompt as [`Model::read`] does, and gives `row` the logits of every row in turn, whatever it says that it wants.
    /// Those of a few rows are in memory at a time.
    ///
    /// # Errors
    /// As [`Model::read`].
    pub fn read_rows(
        &mut self,
        state: &mut State,
        prompt: &Prompt<'_>,
        cancel: &Cancel,
        told: &mut dyn FnMut(u32),
        row: &mut dyn FnMut(&[f32]),
    ) -> Result<()> {
        let (checkpoint, vocab) = (self.checkpoint.clone(), self.geometry().vocab as usize);
        let mut scribe = |logits: &[f32]| {
            finite(&checkpoint, logits)?;
            logits.chunks_exact(vocab).for_each(&mut *row);
            Ok(())
        };
        let prompt = Prompt { want: Want::All, ..*prompt };
        self.read_with(state, &prompt, Some(&mut scribe), cancel, told).map(|_| ())
    }

    fn read_with(
        &mut self,
        state: &mut State,
        prompt: &Prompt<'_>,
        scribe: Option<Scribe<'_>>,
        cancel: &Cancel,
        told: &mut dyn FnMut(u32),
    ) -> Result<Output> {
        state.check_whole()?;
        self.check(state, prompt.ids, prompt.positions)?;
        let count = prompt.ids.len() as u32;
        let prompt = Prompt { pass: prompt.pass.clamp(1, count), ..*prompt };
        let passes = if self.sweep.streams() { group_passes(prompt.pass, self.read_group) } else { 1 };
        let passes = passes.min(count.div_ceil(prompt.pass)) as usize;
        self.make_room(prompt.pass)?;
        self.work.share(self.backend.as_ref(), self.checkpoint.geometry(), passes)?;
        let mut tables = std::mem::take(&mut self.store.ngrams);
        let ring = RowRing::new(self.work.ngram_sets(), self.mutation);
        let source = Source { backend: self.backend.clone(), checkpoint: self.checkpoint.clone() };
        let context = state.context.clone();
        let read = std::thread::scope(|scope| {
            let _closing = Closing(&ring);
            let filler = std::thread::Builder::new().name("ss-read-rows".to_owned());
            filler
                .spawn_scoped(scope, || source.fill(&ring, &mut tables, context, &prompt))
                .map_err(|cause| ss_stream::Error::Threads { threads: 1, cause: cause.to_string() })?;
            self.read_passes(state, &prompt, (passes, &ring), scribe, cancel, told)
        });
        self.count_early(&mut tables, &ring, &prompt);
        self.store.ngrams = tables;
        read
    }

    /// Counts the rows that were there when their passes came to them.
    fn count_early(&self, tables: &mut [NgramRows], ring: &RowRing, prompt: &Prompt<'_>) {
        let came = ring.came();
        let early = prompt.ids.chunks(prompt.pass as usize).enumerate();
        let ids: usize = early.filter(|(number, _)| came.early.contains(number)).map(|(_, ids)| ids.len()).sum();
        let mut waited = came.waited;
        for (index, table) in tables.iter_mut().enumerate() {
            let heads = self.checkpoint.ngram_tables(index).map_or(0, NgramTables::heads);
            // They are waited for all at once.
            table.came_early((ids * heads) as u64, std::mem::take(&mut waited));
        }
    }

    /// Reads a prompt in groups of so many passes, their n-gram rows coming from a ring.
    fn read_passes(
        &mut self,
        state: &mut State,
        prompt: &Prompt<'_>,
        (passes, ring): (usize, &RowRing),
        mut scribe: Option<Scribe<'_>>,
        cancel: &Cancel,
        told: &mut dyn FnMut(u32),
    ) -> Result<Output> {
        let mut read = Output { logits: Vec::new(), likeliest: None, recording: None };
        let (mut done, mut number) = (0, 0);
        for group in prompt.parts(passes * prompt.pass as usize) {
            let count = group.ids.len() as u32;
            let ahead = RowsAhead { ring, number };
            let scribe = scribe.as_mut().map(|scribe| &mut **scribe as Scribe<'_>);
            let output = match count > prompt.pass {
                true => self.read_group(state, group, ahead, scribe, cancel, &mut |tokens| told(done + tokens))?,
                false => {
                    let pass = Pass { positions: group.positions, ..Pass::prompt(group.ids, group.want) };
                    self.forward_with(state, &pass, Some(ahead), scribe, cancel)?
                }
            };
            done += count;
            number += count.div_ceil(prompt.pass) as usize;
            ring.done(number);
            self.show();
            told(done);
            read.logits.extend(output.logits);
            read.likeliest = output.likeliest;
        }
        Ok(read)
    }

    /// Reads a group of several passes.
    fn read_group(
        &mut self,
        state: &mut State,
        group: Prompt<'_>,
        ahead: RowsAhead<'_>,
        mut scribe: Option<Scribe<'_>>,
        cancel: &Cancel,
        told: &mut dyn FnMut(u32),
    ) -> Result<Output> {
        cancel.check()?;
        state.torn = true;
        self.mutate(state)?;
        let passes = self.place(state, group, ahead.number)?;
        let Some(&Rowed { rows, first, .. }) = passes.first() else { return Err(Error::Request("no rows")) };
        let (checkpoint, count) = (self.checkpoint.clone(), group.ids.len() as u32);
        self.tracer.begin(TracedPass { form: Form::Prompt, first, rows: count });
        let (mut run, weights, chooser) = self.run(Start {
            geometry: checkpoint.geometry(),
            rows,
            first,
            streams: Area::Streams,
            admits: group.want != Want::Nothing,
            dry: false,
            cancel,
        });
        (run.passes, run.rows_ahead) = (passes, Some(ahead.ring));
        let layers = weights.layers.len().max(1) as u32;
        trunk(&mut run, weights, state, &mut |done| told(count * done / layers))?;
        let mut endings = Vec::new();
        let first = if group.want == Want::All { 0 } else { run.passes.len() - 1 };
        for pass in first..run.passes.len() {
            run.enter(pass);
            let scribe = scribe.as_mut().map(|scribe| &mut **scribe as Scribe<'_>);
            endings.push(ending(&mut run, weights, chooser, group.want, scribe)?);
        }
        let mut read = Output { logits: Vec::new(), likeliest: None, recording: None };
        for ending in endings {
            let (logits, likeliest) = self.told(ending)?;
            read.logits.extend(logits);
            read.likeliest = likeliest;
        }
        state.torn = false;
        Ok(read)
    }

    /// Uploads what the passes of a group need to know of their rows, and says where they stand.
    fn place(&mut self, state: &mut State, group: Prompt<'_>, number: usize) -> Result<Vec<Rowed>> {
        let order = self.geometry().ngram.order;
        let mut passes = Vec::new();
        for part in group.parts(group.pass as usize) {
            let count = part.ids.len() as u32;
            self.work.turn_to(passes.len());
            let first = state.timeline.tokens;
            let positions = part.positions.map_or_else(|| state.timeline.text(count), <[Position]>::to_vec);
            state.timeline.extend(&positions, self.shapes.qsa.block);
            self.upload_rows(part.ids, &positions, &state.timeline, first)?;
            state.remember(part.ids, order);
            passes.push(Rowed { rows: Rows { count, form: Form::Prompt }, first, number: number + passes.len() });
        }
        Ok(passes)
    }
}

/// What reads n-gram rows, and brings them to the device.
struct Source {
    backend: Arc<dyn Backend>,
    checkpoint: Arc<Checkpoint>,
}

impl Source {
    /// Fills the ring for the passes of a prompt that follows `context`.
    fn fill(&self, ring: &RowRing, tables: &mut [NgramRows], mut context: Vec<u32>, prompt: &Prompt<'_>) {
        let looks_back = self.checkpoint.geometry().ngram.order.saturating_sub(1) as usize;
        let parts: Vec<&[u32]> = prompt.ids.chunks(prompt.pass as usize).collect();
        ring.fill(parts.len(), |number, set| {
            let Some(ids) = parts.get(number) else { return Ok(()) };
            for ((index, table), buffer) in tables.iter_mut().enumerate().zip(set) {
                let rows = ngram_rows(&self.checkpoint, index, &context, ids);
                let mut values = vec![0f32; rows.len() * table.width()];
                table.fetch_early(&rows, Lane::Demand, &mut values)?;
                self.backend.upload(buffer, 0, bytemuck::cast_slice(&values))?;
            }
            context.extend_from_slice(ids);
            context.drain(..context.len().saturating_sub(looks_back));
            Ok(())
        });
    }
}

/// Embedding and all layers of passes that share the reads of experts; tells `told` how many layers are done.
fn trunk(run: &mut Run<'_>, weights: &Weights, state: &mut State, told: &mut dyn FnMut(u32)) -> Result<()> {
    let passes = run.passes.len();
    for pass in 0..passes {
        run.enter(pass);
        embed(run, weights);
    }
    let last_rows = weights.layers.iter().rposition(|layer| layer.ple.is_some());
    for ((l, layer), mixer) in weights.layers.iter().enumerate().zip(&mut state.mixers) {
        let (number, scope) = (l as u32, Scope::Layer(l as u32));
        let mut forecast = None;
        for pass in 0..passes {
            run.enter(pass);
            if let Some(ple) = &layer.ple {
                run.ple(number, ple, &mut state.ple[ple.index], None)?;
            }
            run.mix(scope, layer, mixer, None)?;
            run.route(number, scope, &layer.moe, None);
            // One pass speaks for all: what many rows choose most, others do, and a forecast costs as much as a router. The
            // first is as long as any.
            if let Some(next) = weights.layers.get(l + 1).filter(|_| pass == 0) {
                forecast = Some(run.record_forecast(scope, next)?);
            }
            run.submit()?;
        }
        if Some(l) == last_rows
            && let Some(ring) = run.rows_ahead
        {
            ring.done(run.number + 1);
        }
        run.sweep_passes(number, scope, &layer.moe, forecast)?;
        for pass in 0..passes {
            run.enter(pass);
            run.combine(number, scope, &layer.moe);
        }
        told(number + 1);
    }
    Ok(())
}
