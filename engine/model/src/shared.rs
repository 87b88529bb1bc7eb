//! Owns: a prompt in passes, and the passes that share one read of each layer's experts (engine.md section 6).
//! Refuses: generated rows; and how a layer's experts are grouped, which is the sweep's business.
//! Invariants: passes of a read group go through a layer one after the other before any goes on to the next; they write
//! what a pass alone writes, bit for bit (I2); a group that fails leaves its state torn.

use ss_backend::{Form, Rows, Scope};

use crate::graph::{Rowed, Run};
use crate::model::{Start, embed, ending};
use crate::rope::Position;
use crate::state::State;
use crate::trace::TracedPass;
use crate::weights::Weights;
use crate::workspace::{Area, group_passes};
use crate::{Cancel, Model, Output, Pass, Result, Want};

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
    /// Reads a prompt, extending `state`, and tells `told` how many tokens are read. Where experts stream, passes share one
    /// read of each layer's experts, as many as the model's read group holds; told then is what layers amount to.
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
        state.check_whole()?;
        self.check(state, prompt.ids, prompt.positions)?;
        let prompt = Prompt { pass: prompt.pass.max(1), ..*prompt };
        let passes = if self.sweep.streams() { group_passes(prompt.pass, self.read_group) } else { 1 };
        let mut read = Output { logits: Vec::new(), likeliest: None, recording: None };
        let mut done = 0;
        for group in prompt.parts(passes as usize * prompt.pass as usize) {
            let count = group.ids.len() as u32;
            let output = match count > prompt.pass {
                true => self.read_group(state, group, cancel, &mut |tokens| told(done + tokens))?,
                false => {
                    let pass = Pass { positions: group.positions, ..Pass::prompt(group.ids, group.want) };
                    self.forward(state, &pass, cancel)?
                }
            };
            done += count;
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
        cancel: &Cancel,
        told: &mut dyn FnMut(u32),
    ) -> Result<Output> {
        cancel.check()?;
        state.torn = true;
        self.make_room(group.pass)?;
        let checkpoint = self.checkpoint.clone();
        let geometry = checkpoint.geometry();
        let count = group.ids.len() as u32;
        self.work.share(self.backend.as_ref(), geometry, count.div_ceil(group.pass) as usize)?;
        self.mutate(state)?;
        let passes = self.place(state, group)?;
        let Some(&Rowed { rows, first }) = passes.first() else { return Err(crate::Error::Request("no rows")) };
        self.tracer.begin(TracedPass { form: Form::Prompt, first, rows: count });
        let (mut run, weights, chooser) = self.run(Start {
            geometry,
            rows,
            first,
            streams: Area::Streams,
            admits: group.want != Want::Nothing,
            dry: false,
            cancel,
        });
        run.passes = passes;
        trunk(&mut run, weights, state, &mut |layers| told(count * layers / (geometry.layers.len() as u32).max(1)))?;
        let mut read = Output { logits: Vec::new(), likeliest: None, recording: None };
        let mut endings = Vec::new();
        let all = group.want == Want::All;
        let first = if all { 0 } else { run.passes.len() - 1 };
        for pass in first..run.passes.len() {
            run.enter(pass);
            endings.push(ending(&mut run, weights, chooser, group.want)?);
        }
        for ending in endings {
            let (logits, likeliest) = self.told(ending)?;
            read.logits.extend(logits);
            read.likeliest = likeliest;
        }
        state.torn = false;
        Ok(read)
    }

    /// Uploads what the passes of a group need to know of their rows, and says where they stand.
    fn place(&mut self, state: &mut State, group: Prompt<'_>) -> Result<Vec<Rowed>> {
        let order = self.geometry().ngram.order;
        let mut passes = Vec::new();
        for part in group.parts(group.pass as usize) {
            let count = part.ids.len() as u32;
            self.work.turn_to(passes.len());
            let first = state.timeline.tokens;
            let positions = part.positions.map_or_else(|| state.timeline.text(count), <[Position]>::to_vec);
            state.timeline.extend(&positions, self.shapes.qsa.block);
            self.upload_rows(part.ids, &positions, &state.timeline, first)?;
            self.upload_ngram_rows(&self.ngram_rows(&state.context, part.ids), count)?;
            state.remember(part.ids, order);
            passes.push(Rowed { rows: Rows { count, form: Form::Prompt }, first });
        }
        Ok(passes)
    }
}

/// Embedding and all layers of passes that share the reads of experts; tells `told` how many layers are done.
fn trunk(run: &mut Run<'_>, weights: &Weights, state: &mut State, told: &mut dyn FnMut(u32)) -> Result<()> {
    let passes = run.passes.len();
    for pass in 0..passes {
        run.enter(pass);
        embed(run, weights);
    }
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
        run.sweep_passes(number, scope, &layer.moe, forecast)?;
        for pass in 0..passes {
            run.enter(pass);
            run.combine(number, scope, &layer.moe);
        }
        told(number + 1);
    }
    Ok(())
}
