//! Owns: sparse attention and its indexer (architecture.md section 7): projections, growth of the cache, choice of
//! blocks, attention.
//! Refuses: heads whose rows are not whole groups of 16 bytes in either way of storing them.
//! Invariants: in the decode form a projection, an append and an attention are one dispatch each, a choice is two; rows
//! are rounded as the cache stores them before anything reads them, in the pass that makes them too.

use ss_backend::op::{QsaAppend, QsaAttend, QsaCache, QsaProject, QsaSelect, QsaShape};
use ss_backend::{Buffer, Form, Result, Scalar};

use super::linear::{BESIDE_TUNING, Strided, gemv_grid, multiply};
use crate::encoding::{Encoding, Launch, View, volume};
use crate::parts;
use crate::registry::{Inputs, Kernel, Part, Product, Side, Units, scalar_code};
use crate::tuning::{ATTENDED_AT_ONCE, ROW_THREADS, THREADS};

const PROJECT: Kernel = Kernel {
    main: Part { file: "qsa_project.wgsl", text: include_str!("../../../../wgsl/qsa_project.wgsl") },
    operation: "QsaProject",
    parts: &[&parts::NUMBERS],
    weights: &["q", "k", "v", "index"],
    product: Product::Gemv,
    section: "architecture.md 7.1, 7.2",
    twin: "backends/reference/src/ops/qsa.rs",
    tests: "backends/wgpu/src/selftest/qsa.rs",
    tuning: BESIDE_TUNING,
};

const APPEND: Kernel = Kernel {
    main: Part { file: "qsa_append.wgsl", text: include_str!("../../../../wgsl/qsa_append.wgsl") },
    operation: "QsaAppend",
    parts: &[&parts::NUMBERS, &parts::QSA_CELLS],
    weights: &[],
    product: Product::Numbers,
    tuning: &["threads"],
    ..PROJECT
};

const SCORES: Kernel = Kernel {
    main: Part { file: "qsa_scores.wgsl", text: include_str!("../../../../wgsl/qsa_scores.wgsl") },
    operation: "QsaSelect",
    section: "architecture.md 7.3",
    twin: "backends/reference/src/ops/select.rs",
    ..APPEND
};

const TOPK: Kernel = Kernel {
    main: Part { file: "qsa_topk.wgsl", text: include_str!("../../../../wgsl/qsa_topk.wgsl") },
    parts: &[&parts::NUMBERS],
    tuning: &["threads of a row"],
    ..SCORES
};

const ATTEND: Kernel = Kernel {
    main: Part { file: "qsa_attend.wgsl", text: include_str!("../../../../wgsl/qsa_attend.wgsl") },
    operation: "QsaAttend",
    parts: &[&parts::NUMBERS, &parts::QSA_CELLS, &parts::QSA_ATTENDED, &parts::QSA_QUERIES, &parts::TICKET],
    section: "architecture.md 7.4",
    twin: "backends/reference/src/ops/attend.rs",
    tuning: &["threads of a row", "query heads at once"],
    ..APPEND
};

const ATTEND_PROMPT: Kernel = Kernel {
    main: Part { file: "qsa_attend_prompt.wgsl", text: include_str!("../../../../wgsl/qsa_attend_prompt.wgsl") },
    parts: &[&parts::NUMBERS, &parts::QSA_CELLS, &parts::QSA_ATTENDED, &parts::QSA_QUERIES],
    tuning: &["threads of a row"],
    ..ATTEND
};

const ATTEND_UNITS_8: Kernel = Kernel {
    main: Part { file: "qsa_attend_units_8.wgsl", text: include_str!("../../../../wgsl/qsa_attend_units_8.wgsl") },
    parts: &[&parts::NUMBERS, &parts::QSA_CELLS, &parts::QSA_ATTENDED, &parts::QSA_ATTEND_UNITS],
    tuning: &[],
    ..ATTEND
};

const ATTEND_UNITS_16: Kernel = Kernel {
    main: Part { file: "qsa_attend_units_16.wgsl", text: include_str!("../../../../wgsl/qsa_attend_units_16.wgsl") },
    ..ATTEND_UNITS_8
};

/// The kernels of this family.
pub(crate) const KERNELS: &[&Kernel] =
    &[&PROJECT, &APPEND, &SCORES, &TOPK, &ATTEND, &ATTEND_PROMPT, &ATTEND_UNITS_8, &ATTEND_UNITS_16];

/// Most query heads of a workgroup of `qsa_attend_units.wgsl`, the rows of its matrices.
const HEADS_OF_UNITS: u32 = 16;

/// Largest heads that it has room for.
const WIDEST_HEAD_OF_UNITS: u32 = 256;

/// Rows that share what `qsa_scores.wgsl` loads of a block.
const SCORED_AT_ONCE: u32 = 4;

/// Query heads that share what `qsa_attend_prompt.wgsl` loads of a key.
const HEADS_AT_ONCE: u32 = 12;

/// Shares of the heads among the threads of `qsa_attend_prompt.wgsl`.
const HEAD_SHARES: u32 = 4;

/// Most teams of it that share the sum of the values.
const MOST_TEAMS: u32 = 8;

/// Numbers of a head's sums that it has room for, all teams together.
const TEAM_ROOM: u32 = 3072;

/// Tokens of a split of `qsa_attend.wgsl` (engine.md 3.7c).
const SPLIT: u32 = 256;

/// Numbers that go with a head's part of a split: the weight of its sums and the best logit.
const PART_ENDS: u32 = 2;

/// Numbers that a row must be whole groups of: 16 bytes of BF16.
const WHOLE: u32 = 8;

/// Numbers in a quad.
const QUAD: u32 = 4;

/// Projections.
pub(crate) fn project(enc: &mut Encoding<'_>, op: &QsaProject) -> Result<()> {
    let (rows, hidden) = (op.rows.count, op.q.matrix.cols);
    let [q_width, kv_width, index_width] = [&op.q, &op.k, &op.index].map(|weight| weight.matrix.rows);
    enc.nonzero(&[("hidden", hidden), ("q", q_width), ("k", kv_width), ("index", index_width)])?;
    let inputs = enc.inputs(op.rows);
    let u = enc.view(&op.u, "u", volume(&[rows, hidden]))?;
    let q = enc.weight(&op.q, "q", q_width, hidden)?.beside_others().multiplied(inputs);
    let k = enc.weight(&op.k, "k", kv_width, hidden)?.beside_others().multiplied(inputs);
    let v = enc.weight(&op.v, "v", kv_width, hidden)?.beside_others().multiplied(inputs);
    let index = enc.weight(&op.index, "index", index_width, hidden)?.beside_others();
    let q_out = enc.view(&op.q_out, "q_out", volume(&[rows, q_width]))?;
    let kv_out = enc.view(&op.kv_out, "kv_out", volume(&[rows, 2, kv_width]))?;
    let index_out = enc.view(&op.index_out, "index_out", volume(&[rows, index_width]))?;
    if op.rows.form == Form::Prompt {
        let u = Strided::rows(&u, hidden);
        multiply(enc, op.rows, &u, &q, &Strided::rows(&q_out, q_width))?;
        for (begin, weight) in [(0, &k), (kv_width, &v)] {
            multiply(enc, op.rows, &u, weight, &Strided { view: &kv_out, begin, pitch: 2 * kv_width })?;
        }
        return multiply(enc, op.rows, &u, &index, &Strided::rows(&index_out, index_width));
    }
    let k_begin = q.tiles(q_width);
    let v_begin = k_begin + k.tiles(kv_width);
    let index_begin = v_begin + v.tiles(kv_width);
    enc.launch(&Launch {
        kernel: &PROJECT,
        constants: &[],
        views: &[&u, &q_out, &kv_out, &index_out],
        weights: &[&q, &k, &v, &index],
        immediates: &[rows, k_begin, v_begin, index_begin],
        grid: gemv_grid(rows, index_begin + index.tiles(index_width)),
    })
}

/// Refuses shapes that no model has, and those without a kernel.
fn check(enc: &Encoding<'_>, shape: &QsaShape) -> Result<()> {
    enc.nonzero(&[("heads", shape.heads), ("kv_heads", shape.kv_heads), ("head_dim", shape.head_dim)])?;
    enc.nonzero(&[("index_heads", shape.index_heads), ("index_dim", shape.index_dim)])?;
    enc.nonzero(&[("block", shape.block), ("topk", shape.topk)])?;
    if !shape.heads.is_multiple_of(shape.kv_heads) {
        let (heads, kv) = (shape.heads, shape.kv_heads);
        return Err(enc.refuse(format_args!("`heads` is {heads}, not a multiple of the {kv} KV heads")));
    }
    if !shape.rotary.is_multiple_of(2) || shape.rotary > shape.head_dim.min(shape.index_dim) {
        return Err(enc.refuse(format_args!("`rotary` is {}, expected an even part of a head", shape.rotary)));
    }
    for (name, dim) in [("heads", shape.head_dim), ("indexer heads", shape.index_dim)] {
        if !dim.is_multiple_of(WHOLE) || dim > ROW_THREADS.value * QUAD {
            return Err(enc.unavailable(format_args!("{name} of {dim} numbers")));
        }
    }
    if shape.head_dim > ROW_THREADS.value {
        return Err(enc.unavailable(format_args!("heads of {} numbers", shape.head_dim)));
    }
    if shape.index_heads > THREADS.value {
        return Err(enc.unavailable(format_args!("{} indexer heads", shape.index_heads)));
    }
    Ok(())
}

/// Tokens after an operation.
fn tokens_after(enc: &Encoding<'_>, first: u32, rows: u32) -> Result<u32> {
    first.checked_add(rows).ok_or_else(|| enc.refuse("`first` and `rows` overflow"))
}

/// How a cache is stored, as WGSL knows it: the scalar, and quads of numbers in 16 bytes.
fn stored(enc: &Encoding<'_>, cache: &QsaCache) -> Result<[(&'static str, u32); 2]> {
    let wide = match cache.scalar {
        Scalar::F32 => 1,
        Scalar::Bf16 => 2,
        Scalar::F16 => return Err(enc.refuse("`cache` is stored in F16, expected F32 or Bf16")),
    };
    Ok([("SCALAR", scalar_code(cache.scalar)), ("WIDE", wide)])
}

/// A buffer that must hold `bytes`, bound whole where it can be: its bind group then lasts while the sequence grows.
fn grown(enc: &Encoding<'_>, buffer: &Buffer, field: &str, bytes: u64) -> Result<View> {
    let most = enc.shared.device.limits.max_storage_buffer_binding_size;
    let fits = (bytes..=most).contains(&buffer.bytes());
    enc.bytes(buffer, field, if fits { buffer.bytes() } else { bytes })
}

/// Norms, rotation, cache append and block pooling.
pub(crate) fn append(enc: &mut Encoding<'_>, op: &QsaAppend) -> Result<()> {
    let (shape, rows, cache, norms) = (&op.shape, op.rows.count, &op.cache, &op.norms);
    check(enc, shape)?;
    let [scalar, wide] = stored(enc, cache)?;
    let after = tokens_after(enc, op.first, rows)?;
    let blocks = after / shape.block;
    let (head, index) = (u64::from(shape.head_dim), u64::from(shape.index_dim));
    let cell = cache.scalar.bytes();
    let cells = |dims: &[u32]| volume(dims).saturating_mul(cell);
    let row = cells(&[after, shape.kv_heads, shape.head_dim]);
    let index_q = volume(&[rows, shape.index_heads, shape.index_dim]);
    let completed = blocks - op.first / shape.block;
    let views = [
        enc.view(&op.q, "q", volume(&[rows, shape.heads, 2, shape.head_dim]))?,
        enc.view(&op.kv, "kv", volume(&[rows, 2, shape.kv_heads, shape.head_dim]))?,
        enc.view(&op.index, "index", index_q.saturating_add(volume(&[rows, shape.index_dim])))?,
        enc.view(&op.rope, "rope", volume(&[rows, shape.rotary]))?,
        enc.view(&op.block_rope, "block_rope", volume(&[completed, shape.rotary]))?,
        enc.view(&norms.q, "norms.q", head)?,
        enc.view(&norms.k, "norms.k", head)?,
        enc.view(&norms.index_q, "norms.index_q", index)?,
        enc.view(&norms.index_k, "norms.index_k", index)?,
        grown(enc, &cache.k, "cache.k", row)?,
        grown(enc, &cache.v, "cache.v", row)?,
        grown(enc, &cache.raw, "cache.raw", cells(&[after, shape.index_dim]))?,
        grown(enc, &cache.pooled, "cache.pooled", cells(&[blocks, shape.index_dim]))?,
        enc.view(&op.q_out, "q_out", volume(&[rows, shape.heads, shape.head_dim]))?,
        enc.view(&op.index_q_out, "index_q_out", index_q)?,
    ];
    // Of a row: its heads, its raw row, and the block that it may complete.
    let units = shape.heads + 2 * shape.kv_heads + shape.index_heads + 2;
    enc.launch(&Launch {
        kernel: &APPEND,
        constants: &[
            ("THREADS", THREADS.value),
            ("HEADS", shape.heads),
            ("KV_HEADS", shape.kv_heads),
            ("HEAD", shape.head_dim),
            ("ROTARY", shape.rotary),
            ("INDEX_HEADS", shape.index_heads),
            ("INDEX", shape.index_dim),
            ("WIDEST", shape.head_dim.max(shape.index_dim)),
            ("BLOCK", shape.block),
            scalar,
            wide,
        ],
        views: &views.each_ref(),
        weights: &[],
        immediates: &[op.first, shape.eps.to_bits()],
        grid: [units, rows, 1],
    })
}

/// Scores and kept blocks of a slice of the rows.
pub(crate) fn select(enc: &mut Encoding<'_>, op: &QsaSelect) -> Result<()> {
    let (shape, rows) = (&op.shape, op.rows.count);
    check(enc, shape)?;
    let [scalar, wide] = stored(enc, &op.cache)?;
    let after = tokens_after(enc, op.first, rows)?;
    if op.slice.checked_add(op.slice_rows).is_none_or(|end| end > rows) {
        let (slice, count) = (op.slice, op.slice_rows);
        return Err(enc.refuse(format_args!("`slice` is {count} rows from {slice}, the operation has {rows}")));
    }
    let all = after / shape.block;
    let index_q = enc.view(&op.index_q, "index_q", volume(&[rows, shape.index_heads, shape.index_dim]))?;
    let cell = op.cache.scalar.bytes();
    let pooled = grown(enc, &op.cache.pooled, "cache.pooled", volume(&[all, shape.index_dim]).saturating_mul(cell))?;
    let scores = grown(enc, &op.scores, "scores", volume(&[op.slice_rows, all]).saturating_mul(4))?;
    let blocks = enc.view(&op.blocks, "blocks", volume(&[rows, shape.topk]))?;
    let before = op.first + op.slice;
    // Queries that keep everything need no scores.
    if (before + op.slice_rows) / shape.block > shape.topk {
        let tile = THREADS.value / shape.index_heads;
        enc.launch(&Launch {
            kernel: &SCORES,
            constants: &[
                ("THREADS", THREADS.value),
                ("INDEX_HEADS", shape.index_heads),
                ("INDEX", shape.index_dim),
                ("BLOCK", shape.block),
                ("TOPK", shape.topk),
                scalar,
                wide,
            ],
            views: &[&index_q, &pooled, &scores],
            weights: &[],
            immediates: &[op.slice_rows, op.slice, before, all],
            grid: [all.div_ceil(tile), op.slice_rows.div_ceil(SCORED_AT_ONCE), 1],
        })?;
    }
    enc.launch(&Launch {
        kernel: &TOPK,
        constants: &[("THREADS", ROW_THREADS.value), ("BLOCK", shape.block), ("TOPK", shape.topk)],
        views: &[&scores, &blocks],
        weights: &[],
        immediates: &[op.slice, before, all],
        grid: [op.slice_rows, 1, 1],
    })
}

/// Attention.
pub(crate) fn attend(enc: &mut Encoding<'_>, op: &QsaAttend) -> Result<()> {
    let (shape, rows) = (&op.shape, op.rows.count);
    check(enc, shape)?;
    let [scalar, wide] = stored(enc, &op.cache)?;
    let after = tokens_after(enc, op.first, rows)?;
    let cached = volume(&[after, shape.kv_heads, shape.head_dim]).saturating_mul(op.cache.scalar.bytes());
    let mut views = vec![
        enc.view(&op.q, "q", volume(&[rows, shape.heads, shape.head_dim]))?,
        enc.view(&op.gate, "gate", volume(&[rows, shape.heads, 2, shape.head_dim]))?,
        grown(enc, &op.cache.k, "cache.k", cached)?,
        grown(enc, &op.cache.v, "cache.v", cached)?,
        enc.view(&op.blocks, "blocks", volume(&[rows, shape.topk]))?,
        enc.view(&op.out, "out", volume(&[rows, shape.heads, shape.head_dim]))?,
    ];
    let shared = shape.heads / shape.kv_heads;
    let units = match enc.inputs(op.rows) {
        Inputs::Units(units) if op.cache.scalar == Scalar::Bf16 && shape.head_dim <= WIDEST_HEAD_OF_UNITS => {
            Some(units)
        }
        _ => None,
    };
    let at_once = match op.rows.form {
        Form::Generated => shared.min(ATTENDED_AT_ONCE.value),
        Form::Prompt if units.is_some() => shared.min(HEADS_OF_UNITS),
        Form::Prompt => shared.min(HEADS_AT_ONCE),
    };
    let groups = shape.kv_heads * shared.div_ceil(at_once);
    let mut constants = vec![
        ("HEADS", shape.heads),
        ("KV_HEADS", shape.kv_heads),
        ("HEAD", shape.head_dim),
        ("AT_ONCE", at_once),
        ("BLOCK", shape.block),
        ("TOPK", shape.topk),
        scalar,
        wide,
    ];
    if let Some(Units { side, subgroup }) = units {
        constants.push(("SUBGROUP", subgroup));
        return enc.launch(&Launch {
            kernel: if side == Side::Sixteen { &ATTEND_UNITS_16 } else { &ATTEND_UNITS_8 },
            constants: &constants,
            views: &views.iter().collect::<Vec<_>>(),
            weights: &[],
            immediates: &[op.first],
            grid: [groups, rows, 1],
        });
    }
    if op.rows.form == Form::Prompt {
        let loads = shape.head_dim / (QUAD * wide.1);
        let teams = (ROW_THREADS.value / (HEAD_SHARES * loads)).clamp(1, MOST_TEAMS).min(TEAM_ROOM / shape.head_dim);
        constants.extend([("THREADS", ROW_THREADS.value), ("VALUE_TEAMS", teams)]);
        return enc.launch(&Launch {
            kernel: &ATTEND_PROMPT,
            constants: &constants,
            views: &views.iter().collect::<Vec<_>>(),
            weights: &[],
            immediates: &[op.first],
            grid: [groups, rows, 1],
        });
    }
    // Tokens of a row: its kept blocks and its open tail.
    let most = after.min(shape.topk.saturating_mul(shape.block).saturating_add(shape.block - 1));
    let splits = most.div_ceil(SPLIT);
    views.push(enc.scratch(volume(&[
        rows,
        shape.heads,
        splits,
        shape.head_dim + PART_ENDS,
        size_of::<f32>() as u32,
    ]))?);
    views.push(enc.tickets(rows.saturating_mul(groups))?);
    enc.launch(&Launch {
        kernel: &ATTEND,
        constants: &constants,
        views: &views.iter().collect::<Vec<_>>(),
        weights: &[],
        immediates: &[op.first, splits],
        grid: [groups, splits, rows],
    })
}
