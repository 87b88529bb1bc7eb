//! Owns: a layer's experts in groups that fit the pool, one run of the expert operations a group (engine.md 5.1).
//! Refuses: which experts, and what comes before and after them.
//! Invariants: each choice is computed in one group; the shared expert goes with the first; a group's slots are given up
//! when its work is finished.

use ss_backend::{Backend, Buffer, NONE, Op, Site, Work};
use ss_stream::{ExpertCache, Lane};

use crate::drive::distinct;
use crate::{Cancel, Result};

/// What runs groups.
pub(crate) struct Groups<'a> {
    pub backend: &'a dyn Backend,
    pub experts: &'a mut ExpertCache,
    /// Where the slots of a layer's choices lie.
    pub slots: &'a Buffer,
    pub lane: Lane,
    pub cancel: &'a Cancel,
    /// Experts of a layer.
    pub count: u32,
}

impl Groups<'_> {
    /// Runs both halves of a layer's experts once a group.
    pub fn run(&mut self, layer: u32, choices: &[u32], halves: Work<'_>) -> Result<()> {
        let distinct = distinct(choices);
        self.experts.close(layer, &distinct);
        let groups = self.experts.groups(layer, &distinct);
        let mut later: Option<(ss_backend::Submission, Vec<(Site, Op)>)> = None;
        for group in groups {
            if let Some((submission, _)) = &later {
                self.backend.wait(*submission)?;
                self.experts.release();
                self.cancel.check()?;
            }
            let slots = self.experts.acquire(layer, &group, self.lane)?;
            let table = slots_of(choices, group.into_iter().zip(slots), self.count);
            self.backend.upload(self.slots, 0, bytemuck::cast_slice(&table))?;
            let steps = later.as_ref().map_or(halves.steps, |(_, steps)| steps);
            let submission = self.backend.submit(Work { steps, ..halves })?;
            later = Some((
                submission,
                match later {
                    Some((_, steps)) => steps,
                    None => halves.steps.iter().map(|(site, op)| (*site, without_shared(op.clone()))).collect(),
                },
            ));
        }
        Ok(())
    }
}

/// The slot of each choice among these experts, and [`NONE`] for the others.
pub(crate) fn slots_of(choices: &[u32], placed: impl Iterator<Item = (u32, u32)>, experts: u32) -> Vec<u32> {
    let mut table = vec![NONE; experts as usize];
    for (expert, slot) in placed {
        if let Some(entry) = table.get_mut(expert as usize) {
            *entry = slot;
        }
    }
    choices.iter().map(|&expert| table.get(expert as usize).copied().unwrap_or(NONE)).collect()
}

/// One half of a layer's experts, its shared expert left out.
pub(crate) fn without_shared(mut half: Op) -> Op {
    match &mut half {
        Op::ExpertsIn(half) => half.shared = None,
        Op::ExpertsOut(half) => half.shared = None,
        _ => {}
    }
    half
}
