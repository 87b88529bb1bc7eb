//! Gated DeltaNet: projections, everything between them, and the replay of rows.

use ss_backend::op::{Carry, GdnInputs, GdnMix, GdnProject, GdnReplay, GdnWeights};
use ss_backend::{Matrix, Result, Rows};

use crate::ends::flops;
use crate::rig::{BF16, Case, ONE, Q4, Record, Rig, Work, f32s, turn};

/// Rows of a replay: drafts that were accepted.
const REPLAYED: u32 = 4;

/// Multiplications and additions for a number of the state: decay, two sums, and the update.
const STATE_FLOPS: u64 = 7;

pub fn cases(rig: &Rig) -> Vec<Case> {
    let (prompt, g, shape) = (rig.prompt(), &rig.geometry, rig.shapes.gdn);
    let (channels, values, heads) = (shape.channels(), shape.values(), shape.value_heads);
    let projected = f32s(g.hidden + channels + values + 2 * heads);
    // The state, the window, the taps and the rows.
    let mixed = f32s(2 * shape.state() + (2 * shape.kernel - 1) * channels + 2 * values + 2 * heads);
    let kept = REPLAYED * (shape.key_heads * shape.key_dim + values + 2 * heads);
    let outputs = channels + values + 2 * heads;
    let advanced = STATE_FLOPS * u64::from(prompt.count) * u64::from(shape.state());
    vec![
        Case::new("gdn_project", Work::Bytes(project_bytes(rig) + projected), |rig| project(rig, ONE)),
        Case::new("gdn_mix", Work::Bytes(mixed), |rig| mix(rig, ONE)),
        Case::new("gdn_replay of 4", Work::Bytes(f32s(2 * shape.state() + kept)), replay),
        Case::new("prompt gdn_project", Work::Flops(flops(prompt, outputs, g.hidden)), move |rig| project(rig, prompt)),
        Case::new("prompt gdn_mix", Work::Flops(advanced), move |rig| mix(rig, prompt)),
    ]
}

fn project_bytes(rig: &Rig) -> u64 {
    let (shape, cols) = (rig.shapes.gdn, rig.geometry.hidden);
    let wide = Matrix { rows: shape.channels() + shape.values(), cols, format: Q4 };
    wide.bytes() + Matrix { rows: 2 * shape.value_heads, cols, format: BF16 }.bytes()
}

fn project(rig: &Rig, rows: Rows) -> Result<Record> {
    let (shape, hidden, count) = (rig.shapes.gdn, rig.geometry.hidden, rows.count);
    let (channels, values, heads) = (shape.channels(), shape.values(), shape.value_heads);
    let (u, qkv_out) = (rig.numbers(count * hidden)?, rig.zeros(count * channels)?);
    let (z_out, ab_out) = (rig.zeros(count * values)?, rig.zeros(count * 2 * heads)?);
    let op = || {
        Ok(GdnProject {
            rows,
            u: u.clone(),
            qkv: rig.linear(channels, hidden, Q4)?,
            z: rig.linear(values, hidden, Q4)?,
            a: rig.linear(heads, hidden, BF16)?,
            b: rig.linear(heads, hidden, BF16)?,
            qkv_out: qkv_out.clone(),
            z_out: z_out.clone(),
            ab_out: ab_out.clone(),
        })
    };
    let ops = rig.each(project_bytes(rig), op)?;
    Ok(Box::new(move |rec, i| rec.gdn_project(turn(&ops, i).clone())))
}

fn mix(rig: &Rig, rows: Rows) -> Result<Record> {
    let (shape, count) = (rig.shapes.gdn, rows.count);
    let (channels, values, heads) = (shape.channels(), shape.values(), shape.value_heads);
    let weights = GdnWeights {
        conv: rig.numbers(channels * shape.kernel)?,
        a_log: rig.numbers(heads)?,
        dt_bias: rig.numbers(heads)?,
        norm: rig.numbers(shape.value_dim)?,
    };
    let (qkv, z, ab) = (rig.numbers(count * channels)?, rig.numbers(count * values)?, rig.numbers(count * 2 * heads)?);
    let out = rig.zeros(count * values)?;
    let op = || {
        Ok(GdnMix {
            rows,
            shape,
            weights: weights.clone(),
            qkv: qkv.clone(),
            z: z.clone(),
            ab: ab.clone(),
            window: in_place(rig, (shape.kernel - 1) * channels)?,
            state: in_place(rig, shape.state())?,
            inputs: None,
            out: out.clone(),
        })
    };
    let ops = rig.each(f32s(shape.state()), op)?;
    Ok(Box::new(move |rec, i| rec.gdn_mix(turn(&ops, i).clone())))
}

fn replay(rig: &Rig) -> Result<Record> {
    let shape = rig.shapes.gdn;
    let inputs = GdnInputs {
        k: rig.numbers(REPLAYED * shape.key_heads * shape.key_dim)?,
        v: rig.numbers(REPLAYED * shape.values())?,
        gates: rig.numbers(REPLAYED * 2 * shape.value_heads)?,
    };
    let op = || Ok(GdnReplay { rows: REPLAYED, shape, inputs: inputs.clone(), state: in_place(rig, shape.state())? });
    let ops = rig.each(f32s(shape.state()), op)?;
    Ok(Box::new(move |rec, i| rec.gdn_replay(turn(&ops, i).clone())))
}

fn in_place(rig: &Rig, numbers: u32) -> Result<Carry> {
    Ok(Carry { from: None, state: rig.zeros(numbers)? })
}
