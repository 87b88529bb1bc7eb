//! Owns: going back into the middle of a recorded pass (engine.md 7.2): what a verify pass does when a draft is refused.
//! Refuses: keeping more rows than the pass had.
//! Invariants: after a rewind to `keep` rows the state is bit for bit the one that a pass of those rows leaves.

use ss_backend::op::{Carry, GdnReplay, Window};
use ss_backend::{Buffer, Recorder, Scope, Stage};

use crate::graph::GdnTape;
use crate::rope::Position;
use crate::state::{MixerState, State};
use crate::{Error, Model, Result};

/// What a rewind into a pass needs: the state before it and the inputs of everything that runs row by row.
pub struct Recording {
    before: State,
    ids: Vec<u32>,
    positions: Vec<Position>,
    gdn: Vec<Option<GdnTape>>,
    ple: Vec<Buffer>,
}

impl Recording {
    pub(crate) fn start(model: &Model, before: State, ids: &[u32], positions: &[Position]) -> Result<Self> {
        let (gdn, ple) = model.alloc_tape(&before, ids.len() as u32)?;
        Ok(Recording { before, ids: ids.to_vec(), positions: positions.to_vec(), gdn, ple })
    }

    pub(crate) fn gdn_tape(&self, layer: usize) -> Option<&GdnTape> {
        self.gdn.get(layer)?.as_ref()
    }

    pub(crate) fn ple_inputs(&self, index: usize) -> &Buffer {
        &self.ple[index]
    }

    /// Rows of the pass.
    pub fn rows(&self) -> u32 {
        self.ids.len() as u32
    }
}

impl Model {
    /// Takes `state` back to the first `keep` rows of the recorded pass, which was its last.
    ///
    /// # Errors
    /// When `keep` exceeds the pass, the state is not the one that the pass left, or the device fails.
    pub fn rewind(&self, state: &mut State, recording: &Recording, keep: u32) -> Result<()> {
        state.check_whole()?;
        if keep > recording.rows() || state.timeline.tokens != recording.before.timeline.tokens + recording.rows() {
            return Err(Error::Request("a rewind outside the recorded pass"));
        }
        state.torn = true;
        let before = &recording.before;
        let mut rec = Recorder::new(self.arithmetic);
        for (l, mixer) in state.mixers.iter_mut().enumerate() {
            // Rows of sparse attention past the kept ones are never read again: the next pass writes over them.
            let (MixerState::Gdn(now), MixerState::Gdn(then)) = (mixer, &before.mixers[l]) else { continue };
            let Some(tape) = recording.gdn_tape(l) else { continue };
            rec.at(Scope::Layer(l as u32), Stage::State);
            now.window = self.replay_window(&mut rec, keep, self.shapes.gdn.kernel - 1, &tape.qkv, &then.window)?;
            let to = self.backend.alloc("gdn state", then.state.bytes())?;
            rec.gdn_replay(GdnReplay {
                rows: keep,
                shape: self.shapes.gdn,
                inputs: tape.inputs.clone(),
                state: Carry { from: Some((*then.state).clone()), state: to.clone() },
            });
            now.state = to.into();
        }
        for (i, window) in state.ple.iter_mut().enumerate() {
            rec.at(Scope::Whole, Stage::State);
            *window =
                self.replay_window(&mut rec, keep, self.shapes.ple.window(), recording.ple_inputs(i), &before.ple[i])?;
        }
        self.backend.submit(rec.all())?;
        state.timeline = before.timeline.clone();
        state.timeline.extend(&recording.positions[..keep as usize], self.shapes.qsa.block);
        let look_back = self.geometry().ngram.order.saturating_sub(1) as usize;
        state.context = [&before.context, &recording.ids[..keep as usize]].concat();
        state.context.drain(..state.context.len().saturating_sub(look_back));
        state.torn = false;
        Ok(())
    }

    fn replay_window(
        &self,
        rec: &mut Recorder,
        rows: u32,
        depth: u32,
        inputs: &Buffer,
        then: &Buffer,
    ) -> Result<std::sync::Arc<Buffer>> {
        let to = self.backend.alloc("window", then.bytes())?;
        let width = (then.bytes() / (4 * u64::from(depth))) as u32;
        let window = Carry { from: Some(then.clone()), state: to.clone() };
        rec.window(Window { rows, depth, width, inputs: inputs.clone(), window });
        Ok(to.into())
    }
}
