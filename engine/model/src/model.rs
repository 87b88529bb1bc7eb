//! Owns: the model as a whole: trunk, scratch, the stream, and the pass from ids to logits.
//! Refuses: more tokens than the model was made for, ids outside the vocabulary, torn states.
//! Invariants: a pass that fails leaves its state marked torn; forks made before it stay whole.

use std::sync::Arc;

use ss_backend::op::{Embed, GdnInputs, HcRead, Head, HyperWeights};
use ss_backend::{Arithmetic, Backend, Buffer, Form, Recorder, Rows, Scope, Stage};
use ss_checkpoint::{Checkpoint, Geometry};
use ss_stream::{Lane, Store, StoreOptions};

use crate::graph::{GdnTape, Run};
use crate::rope::{Position, Rope};
use crate::shapes::Shapes;
use crate::state::{MixerState, State, Timeline};
use crate::weights::{Progress, Weights};
use crate::workspace::{Area, HEAD_ROWS, Workspace};
use crate::{Cancel, Error, Recording, Result};

/// How the model is set up.
#[derive(Clone)]
pub struct ModelOptions {
    /// Pool, lanes and row caches.
    pub store: StoreOptions,
    /// Arithmetic profile.
    pub arithmetic: Arithmetic,
    /// Test support: a deliberate fault.
    pub mutation: PassMutation,
}

/// Test support: a fault at the start of every pass, so that every test of promise I2 must turn red.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PassMutation {
    /// No fault.
    #[default]
    None,
    /// The convolution windows of Gated DeltaNet are not carried over.
    ForgottenWindow,
    /// The window of the n-gram injection is not carried over.
    ForgottenInjection,
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

/// What a pass gave.
pub struct Output {
    /// `[rows wanted, vocab]`.
    pub logits: Vec<f32>,
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
    mutation: PassMutation,
    pub(crate) work: Workspace,
}

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
        Ok(Model {
            weights,
            work,
            shapes: Shapes::new(geometry),
            rope: Rope::new(geometry),
            arithmetic: options.arithmetic,
            mutation: options.mutation,
            store,
            backend,
            checkpoint,
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
        state.check_whole()?;
        self.check(state, pass)?;
        cancel.check()?;
        let before = pass.record.then(|| state.fork());
        state.torn = true;
        let count = pass.ids.len() as u32;
        self.make_room(count)?;
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
        let logits = self.layers(state, pass, first, tape.as_ref(), cancel)?;
        let keep = self.geometry().ngram.order.saturating_sub(1) as usize;
        state.context.extend_from_slice(pass.ids);
        state.context.drain(..state.context.len().saturating_sub(keep));
        state.torn = false;
        Ok(Output { logits, recording: tape })
    }

    /// Plants the fault that a test asked for.
    fn mutate(&self, state: &mut State) -> Result<()> {
        let gdn = state.mixers.iter_mut().filter_map(|mixer| match mixer {
            MixerState::Gdn(gdn) => Some(&mut gdn.window),
            MixerState::Qsa(_) => None,
        });
        let windows: Vec<_> = match self.mutation {
            PassMutation::None => Vec::new(),
            PassMutation::ForgottenWindow => gdn.collect(),
            PassMutation::ForgottenInjection => state.ple.iter_mut().collect(),
        };
        for window in windows {
            *window = self.backend.alloc("mutation", window.bytes())?.into();
        }
        Ok(())
    }

    fn check(&self, state: &State, pass: &Pass<'_>) -> Result<()> {
        let g = self.geometry();
        if pass.ids.is_empty() {
            return Err(Error::Request("no rows"));
        }
        if pass.positions.is_some_and(|p| p.len() != pass.ids.len()) {
            return Err(Error::Request("another number of positions than of ids"));
        }
        if let Some(&id) = pass.ids.iter().find(|&&id| id >= g.vocab) {
            return Err(Error::TokenId { id, vocab: g.vocab });
        }
        let wanted = u64::from(state.timeline.tokens) + pass.ids.len() as u64;
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
        Ok(())
    }

    fn layers(
        &mut self,
        state: &mut State,
        pass: &Pass<'_>,
        first: u32,
        tape: Option<&Recording>,
        cancel: &Cancel,
    ) -> Result<Vec<f32>> {
        let count = pass.ids.len() as u32;
        let checkpoint = self.checkpoint.clone();
        let geometry = checkpoint.geometry();
        let streams = self.work.at(Area::Streams);
        let mut run = Run {
            backend: self.backend.as_ref(),
            geometry,
            shapes: self.shapes,
            arithmetic: self.arithmetic,
            work: &mut self.work,
            experts: &mut self.store.experts,
            cancel,
            rows: Rows { count, form: pass.form },
            first,
            streams: streams.clone(),
            rec: Recorder::new(self.arithmetic),
        };
        run.rec.at(Scope::Whole, Stage::Embed).embed(Embed {
            rows: run.rows,
            ids: run.work.at(Area::Ids),
            table: self.weights.embed.clone(),
            copies: geometry.streams,
            out: streams.clone(),
        });
        for (l, weights) in self.weights.layers.iter().enumerate() {
            if let Some(ple) = &weights.ple {
                let rows = ngram_rows(&checkpoint, ple.index, &state.context, pass.ids);
                let mut values = vec![0f32; pass.ids.len() * geometry.ple_dim as usize];
                let table = self
                    .store
                    .ngrams
                    .get_mut(ple.index)
                    .ok_or(Error::Request("an n-gram table that does not exist"))?;
                table.fetch(&rows, lane(pass.form), &mut values)?;
                // The rows' memory may still be read by an injection before this one.
                run.submit()?;
                run.backend.upload(&run.work.at(Area::NgramRows), 0, bytemuck::cast_slice(&values))?;
                run.ple(l as u32, ple, &mut state.ple[ple.index], tape.map(|t| t.ple_inputs(ple.index)))?;
            }
            run.layer(
                l as u32,
                Scope::Layer(l as u32),
                weights,
                &mut state.mixers[l],
                tape.and_then(|t| t.gdn_tape(l)),
            )?;
        }
        let wanted = match pass.want {
            Want::Nothing => count..count,
            Want::Last => count - 1..count,
            Want::All => 0..count,
        };
        let mixer = (&self.weights.mixer, Scope::Whole);
        let logits = head(&mut run, mixer, &self.weights.head, wanted)?;
        run.submit()?;
        // Damaged weights that are finite themselves can still overflow; they must never become tokens (I6).
        match logits.iter().all(|logit| logit.is_finite()) {
            true => Ok(logits),
            false => Err(Error::NotFinite { dir: checkpoint.dir().to_owned() }),
        }
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

/// Which lanes the reads of a pass take.
pub(crate) fn lane(form: Form) -> Lane {
    match form {
        Form::Prompt => Lane::Bulk,
        Form::Generated => Lane::Demand,
    }
}

/// Global row ids of a pass's n-grams, `[rows, heads]`.
fn ngram_rows(checkpoint: &Checkpoint, index: usize, context: &[u32], ids: &[u32]) -> Vec<u64> {
    let Some(tables) = checkpoint.ngram_tables(index) else { return Vec::new() };
    let mut history = context.to_vec();
    let mut rows = vec![0; ids.len() * tables.heads()];
    for (&id, out) in ids.iter().zip(rows.chunks_exact_mut(tables.heads())) {
        tables.rows(&history, id, out);
        history.push(id);
    }
    rows
}

/// Logits of some rows, by the decode form, a few at a time (engine.md 3.7d).
pub(crate) fn head(
    run: &mut Run<'_>,
    mixer: (&HyperWeights, Scope),
    weight: &ss_backend::Linear,
    wanted: std::ops::Range<u32>,
) -> Result<Vec<f32>> {
    let vocab = run.geometry.vocab as usize;
    let mut logits = vec![0f32; wanted.len() * vocab];
    let (end, mut first) = (wanted.end, wanted.start);
    for out in logits.chunks_mut(HEAD_ROWS as usize * vocab) {
        run.cancel.check()?;
        let rows = Rows { count: (end - first).min(HEAD_ROWS), form: Form::Generated };
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
        run.submit()?;
        run.backend.read(&run.work.at(Area::Logits), 0, bytemuck::cast_slice_mut(out))?;
        first += rows.count;
    }
    Ok(logits)
}
