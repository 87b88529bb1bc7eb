//! Owns: the scratch memory of a pass, and of passes that share the reads of experts, as functions of geometry and pass size
//! (engine.md 8.1).
//! Refuses: state; nothing here survives a pass, but for the streams, which the draft head reads after it.
//! Invariants: what the functions say is what is allocated.

use ss_backend::{Backend, Buffer};
use ss_checkpoint::Geometry;

use crate::Result;
use crate::sweep::SWEEP_ROWS;

/// Rows that the output head takes at a time (engine.md 3.7d).
pub const HEAD_ROWS: u32 = ss_backend::op::Head::MAX_ROWS;

/// Most bytes of indexer scores at a time; longer passes are scored in slices of rows.
const SCORE_BYTES: u64 = 32 << 20;

/// The areas of a workspace. Shapes are a row's; `n` rows lie one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Area {
    /// Token id, u32.
    Ids,
    /// `[rotary / 2, 2]`.
    Rope,
    /// `[rotary / 2, 2]` for each block completed.
    BlockRope,
    /// `[streams, hidden]`: the residual streams.
    Streams,
    /// `[streams, hidden]`: normed streams of a hyper-connection read.
    Normed,
    /// `[lowrank]`.
    Lowrank,
    /// `[hidden]`: what a mixer or the experts read.
    U,
    /// `[streams]`.
    Inject,
    /// `[channels]`: q, k, v of Gated DeltaNet; or `[heads, 2, head_dim]`: queries and gates of sparse attention.
    Query,
    /// `[values]`: z of Gated DeltaNet; or `[2, kv_heads, head_dim]`.
    Side,
    /// `[2, value_heads]`: a and b; or `[index_heads + 1, index_dim]`.
    Small,
    /// `[values]` or `[heads, head_dim]`: what the output projection reads.
    Mixed,
    /// `[heads, head_dim]`: normed, rotated queries.
    Q,
    /// `[index_heads, index_dim]`: normed, rotated indexer queries.
    IndexQ,
    /// `[topk]` u32: kept blocks.
    Blocks,
    /// `[streams, hidden]`: keys of the n-gram injection.
    PleKeys,
    /// `[hidden]`: its values.
    PleValues,
    /// `[streams, hidden]`: inputs of its convolution.
    PleInputs,
    /// `[experts]`: router logits.
    Router,
    /// `[choices]` u32: chosen experts.
    Choices,
    /// `[choices]`: their weights.
    ChoiceWeights,
    /// `[choices]` u32: their slots.
    Slots,
    /// `[choices, inner]`: gated expert rows.
    ExpertRows,
    /// `[choices, hidden]`: what each choice gave.
    Routed,
    /// `[shared_inner]`.
    SharedRows,
    /// `[hidden]`: what the shared expert gave.
    Shared,
    /// `[streams]`: what a forecast's read leaves; nobody reads it.
    ForecastInject,
    /// `[hidden]`, head rows only.
    HeadU,
    /// `[vocab]`, head rows only.
    Logits,
    /// `[hidden]`: embeddings of the draft head.
    DraftE,
    /// `[streams, hidden]`: streams that the draft head reads.
    DraftM,
    /// `[streams, hidden]`: streams of the draft head.
    DraftStreams,
    /// `[hidden + streams * hidden]`: normed inputs of its fusion.
    DraftNormed,
}

impl Area {
    /// All areas.
    pub const ALL: [Area; 33] = [
        Area::Ids,
        Area::Rope,
        Area::BlockRope,
        Area::Streams,
        Area::Normed,
        Area::Lowrank,
        Area::U,
        Area::Inject,
        Area::Query,
        Area::Side,
        Area::Small,
        Area::Mixed,
        Area::Q,
        Area::IndexQ,
        Area::Blocks,
        Area::PleKeys,
        Area::PleValues,
        Area::PleInputs,
        Area::Router,
        Area::Choices,
        Area::ChoiceWeights,
        Area::Slots,
        Area::ExpertRows,
        Area::Routed,
        Area::SharedRows,
        Area::Shared,
        Area::ForecastInject,
        Area::HeadU,
        Area::Logits,
        Area::DraftE,
        Area::DraftM,
        Area::DraftStreams,
        Area::DraftNormed,
    ];

    /// What outlives a pass's turn within a layer: passes that share a read of its experts have these each, and the others
    /// in common (engine.md section 6).
    const HELD: [Area; 11] = [
        Area::Ids,
        Area::Rope,
        Area::BlockRope,
        Area::Streams,
        Area::U,
        Area::Inject,
        Area::Choices,
        Area::ChoiceWeights,
        Area::Slots,
        Area::Routed,
        Area::Shared,
    ];

    /// Numbers (of 4 bytes) in a row.
    fn width(self, g: &Geometry) -> u32 {
        let wide = g.stream_width();
        match self {
            Area::Ids => 1,
            Area::Rope | Area::BlockRope => g.rotary,
            Area::Streams | Area::Normed | Area::DraftM | Area::DraftStreams => wide,
            Area::PleKeys | Area::PleInputs => if_ple(g, wide),
            Area::PleValues => if_ple(g, g.hidden),
            Area::Lowrank => g.lowrank,
            Area::U | Area::Shared | Area::HeadU | Area::DraftE => g.hidden,
            Area::Inject | Area::ForecastInject => g.streams,
            Area::Query => g.gdn_conv_width().max(2 * g.query_width()),
            Area::Side => g.gdn_value_width().max(2 * g.kv_width()),
            Area::Small => (2 * g.gdn_value_heads).max(g.index_width()),
            Area::Mixed => g.gdn_value_width().max(g.query_width()),
            Area::Q => g.query_width(),
            Area::IndexQ => g.index_heads * g.index_dim,
            Area::Blocks => g.index_topk,
            Area::Router => g.experts,
            Area::Choices | Area::ChoiceWeights | Area::Slots => g.choices,
            Area::ExpertRows => g.choices * g.inner,
            Area::Routed => g.choices * g.hidden,
            Area::SharedRows => g.shared_inner,
            Area::Logits => g.vocab,
            Area::DraftNormed => g.hidden + wide,
        }
    }

    /// Bytes for a pass of `rows` rows; `draft` says whether the draft head is there.
    pub fn bytes(self, g: &Geometry, rows: u32, draft: bool) -> u64 {
        let rows = match self {
            Area::HeadU | Area::Logits => rows.min(HEAD_ROWS),
            Area::BlockRope => rows / g.index_block + 1,
            Area::DraftE | Area::DraftM | Area::DraftStreams | Area::DraftNormed if !draft => 0,
            _ => rows,
        };
        // Devices do not make empty buffers.
        (4 * u64::from(rows) * u64::from(self.width(g))).max(4)
    }
}

fn if_ple(g: &Geometry, width: u32) -> u32 {
    if g.ple.is_empty() { 0 } else { width }
}

/// Bytes of a whole workspace, scores aside.
pub fn workspace_bytes(g: &Geometry, rows: u32, draft: bool) -> u64 {
    let areas: u64 = Area::ALL.iter().map(|area| area.bytes(g, rows, draft)).sum();
    areas + LEAST_SETS as u64 * g.ple.len() as u64 * ngram_bytes(g, rows)
}

/// Sets of n-gram rows: those of a pass, and those of the next, which are read meanwhile.
const LEAST_SETS: usize = 2;

/// Bytes of the n-gram rows of one table, `[rows, ple]`: side by side, unrounded.
fn ngram_bytes(g: &Geometry, rows: u32) -> u64 {
    4 * u64::from(rows) * u64::from(g.ple_dim)
}

/// Passes of `rows` rows in a read group of up to `tokens` tokens; a single one where passes are too short to sweep.
pub(crate) fn group_passes(rows: u32, tokens: u32) -> u32 {
    if rows < SWEEP_ROWS { 1 } else { (tokens / rows).max(1) }
}

/// Bytes beside a workspace for passes of `rows` rows, with which a read group of up to `tokens` tokens shares the reads of
/// experts (engine.md section 6); none for a group of one pass.
pub fn read_group_bytes(g: &Geometry, rows: u32, tokens: u32) -> u64 {
    let held: u64 = Area::HELD.iter().map(|area| area.bytes(g, rows, false)).sum();
    u64::from(group_passes(rows, tokens) - 1) * (held + g.ple.len() as u64 * ngram_bytes(g, rows))
}

/// Room for the n-gram rows of a pass, table by table.
fn ngram_rows(backend: &dyn Backend, g: &Geometry, rows: u32) -> Result<Vec<Buffer>> {
    let table = || backend.alloc("workspace n-gram rows", ngram_bytes(g, rows).max(4));
    Ok(g.ple.iter().map(|_| table()).collect::<std::result::Result<_, _>>()?)
}

/// Scratch memory for passes of up to `rows` rows.
pub struct Workspace {
    rows: u32,
    /// The areas of each pass of a read group; the first is that of passes which share nothing.
    passes: Vec<Vec<Buffer>>,
    /// The pass whose areas are meant.
    turn: usize,
    /// A set a pass, and one for the pass after them; a buffer a table each, since all are filled before they are used.
    ngram_rows: Vec<Vec<Buffer>>,
    scores: Buffer,
}

impl Workspace {
    /// Allocates every area.
    ///
    /// # Errors
    /// When the device has no room.
    pub fn new(backend: &dyn Backend, g: &Geometry, rows: u32, draft: bool) -> Result<Self> {
        // A pass of one row still feeds the head eight at a time when drafts are verified.
        let rows = rows.max(HEAD_ROWS);
        let alloc = |area: &Area| backend.alloc(&format!("workspace {area:?}"), area.bytes(g, rows, draft));
        let buffers = Area::ALL.iter().map(alloc).collect::<std::result::Result<_, _>>()?;
        Ok(Workspace {
            rows,
            passes: vec![buffers],
            turn: 0,
            ngram_rows: (0..LEAST_SETS).map(|_| ngram_rows(backend, g, rows)).collect::<Result<_>>()?,
            scores: backend.alloc("workspace scores", 4)?,
        })
    }

    /// Allocates what a read group of so many passes holds, unless it is there.
    ///
    /// # Errors
    /// When the device has no room.
    pub fn share(&mut self, backend: &dyn Backend, g: &Geometry, passes: usize) -> Result<()> {
        while self.passes.len() < passes {
            let mut buffers = self.passes[0].clone();
            for area in Area::HELD {
                buffers[area as usize] =
                    backend.alloc(&format!("read group {area:?}"), area.bytes(g, self.rows, false))?;
            }
            self.passes.push(buffers);
            self.ngram_rows.push(ngram_rows(backend, g, self.rows)?);
        }
        Ok(())
    }

    /// From here on the areas of this pass are meant.
    pub fn turn_to(&mut self, pass: usize) {
        self.turn = pass.min(self.passes.len() - 1);
    }

    /// Most rows of a pass.
    pub fn rows(&self) -> u32 {
        self.rows
    }

    /// The buffer of an area.
    pub fn at(&self, area: Area) -> Buffer {
        self.passes[self.turn][area as usize].clone()
    }

    /// The n-gram rows of a table, for passes whose rows are not read ahead.
    pub fn ngram_rows(&self, table: usize) -> Buffer {
        self.ngram_rows[0][table].clone()
    }

    /// All sets of n-gram rows, `[table]` each.
    pub fn ngram_sets(&self) -> Vec<Vec<Buffer>> {
        self.ngram_rows.clone()
    }

    /// Score memory for `rows` queries over `blocks` blocks: the buffer, and how many rows fit at a time.
    ///
    /// # Errors
    /// When the device has no room.
    pub fn scores(&mut self, backend: &dyn Backend, rows: u32, blocks: u32) -> Result<(Buffer, u32)> {
        let row = 4 * u64::from(blocks.max(1));
        let slice = u64::from(rows).min((SCORE_BYTES / row).max(1));
        if self.scores.bytes() < slice * row {
            self.scores = backend.alloc("workspace scores", (slice * row).next_power_of_two())?;
        }
        Ok((self.scores.clone(), slice as u32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_area_lies_where_its_number_says() {
        assert!(Area::ALL.iter().enumerate().all(|(at, area)| *area as usize == at));
    }
}
