//! Hyper-connections: read, and write with the output projection of a mixer.

use ss_backend::op::{HcRead, HyperWeights, ProjectWrite};
use ss_backend::{Matrix, Result, Rows};

use crate::ends::flops;
use crate::rig::{BF16, Case, ONE, Q4, Record, Rig, Work, f32s, turn};

pub fn cases(rig: &Rig) -> Vec<Case> {
    let (prompt, g) = (rig.prompt(), &rig.geometry);
    let (width, hidden, mixed) = (g.stream_width(), g.hidden, g.gdn_value_width());
    let rows = f32s(width) * 3 + f32s(hidden + 2 * g.lowrank);
    let written = Matrix { rows: hidden, cols: mixed, format: Q4 };
    let products = flops(prompt, g.lowrank + g.streams, width) + flops(prompt, width, g.lowrank);
    vec![
        Case::new("hc_read", Work::Bytes(read_bytes(rig) + rows), |rig| read(rig, ONE)),
        Case::new("project_write", Work::Bytes(written.bytes() + f32s(mixed + 2 * width)), |rig| write(rig, ONE)),
        Case::new("prompt hc_read", Work::Flops(products), move |rig| read(rig, prompt)),
        Case::new("prompt project_write", Work::Flops(flops(prompt, hidden, mixed)), move |rig| write(rig, prompt)),
    ]
}

/// Bytes of the weights of a read.
fn read_bytes(rig: &Rig) -> u64 {
    let (width, lowrank) = (rig.geometry.stream_width(), rig.geometry.lowrank);
    let low = Matrix { rows: lowrank, cols: width, format: Q4 };
    let up = Matrix { rows: width, cols: lowrank, format: Q4 };
    let inject = Matrix { rows: rig.geometry.streams, cols: width, format: BF16 };
    low.bytes() + up.bytes() + inject.bytes() + f32s(width)
}

fn weights(rig: &Rig) -> Result<HyperWeights> {
    let (width, lowrank) = (rig.geometry.stream_width(), rig.geometry.lowrank);
    Ok(HyperWeights {
        norm: rig.numbers(width)?,
        down: rig.linear(lowrank, width, Q4)?,
        up: rig.linear(width, lowrank, Q4)?,
        inject: Some(rig.linear(rig.geometry.streams, width, BF16)?),
    })
}

fn read(rig: &Rig, rows: Rows) -> Result<Record> {
    let (g, width) = (&rig.geometry, rig.geometry.stream_width());
    let all = rig.each(read_bytes(rig), || weights(rig))?;
    let op = HcRead {
        rows,
        first: 0,
        streams: rig.shapes.streams,
        eps: g.eps,
        weights: all[0].clone(),
        x: rig.numbers(rows.count * width)?,
        normed: rig.zeros(rows.count * width)?,
        lowrank: rig.zeros(rows.count * g.lowrank)?,
        u: rig.zeros(rows.count * g.hidden)?,
        inject: rig.zeros(rows.count * g.streams)?,
    };
    Ok(Box::new(move |rec, i| rec.hc_read(HcRead { weights: turn(&all, i).clone(), ..op.clone() })))
}

fn write(rig: &Rig, rows: Rows) -> Result<Record> {
    let (hidden, cols) = (rig.geometry.hidden, rig.geometry.gdn_value_width());
    let weights = rig.each(Matrix { rows: hidden, cols, format: Q4 }.bytes(), || rig.linear(hidden, cols, Q4))?;
    let op = ProjectWrite {
        rows,
        streams: rig.shapes.streams,
        weight: weights[0].clone(),
        x: rig.numbers(rows.count * cols)?,
        inject: rig.numbers(rows.count * rig.geometry.streams)?,
        out: rig.zeros(rows.count * rig.geometry.stream_width())?,
    };
    Ok(Box::new(move |rec, i| rec.project_write(ProjectWrite { weight: turn(&weights, i).clone(), ..op.clone() })))
}
