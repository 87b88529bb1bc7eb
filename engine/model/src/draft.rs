//! Owns: the MTP draft head as a callable part (architecture.md section 11).
//! Refuses: the policy of drafting: how deep, and what is accepted.
//! Invariants: its rows are its own; drafting changes nothing that the main model reads.

use ss_backend::op::{Copy, Embed, MtpFuse};
use ss_backend::{Form, Rows, Scope, Stage};

use crate::graph::Run;
use crate::model::{Start, head};
use crate::state::State;
use crate::workspace::Area;
use crate::{Cancel, Error, Model, Result, Want};

/// Which streams the draft head reads beside its tokens.
#[derive(Clone, Copy, Debug)]
pub enum DraftSource {
    /// Rows of the main model's last pass, from this one on.
    Main {
        /// First row.
        first: u32,
    },
    /// A row of the head's own last call: a chained draft.
    Own {
        /// The row.
        row: u32,
    },
}

impl Model {
    /// Feeds pairs of a next token and the streams before it to the draft head; gives logits `[rows wanted, vocab]` for
    /// the tokens after. `ids[i]` is the token that follows the position of the `i`-th row of `source`.
    ///
    /// # Errors
    /// As [`Model::forward`]; also when the checkpoint has no draft head.
    pub fn draft(
        &mut self,
        state: &mut State,
        ids: &[u32],
        source: DraftSource,
        want: Want,
        cancel: &Cancel,
    ) -> Result<Vec<f32>> {
        state.check_whole()?;
        let count = ids.len() as u32;
        let checkpoint = self.checkpoint.clone();
        let geometry = checkpoint.geometry();
        let Some(draft) = state.draft.as_mut() else { return Err(Error::NoDraftHead) };
        if count == 0 || count > self.work.rows() {
            return Err(Error::Request("draft rows that no pass came before"));
        }
        if let Some(&id) = ids.iter().find(|&&id| id >= geometry.vocab) {
            return Err(Error::TokenId { id, vocab: geometry.vocab });
        }
        state.torn = true;
        let first = draft.timeline.tokens;
        let positions = draft.timeline.text(count);
        draft.timeline.extend(&positions, self.shapes.qsa.block);
        self.upload_rows(ids, &positions, &draft.timeline, first)?;
        let rows = Rows { count, form: Form::Generated };
        let (mut run, all, _) =
            self.run(Start { geometry, rows, first, streams: Area::DraftStreams, admits: false, dry: false, cancel });
        let Some(weights) = &all.draft else { return Err(Error::NoDraftHead) };
        take_streams(&mut run, source)?;
        run.rec.at(Scope::Mtp, Stage::Embed).embed(Embed {
            rows: run.rows,
            ids: run.work.at(Area::Ids),
            table: all.embed.clone(),
            copies: 1,
            out: run.work.at(Area::DraftE),
        });
        run.rec.at(Scope::Mtp, Stage::Fuse).mtp_fuse(MtpFuse {
            rows: run.rows,
            streams: run.shapes.streams,
            eps: geometry.eps,
            e: run.work.at(Area::DraftE),
            m: run.work.at(Area::DraftM),
            norm_embedding: weights.norm_embedding.clone(),
            norm_hidden: weights.norm_hidden.clone(),
            fc_embedding: weights.fc_embedding.clone(),
            fc_hidden: weights.fc_hidden.clone(),
            scratch: run.work.at(Area::DraftNormed),
            out: run.streams.clone(),
        });
        run.layer(geometry.layers.len() as u32, Scope::Mtp, &weights.layer, &mut draft.mixer, None, None)?;
        let wanted = match want {
            Want::Nothing => count..count,
            Want::Last | Want::Likeliest => count - 1..count,
            Want::All => 0..count,
        };
        let logits = head(&mut run, (&weights.mixer, Scope::Mtp), &all.head, wanted)?;
        state.torn = false;
        Ok(logits)
    }

    /// Reads the draft head's streams of its last call, `[rows, streams, hidden]`.
    ///
    /// # Errors
    /// When the device is lost.
    pub fn read_draft_streams(&self, rows: u32) -> Result<Vec<f32>> {
        let mut out = vec![0f32; (rows * self.geometry().stream_width()) as usize];
        self.backend.read(&self.work.at(Area::DraftStreams), 0, bytemuck::cast_slice_mut(&mut out))?;
        Ok(out)
    }
}

/// Copies the streams that the head reads to where nothing of its own call overwrites them.
fn take_streams(run: &mut Run<'_>, source: DraftSource) -> Result<()> {
    let row_bytes = 4 * u64::from(run.shapes.streams.width());
    let (from, first) = match source {
        DraftSource::Main { first } => (run.work.at(Area::Streams), first),
        DraftSource::Own { row } => (run.work.at(Area::DraftStreams), row),
    };
    let (from_offset, bytes) = (u64::from(first) * row_bytes, u64::from(run.rows.count) * row_bytes);
    if from_offset + bytes > from.bytes() {
        return Err(Error::Request("draft rows that no pass came before"));
    }
    let to = run.work.at(Area::DraftM);
    run.rec.at(Scope::Mtp, Stage::State).copy(Copy { from, from_offset, to, to_offset: 0, bytes });
    Ok(())
}
