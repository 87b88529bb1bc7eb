//! Owns: the model as a whole: trunk, scratch, the stream, and the pass from ids to logits.
//! Refuses: more tokens than the model was made for, ids outside the vocabulary, torn states.
//! Invariants: a pass that fails leaves its state marked torn; forks made before it stay whole.

use std::sync::Arc;

use ss_backend::op::{Embed, GdnInputs, HcRead, Head, HyperWeights};
use ss_backend::{Arithmetic, Backend, Buffer, Form, Linear, Readback, Recorder, Rows, Scope, Stage, Steps};
use ss_checkpoint::{Checkpoint, Geometry};
use ss_stream::{HotExpert, Lane, Store, StoreOptions};

use crate::choice::Chooser;
use crate::drive::{Drive, Lookups};
use crate::graph::{GdnTape, Rowed, Run};
use crate::ride::Rider;
use crate::rope::{Position, Rope};
use crate::rows::RowRing;
use crate::shapes::Shapes;
use crate::state::{MixerState, State, Timeline};
use crate::sweep::Sweep;
use crate::trace::{Trace, TracedPass, Tracer};
use crate::weights::{Progress, Weights};
use crate::workspace::{Area, HEAD_ROWS, Workspace};
use crate::{Cancel, Error, Likeliest, Recording, Result};

/// How the model is set up.
#[derive(Clone)]
pub struct ModelOptions {
    /// Pool, lanes and row caches.
    pub store: StoreOptions,
    /// Arithmetic profile.
    pub arithmetic: Arithmetic,
    /// Most tokens of a prompt that share one read of each layer's experts, in passes (engine.md section 6); no more than one
    /// pass, and none does.
    pub read_group: u32,
    /// Test support: a deliberate fault.
    pub mutation: PassMutation,
}

/// Test support: a fault at the start of every pass or between passes, so that every test of promise I2 must turn red.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PassMutation {
    /// No fault.
    #[default]
    None,
    /// The convolution windows of Gated DeltaNet are not carried over.
    ForgottenWindow,
    /// The window of the n-gram injection is not carried over.
    ForgottenInjection,
    /// The n-gram rows that are read ahead are those of another pass.
    OtherRows,
    /// Of the passes that share a read of experts, the first alone gets them.
    ForgottenPass,
}

/// What a pass should give back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// Nothing: rows in the middle of a prompt.
    Nothing,
    /// Logits of the last row.
    Last,
    /// Logits of every row.
    All,
    /// The likeliest ids behind the last row, by the rules of [`Model::begin_reply`].
    Likeliest,
}

/// One forward of some rows.
#[derive(Clone, Copy, Debug)]
pub struct Pass<'a> {
    /// Token ids, at least one.
    pub ids: &'a [u32],
    /// Prompt rows or generated rows.
    pub form: Form,
    /// Positions, one an id; none for text that simply goes on.
    pub positions: Option<&'a [Position]>,
    /// What to give back.
    pub want: Want,
    /// Whether to keep what a rewind needs (engine.md 7.2).
    pub record: bool,
}

impl<'a> Pass<'a> {
    /// A pass over prompt text.
    pub fn prompt(ids: &'a [u32], want: Want) -> Self {
        Pass { ids, form: Form::Prompt, positions: None, want, record: false }
    }

    /// A pass over generated text.
    pub fn generated(ids: &'a [u32], want: Want) -> Self {
        Pass { ids, form: Form::Generated, positions: None, want, record: false }
    }
}

/// Where operations begin to be recorded.
pub(crate) struct Start<'a> {
    pub geometry: &'a Geometry,
    pub rows: Rows,
    /// Tokens before row 0.
    pub first: u32,
    /// The streams that the layers work on.
    pub streams: Area,
    /// Whether it is the last pass of a prompt.
    pub admits: bool,
    /// Whether nothing is to run.
    pub dry: bool,
    pub cancel: &'a Cancel,
}

/// Where the n-gram rows of a pass come from that are read ahead.
#[derive(Clone, Copy)]
pub(crate) struct RowsAhead<'a> {
    pub ring: &'a RowRing,
    /// The pass's number in its prompt.
    pub number: usize,
}

/// Who is given the logits of a pass's rows, some rows at a time, so that they are never in memory all at once.
pub(crate) type Scribe<'s> = &'s mut dyn FnMut(&[f32]) -> Result<()>;

/// What goes along with a pass.
struct Beside<'a, 's> {
    tape: Option<&'a Recording>,
    ahead: Option<RowsAhead<'a>>,
    scribe: Option<Scribe<'s>>,
}

/// What a pass gave.
pub struct Output {
    /// `[rows wanted, vocab]`.
    pub logits: Vec<f32>,
    /// The likeliest ids, if they were wanted.
    pub likeliest: Option<Likeliest>,
    /// What a rewind needs, if it was asked for.
    pub recording: Option<Recording>,
}

/// The model on a device.
pub struct Model {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) checkpoint: Arc<Checkpoint>,
    pub(crate) weights: Weights,
    pub(crate) shapes: Shapes,
    pub(crate) arithmetic: Arithmetic,
    pub(crate) rope: Rope,
    pub(crate) store: Store,
    pub(crate) mutation: PassMutation,
    pub(crate) read_group: u32,
    pub(crate) work: Workspace,
    pub(crate) lookups: Lookups,
    pub(crate) sweep: Sweep,
    pub(crate) tracer: Tracer,
    pub(crate) chooser: Chooser,
    watcher: Option<Watcher>,
}

/// Looks at experts and rows between passes.
pub type Watcher = Box<dyn FnMut(&Store) + Send>;

impl Model {
    /// Loads the trunk and makes the pool, cold.
    ///
    /// # Errors
    /// When a tensor is damaged or the device has no room.
    pub fn load(
        backend: Arc<dyn Backend>,
        checkpoint: Arc<Checkpoint>,
        options: ModelOptions,
        progress: Progress<'_>,
    ) -> Result<Self> {
        let store = Store::open(backend.clone(), checkpoint.clone(), options.store)?;
        let weights = Weights::load(&backend, &checkpoint, progress)?;
        let geometry = checkpoint.geometry();
        let work = Workspace::new(backend.as_ref(), geometry, HEAD_ROWS, weights.draft.is_some())?;
        let layout = checkpoint.expert_layout();
        let slots = store.experts.table().len() as u32;
        Ok(Model {
            sweep: Sweep::new(backend.as_ref(), layout, slots, geometry, options.mutation)?,
            tracer: Tracer::default(),
            chooser: Chooser::new(backend.as_ref(), geometry)?,
            lookups: Lookups::new(backend.as_ref(), geometry, store.experts.looks_ahead())?,
            weights,
            work,
            shapes: Shapes::new(geometry),
            rope: Rope::new(geometry),
            arithmetic: options.arithmetic,
            mutation: options.mutation,
            read_group: options.read_group,
            store,
            backend,
            checkpoint,
            watcher: None,
        })
    }

    /// Sizes of the model.
    pub fn geometry(&self) -> &Geometry {
        self.checkpoint.geometry()
    }

    /// The checkpoint that it was loaded from.
    pub fn checkpoint(&self) -> &Arc<Checkpoint> {
        &self.checkpoint
    }

    /// The device.
    pub fn backend(&self) -> &Arc<dyn Backend> {
        &self.backend
    }

    /// The arithmetic profile.
    pub fn arithmetic(&self) -> Arithmetic {
        self.arithmetic
    }

    /// Experts and n-gram rows, for their counters.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The trunk.
    pub fn weights(&self) -> &Weights {
        &self.weights
    }

    /// Whether the checkpoint has a draft head.
    pub fn has_draft_head(&self) -> bool {
        self.weights.draft.is_some()
    }

    /// Tells `sink` what every pass chooses from now on, and what was forecast of it; the numbers stay what they are.
    ///
    /// # Errors
    /// When the device has no room.
    pub fn trace(&mut self, sink: Box<dyn Trace>) -> Result<()> {
        self.lookups.foretell(self.backend.as_ref(), self.checkpoint.geometry())?;
        self.tracer = Tracer::new(self.backend.as_ref(), self.checkpoint.geometry(), sink)?;
        Ok(())
    }

    /// Has the records that were used most read while slots are free and nobody waits for others; see
    /// [`ss_stream::ExpertCache::warm`].
    pub fn warm(&mut self, hot: &[HotExpert]) {
        self.store.experts.warm(hot);
    }

    /// Shows `watcher` the store after every pass from now on; it must be quick.
    pub fn watch(&mut self, watcher: Watcher) {
        self.watcher = Some(watcher);
    }

    /// Shows the store to who watches.
    pub(crate) fn show(&mut self) {
        if let Some(watcher) = &mut self.watcher {
            watcher(&self.store);
        }
    }

    /// An empty sequence.
    ///
    /// # Errors
    /// When the device has no room.
    pub fn new_state(&self) -> Result<State> {
        State::new(self.backend.as_ref(), self.geometry(), self.arithmetic, self.has_draft_head())
    }

    /// Runs a pass, extending `state` by its rows.
    ///
    /// # Errors
    /// [`Error::Cancelled`] between layers; otherwise when the pass does not fit the model, a file cannot be read or the
    /// device fails. The state is torn then.
    pub fn forward(&mut self, state: &mut State, pass: &Pass<'_>, cancel: &Cancel) -> Result<Output> {
        self.forward_with(state, pass, None, None, cancel)
    }

    /// As [`Model::forward`], the n-gram rows coming from a ring if there is one, and all logits going to a scribe if there is
    /// one.
    pub(crate) fn forward_with(
        &mut self,
        state: &mut State,
        pass: &Pass<'_>,
        ahead: Option<RowsAhead<'_>>,
        scribe: Option<Scribe<'_>>,
        cancel: &Cancel,
    ) -> Result<Output> {
        state.check_whole()?;
        self.check(state, pass.ids, pass.positions)?;
        cancel.check()?;
        let before = pass.record.then(|| state.fork());
        state.torn = true;
        let count = pass.ids.len() as u32;
        self.make_room(count)?;
        self.work.turn_to(0);
        let text;
        let positions = match pass.positions {
            Some(positions) => positions,
            None => {
                text = state.timeline.text(count);
                &text
            }
        };
        self.mutate(state)?;
        let first = state.timeline.tokens;
        state.timeline.extend(positions, self.shapes.qsa.block);
        self.upload_rows(pass.ids, positions, &state.timeline, first)?;
        let tape = before.map(|before| Recording::start(self, before, pass.ids, positions)).transpose()?;
        if pass.want == Want::Likeliest && pass.form == Form::Generated {
            self.chooser.feed(self.backend.as_ref(), pass.ids)?;
        }
        let beside = Beside { tape: tape.as_ref(), ahead, scribe };
        let (logits, likeliest) = self.layers(state, pass, first, beside, cancel)?;
        state.remember(pass.ids, self.geometry().ngram.order);
        state.torn = false;
        Ok(Output { logits, likeliest, recording: tape })
    }

    /// Plants the fault that a test asked for.
    pub(crate) fn mutate(&self, state: &mut State) -> Result<()> {
        let gdn = state.mixers.iter_mut().filter_map(|mixer| match mixer {
            MixerState::Gdn(gdn) => Some(&mut gdn.window),
            MixerState::Qsa(_) => None,
        });
        let windows: Vec<_> = match self.mutation {
            PassMutation::None | PassMutation::ForgottenPass | PassMutation::OtherRows => Vec::new(),
            PassMutation::ForgottenWindow => gdn.collect(),
            PassMutation::ForgottenInjection => state.ple.iter_mut().collect(),
        };
        for window in windows {
            *window = self.backend.alloc("mutation", window.bytes())?.into();
        }
        Ok(())
    }

    pub(crate) fn check(&self, state: &State, ids: &[u32], positions: Option<&[Position]>) -> Result<()> {
        if ids.is_empty() {
            return Err(Error::Request("no rows"));
        }
        if positions.is_some_and(|p| p.len() != ids.len()) {
            return Err(Error::Request("another number of positions than of ids"));
        }
        self.check_ids(state, ids)
    }

    /// Refuses ids outside the vocabulary, and more of them than the window has room for.
    pub(crate) fn check_ids(&self, state: &State, ids: &[u32]) -> Result<()> {
        let g = self.geometry();
        if let Some(&id) = ids.iter().find(|&&id| id >= g.vocab) {
            return Err(Error::TokenId { id, vocab: g.vocab });
        }
        let wanted = u64::from(state.timeline.tokens) + ids.len() as u64;
        if wanted > u64::from(g.max_positions) {
            return Err(Error::Context { wanted, limit: g.max_positions });
        }
        Ok(())
    }

    /// Makes the scratch memory large enough for `rows` rows.
    pub(crate) fn make_room(&mut self, rows: u32) -> Result<()> {
        if rows > self.work.rows() {
            self.work =
                Workspace::new(self.backend.as_ref(), self.checkpoint.geometry(), rows, self.weights.draft.is_some())?;
        }
        Ok(())
    }

    /// Uploads what depends on where the rows stand: ids, angles of rows and of the blocks that they complete.
    pub(crate) fn upload_rows(&self, ids: &[u32], positions: &[Position], after: &Timeline, first: u32) -> Result<()> {
        let block = self.shapes.qsa.block;
        let mut angles = Vec::new();
        positions.iter().for_each(|&p| self.rope.push(p, &mut angles));
        let mut block_angles = Vec::new();
        let complete = (first / block) as usize..(after.tokens / block) as usize;
        after.starts[complete].iter().for_each(|&p| self.rope.push(p, &mut block_angles));
        self.backend.upload(&self.work.at(Area::Ids), 0, bytemuck::cast_slice(ids))?;
        self.backend.upload(&self.work.at(Area::Rope), 0, bytemuck::cast_slice(&angles))?;
        self.backend.upload(&self.work.at(Area::BlockRope), 0, bytemuck::cast_slice(&block_angles))?;
        self.lookups.clear(self.backend.as_ref())
    }

    fn layers(
        &mut self,
        state: &mut State,
        pass: &Pass<'_>,
        first: u32,
        beside: Beside<'_, '_>,
        cancel: &Cancel,
    ) -> Result<(Vec<f32>, Option<Likeliest>)> {
        let count = pass.ids.len() as u32;
        let checkpoint = self.checkpoint.clone();
        if beside.ahead.is_none() {
            self.upload_ngram_rows(&self.ngram_rows(&state.context, pass.ids), count)?;
        }
        self.tracer.begin(TracedPass { form: pass.form, first, rows: count });
        let (mut run, weights, chooser) = self.run(Start {
            geometry: checkpoint.geometry(),
            rows: Rows { count, form: pass.form },
            first,
            streams: Area::Streams,
            admits: pass.want != Want::Nothing,
            dry: false,
            cancel,
        });
        if let Some(RowsAhead { ring, number }) = beside.ahead {
            (run.rows_ahead, run.number) = (Some(ring), number);
            run.passes.iter_mut().for_each(|pass| pass.number = number);
        }
        trunk(&mut run, weights, state, beside.tape)?;
        let ending = ending(&mut run, weights, chooser, pass.want, beside.scribe)?;
        self.told(ending)
    }

    /// What the end of a pass says of its rows.
    pub(crate) fn told(&self, ending: Ending) -> Result<(Vec<f32>, Option<Likeliest>)> {
        Ok(match ending {
            Ending::Logits(logits) => (self.finite(logits)?, None),
            Ending::Listed(words) => (Vec::new(), Some(self.likeliest(&words)?)),
        })
    }

    /// Refuses logits that are not numbers: damaged weights that are finite themselves can still overflow, and must never
    /// become tokens (I6).
    pub(crate) fn finite(&self, logits: Vec<f32>) -> Result<Vec<f32>> {
        finite(&self.checkpoint, &logits).map(|()| logits)
    }

    /// What takes lists of these rows through the device.
    pub(crate) fn rider<'a>(&'a mut self, rows: Rows, cancel: &'a Cancel) -> Rider<'a> {
        Rider {
            backend: self.backend.as_ref(),
            experts: &mut self.store.experts,
            lookups: &mut self.lookups,
            slots: self.work.at(Area::Slots),
            rows,
            geometry: self.checkpoint.geometry(),
            cancel,
            tracer: &mut self.tracer,
        }
    }

    /// The n-gram rows of some ids, table by table.
    pub(crate) fn ngram_rows(&self, context: &[u32], ids: &[u32]) -> Vec<Vec<u64>> {
        (0..self.store.ngrams.len()).map(|table| ngram_rows(&self.checkpoint, table, context, ids)).collect()
    }

    /// Reads n-gram rows of `count` ids and uploads them, table by table.
    pub(crate) fn upload_ngram_rows(&mut self, rows: &[Vec<u64>], count: u32) -> Result<()> {
        let width = self.geometry().ple_dim as usize;
        for (index, (table, rows)) in self.store.ngrams.iter_mut().zip(rows).enumerate() {
            let mut values = vec![0f32; count as usize * width];
            table.fetch(rows, Lane::Demand, &mut values)?;
            self.backend.upload(&self.work.ngram_rows(index), 0, bytemuck::cast_slice(&values))?;
        }
        Ok(())
    }

    /// What operations are recorded into, the weights that they name, and what lists the likeliest ids.
    pub(crate) fn run<'a>(&'a mut self, start: Start<'a>) -> (Run<'a>, &'a Weights, &'a Chooser) {
        let Start { geometry, rows, first, streams, admits, dry, cancel } = start;
        self.sweep.start();
        let drive = match rows.count <= Lookups::MOST_ROWS {
            _ if dry => Drive::Dry(&self.lookups),
            true => Drive::Listed(&mut self.lookups),
            false => Drive::ByLayer,
        };
        let run = Run {
            backend: self.backend.as_ref(),
            geometry,
            shapes: self.shapes,
            arithmetic: self.arithmetic,
            streams: self.work.at(streams),
            work: &mut self.work,
            experts: &mut self.store.experts,
            cancel,
            sweep: &mut self.sweep,
            tracer: &mut self.tracer,
            admits,
            rows_ahead: None,
            passes: vec![Rowed { rows, first, number: 0 }],
            rows,
            first,
            number: 0,
            rec: Recorder::new(self.arithmetic),
            drive,
            marks: Vec::new(),
            rows_at: None,
        };
        (run, &self.weights, &self.chooser)
    }

    /// Has the device build what passes over prompts and replies need, so that no first token waits for it: over states of
    /// their own, and over shared ones, which are copied. What drafts need besides is built at the first draft.
    ///
    /// # Errors
    /// When the device has no kernel for something, no room, or is lost.
    pub fn prepare(&mut self, progress: Steps<'_>) -> Result<()> {
        let (checkpoint, cancel) = (self.checkpoint.clone(), Cancel::default());
        let mut state = self.new_state()?;
        let mut forks = Vec::new();
        let mut lists = Vec::new();
        // More blocks than a query keeps, so that they are scored, and copied where they are shared.
        let first = (self.shapes.qsa.topk + 1) * self.shapes.qsa.block;
        for shared in [false, true] {
            for form in [Form::Prompt, Form::Generated] {
                forks.extend(shared.then(|| state.fork()));
                let rows = Rows { count: 1, form };
                let geometry = checkpoint.geometry();
                let (mut run, weights, chooser) = self.run(Start {
                    geometry,
                    rows,
                    first,
                    streams: Area::Streams,
                    admits: false,
                    dry: true,
                    cancel: &cancel,
                });
                trunk(&mut run, weights, &mut state, None)?;
                record_head(&mut run, (&weights.mixer, Scope::Whole), &weights.head, 0, 1);
                run.choose(chooser, rows);
                lists.push(run.rec);
            }
        }
        let lists: Vec<_> = lists.iter().map(Recorder::all).collect();
        Ok(self.backend.prepare(&lists, progress)?)
    }

    /// Reads the streams of the last pass's rows: what the final mixer and the draft head read, `[rows, streams, hidden]`.
    ///
    /// # Errors
    /// When the device is lost.
    pub fn read_streams(&self, rows: u32) -> Result<Vec<f32>> {
        let mut out = vec![0f32; (rows * self.geometry().stream_width()) as usize];
        self.backend.read(&self.work.at(Area::Streams), 0, bytemuck::cast_slice_mut(&mut out))?;
        Ok(out)
    }

    /// Allocates the buffers of a recording for `rows` rows.
    pub(crate) fn alloc_tape(&self, state: &State, rows: u32) -> Result<(Vec<Option<GdnTape>>, Vec<Buffer>)> {
        let (g, wide) = (self.shapes.gdn, self.shapes.streams.width());
        let alloc = |label, width: u32| self.backend.alloc(label, 4 * u64::from(rows) * u64::from(width));
        let tape = |mixer: &MixerState| -> Result<Option<GdnTape>> {
            let MixerState::Gdn(_) = mixer else { return Ok(None) };
            let inputs = GdnInputs {
                k: alloc("recorded k", g.key_heads * g.key_dim)?,
                v: alloc("recorded v", g.values())?,
                gates: alloc("recorded gates", 2 * g.value_heads)?,
            };
            Ok(Some(GdnTape { qkv: alloc("recorded qkv", g.channels())?, inputs }))
        };
        let gdn = state.mixers.iter().map(tape).collect::<Result<_>>()?;
        let ple = state.ple.iter().map(|_| alloc("recorded ple", wide)).collect::<std::result::Result<_, _>>()?;
        Ok((gdn, ple))
    }
}

/// See [`Model::finite`].
pub(crate) fn finite(checkpoint: &Checkpoint, logits: &[f32]) -> Result<()> {
    match logits.iter().all(|logit| logit.is_finite()) {
        true => Ok(()),
        false => Err(Error::NotFinite { dir: checkpoint.dir().to_owned() }),
    }
}

/// Which lanes the reads of a pass take.
pub(crate) fn lane(form: Form) -> Lane {
    match form {
        Form::Prompt => Lane::Bulk,
        Form::Generated => Lane::Demand,
    }
}

/// Global row ids of a pass's n-grams, `[rows, heads]`.
pub(crate) fn ngram_rows(checkpoint: &Checkpoint, index: usize, context: &[u32], ids: &[u32]) -> Vec<u64> {
    let Some(tables) = checkpoint.ngram_tables(index) else { return Vec::new() };
    let mut history = context.to_vec();
    let mut rows = vec![0; ids.len() * tables.heads()];
    for (&id, out) in ids.iter().zip(rows.chunks_exact_mut(tables.heads())) {
        tables.rows(&history, id, out);
        history.push(id);
    }
    rows
}

/// Looks the tokens up.
pub(crate) fn embed(run: &mut Run<'_>, weights: &Weights) {
    run.rec.at(Scope::Whole, Stage::Embed).embed(Embed {
        rows: run.rows,
        ids: run.work.at(Area::Ids),
        table: weights.embed.clone(),
        copies: run.geometry.streams,
        out: run.streams.clone(),
    });
}

/// Embedding and all layers.
pub(crate) fn trunk(run: &mut Run<'_>, weights: &Weights, state: &mut State, tape: Option<&Recording>) -> Result<()> {
    embed(run, weights);
    let after = weights.layers.iter().skip(1).map(Some).chain([None]);
    for ((l, weights), next) in weights.layers.iter().enumerate().zip(after) {
        let scope = Scope::Layer(l as u32);
        if let Some(ple) = &weights.ple {
            run.ple(l as u32, ple, &mut state.ple[ple.index], tape.map(|t| t.ple_inputs(ple.index)))?;
        }
        run.layer(l as u32, scope, weights, &mut state.mixers[l], tape.and_then(|t| t.gdn_tape(l)), next)?;
    }
    Ok(())
}

/// What the end of a pass gives, as it was read.
pub(crate) enum Ending {
    /// `[rows wanted, vocab]`.
    Logits(Vec<f32>),
    /// What the device listed of the last row.
    Listed(Vec<u32>),
}

/// The end of a pass, after everything recorded before. What a scribe is given does not come back.
pub(crate) fn ending(
    run: &mut Run<'_>,
    weights: &Weights,
    chooser: &Chooser,
    want: Want,
    scribe: Option<Scribe<'_>>,
) -> Result<Ending> {
    let (mixer, count) = ((&weights.mixer, Scope::Whole), run.rows.count);
    let wanted = match want {
        Want::Nothing => count..count,
        Want::Last => count - 1..count,
        Want::All if let Some(scribe) = scribe => {
            dictate(run, mixer, &weights.head, scribe)?;
            return Ok(Ending::Logits(Vec::new()));
        }
        Want::All => 0..count,
        Want::Likeliest => return Ok(Ending::Listed(likeliest_of_last(run, mixer, &weights.head, chooser)?)),
    };
    Ok(Ending::Logits(head(run, mixer, &weights.head, wanted)?))
}

/// Logits of some rows, by the decode form, a few at a time (engine.md 3.7d), after everything recorded before.
pub(crate) fn head(
    run: &mut Run<'_>,
    mixer: (&HyperWeights, Scope),
    weight: &Linear,
    wanted: std::ops::Range<u32>,
) -> Result<Vec<f32>> {
    let vocab = run.geometry.vocab as usize;
    let mut logits = vec![0f32; wanted.len() * vocab];
    if wanted.is_empty() {
        run.finish(&mut [])?;
    }
    let source = run.work.at(Area::Logits);
    let (end, mut first) = (wanted.end, wanted.start);
    for out in logits.chunks_mut(HEAD_ROWS as usize * vocab) {
        run.cancel.check()?;
        let count = (end - first).min(HEAD_ROWS);
        record_head(run, mixer, weight, first, count);
        run.finish(&mut [Readback { source: &source, offset: 0, into: bytemuck::cast_slice_mut(out) }])?;
        first += count;
    }
    Ok(logits)
}

/// Gives the logits of all rows to a scribe.
fn dictate(run: &mut Run<'_>, mixer: (&HyperWeights, Scope), weight: &Linear, scribe: Scribe<'_>) -> Result<()> {
    let count = run.rows.count;
    for first in (0..count).step_by(HEAD_ROWS as usize) {
        scribe(&head(run, mixer, weight, first..count.min(first + HEAD_ROWS))?)?;
    }
    Ok(())
}

/// What the device lists of the last row.
fn likeliest_of_last(
    run: &mut Run<'_>,
    mixer: (&HyperWeights, Scope),
    weight: &Linear,
    chooser: &Chooser,
) -> Result<Vec<u32>> {
    // Generated rows before the last are tokens of the reply too.
    let rows = match run.rows.form {
        Form::Prompt => Rows { count: 1, ..run.rows },
        Form::Generated if run.rows.count <= HEAD_ROWS => run.rows,
        Form::Generated => return Err(Error::Request("the likeliest ids of too many rows")),
    };
    record_head(run, mixer, weight, run.rows.count - rows.count, rows.count);
    run.choose(chooser, rows);
    let wanted = chooser.wanted(rows.count);
    let mut words = vec![0u32; wanted.bytes as usize / size_of::<u32>()];
    let into = bytemuck::cast_slice_mut(&mut words);
    run.finish(&mut [Readback { source: &wanted.source, offset: wanted.offset, into }])?;
    Ok(words.split_off(words.len() - words.len() / rows.count as usize))
}

pub(crate) fn record_head(run: &mut Run<'_>, mixer: (&HyperWeights, Scope), weight: &Linear, first: u32, count: u32) {
    let rows = Rows { count, form: Form::Generated };
    run.rec.at(mixer.1, Stage::Mixer).hc_read(HcRead {
        rows,
        first,
        streams: run.shapes.streams,
        eps: run.geometry.eps,
        weights: mixer.0.clone(),
        x: run.streams.clone(),
        normed: run.work.at(Area::Normed),
        lowrank: run.work.at(Area::Lowrank),
        u: run.work.at(Area::HeadU),
        inject: run.work.at(Area::Inject),
    });
    run.rec.at(mixer.1, Stage::Head).head(Head {
        rows,
        x: run.work.at(Area::HeadU),
        weight: weight.clone(),
        logits: run.work.at(Area::Logits),
    });
}
