//! Owns: a layer's router and experts on buffers made for them, and a pool that holds a whole layer.

use ss_backend::op::{Combine, ExpertsIn, ExpertsOut, Route, SharedIn, SharedOut};
use ss_backend::{Arithmetic, Buffer, Pool, Recorder, Scope, Stage};
use ss_model::weights::MoeLayer;
use ss_tests::golden::Tensor;
use ss_tests::rig::Rig;

use super::bench::Bench;

impl Bench<'_> {
    /// Router, experts and their sum. All experts lie in the pool, in a known order.
    pub fn moe(&mut self, w: &MoeLayer, u: &Tensor, pool: &ExpertPool) -> Moe {
        let g = self.rig.model.geometry().clone();
        let u = self.input(u);
        let (experts, weights) = (self.area(g.choices), self.area(g.choices));
        self.rec.at(Scope::Layer(0), Stage::Moe);
        let logits = self.area(g.experts);
        self.rec.route(Route {
            rows: self.rows,
            choices: g.choices,
            u: u.clone(),
            weight: w.router.clone(),
            logits,
            experts: experts.clone(),
            weights: weights.clone(),
            lookup: None,
        });
        let rec = std::mem::replace(&mut self.rec, Recorder::new(Arithmetic::Exact));
        self.rig.backend().submit(rec.all()).unwrap();
        let slots = pool.slots(self, &experts, g.choices);
        let (rows_in, routed) = (self.area(g.choices * g.inner), self.area(g.choices * g.hidden));
        let (shared_in, shared) = (self.area(g.shared_inner), self.area(g.hidden));
        self.rec.at(Scope::Layer(0), Stage::Moe).experts_in(ExpertsIn {
            rows: self.rows,
            choices: g.choices,
            u: u.clone(),
            pool: pool.pool.clone(),
            slots: slots.clone(),
            out: rows_in.clone(),
            shared: Some(SharedIn {
                gate: w.shared_gate_proj.clone(),
                up: w.shared_up.clone(),
                out: shared_in.clone(),
            }),
        });
        self.rec.experts_out(ExpertsOut {
            rows: self.rows,
            choices: g.choices,
            x: rows_in,
            pool: pool.pool.clone(),
            slots,
            out: routed.clone(),
            shared: Some(SharedOut { x: shared_in, down: w.shared_down.clone(), out: shared.clone() }),
        });
        let (inject, out) = (self.ones(g.streams), self.area(g.stream_width()));
        self.rec.combine(Combine {
            rows: self.rows,
            choices: g.choices,
            streams: self.shapes.streams,
            routed,
            weights,
            shared: shared.clone(),
            gate: w.shared_gate.clone(),
            u,
            inject,
            out: out.clone(),
        });
        Moe { experts, shared, out }
    }
}

/// What router and experts left.
pub struct Moe {
    /// The choices.
    pub experts: Buffer,
    /// What the shared expert gave.
    pub shared: Buffer,
    /// The sum, see [`Bench::first_stream`].
    pub out: Buffer,
}

/// A layer's experts, each in the slot of its own number.
pub struct ExpertPool {
    pub pool: Pool,
}

impl ExpertPool {
    pub fn of_layer(rig: &Rig, layer: usize) -> Self {
        let checkpoint = rig.model.checkpoint();
        let pool = rig.backend().alloc_pool(checkpoint.expert_layout(), checkpoint.geometry().experts).unwrap();
        for expert in 0..checkpoint.geometry().experts {
            let mut slot = rig.backend().open_slot(&pool, expert).unwrap();
            checkpoint.read_expert(layer, expert, slot.bytes()).unwrap();
            slot.finish().unwrap();
        }
        ExpertPool { pool }
    }

    fn slots(&self, bench: &Bench<'_>, experts: &Buffer, choices: u32) -> Buffer {
        let mut ids = vec![0u32; (bench.rows.count * choices) as usize];
        bench.rig.backend().read(experts, 0, bytemuck::cast_slice_mut(&mut ids)).unwrap();
        let slots = bench.area(choices);
        bench.rig.backend().upload(&slots, 0, bytemuck::cast_slice(&ids)).unwrap();
        slots
    }
}
