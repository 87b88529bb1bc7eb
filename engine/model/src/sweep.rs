//! Owns: the experts of a long prompt pass, or of several that share their reads: those that have a slot are used where they
//! lie, the others stream through two groups of staging slots, one being read while the device works on the other (engine.md
//! section 6).
//! Refuses: short passes and generated rows, whose experts go into the pool.
//! Invariants: the pool is left as it was, but for what the last pass of a prompt admits; a staging group is read into only
//! when the work that used it is finished; how a layer's experts are grouped changes no bit.

use ss_backend::op::Route;
use ss_backend::{Backend, Buffer, NONE, Op, Pool, Readback, Recorder, Scope, Site, Stage, Submission, Wanted, Work};
use ss_checkpoint::{Geometry, RecordLayout};
use ss_stream::Lane;

use crate::drive::existing;
use crate::graph::Run;
use crate::groups::{slots_of, without_shared};
use crate::weights::{Layer, MoeLayer};
use crate::workspace::Area;
use crate::{PassMutation, Result};

/// Rows from which a prompt pass sweeps (engine.md 3.7a).
pub(crate) const SWEEP_ROWS: u32 = 64;
/// Experts of a group.
const GROUP: usize = 32;
/// Staging groups: one is read while the device works on the other.
const STAGES: usize = 2;

/// The staging groups, and what is in them.
pub(crate) struct Sweep {
    /// None where every expert fits the pool.
    staging: Option<Pool>,
    /// The work that last used each group.
    users: [Option<Submission>; STAGES],
    /// The group that is read next.
    turn: usize,
    /// What was read before its layer had chosen, or is to be.
    ahead: Vec<Ahead>,
    /// Choices that the next layer is expected to make, `[rows, choices]` u32; grows with the passes.
    forecast: Option<Buffer>,
    /// Test support: a deliberate fault.
    mutation: PassMutation,
}

/// Records in a staging group, read for a layer that had not chosen yet.
struct Ahead {
    layer: u32,
    stage: usize,
    experts: Vec<u32>,
}

impl Sweep {
    /// Staging groups, unless `slots` slots hold every expert.
    ///
    /// # Errors
    /// When the device has no room.
    pub fn new(
        backend: &dyn Backend,
        layout: &RecordLayout,
        slots: u32,
        g: &Geometry,
        mutation: PassMutation,
    ) -> Result<Self> {
        let streams = u64::from(slots) < g.layers.len() as u64 * u64::from(g.experts);
        let staging = streams.then(|| backend.alloc_pool(layout, (STAGES * GROUP) as u32)).transpose()?;
        Ok(Sweep { staging, users: [None; STAGES], turn: 0, ahead: Vec::new(), forecast: None, mutation })
    }

    /// Whether experts stream at all.
    pub fn streams(&self) -> bool {
        self.staging.is_some()
    }

    /// The staging slots, if experts stream at all.
    pub fn staging(&self) -> Option<&Pool> {
        self.staging.as_ref()
    }

    /// Forgets what was read ahead: another pass begins.
    pub fn start(&mut self) {
        self.ahead.clear();
    }

    fn forecast(&mut self, backend: &dyn Backend, bytes: u64) -> Result<Buffer> {
        match &self.forecast {
            Some(buffer) if buffer.bytes() >= bytes => Ok(buffer.clone()),
            _ => Ok(self.forecast.insert(backend.alloc("sweep forecast", bytes)?).clone()),
        }
    }
}

/// Experts with the slots that they have in a staging group.
fn staged(experts: &[u32], stage: usize) -> impl Iterator<Item = (u32, u32)> {
    experts.iter().copied().zip((stage * GROUP) as u32..)
}

impl Taker {
    /// Whether the pass chose an expert.
    fn takes(&self, expert: u32) -> bool {
        self.uses.get(expert as usize).is_some_and(|&uses| uses > 0)
    }
}

/// How often each expert of a layer was chosen.
fn uses(choices: &[u32], experts: u32) -> Vec<u32> {
    let mut uses = vec![0u32; experts as usize];
    for &expert in choices {
        if let Some(uses) = uses.get_mut(expert as usize) {
            *uses += 1;
        }
    }
    uses
}

/// The experts that were chosen, most used first, equal ones by number.
fn hottest(uses: &[u32]) -> Vec<u32> {
    let mut experts: Vec<u32> = (0..).zip(uses).filter(|(_, uses)| **uses > 0).map(|(expert, _)| expert).collect();
    experts.sort_by_key(|&expert| (std::cmp::Reverse(uses[expert as usize]), expert));
    experts
}

/// A layer's experts on their way through the passes that share their reads.
struct Layered {
    layer: u32,
    /// What all passes chose.
    choices: Vec<u32>,
    takers: Vec<Taker>,
}

/// A pass that takes its part of each group of experts.
struct Taker {
    choices: Vec<u32>,
    /// How often it chose each expert.
    uses: Vec<u32>,
    /// Where it chose them.
    chosen: Buffer,
    /// Where the slots of its choices lie.
    slots: Buffer,
    /// Both halves, with the shared expert and without.
    halves: [Vec<(Site, Op)>; 2],
    /// Whether the shared expert is done.
    shared: bool,
}

impl Run<'_> {
    /// Whether this pass sweeps.
    pub fn sweeps(&self) -> bool {
        self.rows.count >= SWEEP_ROWS && self.rows.form == ss_backend::Form::Prompt && self.sweep.streams()
    }

    /// Runs the router and the experts of a layer whose router is recorded, `next` being the layer after it.
    pub fn sweep_layer(&mut self, layer: u32, scope: Scope, w: &MoeLayer, next: Option<&Layer>) -> Result<()> {
        let forecast = next.map(|next| self.record_forecast(scope, next)).transpose()?;
        self.submit()?;
        self.sweep_passes(layer, scope, w, forecast)
    }

    /// Runs the experts of a layer for all passes, whose routers are submitted; at `forecast` lies what the layer after it is
    /// expected to choose.
    pub fn sweep_passes(&mut self, layer: u32, scope: Scope, w: &MoeLayer, forecast: Option<Wanted>) -> Result<()> {
        // The disk works while the device is at the layer before, this one's attention and its router.
        self.fill_ahead(layer)?;
        let mut takers: Vec<Taker> = (0..self.passes.len()).map(|pass| self.taker(pass, scope, w)).collect();
        let mut coming = vec![0u32; forecast.as_ref().map_or(0, |forecast| forecast.bytes as usize / size_of::<u32>())];
        let read = takers.iter_mut().map(|taker| Readback {
            source: &taker.chosen,
            offset: 0,
            into: bytemuck::cast_slice_mut(&mut taker.choices),
        });
        let forecast = forecast.as_ref().map(|forecast| Readback {
            source: &forecast.source,
            offset: forecast.offset,
            into: bytemuck::cast_slice_mut(&mut coming),
        });
        self.backend.read_all(&mut read.chain(forecast).collect::<Vec<_>>())?;
        for taker in &mut takers {
            taker.uses = uses(existing(&taker.choices, self.geometry.experts)?, self.geometry.experts);
        }
        let choices = takers.iter().flat_map(|taker| taker.choices.iter().copied()).collect();
        let mut layered = Layered { layer, choices, takers };
        self.tell_passes(&layered)?;
        // Everything submitted is finished now.
        self.experts.release();
        self.experts.admit_early();
        self.sweep.users = [None; STAGES];
        self.walk(&mut layered)?;
        self.sweep.ahead = self.wanted_ahead(layer + 1, &hottest(&uses(&coming, self.geometry.experts)));
        Ok(())
    }

    /// A pass as a taker of experts, its choices not known yet.
    fn taker(&mut self, pass: usize, scope: Scope, w: &MoeLayer) -> Taker {
        self.enter(pass);
        self.experts(scope, w);
        let list = std::mem::replace(&mut self.rec, Recorder::new(self.arithmetic));
        let halves = list.steps().to_vec();
        let lone = halves.iter().map(|(site, op)| (*site, without_shared(op.clone()))).collect();
        Taker {
            choices: vec![0; (self.rows.count * self.geometry.choices) as usize],
            uses: Vec::new(),
            chosen: self.work.at(Area::Choices),
            slots: self.work.at(Area::Slots),
            halves: [halves, lone],
            shared: false,
        }
    }

    /// Tells what all passes chose, as if they were one, if somebody wants to know.
    fn tell_passes(&mut self, layered: &Layered) -> Result<()> {
        if !self.tracer.wants(layered.layer) {
            return Ok(());
        }
        let mut weights = Vec::with_capacity(layered.choices.len());
        for (pass, taker) in layered.takers.iter().enumerate() {
            self.enter(pass);
            let mut these = vec![0f32; taker.choices.len()];
            self.backend.read(&self.work.at(Area::ChoiceWeights), 0, bytemuck::cast_slice_mut(&mut these))?;
            weights.extend(these);
        }
        self.tracer.tell(layered.layer, &layered.choices, &weights);
        Ok(())
    }

    /// Walks a layer's experts: resident ones, those to be admitted, then the rest through the staging groups.
    fn walk(&mut self, layered: &mut Layered) -> Result<()> {
        let layer = layered.layer;
        let chosen = hottest(&uses(&layered.choices, self.geometry.experts));
        let table = self.experts.table().layer(layer);
        let resident = |expert: &u32| table.get(*expert as usize).is_some_and(|&slot| slot != NONE);
        let (here, mut away): (Vec<u32>, Vec<u32>) = chosen.iter().partition(|&expert| resident(expert));
        let admitted = self.admitted(&chosen, &here);
        let mut groups = if here.is_empty() { Vec::new() } else { vec![here] };
        groups.extend(admitted.chunks(GROUP).map(<[u32]>::to_vec));
        away.retain(|expert| !admitted.contains(expert));
        for group in groups {
            self.cancel.check()?;
            let slots = self.experts.acquire(layer, &group, Lane::Bulk)?;
            let pool = self.experts.pool().clone();
            self.run_group(layered, &group.into_iter().zip(slots).collect::<Vec<_>>(), &pool)?;
        }
        self.stream(layered, away)
    }

    /// What the last pass of a prompt brings into the pool: a layer's most used experts, up to its share of the slots.
    fn admitted(&self, chosen: &[u32], here: &[u32]) -> Vec<u32> {
        if !self.admits {
            return Vec::new();
        }
        let share = self.experts.table().len() / self.geometry.layers.len().max(1);
        let room = self.experts.table().unpinned().saturating_sub(here.len());
        chosen.iter().copied().take(share).filter(|expert| !here.contains(expert)).take(room).collect()
    }

    /// Takes experts through the staging groups, those first that are there already.
    fn stream(&mut self, layered: &mut Layered, mut away: Vec<u32>) -> Result<()> {
        let Some(staging) = self.sweep.staging.clone() else { return Ok(()) };
        for ahead in std::mem::take(&mut self.sweep.ahead) {
            if ahead.layer != layered.layer {
                continue;
            }
            let group: Vec<(u32, u32)> =
                staged(&ahead.experts, ahead.stage).filter(|(expert, _)| away.contains(expert)).collect();
            away.retain(|expert| !ahead.experts.contains(expert));
            self.run_staged(layered, &group, ahead.stage, &staging)?;
        }
        for group in away.chunks(GROUP) {
            self.cancel.check()?;
            let stage = self.read_stage(&staging, layered.layer, group)?;
            self.run_staged(layered, &staged(group, stage).collect::<Vec<_>>(), stage, &staging)?;
        }
        Ok(())
    }

    /// Reads records into the staging group whose turn it is.
    fn read_stage(&mut self, staging: &Pool, layer: u32, group: &[u32]) -> Result<usize> {
        let stage = self.sweep.turn;
        self.sweep.turn = (stage + 1) % STAGES;
        if let Some(user) = self.sweep.users[stage].take() {
            self.backend.wait(user)?;
        }
        self.experts.stage(staging, (stage * GROUP) as u32, layer, group)?;
        Ok(stage)
    }

    /// Runs what passes need of a staging group, and remembers the last work that does.
    fn run_staged(&mut self, layered: &mut Layered, group: &[(u32, u32)], stage: usize, staging: &Pool) -> Result<()> {
        if group.is_empty() {
            return Ok(());
        }
        let taken = |taker: &Taker| group.iter().filter(|(expert, _)| taker.takes(*expert)).count();
        let taken: Vec<usize> = layered.takers.iter().map(taken).filter(|&records| records > 0).collect();
        self.experts.served(taken.len(), taken.iter().sum::<usize>().saturating_sub(group.len()));
        if let Some(user) = self.run_group(layered, group, staging)? {
            self.sweep.users[stage] = Some(user);
        }
        Ok(())
    }

    /// Runs both halves over the choices that these experts are, pass after pass; gives the last work.
    fn run_group(&mut self, layered: &mut Layered, placed: &[(u32, u32)], pool: &Pool) -> Result<Option<Submission>> {
        let mut last = None;
        for (pass, taker) in layered.takers.iter_mut().enumerate() {
            let forgotten = pass > 0 && self.sweep.mutation == PassMutation::ForgottenPass;
            if forgotten || !placed.iter().any(|&(expert, _)| taker.takes(expert)) {
                continue;
            }
            let table = slots_of(&taker.choices, placed.iter().copied(), self.geometry.experts);
            self.backend.upload(&taker.slots, 0, bytemuck::cast_slice(&table))?;
            let halves = &taker.halves[usize::from(std::mem::replace(&mut taker.shared, true))];
            let steps: Vec<_> = halves.iter().map(|(site, op)| (*site, over(op.clone(), pool))).collect();
            last = Some(self.backend.submit(Work { arithmetic: self.arithmetic, steps: &steps })?);
        }
        Ok(last)
    }

    /// What is to be read before a layer has chosen: the experts that it is expected to use most. A group of them, and both
    /// where passes share them: their mixers take long, and hardly an expert is in vain.
    fn wanted_ahead(&self, layer: u32, likely: &[u32]) -> Vec<Ahead> {
        let table = self.experts.table().layer(layer);
        let away = |expert: &u32| table.get(*expert as usize) == Some(&NONE);
        let experts: Vec<u32> = likely.iter().copied().filter(away).collect();
        let groups = if self.passes.len() > 1 { STAGES } else { 1 };
        let wanted = |experts: &[u32]| Ahead { layer, stage: STAGES, experts: experts.to_vec() };
        experts.chunks(GROUP).take(groups).map(wanted).collect()
    }

    /// Reads what is wanted ahead.
    fn fill_ahead(&mut self, layer: u32) -> Result<()> {
        let wanted = std::mem::take(&mut self.sweep.ahead);
        let Some(staging) = self.sweep.staging.clone().filter(|_| self.experts.looks_ahead()) else { return Ok(()) };
        for ahead in wanted.into_iter().filter(|ahead| ahead.layer == layer) {
            let stage = self.read_stage(&staging, layer, &ahead.experts)?;
            self.sweep.ahead.push(Ahead { stage, ..ahead });
        }
        Ok(())
    }

    /// Records what the layer after this one would choose if its attention added nothing; gives where it lies.
    pub fn record_forecast(&mut self, scope: Scope, next: &Layer) -> Result<Wanted> {
        let bytes = 4 * u64::from(self.rows.count * self.geometry.choices);
        let experts = self.sweep.forecast(self.backend, bytes)?;
        // Both areas are idle between a router and the experts.
        let (u, weights) = (self.work.at(Area::Shared), self.work.at(Area::Slots));
        self.read_streams_for(scope, Stage::Forecast, &next.mlp_hc, (u.clone(), self.work.at(Area::ForecastInject)));
        self.rec.route(Route {
            rows: self.rows,
            choices: self.geometry.choices,
            u,
            weight: next.moe.router.clone(),
            logits: self.work.at(Area::Router),
            experts: experts.clone(),
            weights,
            lookup: None,
        });
        Ok(Wanted { source: experts, offset: 0, bytes })
    }
}

/// One half of a layer's experts, in another pool.
pub(crate) fn over(mut half: Op, pool: &Pool) -> Op {
    match &mut half {
        Op::ExpertsIn(half) => half.pool = pool.clone(),
        Op::ExpertsOut(half) => half.pool = pool.clone(),
        _ => {}
    }
    half
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn experts_go_by_their_uses_then_by_their_numbers() {
        let uses = uses(&[3, 1, 3, 2, 1, 3, 0, 9], 6);
        assert_eq!(uses, [1, 2, 1, 3, 0, 0]);
        assert_eq!(hottest(&uses), [3, 1, 0, 2]);
    }
}
