//! Router, experts gathered from a slot pool with and without the shared expert, and the sum of their rows.

use ss_backend::op::{Combine, ExpertsIn, ExpertsOut, Route, SharedIn, SharedOut};
use ss_backend::{Buffer, Matrix, Pool, RecordLayout, Result, Rows};

use crate::ends::flops;
use crate::rig::{BF16, Case, ONE, Q4, Record, Rig, Work, f32s, random, turn};

/// Lists of slots that instances take turns with.
const LISTS: usize = 61;

pub fn cases(rig: &Rig) -> Vec<Case> {
    let (prompt, g) = (rig.prompt(), &rig.geometry);
    let (choices, inner, hidden, shared) = (rig.sizes.choices, g.inner, g.hidden, g.shared_inner);
    let router = Matrix { rows: g.experts, cols: hidden, format: BF16 };
    let bytes = |rows: u32, cols: u32| Matrix { rows, cols, format: Q4 }.bytes();
    let (each, k) = (u64::from(choices), choices);
    let into = each * bytes(2 * inner, hidden) + f32s(hidden + k * inner);
    let out = each * bytes(hidden, inner) + f32s(k * (hidden + inner));
    let (into_shared, out_shared) =
        (bytes(2 * shared, hidden) + f32s(shared), bytes(hidden, shared) + f32s(shared + hidden));
    let combined = |rows: u32| f32s(rows * ((k + 2) * hidden + 2 * g.stream_width())) + 2 * u64::from(hidden);
    let pairs = Rows { count: prompt.count * choices, ..prompt };
    vec![
        Case::new("route", Work::Bytes(router.bytes() + f32s(hidden + 2 * k)), |rig| route(rig, ONE)),
        Case::new("experts_in", Work::Bytes(into), |rig| experts_in(rig, ONE, false)),
        Case::new("experts_in with shared", Work::Bytes(into + into_shared), |rig| experts_in(rig, ONE, true)),
        Case::new("experts_out", Work::Bytes(out), |rig| experts_out(rig, ONE, false)),
        Case::new("experts_out with shared", Work::Bytes(out + out_shared), |rig| experts_out(rig, ONE, true)),
        Case::new("combine", Work::Bytes(combined(1)), |rig| combine(rig, ONE)),
        Case::new("prompt route", Work::Flops(flops(prompt, g.experts, hidden)), move |rig| route(rig, prompt)),
        Case::new("prompt experts_in", Work::Flops(flops(pairs, 2 * inner, hidden)), move |rig| {
            experts_in(rig, prompt, false)
        }),
        Case::new("prompt experts_out", Work::Flops(flops(pairs, hidden, inner)), move |rig| {
            experts_out(rig, prompt, false)
        }),
        Case::new("prompt combine", Work::Bytes(combined(prompt.count)), move |rig| combine(rig, prompt)),
    ]
}

fn route(rig: &Rig, rows: Rows) -> Result<Record> {
    let (g, choices, count) = (&rig.geometry, rig.sizes.choices, rows.count);
    let (experts, hidden) = (g.experts, g.hidden);
    let bytes = Matrix { rows: experts, cols: hidden, format: BF16 }.bytes();
    let weights = rig.each(bytes, || rig.linear(experts, hidden, BF16))?;
    let (u, logits) = (rig.numbers(count * hidden)?, rig.zeros(count * experts)?);
    let (chosen, out) = (rig.zeros(count * choices)?, rig.zeros(count * choices)?);
    Ok(Box::new(move |rec, i| {
        rec.route(Route {
            rows,
            choices,
            u: u.clone(),
            weight: turn(&weights, i).clone(),
            logits: logits.clone(),
            experts: chosen.clone(),
            weights: out.clone(),
            lookup: None,
        });
    }))
}

/// A pool full of experts, and lists of slots.
struct Gathered {
    pool: Pool,
    slots: Vec<Buffer>,
}

impl Gathered {
    fn new(rig: &Rig, rows: Rows) -> Result<Self> {
        let (inner, hidden) = (rig.geometry.inner, rig.geometry.hidden);
        let gate = Matrix { rows: inner, cols: hidden, format: Q4 };
        let layout = RecordLayout::new(gate, gate, Matrix { rows: hidden, cols: inner, format: Q4 });
        let count = (rig.sizes.pool / layout.bytes) as u32;
        let pool = rig.backend.alloc_pool(&layout, count)?;
        for slot in 0..count {
            let mut writer = rig.backend.open_slot(&pool, slot)?;
            rig.record(writer.bytes());
            writer.finish()?;
        }
        let mut state = 3;
        let lists = (0..LISTS).map(|_| rig.words(&slots(rows.count, rig.sizes.choices, count, &mut state)));
        Ok(Gathered { pool, slots: lists.collect::<Result<_>>()? })
    }
}

/// Other slots for each choice of a row.
fn slots(rows: u32, choices: u32, all: u32, state: &mut u64) -> Vec<u32> {
    let mut list = Vec::new();
    for _ in 0..rows {
        let mut row: Vec<u32> = Vec::new();
        while row.len() < choices as usize {
            let slot = (random(state) % u64::from(all)) as u32;
            if !row.contains(&slot) {
                row.push(slot);
            }
        }
        list.extend(row);
    }
    list
}

fn experts_in(rig: &Rig, rows: Rows, with_shared: bool) -> Result<Record> {
    let (g, choices, count) = (&rig.geometry, rig.sizes.choices, rows.count);
    let (shared_inner, hidden) = (g.shared_inner, g.hidden);
    let gathered = Gathered::new(rig, rows)?;
    let (u, out) = (rig.numbers(count * hidden)?, rig.zeros(count * choices * g.inner)?);
    let shared_out = rig.zeros(count * shared_inner)?;
    let weight = || rig.linear(shared_inner, hidden, Q4);
    let one = || Ok(SharedIn { gate: weight()?, up: weight()?, out: shared_out.clone() });
    let bytes = Matrix { rows: 2 * shared_inner, cols: hidden, format: Q4 }.bytes();
    let shared = if with_shared { rig.each(bytes, one)? } else { Vec::new() };
    Ok(Box::new(move |rec, i| {
        rec.experts_in(ExpertsIn {
            rows,
            choices,
            u: u.clone(),
            pool: gathered.pool.clone(),
            slots: turn(&gathered.slots, i).clone(),
            out: out.clone(),
            shared: with_shared.then(|| turn(&shared, i).clone()),
        });
    }))
}

fn experts_out(rig: &Rig, rows: Rows, with_shared: bool) -> Result<Record> {
    let (g, choices, count) = (&rig.geometry, rig.sizes.choices, rows.count);
    let (shared_inner, hidden) = (g.shared_inner, g.hidden);
    let gathered = Gathered::new(rig, rows)?;
    let (x, out) = (rig.numbers(count * choices * g.inner)?, rig.zeros(count * choices * hidden)?);
    let (shared_x, shared_out) = (rig.numbers(count * shared_inner)?, rig.zeros(count * hidden)?);
    let one = || {
        let down = rig.linear(hidden, shared_inner, Q4)?;
        Ok(SharedOut { x: shared_x.clone(), down, out: shared_out.clone() })
    };
    let bytes = Matrix { rows: hidden, cols: shared_inner, format: Q4 }.bytes();
    let shared = if with_shared { rig.each(bytes, one)? } else { Vec::new() };
    Ok(Box::new(move |rec, i| {
        rec.experts_out(ExpertsOut {
            rows,
            choices,
            x: x.clone(),
            pool: gathered.pool.clone(),
            slots: turn(&gathered.slots, i).clone(),
            out: out.clone(),
            shared: with_shared.then(|| turn(&shared, i).clone()),
        });
    }))
}

fn combine(rig: &Rig, rows: Rows) -> Result<Record> {
    let (g, choices, count) = (&rig.geometry, rig.sizes.choices, rows.count);
    let (hidden, streams) = (g.hidden, rig.shapes.streams);
    let op = Combine {
        rows,
        choices,
        streams,
        routed: rig.numbers(count * choices * hidden)?,
        weights: rig.numbers(count * choices)?,
        shared: rig.numbers(count * hidden)?,
        gate: rig.linear(1, hidden, BF16)?,
        u: rig.numbers(count * hidden)?,
        inject: rig.numbers(count * streams.count)?,
        out: rig.zeros(count * streams.width())?,
    };
    Ok(Box::new(move |rec, _| rec.combine(op.clone())))
}
