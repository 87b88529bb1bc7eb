//! The copy, and the operations before the first layer, after the last, and of one layer only.

use ss_backend::op::{Carry, Copy, Embed, Head, MtpFuse, PleMix, PleProject};
use ss_backend::{Matrix, Result, Rows};

use crate::rig::{Case, ONE, Q4, Record, Rig, Work, f32s, random, turn};
use crate::table::COPY;

pub fn cases(rig: &Rig) -> Vec<Case> {
    let (prompt, g) = (rig.prompt(), &rig.geometry);
    let (width, hidden, ple) = (g.stream_width(), g.hidden, g.ple_dim);
    let projected = width + hidden;
    let key_value = Matrix { rows: projected, cols: ple, format: Q4 };
    let fused = Matrix { rows: 2 * hidden, cols: hidden, format: Q4 };
    let head = Matrix { rows: rig.sizes.vocab, cols: hidden, format: Q4 };
    let embedded = Matrix { rows: 1, ..head }.bytes() + f32s(width);
    // Keys, values, streams and the window once, the streams, the inputs and the window's newest row back; weights.
    let mixed =
        |rows: u32| f32s(rows * (5 * width + hidden) + rig.shapes.ple.window() * width + (3 + g.ple_conv) * width);
    vec![
        Case::new(COPY, Work::Bytes(2 * rig.sizes.copied), copy),
        Case::new("embed", Work::Bytes(embedded), embed),
        Case::new("head", Work::Bytes(head.bytes() + f32s(hidden + head.rows)), self::head),
        Case::new("ple_project", Work::Bytes(key_value.bytes() + f32s(ple + projected)), |rig| ple_project(rig, ONE)),
        Case::new("ple_mix", Work::Bytes(mixed(1)), |rig| ple_mix(rig, ONE)),
        Case::new("mtp_fuse", Work::Bytes(fused.bytes() + f32s(3 * hidden + 4 * width)), mtp_fuse),
        Case::new("prompt ple_project", Work::Flops(flops(prompt, projected, ple)), move |rig| {
            ple_project(rig, prompt)
        }),
        Case::new("prompt product of 2560 x 16384", Work::Flops(flops(prompt, PRODUCT.0, PRODUCT.1)), move |rig| {
            product(rig, prompt)
        }),
        Case::new("prompt ple_mix", Work::Bytes(mixed(prompt.count)), move |rig| ple_mix(rig, prompt)),
    ]
}

/// Outputs and inputs of a large product.
const PRODUCT: (u32, u32) = (16_384, 2560);

/// Multiplications and additions of a product.
pub fn flops(rows: Rows, outputs: u32, inputs: u32) -> u64 {
    2 * u64::from(rows.count) * u64::from(outputs) * u64::from(inputs)
}

fn copy(rig: &Rig) -> Result<Record> {
    let bytes = rig.sizes.copied;
    let (from, to) = (rig.backend.alloc("bench", bytes)?, rig.backend.alloc("bench", bytes)?);
    Ok(Box::new(move |rec, _| {
        rec.copy(Copy { from: from.clone(), from_offset: 0, to: to.clone(), to_offset: 0, bytes });
    }))
}

fn embed(rig: &Rig) -> Result<Record> {
    let (vocab, width) = (rig.sizes.vocab, rig.geometry.stream_width());
    let table = rig.linear(vocab, rig.geometry.hidden, Q4)?;
    let (copies, out, mut state) = (rig.geometry.streams, rig.zeros(width)?, 5);
    let ids =
        (0..64).map(|_| rig.words(&[(random(&mut state) % u64::from(vocab)) as u32])).collect::<Result<Vec<_>>>()?;
    Ok(Box::new(move |rec, i| {
        rec.embed(Embed { rows: ONE, ids: turn(&ids, i).clone(), table: table.clone(), copies, out: out.clone() });
    }))
}

fn head(rig: &Rig) -> Result<Record> {
    let (vocab, hidden) = (rig.sizes.vocab, rig.geometry.hidden);
    let bytes = Matrix { rows: vocab, cols: hidden, format: Q4 }.bytes();
    let weights = rig.each(bytes, || rig.linear(vocab, hidden, Q4))?;
    let (x, logits) = (rig.numbers(hidden)?, rig.zeros(vocab)?);
    Ok(Box::new(move |rec, i| {
        rec.head(Head { rows: ONE, x: x.clone(), weight: turn(&weights, i).clone(), logits: logits.clone() });
    }))
}

fn ple_project(rig: &Rig, rows: Rows) -> Result<Record> {
    project(rig, rows, (rig.geometry.stream_width(), rig.geometry.hidden), rig.geometry.ple_dim)
}

/// One product, said as two of which the second has few outputs.
fn product(rig: &Rig, rows: Rows) -> Result<Record> {
    let few = PRODUCT.0 / 128;
    project(rig, rows, (PRODUCT.0 - few, few), PRODUCT.1)
}

fn project(rig: &Rig, rows: Rows, (width, hidden): (u32, u32), ple: u32) -> Result<Record> {
    let bytes = Matrix { rows: width + hidden, cols: ple, format: Q4 }.bytes();
    let weights = rig.each(bytes, || Ok((rig.linear(width, ple, Q4)?, rig.linear(hidden, ple, Q4)?)))?;
    let e = rig.numbers(rows.count * ple)?;
    let (keys, values) = (rig.zeros(rows.count * width)?, rig.zeros(rows.count * hidden)?);
    Ok(Box::new(move |rec, i| {
        let (key, value) = turn(&weights, i).clone();
        rec.ple_project(PleProject { rows, e: e.clone(), key, value, keys: keys.clone(), values: values.clone() });
    }))
}

fn ple_mix(rig: &Rig, rows: Rows) -> Result<Record> {
    let (shape, width) = (rig.shapes.ple, rig.geometry.stream_width());
    let norm = || rig.numbers(width);
    let op = PleMix {
        rows,
        shape,
        norm_key: norm()?,
        norm_query: norm()?,
        norm_conv: norm()?,
        conv: rig.numbers(width * shape.kernel)?,
        keys: rig.numbers(rows.count * width)?,
        values: rig.numbers(rows.count * rig.geometry.hidden)?,
        inputs: rig.zeros(rows.count * width)?,
        window: Carry { from: None, state: rig.zeros(shape.window() * width)? },
        out: rig.zeros(rows.count * width)?,
    };
    Ok(Box::new(move |rec, _| rec.ple_mix(op.clone())))
}

fn mtp_fuse(rig: &Rig) -> Result<Record> {
    let (hidden, width) = (rig.geometry.hidden, rig.geometry.stream_width());
    let square = || rig.linear(hidden, hidden, Q4);
    let weights =
        rig.each(Matrix { rows: 2 * hidden, cols: hidden, format: Q4 }.bytes(), || Ok((square()?, square()?)))?;
    let (fc_embedding, fc_hidden) = weights[0].clone();
    let op = MtpFuse {
        rows: ONE,
        streams: rig.shapes.streams,
        eps: rig.geometry.eps,
        e: rig.numbers(hidden)?,
        m: rig.numbers(width)?,
        norm_embedding: rig.numbers(hidden)?,
        norm_hidden: rig.numbers(width)?,
        fc_embedding,
        fc_hidden,
        scratch: rig.zeros(hidden + width)?,
        out: rig.zeros(width)?,
    };
    Ok(Box::new(move |rec, i| {
        let (fc_embedding, fc_hidden) = turn(&weights, i).clone();
        rec.mtp_fuse(MtpFuse { fc_embedding, fc_hidden, ..op.clone() });
    }))
}
