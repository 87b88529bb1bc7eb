//! Owns: the experts of a long prompt pass: those that have a slot are used where they lie, the others stream through two
//! groups of staging slots, one being read while the device works on the other (engine.md section 6).
//! Refuses: short passes and generated rows, whose experts go into the pool.
//! Invariants: the pool is left as it was, but for what the last pass of a prompt admits; a staging group is read into only
//! when the work that used it is finished; how a layer's experts are grouped changes no bit.

use ss_backend::op::Route;
use ss_backend::{Backend, Buffer, NONE, Op, Pool, Readback, Recorder, Scope, Site, Stage, Submission, Work};
use ss_checkpoint::{Geometry, RecordLayout};
use ss_stream::Lane;

use crate::Result;
use crate::drive::existing;
use crate::graph::Run;
use crate::groups::{slots_of, without_shared};
use crate::weights::{Layer, MoeLayer};
use crate::workspace::Area;

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
    /// What was read before its layer had chosen.
    ahead: Option<Ahead>,
    /// Choices that the next layer is expected to make, `[rows, choices]` u32; grows with the passes.
    forecast: Option<Buffer>,
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
    pub fn new(backend: &dyn Backend, layout: &RecordLayout, slots: u32, g: &Geometry) -> Result<Self> {
        let streams = u64::from(slots) < g.layers.len() as u64 * u64::from(g.experts);
        let staging = streams.then(|| backend.alloc_pool(layout, (STAGES * GROUP) as u32)).transpose()?;
        Ok(Sweep { staging, users: [None; STAGES], turn: 0, ahead: None, forecast: None })
    }

    /// The staging slots, if experts stream at all.
    pub fn staging(&self) -> Option<&Pool> {
        self.staging.as_ref()
    }

    /// Forgets what was read ahead: another pass begins.
    pub fn start(&mut self) {
        self.ahead = None;
    }

    fn forecast(&mut self, backend: &dyn Backend, bytes: u64) -> Result<Buffer> {
        match &self.forecast {
            Some(buffer) if buffer.bytes() >= bytes => Ok(buffer.clone()),
            _ => Ok(self.forecast.insert(backend.alloc("sweep forecast", bytes)?).clone()),
        }
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

/// A layer's experts on their way through a pass.
struct Layered<'a> {
    layer: u32,
    choices: &'a [u32],
    /// Both halves, with the shared expert and without.
    halves: [Vec<(Site, Op)>; 2],
    /// Whether the shared expert is done.
    shared: bool,
}

impl Run<'_> {
    /// Whether this pass sweeps.
    pub fn sweeps(&self) -> bool {
        self.rows.count >= SWEEP_ROWS && self.rows.form == ss_backend::Form::Prompt && self.sweep.staging.is_some()
    }

    /// Runs the router and the experts of a layer whose router is recorded, `next` being the layer after it.
    pub fn sweep_layer(&mut self, layer: u32, scope: Scope, w: &MoeLayer, next: Option<&Layer>) -> Result<()> {
        let forecast = next.map(|next| self.record_forecast(scope, next)).transpose()?;
        self.submit()?;
        // The disk works while the device is at the layer before, this one's attention and its router.
        self.fill_ahead(layer)?;
        let count = (self.rows.count * self.geometry.choices) as usize;
        let (mut choices, mut coming) = (vec![0u32; count], vec![0u32; forecast.as_ref().map_or(0, |_| count)]);
        let chosen = self.work.at(Area::Choices);
        let mut parts = vec![Readback { source: &chosen, offset: 0, into: bytemuck::cast_slice_mut(&mut choices) }];
        if let Some(source) = &forecast {
            parts.push(Readback { source, offset: 0, into: bytemuck::cast_slice_mut(&mut coming) });
        }
        self.backend.read_all(&mut parts)?;
        existing(&choices, self.geometry.experts)?;
        self.tell(layer, &choices)?;
        // Everything submitted is finished now.
        self.experts.release();
        self.experts.admit_early();
        self.sweep.users = [None; STAGES];
        self.experts(scope, w);
        let list = std::mem::replace(&mut self.rec, Recorder::new(self.arithmetic));
        let halves = list.steps().to_vec();
        let lone = halves.iter().map(|(site, op)| (*site, without_shared(op.clone()))).collect();
        self.walk(&mut Layered { layer, choices: &choices, halves: [halves, lone], shared: false })?;
        let uses = uses(&coming, self.geometry.experts);
        self.sweep.ahead = self.wanted_ahead(layer + 1, &hottest(&uses));
        Ok(())
    }

    /// Walks a layer's experts: resident ones, those to be admitted, then the rest through the staging groups.
    fn walk(&mut self, layered: &mut Layered<'_>) -> Result<()> {
        let layer = layered.layer;
        let chosen = hottest(&uses(layered.choices, self.geometry.experts));
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
            self.run_group(layered, group.into_iter().zip(slots), &pool)?;
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
    fn stream(&mut self, layered: &mut Layered<'_>, mut away: Vec<u32>) -> Result<()> {
        let Some(staging) = self.sweep.staging.clone() else { return Ok(()) };
        if let Some(ahead) = self.sweep.ahead.take().filter(|ahead| ahead.layer == layered.layer) {
            let slots = (0..).map(|slot| (ahead.stage * GROUP) as u32 + slot);
            let group: Vec<(u32, u32)> =
                ahead.experts.iter().copied().zip(slots).filter(|(expert, _)| away.contains(expert)).collect();
            away.retain(|expert| !ahead.experts.contains(expert));
            if !group.is_empty() {
                let user = self.run_group(layered, group.into_iter(), &staging)?;
                self.sweep.users[ahead.stage] = Some(user);
            }
        }
        for group in away.chunks(GROUP) {
            self.cancel.check()?;
            let stage = self.read_stage(&staging, layered.layer, group)?;
            let slots = (0..).map(|slot| (stage * GROUP) as u32 + slot);
            let user = self.run_group(layered, group.iter().copied().zip(slots), &staging)?;
            self.sweep.users[stage] = Some(user);
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

    /// Runs both halves over the choices that these experts are.
    fn run_group(
        &mut self,
        layered: &mut Layered<'_>,
        placed: impl Iterator<Item = (u32, u32)>,
        pool: &Pool,
    ) -> Result<Submission> {
        let table = slots_of(layered.choices, placed, self.geometry.experts);
        self.backend.upload(&self.work.at(Area::Slots), 0, bytemuck::cast_slice(&table))?;
        let halves = &layered.halves[usize::from(std::mem::replace(&mut layered.shared, true))];
        let steps: Vec<_> = halves.iter().map(|(site, op)| (*site, over(op.clone(), pool))).collect();
        Ok(self.backend.submit(Work { arithmetic: self.arithmetic, steps: &steps })?)
    }

    /// What is to be read before a layer has chosen: a group of the experts that it is expected to use most.
    fn wanted_ahead(&self, layer: u32, likely: &[u32]) -> Option<Ahead> {
        let table = self.experts.table().layer(layer);
        let away = |expert: &u32| table.get(*expert as usize) == Some(&NONE);
        let experts: Vec<u32> = likely.iter().copied().filter(away).take(GROUP).collect();
        (!experts.is_empty()).then_some(Ahead { layer, stage: STAGES, experts })
    }

    /// Reads what is wanted ahead.
    fn fill_ahead(&mut self, layer: u32) -> Result<()> {
        let wanted = self.sweep.ahead.take().filter(|ahead| ahead.layer == layer && self.experts.looks_ahead());
        if let (Some(ahead), Some(staging)) = (wanted, self.sweep.staging.clone()) {
            let stage = self.read_stage(&staging, layer, &ahead.experts)?;
            self.sweep.ahead = Some(Ahead { stage, ..ahead });
        }
        Ok(())
    }

    /// Records what the layer after this one would choose if its attention added nothing; gives where it lies.
    fn record_forecast(&mut self, scope: Scope, next: &Layer) -> Result<Buffer> {
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
        Ok(experts)
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
