//! Owns: cases of sparse attention: projections; append, choice and attention in a chain; choices among many blocks.

use ss_backend::op::{self, QsaCache, QsaNorms, QsaShape};
use ss_backend::{Arithmetic, Backend, Buffer, Format, Result, Scalar};

use super::rig::{
    BF16, F16, F32, MODES, Mode, Q4, Q4_32, Q8, Random, Weight, download, pieces, rows_of, upload, upload_bytes, zeros,
};
use super::{Case, Outcome};

const EPS: f32 = 1e-6;

/// Rows of data: more than a tile of the prompt form.
const ROWS: u32 = 37;

/// Rows of a choice among many blocks: more than share a block's load.
const CHOOSING_ROWS: u32 = 9;

/// What a stored number may be off where it lies beside a tie of BF16: one step.
const STEP_OF_BF16: f64 = 1.0 / 128.0;

/// All cases of this family.
pub(super) fn cases(random: &mut Random) -> Vec<Box<dyn Case>> {
    let mut cases: Vec<Box<dyn Case>> = Vec::new();
    for (hidden, formats) in [(128, [Q4, Q4, BF16]), (96, [Q8, Q4_32, F32]), (41, [BF16, F16, F32])] {
        cases.push(Box::new(Project::new(random, hidden, formats)));
    }
    // The last begins behind tokens that fill more than one tile of keys.
    for (shape, history) in [
        ([6, 2, 64, 16, 4, 32, 4, 3], 0),
        ([3, 1, 40, 8, 2, 24, 3, 2], 0),
        ([2, 2, 16, 16, 1, 16, 1, 5], 0),
        ([6, 1, 256, 64, 2, 128, 4, 30], 150),
    ] {
        cases.push(Box::new(Attention::new(random, shape, history)));
    }
    for (blocks, topk, index_dim, ties) in [(700, 512, 32, false), (65_536, 512, 8, true), (300, 7, 16, true)] {
        cases.push(Box::new(Select::new(random, blocks, topk, index_dim, ties)));
    }
    // Its rows have more tokens than a split of the decode form, so that splits are added.
    cases.push(Box::new(Attention::new(random, [3, 1, 32, 8, 1, 16, 4, 150], 500)));
    cases
}

/// Projections.
struct Project {
    q: Weight,
    k: Weight,
    v: Weight,
    index: Weight,
    u: Vec<f32>,
}

impl Project {
    fn new(random: &mut Random, hidden: u32, formats: [Format; 3]) -> Self {
        Project {
            q: Weight::random(random, 48, hidden, formats[0]),
            k: Weight::random(random, 12, hidden, formats[1]),
            v: Weight::random(random, 12, hidden, formats[1]),
            index: Weight::random(random, 15, hidden, formats[2]),
            u: random.numbers(ROWS * hidden, 1.0),
        }
    }
}

impl Case for Project {
    fn operation(&self) -> &'static str {
        "QsaProject"
    }

    fn shape(&self) -> String {
        format!("{:?}, {:?}", self.q.matrix, self.index.matrix)
    }

    fn rows(&self) -> u32 {
        ROWS
    }

    fn dispatches(&self) -> Option<u64> {
        Some(1)
    }

    fn run(&self, on: &dyn Backend, mode: Mode, split: &[u32]) -> Result<Outcome> {
        let (hidden, mut outcome) = (self.q.matrix.cols, Outcome::default());
        let (q, k) = (self.q.linear(on)?, self.k.linear(on)?);
        let (v, index) = (self.v.linear(on)?, self.index.linear(on)?);
        pieces(split, |first, rows| {
            let project = op::QsaProject {
                rows: mode.rows(rows),
                u: upload(on, rows_of(&self.u, first, rows, hidden))?,
                q: q.clone(),
                k: k.clone(),
                v: v.clone(),
                index: index.clone(),
                q_out: zeros(on, rows * q.matrix.rows)?,
                kv_out: zeros(on, rows * 2 * k.matrix.rows)?,
                index_out: zeros(on, rows * index.matrix.rows)?,
            };
            mode.submit(on, |recorder| recorder.qsa_project(project.clone()))?;
            outcome.numbers("q", download(on, &project.q_out)?);
            outcome.numbers("kv", download(on, &project.kv_out)?);
            outcome.numbers("index", download(on, &project.index_out)?);
            Ok(())
        })?;
        Ok(outcome)
    }
}

/// How caches are stored in a profile.
fn scalar(mode: Mode) -> Scalar {
    mode.arithmetic.cache_scalar()
}

/// A buffer for `len` stored numbers.
fn cells(on: &dyn Backend, scalar: Scalar, len: u32) -> Result<Buffer> {
    zeros(on, (len * scalar.bytes() as u32).div_ceil(4))
}

/// The stored numbers of a buffer.
fn stored(on: &dyn Backend, cache: &QsaCache, buffer: &Buffer) -> Result<Vec<f32>> {
    match cache.scalar {
        Scalar::F32 => download(on, buffer),
        _ => Ok(download::<u16>(on, buffer)?.into_iter().map(|bits| half::bf16::from_bits(bits).to_f32()).collect()),
    }
}

/// Append, choice and attention, one after the other, the cache growing over all rows.
struct Attention {
    shape: QsaShape,
    /// Tokens before the rows of the case.
    history: u32,
    /// Of q, k, index q, index k.
    norms: [Vec<f32>; 4],
    q: Vec<f32>,
    kv: Vec<f32>,
    index: Vec<f32>,
    /// `[tokens, rotary / 2, 2]`.
    rope: Vec<f32>,
}

/// The operations of some rows.
struct Chain {
    append: op::QsaAppend,
    select: [op::QsaSelect; 2],
    attend: op::QsaAttend,
}

impl Attention {
    fn new(random: &mut Random, shape: [u32; 8], history: u32) -> Self {
        let [heads, kv_heads, head_dim, rotary, index_heads, index_dim, block, topk] = shape;
        let shape = QsaShape { heads, kv_heads, head_dim, rotary, index_heads, index_dim, block, topk, eps: EPS };
        let (tokens, pairs) = (history + ROWS, rotary / 2);
        let angle = |i: u32| (f64::from(i / pairs) * 10f64.powf(-f64::from(i % pairs) / f64::from(pairs))) as f32;
        Attention {
            shape,
            history,
            norms: [head_dim, head_dim, index_dim, index_dim].map(|dim| random.norm(dim)),
            q: random.numbers(tokens * 2 * heads * head_dim, 2.0),
            kv: random.numbers(tokens * 2 * kv_heads * head_dim, 2.0),
            index: random.numbers(tokens * (index_heads + 1) * index_dim, 2.0),
            rope: (0..tokens * pairs).flat_map(|i| [angle(i).cos(), angle(i).sin()]).collect(),
        }
    }

    fn cache(&self, on: &dyn Backend, scalar: Scalar) -> Result<QsaCache> {
        let (shape, tokens) = (&self.shape, self.history + ROWS);
        let make = |numbers: u32| cells(on, scalar, numbers);
        let row = tokens * shape.kv_heads * shape.head_dim;
        let (raw, pooled) = (tokens * shape.index_dim, tokens / shape.block * shape.index_dim);
        Ok(QsaCache { scalar, k: make(row)?, v: make(row)?, raw: make(raw)?, pooled: make(pooled)? })
    }

    /// Angles at the first token of each block that `rows` tokens from `first` on complete.
    fn block_rope(&self, first: u32, rows: u32) -> Vec<f32> {
        let (block, rotary) = (self.shape.block, self.shape.rotary);
        let blocks = first / block..(first + rows) / block;
        blocks.flat_map(|j| rows_of(&self.rope, j * block, 1, rotary)).copied().collect()
    }

    fn append(
        &self,
        on: &dyn Backend,
        mode: Mode,
        cache: &QsaCache,
        (first, rows): (u32, u32),
    ) -> Result<op::QsaAppend> {
        let shape = self.shape;
        let of = |all: &[f32], width: u32| upload(on, rows_of(all, first, rows, width));
        let [q, k, index_q, index_k] = self.norms.each_ref().map(|norm| upload(on, norm));
        Ok(op::QsaAppend {
            rows: mode.rows(rows),
            first,
            shape,
            norms: QsaNorms { q: q?, k: k?, index_q: index_q?, index_k: index_k? },
            q: of(&self.q, 2 * shape.heads * shape.head_dim)?,
            kv: of(&self.kv, 2 * shape.kv_heads * shape.head_dim)?,
            index: of(&self.index, (shape.index_heads + 1) * shape.index_dim)?,
            rope: of(&self.rope, shape.rotary)?,
            block_rope: upload(on, &self.block_rope(first, rows))?,
            cache: cache.clone(),
            q_out: zeros(on, rows * shape.heads * shape.head_dim)?,
            index_q_out: zeros(on, rows * shape.index_heads * shape.index_dim)?,
        })
    }

    fn chain(&self, on: &dyn Backend, mode: Mode, cache: &QsaCache, (first, rows): (u32, u32)) -> Result<Chain> {
        let shape = self.shape;
        let append = self.append(on, mode, cache, (first, rows))?;
        // Two slices, the second one shorter or empty.
        let (half, blocks) = (rows.div_ceil(2), zeros(on, rows * shape.topk)?);
        let slice = |slice: u32, slice_rows: u32| -> Result<op::QsaSelect> {
            Ok(op::QsaSelect {
                rows: mode.rows(rows),
                first,
                slice,
                slice_rows,
                shape,
                index_q: append.index_q_out.clone(),
                cache: cache.clone(),
                scores: zeros(on, slice_rows * ((first + rows) / shape.block))?,
                blocks: blocks.clone(),
            })
        };
        let select = [slice(0, half)?, slice(half, rows - half)?];
        let attend = op::QsaAttend {
            rows: mode.rows(rows),
            first,
            shape,
            q: append.q_out.clone(),
            gate: append.q.clone(),
            cache: cache.clone(),
            blocks: blocks.clone(),
            out: zeros(on, rows * shape.heads * shape.head_dim)?,
        };
        Ok(Chain { append, select, attend })
    }
}

impl Case for Attention {
    fn operation(&self) -> &'static str {
        "QsaAppend, QsaSelect, QsaAttend"
    }

    fn shape(&self) -> String {
        format!("{:?} after {} tokens", self.shape, self.history)
    }

    fn rows(&self) -> u32 {
        ROWS
    }

    /// Caches differ between the profiles in both forms.
    fn modes(&self) -> &'static [Mode] {
        &MODES
    }

    fn tolerance_in(&self, mode: Mode) -> f64 {
        match mode.arithmetic {
            Arithmetic::Exact => self.tolerance(),
            Arithmetic::Fast => STEP_OF_BF16,
        }
    }

    fn dispatches(&self) -> Option<u64> {
        // One for the tokens before, one to append, two to choose, one to attend.
        Some(u64::from(self.history > 0) + 4)
    }

    fn run(&self, on: &dyn Backend, mode: Mode, split: &[u32]) -> Result<Outcome> {
        let (cache, mut outcome) = (self.cache(on, scalar(mode))?, Outcome::default());
        if self.history > 0 {
            let append = self.append(on, mode, &cache, (0, self.history))?;
            mode.submit(on, |recorder| recorder.qsa_append(append))?;
        }
        pieces(split, |first, rows| {
            let Chain { append, select, attend } = self.chain(on, mode, &cache, (self.history + first, rows))?;
            mode.submit(on, |recorder| {
                recorder.qsa_append(append.clone());
                select.into_iter().for_each(|select| recorder.qsa_select(select));
                recorder.qsa_attend(attend.clone());
            })?;
            outcome.numbers("q", download(on, &append.q_out)?);
            outcome.numbers("index q", download(on, &append.index_q_out)?);
            outcome.ids("blocks", download(on, &attend.blocks)?);
            outcome.numbers("out", download(on, &attend.out)?);
            Ok(())
        })?;
        let QsaCache { k, v, raw, pooled, .. } = &cache;
        for (name, buffer) in [("k", k), ("v", v), ("raw", raw), ("pooled", pooled)] {
            outcome.numbers(name, stored(on, &cache, buffer)?);
        }
        Ok(outcome)
    }
}

/// Choices among many blocks; the first rows may see fewer blocks than the last.
struct Select {
    shape: QsaShape,
    /// Blocks that the last row sees.
    blocks: u32,
    pooled: Vec<f32>,
    index_q: Vec<f32>,
}

impl Select {
    /// With `ties` all numbers are small integers, so that scores are exact and many are the same.
    fn new(random: &mut Random, blocks: u32, topk: u32, index_dim: u32, ties: bool) -> Self {
        let (kv_heads, head_dim, index_heads, block) = (1, 8, 3, 4);
        let shape = QsaShape { heads: 1, kv_heads, head_dim, rotary: 0, index_heads, index_dim, block, topk, eps: EPS };
        let number = |x: f32| if ties { (2.0 * x).round() } else { half::bf16::from_f32(x).to_f32() };
        let mut numbers = |len: u32| random.numbers(len, 1.0).into_iter().map(number).collect();
        Select {
            shape,
            blocks,
            pooled: numbers(blocks * index_dim),
            index_q: numbers(CHOOSING_ROWS * index_heads * index_dim),
        }
    }

    /// The cache, of which only the pooled rows are read.
    fn cache(&self, on: &dyn Backend, scalar: Scalar) -> Result<QsaCache> {
        let pooled = match scalar {
            Scalar::F32 => upload(on, &self.pooled)?,
            _ => {
                let cells = self.pooled.iter().flat_map(|&x| half::bf16::from_f32(x).to_le_bytes());
                upload_bytes(on, &cells.collect::<Vec<u8>>())?
            }
        };
        let nothing = zeros(on, 1)?;
        Ok(QsaCache { scalar, k: nothing.clone(), v: nothing.clone(), raw: nothing, pooled })
    }
}

impl Case for Select {
    fn operation(&self) -> &'static str {
        "QsaSelect"
    }

    fn shape(&self) -> String {
        format!("{} of {} blocks, {} numbers", self.shape.topk, self.blocks, self.shape.index_dim)
    }

    fn rows(&self) -> u32 {
        CHOOSING_ROWS
    }

    /// Caches differ between the profiles in both forms.
    fn modes(&self) -> &'static [Mode] {
        &MODES
    }

    fn dispatches(&self) -> Option<u64> {
        Some(2)
    }

    fn run(&self, on: &dyn Backend, mode: Mode, split: &[u32]) -> Result<Outcome> {
        let (shape, mut outcome) = (self.shape, Outcome::default());
        let cache = self.cache(on, scalar(mode))?;
        let before = self.blocks * shape.block - CHOOSING_ROWS;
        pieces(split, |first, rows| {
            let select = op::QsaSelect {
                rows: mode.rows(rows),
                first: before + first,
                slice: 0,
                slice_rows: rows,
                shape,
                index_q: upload(on, rows_of(&self.index_q, first, rows, shape.index_heads * shape.index_dim))?,
                cache: cache.clone(),
                scores: zeros(on, rows * ((before + first + rows) / shape.block))?,
                blocks: zeros(on, rows * shape.topk)?,
            };
            mode.submit(on, |recorder| recorder.qsa_select(select.clone()))?;
            outcome.ids("blocks", download(on, &select.blocks)?);
            Ok(())
        })?;
        Ok(outcome)
    }
}
