//! Owns: the closed set of operations (engine.md section 4) and the shapes of everything they touch.
//! Refuses: anything that is not one of them.
//! Invariants: shapes are written as `[outer, ..., inner]`, row-major; numbers are F32 unless said otherwise; a buffer
//! is never bound as input and output of one operation, except where a field says "in place".

use bytemuck::{Pod, Zeroable};

use crate::{Buffer, Matrix, Pool, Rows, Scalar};

/// Marks an entry without a slot, or a place in a list that holds nothing.
pub const NONE: u32 = u32::MAX;

/// A weight on the device, `matrix.rows` outputs from `matrix.cols` inputs.
#[derive(Clone, Debug)]
pub struct Linear {
    /// Shape and format.
    pub matrix: Matrix,
    /// Codes, or the dense numbers, as in the file.
    pub codes: Buffer,
    /// Scales `[rows, groups]`, as in the file; none for a dense weight.
    pub scales: Option<Buffer>,
    /// Biases `[rows, groups]`, as in the file; none for a dense weight.
    pub biases: Option<Buffer>,
}

/// One operation.
#[derive(Clone, Debug)]
pub enum Op {
    /// See [`Embed`].
    Embed(Embed),
    /// See [`PleProject`].
    PleProject(PleProject),
    /// See [`PleMix`].
    PleMix(PleMix),
    /// See [`HcRead`].
    HcRead(HcRead),
    /// See [`ProjectWrite`].
    ProjectWrite(ProjectWrite),
    /// See [`GdnProject`].
    GdnProject(GdnProject),
    /// See [`GdnMix`].
    GdnMix(GdnMix),
    /// See [`GdnReplay`].
    GdnReplay(GdnReplay),
    /// See [`Window`].
    Window(Window),
    /// See [`QsaProject`].
    QsaProject(QsaProject),
    /// See [`QsaAppend`].
    QsaAppend(QsaAppend),
    /// See [`QsaSelect`].
    QsaSelect(QsaSelect),
    /// See [`QsaAttend`].
    QsaAttend(QsaAttend),
    /// See [`Route`].
    Route(Route),
    /// See [`ExpertsIn`].
    ExpertsIn(ExpertsIn),
    /// See [`ExpertsOut`].
    ExpertsOut(ExpertsOut),
    /// See [`Combine`].
    Combine(Combine),
    /// See [`MtpFuse`].
    MtpFuse(MtpFuse),
    /// See [`Head`].
    Head(Head),
    /// See [`Top`].
    Top(Top),
    /// See [`Copy`].
    Copy(Copy),
}

impl Op {
    /// Its name, for errors.
    pub const fn name(&self) -> &'static str {
        match self {
            Op::Embed(_) => "Embed",
            Op::PleProject(_) => "PleProject",
            Op::PleMix(_) => "PleMix",
            Op::HcRead(_) => "HcRead",
            Op::ProjectWrite(_) => "ProjectWrite",
            Op::GdnProject(_) => "GdnProject",
            Op::GdnMix(_) => "GdnMix",
            Op::GdnReplay(_) => "GdnReplay",
            Op::Window(_) => "Window",
            Op::QsaProject(_) => "QsaProject",
            Op::QsaAppend(_) => "QsaAppend",
            Op::QsaSelect(_) => "QsaSelect",
            Op::QsaAttend(_) => "QsaAttend",
            Op::Route(_) => "Route",
            Op::ExpertsIn(_) => "ExpertsIn",
            Op::ExpertsOut(_) => "ExpertsOut",
            Op::Combine(_) => "Combine",
            Op::MtpFuse(_) => "MtpFuse",
            Op::Head(_) => "Head",
            Op::Top(_) => "Top",
            Op::Copy(_) => "Copy",
        }
    }
}

/// Rows of the embedding table, each copied to every stream (architecture.md section 5).
#[derive(Clone, Debug)]
pub struct Embed {
    /// Rows.
    pub rows: Rows,
    /// `[rows]` u32, each below `table.matrix.rows`.
    pub ids: Buffer,
    /// `[vocab, hidden]`.
    pub table: Linear,
    /// Streams to fill: `hc_count`, or 1 for the MTP head.
    pub copies: u32,
    /// Out: `[rows, copies, hidden]`.
    pub out: Buffer,
}

/// Streams of the hyper-connections (architecture.md section 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Streams {
    /// `hc_count`.
    pub count: u32,
    /// Hidden size.
    pub hidden: u32,
}

impl Streams {
    /// Numbers in a row of all streams.
    pub const fn width(self) -> u32 {
        self.count * self.hidden
    }
}

/// Weights of one hyper-connection.
#[derive(Clone, Debug)]
pub struct HyperWeights {
    /// `[streams * hidden]`, the factor itself (no one to add).
    pub norm: Buffer,
    /// `[lowrank, streams * hidden]`.
    pub down: Linear,
    /// `[streams * hidden, lowrank]`.
    pub up: Linear,
    /// `[streams, streams * hidden]`; none in a final mixer. Never rounded inputs.
    pub inject: Option<Linear>,
}

/// Hyper-connection read: grouped norm, low-rank gate, mean over the streams; injection weights
/// (architecture.md section 4).
#[derive(Clone, Debug)]
pub struct HcRead {
    /// Rows.
    pub rows: Rows,
    /// Row of `x` from which row 0 of the outputs is made.
    pub first: u32,
    /// Streams.
    pub streams: Streams,
    /// `rms_norm_eps`.
    pub eps: f32,
    /// Weights.
    pub weights: HyperWeights,
    /// `[first + rows, streams, hidden]`.
    pub x: Buffer,
    /// Scratch: `[rows, streams, hidden]`; prompt rows leave the normed streams there, generated ones what a device likes.
    pub normed: Buffer,
    /// Scratch: `[rows, lowrank]`, likewise.
    pub lowrank: Buffer,
    /// Out: `[rows, hidden]`.
    pub u: Buffer,
    /// Out: `[rows, streams]`; untouched in a final mixer.
    pub inject: Buffer,
}

/// `streams[r, s, :] += inject[r, s] * (weight x[r])`: the output projection of a mixer and its hyper-connection write.
#[derive(Clone, Debug)]
pub struct ProjectWrite {
    /// Rows.
    pub rows: Rows,
    /// Streams.
    pub streams: Streams,
    /// `[hidden, cols]`.
    pub weight: Linear,
    /// `[rows, cols]`.
    pub x: Buffer,
    /// `[rows, streams]`.
    pub inject: Buffer,
    /// In place: `[rows, streams, hidden]`.
    pub out: Buffer,
}

/// Sizes of n-gram injection (architecture.md section 9).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PleShape {
    /// Streams.
    pub streams: Streams,
    /// Taps of the convolution.
    pub kernel: u32,
    /// Distance between taps: `ngram_size`.
    pub dilation: u32,
    /// `rms_norm_eps`.
    pub eps: f32,
}

impl PleShape {
    /// Rows that the convolution remembers.
    pub const fn window(&self) -> u32 {
        (self.kernel - 1) * self.dilation
    }
}

/// Key and value projections of the n-gram rows (architecture.md 9.2).
#[derive(Clone, Debug)]
pub struct PleProject {
    /// Rows.
    pub rows: Rows,
    /// `[rows, ple]`: the n-gram rows side by side, unrounded.
    pub e: Buffer,
    /// `[streams * hidden, ple]`.
    pub key: Linear,
    /// `[hidden, ple]`.
    pub value: Linear,
    /// Out: `[rows, streams, hidden]`.
    pub keys: Buffer,
    /// Out: `[rows, hidden]`.
    pub values: Buffer,
}

/// Norms, gate, dilated convolution, and the sum into the streams (architecture.md 9.2).
#[derive(Clone, Debug)]
pub struct PleMix {
    /// Rows.
    pub rows: Rows,
    /// Sizes.
    pub shape: PleShape,
    /// `[streams * hidden]`.
    pub norm_key: Buffer,
    /// `[streams * hidden]`.
    pub norm_query: Buffer,
    /// `[streams * hidden]`.
    pub norm_conv: Buffer,
    /// `[streams * hidden, kernel]`.
    pub conv: Buffer,
    /// `[rows, streams, hidden]`.
    pub keys: Buffer,
    /// `[rows, hidden]`.
    pub values: Buffer,
    /// Scratch: `[rows, streams, hidden]`, the inputs of the convolution; kept for a replay.
    pub inputs: Buffer,
    /// `[window, streams, hidden]` before row 0, oldest first.
    pub window: Carry,
    /// In place: `[rows, streams, hidden]`.
    pub out: Buffer,
}

/// State that an operation takes over from earlier rows and leaves for later ones.
#[derive(Clone, Debug)]
pub struct Carry {
    /// Where the state before the first row lies; none: in `state`, in place.
    pub from: Option<Buffer>,
    /// Where the state after the last row is left.
    pub state: Buffer,
}

/// Activation of the output gate of Gated DeltaNet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Gate {
    /// As released.
    Sigmoid,
    /// Where the config says so.
    Silu,
}

/// Sizes of Gated DeltaNet (architecture.md section 6).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GdnShape {
    /// Key heads.
    pub key_heads: u32,
    /// Value heads, a multiple of the key heads.
    pub value_heads: u32,
    /// Width of a key head.
    pub key_dim: u32,
    /// Width of a value head.
    pub value_dim: u32,
    /// Taps of the convolution.
    pub kernel: u32,
    /// Activation of the output gate.
    pub gate: Gate,
    /// `rms_norm_eps`.
    pub eps: f32,
}

impl GdnShape {
    /// Channels of the convolution: q, k and v of all heads.
    pub const fn channels(&self) -> u32 {
        2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim
    }

    /// Width of all value heads.
    pub const fn values(&self) -> u32 {
        self.value_heads * self.value_dim
    }

    /// Numbers in the recurrent state.
    pub const fn state(&self) -> u32 {
        self.value_heads * self.value_dim * self.key_dim
    }
}

/// Projections of Gated DeltaNet.
#[derive(Clone, Debug)]
pub struct GdnProject {
    /// Rows.
    pub rows: Rows,
    /// `[rows, hidden]`.
    pub u: Buffer,
    /// `[channels, hidden]`.
    pub qkv: Linear,
    /// `[values, hidden]`.
    pub z: Linear,
    /// `[value_heads, hidden]`; never rounded inputs.
    pub a: Linear,
    /// `[value_heads, hidden]`; never rounded inputs.
    pub b: Linear,
    /// Out: `[rows, channels]`.
    pub qkv_out: Buffer,
    /// Out: `[rows, values]`.
    pub z_out: Buffer,
    /// Out: `[rows, 2, value_heads]`, a then b.
    pub ab_out: Buffer,
}

/// Small weights of Gated DeltaNet.
#[derive(Clone, Debug)]
pub struct GdnWeights {
    /// `[channels, kernel]`.
    pub conv: Buffer,
    /// `[value_heads]`.
    pub a_log: Buffer,
    /// `[value_heads]`.
    pub dt_bias: Buffer,
    /// `[value_dim]`.
    pub norm: Buffer,
}

/// Inputs of the recurrence, kept so that part of a pass can be replayed (engine.md 7.2).
#[derive(Clone, Debug)]
pub struct GdnInputs {
    /// `[rows, key_heads, key_dim]`, normed keys.
    pub k: Buffer,
    /// `[rows, value_heads, value_dim]`.
    pub v: Buffer,
    /// `[rows, value_heads, 2]`, decay then beta.
    pub gates: Buffer,
}

/// Convolution, silu, L2 norms, recurrence, output norm and gate, row by row (architecture.md section 6, engine.md 3.7f).
#[derive(Clone, Debug)]
pub struct GdnMix {
    /// Rows.
    pub rows: Rows,
    /// Sizes.
    pub shape: GdnShape,
    /// Small weights.
    pub weights: GdnWeights,
    /// `[rows, channels]`.
    pub qkv: Buffer,
    /// `[rows, values]`.
    pub z: Buffer,
    /// `[rows, 2, value_heads]`.
    pub ab: Buffer,
    /// `[kernel - 1, channels]`, oldest first.
    pub window: Carry,
    /// `[value_heads, value_dim, key_dim]`.
    pub state: Carry,
    /// Out, if wanted: the inputs of the recurrence.
    pub inputs: Option<GdnInputs>,
    /// Out: `[rows, values]`.
    pub out: Buffer,
}

/// The recurrence alone over the first rows of a recorded pass (engine.md 7.2).
#[derive(Clone, Debug)]
pub struct GdnReplay {
    /// Rows to replay.
    pub rows: u32,
    /// Sizes.
    pub shape: GdnShape,
    /// Recorded inputs.
    pub inputs: GdnInputs,
    /// `[value_heads, value_dim, key_dim]`.
    pub state: Carry,
}

/// A convolution window after the first rows of a recorded pass: the last `depth` of window and rows.
#[derive(Clone, Debug)]
pub struct Window {
    /// Rows to replay.
    pub rows: u32,
    /// Rows that the window holds.
    pub depth: u32,
    /// Numbers in a row.
    pub width: u32,
    /// `[rows.., width]`, the recorded inputs.
    pub inputs: Buffer,
    /// `[depth, width]`, oldest first.
    pub window: Carry,
}

/// Sizes of sparse attention (architecture.md section 7).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QsaShape {
    /// Query heads, a multiple of the KV heads.
    pub heads: u32,
    /// Key and value heads.
    pub kv_heads: u32,
    /// Width of a head.
    pub head_dim: u32,
    /// Leading numbers of a head that are rotated, even.
    pub rotary: u32,
    /// Query heads of the indexer; it has one key head.
    pub index_heads: u32,
    /// Width of an indexer head.
    pub index_dim: u32,
    /// Tokens in a block.
    pub block: u32,
    /// Blocks that a query keeps.
    pub topk: u32,
    /// `rms_norm_eps`.
    pub eps: f32,
}

/// Projections of sparse attention and its indexer (architecture.md 7.1, 7.2).
#[derive(Clone, Debug)]
pub struct QsaProject {
    /// Rows.
    pub rows: Rows,
    /// `[rows, hidden]`.
    pub u: Buffer,
    /// `[heads * 2 * head_dim, hidden]`: query, then gate, head by head.
    pub q: Linear,
    /// `[kv_heads * head_dim, hidden]`.
    pub k: Linear,
    /// `[kv_heads * head_dim, hidden]`.
    pub v: Linear,
    /// `[(index_heads + 1) * index_dim, hidden]`; never rounded inputs.
    pub index: Linear,
    /// Out: `[rows, heads, 2, head_dim]`.
    pub q_out: Buffer,
    /// Out: `[rows, 2, kv_heads, head_dim]`, k then v.
    pub kv_out: Buffer,
    /// Out: `[rows, index_heads + 1, index_dim]`.
    pub index_out: Buffer,
}

/// Norm weights of sparse attention.
#[derive(Clone, Debug)]
pub struct QsaNorms {
    /// `[head_dim]`.
    pub q: Buffer,
    /// `[head_dim]`.
    pub k: Buffer,
    /// `[index_dim]`.
    pub index_q: Buffer,
    /// `[index_dim]`.
    pub index_k: Buffer,
}

/// Rows that later queries read, grown by the sequence (architecture.md 7.5).
#[derive(Clone, Debug)]
pub struct QsaCache {
    /// How the numbers are stored: F32 in the exact profile, BF16 (nearest even) in the fast one.
    pub scalar: Scalar,
    /// `[capacity, kv_heads, head_dim]`, rotated.
    pub k: Buffer,
    /// `[capacity, kv_heads, head_dim]`.
    pub v: Buffer,
    /// `[capacity, index_dim]`, neither normed nor rotated.
    pub raw: Buffer,
    /// `[capacity / block, index_dim]`, normed and rotated.
    pub pooled: Buffer,
}

/// Norms, rotation, append to the cache, and pooling of the blocks that the new rows complete
/// (architecture.md 7.1, 7.2; engine.md 3.7g).
#[derive(Clone, Debug)]
pub struct QsaAppend {
    /// Rows.
    pub rows: Rows,
    /// Rows in the cache before this operation.
    pub first: u32,
    /// Sizes.
    pub shape: QsaShape,
    /// Norm weights.
    pub norms: QsaNorms,
    /// `[rows, heads, 2, head_dim]`.
    pub q: Buffer,
    /// `[rows, 2, kv_heads, head_dim]`.
    pub kv: Buffer,
    /// `[rows, index_heads + 1, index_dim]`.
    pub index: Buffer,
    /// `[rows, rotary / 2, 2]`: cosine and sine of each row's angles.
    pub rope: Buffer,
    /// `[blocks completed, rotary / 2, 2]`: the same at the first token of each block completed.
    pub block_rope: Buffer,
    /// In place: grows by the new rows and blocks.
    pub cache: QsaCache,
    /// Out: `[rows, heads, head_dim]`, normed and rotated.
    pub q_out: Buffer,
    /// Out: `[rows, index_heads, index_dim]`, normed and rotated.
    pub index_q_out: Buffer,
}

/// Block scores of each query and the blocks it keeps: descending score, then ascending block (architecture.md 7.3).
#[derive(Clone, Debug)]
pub struct QsaSelect {
    /// Rows.
    pub rows: Rows,
    /// Rows in the cache before row 0.
    pub first: u32,
    /// First row of the slice that this operation handles; the score scratch covers one slice.
    pub slice: u32,
    /// Rows of the slice.
    pub slice_rows: u32,
    /// Sizes.
    pub shape: QsaShape,
    /// `[rows, index_heads, index_dim]`.
    pub index_q: Buffer,
    /// Cache; only `pooled` is read.
    pub cache: QsaCache,
    /// Scratch: `[slice_rows, (first + rows) / block]`.
    pub scores: Buffer,
    /// Out: `[rows, topk]` u32: kept blocks ascending, then [`NONE`].
    pub blocks: Buffer,
}

/// Softmax attention over kept blocks and the open tail, and the output gate (architecture.md 7.4).
#[derive(Clone, Debug)]
pub struct QsaAttend {
    /// Rows.
    pub rows: Rows,
    /// Rows in the cache before row 0.
    pub first: u32,
    /// Sizes.
    pub shape: QsaShape,
    /// `[rows, heads, head_dim]`, normed and rotated.
    pub q: Buffer,
    /// `[rows, heads, 2, head_dim]`: the gate is the second half of each head.
    pub gate: Buffer,
    /// Cache; `k` and `v` are read.
    pub cache: QsaCache,
    /// `[rows, topk]` u32.
    pub blocks: Buffer,
    /// Out: `[rows, heads, head_dim]`, gated.
    pub out: Buffer,
}

/// Router: logits in F32, the `choices` largest (ties: lower index first), their softmax (architecture.md section 8).
#[derive(Clone, Debug)]
pub struct Route {
    /// Rows.
    pub rows: Rows,
    /// Choices a row.
    pub choices: u32,
    /// `[rows, hidden]`; never rounded.
    pub u: Buffer,
    /// `[experts, hidden]`.
    pub weight: Linear,
    /// Scratch: `[rows, experts]`.
    pub logits: Buffer,
    /// Out: `[rows, choices]` u32, descending logit.
    pub experts: Buffer,
    /// Out: `[rows, choices]`, adding up to one.
    pub weights: Buffer,
    /// Whether the slots of the choices are looked up on the device as well.
    pub lookup: Option<Lookup>,
}

/// The slots of a layer's choices, and the end of the submission where one has none (engine.md 5.3).
#[derive(Clone, Debug)]
pub struct Lookup {
    /// The layer, which names its row of `table` and its part of `control`.
    pub layer: u32,
    /// `[layers, experts]` u32: the slot of each expert, or [`NONE`].
    pub table: Buffer,
    /// Out: `[rows, choices]` u32.
    pub slots: Buffer,
    /// The control block, `[1 + layers * rows * choices]` u32. Its first number is [`NONE`], or becomes the layer where a
    /// choice has no slot: no later operation of the submission has an effect then. The choices of every layer that ran
    /// follow, `[layers, rows, choices]`.
    pub control: Buffer,
}

/// Gate and up projections and SwiGLU of the experts that have a slot, and of the shared expert if it is named.
#[derive(Clone, Debug)]
pub struct ExpertsIn {
    /// Rows.
    pub rows: Rows,
    /// Choices a row.
    pub choices: u32,
    /// `[rows, hidden]`.
    pub u: Buffer,
    /// Where the records lie.
    pub pool: Pool,
    /// `[rows, choices]` u32: the slot of each choice, or [`NONE`] for one that is not in this group.
    pub slots: Buffer,
    /// Out: `[rows, choices, inner]`, written where there is a slot.
    pub out: Buffer,
    /// The shared expert, in one of a layer's groups.
    pub shared: Option<SharedIn>,
}

/// First half of the shared expert.
#[derive(Clone, Debug)]
pub struct SharedIn {
    /// `[shared_inner, hidden]`.
    pub gate: Linear,
    /// `[shared_inner, hidden]`.
    pub up: Linear,
    /// Out: `[rows, shared_inner]`.
    pub out: Buffer,
}

/// Down projections of the experts that have a slot, and of the shared expert if it is named.
#[derive(Clone, Debug)]
pub struct ExpertsOut {
    /// Rows.
    pub rows: Rows,
    /// Choices a row.
    pub choices: u32,
    /// `[rows, choices, inner]`.
    pub x: Buffer,
    /// Where the records lie.
    pub pool: Pool,
    /// `[rows, choices]` u32, as in [`ExpertsIn`].
    pub slots: Buffer,
    /// Out: `[rows, choices, hidden]`, unweighted, written where there is a slot.
    pub out: Buffer,
    /// The shared expert, in one of a layer's groups.
    pub shared: Option<SharedOut>,
}

/// Second half of the shared expert.
#[derive(Clone, Debug)]
pub struct SharedOut {
    /// `[rows, shared_inner]`.
    pub x: Buffer,
    /// `[hidden, shared_inner]`.
    pub down: Linear,
    /// Out: `[rows, hidden]`.
    pub out: Buffer,
}

/// `streams[r, s, :] += inject[r, s] * (sum of choices in order + sigmoid(gate u[r]) * shared[r])`
/// (architecture.md section 8, engine.md 3.7e).
#[derive(Clone, Debug)]
pub struct Combine {
    /// Rows.
    pub rows: Rows,
    /// Choices a row.
    pub choices: u32,
    /// Streams.
    pub streams: Streams,
    /// `[rows, choices, hidden]`.
    pub routed: Buffer,
    /// `[rows, choices]`.
    pub weights: Buffer,
    /// `[rows, hidden]`.
    pub shared: Buffer,
    /// `[1, hidden]`; never rounded inputs.
    pub gate: Linear,
    /// `[rows, hidden]`.
    pub u: Buffer,
    /// `[rows, streams]`.
    pub inject: Buffer,
    /// In place: `[rows, streams, hidden]`.
    pub out: Buffer,
}

/// Fusion in front of the MTP layer: `out[r, s] = fc_embedding(norm(e[r])) + fc_hidden(norm(m[r])[s])`
/// (architecture.md section 11).
#[derive(Clone, Debug)]
pub struct MtpFuse {
    /// Rows.
    pub rows: Rows,
    /// Streams.
    pub streams: Streams,
    /// `rms_norm_eps`.
    pub eps: f32,
    /// `[rows, hidden]`: embeddings of the next tokens.
    pub e: Buffer,
    /// `[rows, streams, hidden]`: streams before the mixer at the previous positions.
    pub m: Buffer,
    /// `[hidden]`.
    pub norm_embedding: Buffer,
    /// `[streams * hidden]`; one statistic over all of a row.
    pub norm_hidden: Buffer,
    /// `[hidden, hidden]`.
    pub fc_embedding: Linear,
    /// `[hidden, hidden]`.
    pub fc_hidden: Linear,
    /// Scratch: `[rows, hidden + streams * hidden]`, the normed inputs.
    pub scratch: Buffer,
    /// Out: `[rows, streams, hidden]`.
    pub out: Buffer,
}

/// Output head, always in the decode form (engine.md 3.7d).
#[derive(Clone, Debug)]
pub struct Head {
    /// Rows, at most [`Head::MAX_ROWS`].
    pub rows: Rows,
    /// `[rows, hidden]`.
    pub x: Buffer,
    /// `[vocab, hidden]`.
    pub weight: Linear,
    /// Out: `[rows, vocab]`.
    pub logits: Buffer,
}

impl Head {
    /// Most rows of one operation.
    pub const MAX_ROWS: u32 = 8;
}

/// Ids that [`Top`] lists of a row.
pub const TOP: u32 = 256;

/// Words in front of the list: how many ids are listed, flags, log-sum-exp (F32), and 0.
pub const TOP_HEAD: u32 = 4;

/// Flag: a logit as the head gave it is not finite.
pub const TOP_NOT_FINITE: u32 = 1;

/// Flag: more ids reach the end of the list than a device could rank, so that it lists none: read the adjusted row. A
/// device that can rank them all lists them and leaves this out.
pub const TOP_UNRANKED: u32 = 2;

/// Bit of [`Top::counts`]: the prompt or the reply holds the id. The bits below count how often the reply holds it.
pub const TOP_SEEN: u32 = 1 << 31;

/// What is done to logits before the largest are listed, as it lies in [`Top::rules`]: one word each, in this order
/// (engine.md 5.3). It lies in a buffer, since commands are encoded before the host knows the last token.
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct LogitRules {
    /// Ids below may be drawn: those of the tokenizer.
    pub vocabulary: u32,
    /// Whether [`Top::mask`] says which may: 0 or 1.
    pub masked: u32,
    /// Whether [`Top::bias`] is added: 0 or 1.
    pub biased: u32,
    /// Whether the penalties act: 0 or 1.
    pub counted: u32,
    /// Subtracted from the logit of every id that the reply holds.
    pub presence: f32,
    /// Subtracted as often as the reply holds the id.
    pub frequency: f32,
    /// Multiplies logits that are not positive, of every id that the prompt or the reply holds; 1 changes nothing.
    pub repetition: f32,
    /// One over `repetition`: multiplies positive ones.
    pub repetition_inverse: f32,
}

impl LogitRules {
    /// Words in the buffer.
    pub const WORDS: u32 = (size_of::<Self>() / size_of::<u32>()) as u32;

    /// Rules that leave the logits of all ids below `vocabulary` as they are.
    pub const fn none(vocabulary: u32) -> Self {
        LogitRules {
            vocabulary,
            masked: 0,
            biased: 0,
            counted: 0,
            presence: 0.0,
            frequency: 0.0,
            repetition: 1.0,
            repetition_inverse: 1.0,
        }
    }
}

/// Bias, penalties and mask on the logits of each row; the [`TOP`] largest, and the logarithm of the sum of `e^logit` over
/// all that may be drawn (engine.md 5.3). For an id of row `r`, with `times` from `counts`:
///
/// ```text
/// l = logits[r, id] + bias[id]
/// l = l * (seen: l > 0 ? repetition_inverse : repetition) - (times > 0: frequency * times + presence)
/// ```
///
/// where a device may leave products unrounded; -inf where the id is not below `vocabulary` or not in `mask`. Generated
/// rows are successive tokens of a reply: an id that rows `0..=r` were fed counts once more for each, beside `counts`.
///
/// Listed are, of the ids above -inf, the [`TOP`] largest: descending value, then ascending id; a NaN is none of them.
/// Places past the last hold -inf and [`NONE`]. The log-sum-exp is -inf where there are none, and infinite with the largest.
#[derive(Clone, Debug)]
pub struct Top {
    /// Rows, at most [`Head::MAX_ROWS`].
    pub rows: Rows,
    /// Numbers in a row of logits.
    pub vocab: u32,
    /// `[rows, vocab]`.
    pub logits: Buffer,
    /// `[rows]` u32: what each generated row was fed.
    pub ids: Buffer,
    /// [`LogitRules`].
    pub rules: Buffer,
    /// `[vocab]` u32: [`TOP_SEEN`], and how often the reply holds the id.
    pub counts: Buffer,
    /// `[vocab]`.
    pub bias: Buffer,
    /// `[vocab / 32, rounded up]` u32: bit `id % 32` of word `id / 32` is set if the id may be drawn.
    pub mask: Buffer,
    /// Out: `[rows, vocab]`: what the list is made of.
    pub adjusted: Buffer,
    /// Out: `[rows, TOP_HEAD + 2 * TOP]` u32: the head, then value (F32) and id of each.
    pub out: Buffer,
}

impl Top {
    /// Words of `out` in a row.
    pub const WORDS: u32 = TOP_HEAD + 2 * TOP;
}

/// Copies bytes; offsets and length are multiples of 4. The buffers differ.
#[derive(Clone, Debug)]
pub struct Copy {
    /// Source.
    pub from: Buffer,
    /// First byte of the source.
    pub from_offset: u64,
    /// Target.
    pub to: Buffer,
    /// First byte of the target.
    pub to_offset: u64,
    /// How many.
    pub bytes: u64,
}
