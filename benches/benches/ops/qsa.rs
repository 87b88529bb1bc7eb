//! Sparse attention: projections, append, choice of blocks, attention; the last two at a short and a long context.

use ss_backend::op::{QsaAppend, QsaAttend, QsaCache, QsaNorms, QsaProject, QsaSelect, QsaShape};
use ss_backend::{Buffer, Matrix, Result, Rows, Scalar};

use crate::ends::flops;
use crate::rig::{BF16, Case, ONE, Q4, Record, Rig, Work, f32s, random, turn};

/// Tokens in the cache: the last row completes a block.
const CONTEXTS: [(&str, u32); 2] = [("4k", 4095), ("32k", 32_767)];

/// Bytes of a number of the cache of the fast profile.
const CELL: u64 = 2;

pub fn cases(rig: &Rig) -> Vec<Case> {
    let (prompt, g, shape) = (rig.prompt(), &rig.geometry, rig.shapes.qsa);
    let outputs = widths(&shape).iter().sum::<u32>() + index_width(&shape);
    let projected = project_bytes(rig) + f32s(g.hidden + outputs);
    let rows = |count: u32| {
        f32s(count * (outputs + shape.heads * shape.head_dim)) + CELL * u64::from(count * 2 * g.kv_width())
    };
    let mut cases = vec![
        Case::new("qsa_project", Work::Bytes(projected), |rig| project(rig, ONE)),
        Case::new("qsa_append", Work::Bytes(rows(1)), |rig| append(rig, ONE)),
        Case::new("prompt qsa_project", Work::Flops(flops(prompt, outputs, g.hidden)), move |rig| project(rig, prompt)),
        Case::new("prompt qsa_append", Work::Bytes(rows(prompt.count)), move |rig| append(rig, prompt)),
    ];
    for (name, first) in CONTEXTS {
        let pooled = u64::from((first + 1) / shape.block * shape.index_dim);
        let kept = u64::from((shape.topk * shape.block).min(first + 1) * 2 * g.kv_width());
        let selected = CELL * pooled + f32s((shape.index_heads) * shape.index_dim + shape.topk);
        let attended = CELL * kept + f32s(3 * shape.heads * shape.head_dim);
        let scored = 2 * u64::from(prompt.count * shape.index_heads) * pooled;
        let weighed = 2 * u64::from(prompt.count * shape.heads / shape.kv_heads) * kept;
        cases.extend([
            Case::new(format!("qsa_select at {name}"), Work::Bytes(selected), move |rig| select(rig, ONE, first)),
            Case::new(format!("qsa_attend at {name}"), Work::Bytes(attended), move |rig| attend(rig, ONE, first)),
            Case::new(format!("prompt qsa_select at {name}"), Work::Flops(scored), move |rig| {
                select(rig, prompt, first)
            }),
            Case::new(format!("prompt qsa_attend at {name}"), Work::Flops(weighed), move |rig| {
                attend(rig, prompt, first)
            }),
        ]);
    }
    cases
}

/// Outputs of the projections of queries with gates, keys, values.
fn widths(shape: &QsaShape) -> [u32; 3] {
    let kv = shape.kv_heads * shape.head_dim;
    [2 * shape.heads * shape.head_dim, kv, kv]
}

fn index_width(shape: &QsaShape) -> u32 {
    (shape.index_heads + 1) * shape.index_dim
}

fn project_bytes(rig: &Rig) -> u64 {
    let (shape, cols) = (rig.shapes.qsa, rig.geometry.hidden);
    let wide = Matrix { rows: widths(&shape).iter().sum(), cols, format: Q4 };
    wide.bytes() + Matrix { rows: index_width(&shape), cols, format: BF16 }.bytes()
}

fn project(rig: &Rig, rows: Rows) -> Result<Record> {
    let (shape, hidden, count) = (rig.shapes.qsa, rig.geometry.hidden, rows.count);
    let ([q, k, v], index) = (widths(&shape), index_width(&shape));
    let (u, q_out) = (rig.numbers(count * hidden)?, rig.zeros(count * q)?);
    let (kv_out, index_out) = (rig.zeros(count * 2 * k)?, rig.zeros(count * index)?);
    let op = || {
        Ok(QsaProject {
            rows,
            u: u.clone(),
            q: rig.linear(q, hidden, Q4)?,
            k: rig.linear(k, hidden, Q4)?,
            v: rig.linear(v, hidden, Q4)?,
            index: rig.linear(index, hidden, BF16)?,
            q_out: q_out.clone(),
            kv_out: kv_out.clone(),
            index_out: index_out.clone(),
        })
    };
    let ops = rig.each(project_bytes(rig), op)?;
    Ok(Box::new(move |rec, i| rec.qsa_project(turn(&ops, i).clone())))
}

/// A cache with room for `tokens` tokens.
fn cache(rig: &Rig, tokens: u32) -> Result<QsaCache> {
    let shape = rig.shapes.qsa;
    let cells = |rows: u32, width: u32| rig.bytes(CELL * u64::from(rows) * u64::from(width));
    let width = shape.kv_heads * shape.head_dim;
    Ok(QsaCache {
        scalar: Scalar::Bf16,
        k: cells(tokens, width)?,
        v: cells(tokens, width)?,
        raw: cells(tokens, shape.index_dim)?,
        pooled: cells(tokens / shape.block + 1, shape.index_dim)?,
    })
}

fn append(rig: &Rig, rows: Rows) -> Result<Record> {
    let (shape, count) = (rig.shapes.qsa, rows.count);
    let (_, first) = CONTEXTS[0];
    let completed = (first + count) / shape.block - first / shape.block;
    let op = QsaAppend {
        rows,
        first,
        shape,
        norms: QsaNorms {
            q: rig.numbers(shape.head_dim)?,
            k: rig.numbers(shape.head_dim)?,
            index_q: rig.numbers(shape.index_dim)?,
            index_k: rig.numbers(shape.index_dim)?,
        },
        q: rig.numbers(count * 2 * shape.heads * shape.head_dim)?,
        kv: rig.numbers(count * 2 * shape.kv_heads * shape.head_dim)?,
        index: rig.numbers(count * index_width(&shape))?,
        rope: rig.numbers(count * shape.rotary)?,
        block_rope: rig.numbers(completed * shape.rotary)?,
        cache: cache(rig, first + count)?,
        q_out: rig.zeros(count * shape.heads * shape.head_dim)?,
        index_q_out: rig.zeros(count * shape.index_heads * shape.index_dim)?,
    };
    Ok(Box::new(move |rec, _| rec.qsa_append(op.clone())))
}

fn select(rig: &Rig, rows: Rows, first: u32) -> Result<Record> {
    let (shape, count) = (rig.shapes.qsa, rows.count);
    let blocks = (first + count) / shape.block;
    let (index_q, scores) = (rig.numbers(count * shape.index_heads * shape.index_dim)?, rig.zeros(count * blocks)?);
    let kept = rig.zeros(count * shape.topk)?;
    let op = || {
        Ok(QsaSelect {
            rows,
            first,
            slice: 0,
            slice_rows: count,
            shape,
            index_q: index_q.clone(),
            cache: cache(rig, first + count)?,
            scores: scores.clone(),
            blocks: kept.clone(),
        })
    };
    let ops = rig.each(2 * CELL * u64::from(first * shape.kv_heads * shape.head_dim), op)?;
    Ok(Box::new(move |rec, i| rec.qsa_select(turn(&ops, i).clone())))
}

/// Random blocks for each row, ascending.
fn blocks(rig: &Rig, rows: Rows, first: u32, state: &mut u64) -> Result<Buffer> {
    let shape = rig.shapes.qsa;
    let (complete, topk) = ((first + 1) / shape.block, shape.topk);
    let mut all = Vec::new();
    for _ in 0..rows.count {
        let mut left = topk.min(complete);
        let mut row = Vec::new();
        for block in 0..complete {
            if random(state) % u64::from(complete - block) < u64::from(left) {
                row.push(block);
                left -= 1;
            }
        }
        row.resize(topk as usize, ss_backend::op::NONE);
        all.extend(row);
    }
    rig.words(&all)
}

fn attend(rig: &Rig, rows: Rows, first: u32) -> Result<Record> {
    let (shape, count, mut state) = (rig.shapes.qsa, rows.count, 9);
    let numbers = count * shape.heads * shape.head_dim;
    let (q, gate, out) = (rig.numbers(numbers)?, rig.numbers(2 * numbers)?, rig.zeros(numbers)?);
    let caches =
        rig.each(2 * CELL * u64::from(first * shape.kv_heads * shape.head_dim), || cache(rig, first + count))?;
    let lists = (0..if count == 1 { 61 } else { 1 }).map(|_| blocks(rig, rows, first, &mut state));
    let lists = lists.collect::<Result<Vec<_>>>()?;
    Ok(Box::new(move |rec, i| {
        rec.qsa_attend(QsaAttend {
            rows,
            first,
            shape,
            q: q.clone(),
            gate: gate.clone(),
            cache: turn(&caches, i).clone(),
            blocks: turn(&lists, i).clone(),
            out: out.clone(),
        });
    }))
}
