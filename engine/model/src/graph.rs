//! Owns: one decoder layer as operations (architecture.md section 2).
//! Refuses: sequence bookkeeping, and the way to the device; it is told where the rows stand, and `drive` runs the list.
//! Invariants: the operations recorded depend on geometry, form and profile; the number of rows, residency and the size
//! of the pool only decide how often the expert operations are repeated over disjoint choices, and who looks up slots.

use ss_backend::op::{
    Combine, ExpertsIn, ExpertsOut, GdnInputs, GdnMix, GdnProject, HcRead, HyperWeights, Lookup, PleMix, PleProject,
    ProjectWrite, QsaAppend, QsaAttend, QsaProject, QsaSelect, Route, SharedIn, SharedOut,
};
use ss_backend::{Arithmetic, Backend, Buffer, Recorder, Rows, Scope, Stage};
use ss_checkpoint::Geometry;
use ss_stream::ExpertCache;

use crate::drive::{Drive, Lookups};
use crate::ride::Mark;
use crate::rows::RowRing;
use crate::shapes::Shapes;
use crate::state::{GdnState, MixerState, QsaState, Room, at_state, carry};
use crate::sweep::Sweep;
use crate::trace::Tracer;
use crate::weights::{GdnLayer, Layer, Mixer, MoeLayer, PleLayer, QsaLayer};
use crate::workspace::{Area, Workspace};
use crate::{Cancel, Error, Result};

/// Where the rows of a pass stand and what they use: everything that is the same in all of its layers.
pub(crate) struct Run<'a> {
    pub backend: &'a dyn Backend,
    pub geometry: &'a Geometry,
    pub shapes: Shapes,
    pub arithmetic: Arithmetic,
    pub work: &'a mut Workspace,
    pub experts: &'a mut ExpertCache,
    pub cancel: &'a Cancel,
    pub sweep: &'a mut Sweep,
    pub tracer: &'a mut Tracer,
    /// Whether a sweep brings its most used experts into the pool: the last pass of a prompt.
    pub admits: bool,
    /// Where the n-gram rows of its passes come from, if they are read ahead.
    pub rows_ahead: Option<&'a RowRing>,
    /// The passes that share the reads of experts, in order; a pass that shares nothing is the only one.
    pub passes: Vec<Rowed>,
    /// Rows of the pass whose turn it is.
    pub rows: Rows,
    /// Tokens before row 0.
    pub first: u32,
    /// Number of the pass among those of its prompt.
    pub number: usize,
    /// `[rows, streams, hidden]`.
    pub streams: Buffer,
    pub rec: Recorder,
    /// How what is recorded reaches the device.
    pub drive: Drive<'a>,
    /// The routers in `rec` whose slots the device looks up, in order.
    pub marks: Vec<Mark>,
    /// The first operation in `rec` that reads rows of n-grams.
    pub rows_at: Option<usize>,
}

/// Rows of a pass, and where they stand.
#[derive(Clone, Copy)]
pub(crate) struct Rowed {
    pub rows: Rows,
    /// Tokens before row 0.
    pub first: u32,
    /// Its number among the passes of a prompt.
    pub number: usize,
}

/// What a layer knows of the one after it.
#[derive(Clone, Copy)]
struct Ahead<'a> {
    /// Its number, if its choices are forecast in the list.
    forecast: Option<u32>,
    next: Option<&'a Layer>,
}

/// Buffers that keep a pass's inputs so that part of it can be replayed.
#[derive(Clone)]
pub(crate) struct GdnTape {
    pub qkv: Buffer,
    pub inputs: GdnInputs,
}

impl Run<'_> {
    /// From here on operations are those of a pass of its group.
    pub fn enter(&mut self, pass: usize) {
        if let Some(&Rowed { rows, first, number }) = self.passes.get(pass) {
            self.work.turn_to(pass);
            (self.rows, self.first, self.number) = (rows, first, number);
            self.streams = self.work.at(Area::Streams);
        }
    }

    /// n-gram injection.
    pub fn ple(
        &mut self,
        layer: u32,
        weights: &PleLayer,
        window: &mut std::sync::Arc<Buffer>,
        tape: Option<&Buffer>,
    ) -> Result<()> {
        let scope = Scope::Layer(layer);
        let window = carry(self.backend, "ple window", window)?;
        let inputs = tape.cloned().unwrap_or_else(|| self.work.at(Area::PleInputs));
        self.rows_at.get_or_insert(self.rec.steps().len());
        let e = match self.rows_ahead {
            Some(ring) => ring.take(self.number, weights.index)?,
            None => self.work.ngram_rows(weights.index),
        };
        self.rec.at(scope, Stage::Ple).ple_project(PleProject {
            rows: self.rows,
            e,
            key: weights.key.clone(),
            value: weights.value.clone(),
            keys: self.work.at(Area::PleKeys),
            values: self.work.at(Area::PleValues),
        });
        self.rec.ple_mix(PleMix {
            rows: self.rows,
            shape: self.shapes.ple,
            norm_key: weights.norm_key.clone(),
            norm_query: weights.norm_query.clone(),
            norm_conv: weights.norm_conv.clone(),
            conv: weights.conv.clone(),
            keys: self.work.at(Area::PleKeys),
            values: self.work.at(Area::PleValues),
            inputs,
            window,
            out: self.streams.clone(),
        });
        Ok(())
    }

    /// One decoder layer, injection aside. `layer` is the expert layer: the draft head's comes after the main ones.
    pub fn layer(
        &mut self,
        layer: u32,
        scope: Scope,
        weights: &Layer,
        state: &mut MixerState,
        tape: Option<&GdnTape>,
        next: Option<&Layer>,
    ) -> Result<()> {
        self.mix(scope, weights, state, tape)?;
        let forecast = next.and_then(|next| self.forecast(layer + 1, scope, next));
        self.moe(layer, scope, &weights.moe, Ahead { forecast, next })
    }

    /// A layer's mixer, and the read of the streams for its experts.
    pub fn mix(&mut self, scope: Scope, weights: &Layer, state: &mut MixerState, tape: Option<&GdnTape>) -> Result<()> {
        self.cancel.check()?;
        self.hc_read(scope, Stage::AttnHc, &weights.attn_hc);
        match (&weights.mixer, state) {
            (Mixer::Gdn(w), MixerState::Gdn(s)) => self.gdn(scope, w, s, tape)?,
            (Mixer::Qsa(w), MixerState::Qsa(s)) => self.qsa(scope, w, s)?,
            _ => return Err(Error::Request("a state of another geometry")),
        }
        self.hc_read(scope, Stage::MlpHc, &weights.mlp_hc);
        Ok(())
    }

    /// What the layer ahead would choose if its attention added nothing (engine.md 5.6), where somebody wants to know.
    fn forecast(&mut self, layer: u32, scope: Scope, w: &Layer) -> Option<u32> {
        let (lookups, wanted) = match &self.drive {
            Drive::Listed(lookups) => (&**lookups, self.tracer.listens()),
            Drive::Dry(lookups) if self.rows.count <= Lookups::MOST_ROWS => (*lookups, true),
            Drive::Dry(_) | Drive::ByLayer => return None,
        };
        let forecasts = lookups.forecasts(wanted);
        let (Some(forecasts), Some([experts, weights])) = (forecasts, lookups.forecast_of(layer)) else { return None };
        let (u, logits, width) = (forecasts.u.clone(), forecasts.logits.clone(), forecasts.width);
        let (experts, weights) = (experts.clone(), weights.clone());
        let to = (u.clone(), forecasts.inject.clone());
        self.read_streams_for(scope, Stage::Forecast, &w.mlp_hc, to);
        self.rec.route(Route {
            rows: self.rows,
            choices: width,
            u,
            weight: w.moe.router.clone(),
            logits,
            experts,
            weights,
            lookup: None,
        });
        Some(layer)
    }

    fn hc_read(&mut self, scope: Scope, stage: Stage, weights: &HyperWeights) {
        self.read_streams_for(scope, stage, weights, (self.work.at(Area::U), self.work.at(Area::Inject)));
    }

    /// A hyper-connection read into `u` and the inject weights `to`.
    pub fn read_streams_for(&mut self, scope: Scope, stage: Stage, weights: &HyperWeights, to: (Buffer, Buffer)) {
        let (u, inject) = to;
        self.rec.at(scope, stage).hc_read(HcRead {
            rows: self.rows,
            first: 0,
            streams: self.shapes.streams,
            eps: self.geometry.eps,
            weights: weights.clone(),
            x: self.streams.clone(),
            normed: self.work.at(Area::Normed),
            lowrank: self.work.at(Area::Lowrank),
            u,
            inject,
        });
    }

    fn project_write(&mut self, weight: &ss_backend::Linear) {
        self.rec.project_write(ProjectWrite {
            rows: self.rows,
            streams: self.shapes.streams,
            weight: weight.clone(),
            x: self.work.at(Area::Mixed),
            inject: self.work.at(Area::Inject),
            out: self.streams.clone(),
        });
    }

    fn gdn(&mut self, scope: Scope, w: &GdnLayer, state: &mut GdnState, tape: Option<&GdnTape>) -> Result<()> {
        let window = carry(self.backend, "gdn window", &mut state.window)?;
        let recurrent = carry(self.backend, "gdn state", &mut state.state)?;
        let qkv = tape.map_or_else(|| self.work.at(Area::Query), |t| t.qkv.clone());
        self.rec.at(scope, Stage::Gdn).gdn_project(GdnProject {
            rows: self.rows,
            u: self.work.at(Area::U),
            qkv: w.qkv.clone(),
            z: w.z.clone(),
            a: w.a.clone(),
            b: w.b.clone(),
            qkv_out: qkv.clone(),
            z_out: self.work.at(Area::Side),
            ab_out: self.work.at(Area::Small),
        });
        self.rec.gdn_mix(GdnMix {
            rows: self.rows,
            shape: self.shapes.gdn,
            weights: w.small.clone(),
            qkv,
            z: self.work.at(Area::Side),
            ab: self.work.at(Area::Small),
            window,
            state: recurrent,
            inputs: tape.map(|t| t.inputs.clone()),
            out: self.work.at(Area::Mixed),
        });
        self.project_write(&w.out);
        Ok(())
    }

    fn qsa(&mut self, scope: Scope, w: &QsaLayer, state: &mut QsaState) -> Result<()> {
        let (rows, first, shape) = (self.rows, self.first, self.shapes.qsa);
        let room = Room {
            backend: self.backend,
            shapes: &self.shapes,
            arithmetic: self.arithmetic,
            used: first,
            needed: first + rows.count,
        };
        state.reserve(room, at_state(&mut self.rec, scope))?;
        let cache = state.cache(self.arithmetic.cache_scalar());
        self.rec.at(scope, Stage::Qsa).qsa_project(QsaProject {
            rows,
            u: self.work.at(Area::U),
            q: w.q.clone(),
            k: w.k.clone(),
            v: w.v.clone(),
            index: w.index.clone(),
            q_out: self.work.at(Area::Query),
            kv_out: self.work.at(Area::Side),
            index_out: self.work.at(Area::Small),
        });
        self.rec.qsa_append(QsaAppend {
            rows,
            first,
            shape,
            norms: w.norms.clone(),
            q: self.work.at(Area::Query),
            kv: self.work.at(Area::Side),
            index: self.work.at(Area::Small),
            rope: self.work.at(Area::Rope),
            block_rope: self.work.at(Area::BlockRope),
            cache: cache.clone(),
            q_out: self.work.at(Area::Q),
            index_q_out: self.work.at(Area::IndexQ),
        });
        let (scores, slice_rows) = self.work.scores(self.backend, rows.count, (first + rows.count) / shape.block)?;
        let mut slice = 0;
        while slice < rows.count {
            self.rec.qsa_select(QsaSelect {
                rows,
                first,
                slice,
                slice_rows: slice_rows.min(rows.count - slice),
                shape,
                index_q: self.work.at(Area::IndexQ),
                cache: cache.clone(),
                scores: scores.clone(),
                blocks: self.work.at(Area::Blocks),
            });
            slice += slice_rows;
        }
        self.rec.qsa_attend(QsaAttend {
            rows,
            first,
            shape,
            q: self.work.at(Area::Q),
            gate: self.work.at(Area::Query),
            cache,
            blocks: self.work.at(Area::Blocks),
            out: self.work.at(Area::Mixed),
        });
        self.project_write(&w.out);
        Ok(())
    }

    /// Router, experts, and their sum.
    fn moe(&mut self, layer: u32, scope: Scope, w: &MoeLayer, ahead: Ahead<'_>) -> Result<()> {
        match &self.drive {
            Drive::Listed(lookups) => {
                let lookup = Some(lookups.of(layer, self.work));
                self.route(layer, scope, w, lookup);
                self.marks.push(Mark { layer, after: self.rec.steps().len(), forecast: ahead.forecast });
                self.experts(scope, w);
            }
            Drive::ByLayer => {
                self.route(layer, scope, w, None);
                match self.sweeps() {
                    true => self.sweep_layer(layer, scope, w, ahead.next)?,
                    false => self.run_layer_experts(layer, scope, w)?,
                }
            }
            Drive::Dry(lookups) => {
                let lookup = Some(lookups.of(layer, self.work));
                self.route(layer, scope, w, None);
                self.route(layer, scope, w, lookup);
                let before = self.rec.steps().len();
                self.experts(scope, w);
                self.later_group(before);
                self.staged_group(before);
            }
        }
        self.combine(layer, scope, w);
        Ok(())
    }

    pub fn route(&mut self, layer: u32, scope: Scope, w: &MoeLayer, lookup: Option<Lookup>) {
        let weights = self.choice_weights(layer);
        self.rec.at(scope, Stage::Moe).route(Route {
            rows: self.rows,
            choices: self.geometry.choices,
            u: self.work.at(Area::U),
            weight: w.router.clone(),
            logits: self.work.at(Area::Router),
            experts: self.work.at(Area::Choices),
            weights,
            lookup,
        });
    }

    /// Where the weights of a layer's choices lie: where they stay until a list is over, if somebody wants to know them.
    fn choice_weights(&self, layer: u32) -> Buffer {
        match (&self.drive, self.tracer.weights_of(layer)) {
            (Drive::Listed(_), Some(traced)) => traced.clone(),
            _ => self.work.at(Area::ChoiceWeights),
        }
    }

    /// Sums what the experts gave into the streams.
    pub fn combine(&mut self, layer: u32, scope: Scope, w: &MoeLayer) {
        let weights = self.choice_weights(layer);
        self.rec.at(scope, Stage::Moe).combine(Combine {
            rows: self.rows,
            choices: self.geometry.choices,
            streams: self.shapes.streams,
            routed: self.work.at(Area::Routed),
            weights,
            shared: self.work.at(Area::Shared),
            gate: w.shared_gate.clone(),
            u: self.work.at(Area::U),
            inject: self.work.at(Area::Inject),
            out: self.streams.clone(),
        });
    }

    /// Both halves of the experts that have a slot, and of the shared one.
    pub fn experts(&mut self, scope: Scope, w: &MoeLayer) {
        let (rows, choices) = (self.rows, self.geometry.choices);
        self.rec.at(scope, Stage::Moe).experts_in(ExpertsIn {
            rows,
            choices,
            u: self.work.at(Area::U),
            pool: self.experts.pool().clone(),
            slots: self.work.at(Area::Slots),
            out: self.work.at(Area::ExpertRows),
            shared: Some(SharedIn {
                gate: w.shared_gate_proj.clone(),
                up: w.shared_up.clone(),
                out: self.work.at(Area::SharedRows),
            }),
        });
        self.rec.experts_out(ExpertsOut {
            rows,
            choices,
            x: self.work.at(Area::ExpertRows),
            pool: self.experts.pool().clone(),
            slots: self.work.at(Area::Slots),
            out: self.work.at(Area::Routed),
            shared: Some(SharedOut {
                x: self.work.at(Area::SharedRows),
                down: w.shared_down.clone(),
                out: self.work.at(Area::Shared),
            }),
        });
    }
}
