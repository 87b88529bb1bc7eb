//! Owns: the fusion in front of the MTP layer (architecture.md section 11).
//!
//! `out[r, s] = Wemb (rms(e[r]) * w_emb) + Whid (rms(m[r]) * w_hid)[s]`, one statistic over all streams of `m[r]`.
//!
//! Row rule: see [`crate::gemm`] and [`crate::norm`].

use ss_backend::Result;
use ss_backend::op::MtpFuse;

use crate::gemm::Input;
use crate::norm::GroupNorm;
use crate::step::{Step, volume};

/// Fuses embeddings and streams.
pub fn fuse(step: &Step<'_>, op: &MtpFuse) -> Result<()> {
    let streams = op.streams;
    step.nonzero(&[("streams", streams.count), ("hidden", streams.hidden)])?;
    let (rows, hidden, width) = (op.rows.count, streams.hidden as usize, volume(&[streams.count, streams.hidden]));
    let e = step.read::<f32>(&op.e, "e", volume(&[rows, streams.hidden]))?;
    let m = step.read::<f32>(&op.m, "m", volume(&[rows, streams.count, streams.hidden]))?;
    let norm_embedding = step.read::<f32>(&op.norm_embedding, "norm_embedding", hidden)?;
    let norm_hidden = step.read::<f32>(&op.norm_hidden, "norm_hidden", width)?;
    let fc_embedding = step.weight(&op.fc_embedding, "fc_embedding", hidden, hidden)?;
    let fc_hidden = step.weight(&op.fc_hidden, "fc_hidden", hidden, hidden)?;
    let normed_width = hidden.saturating_add(width);
    let normed_size = normed_width.saturating_mul(rows as usize);
    let mut normed = step.write::<f32>(&op.scratch, "scratch", normed_size)?;
    let mut out = step.write::<f32>(&op.out, "out", volume(&[rows, streams.count, streams.hidden]))?;
    let (fc_embedding, fc_hidden, round) = (fc_embedding.view(), fc_hidden.view(), step.rounds(op.rows));

    for tile in step.tiles(rows) {
        let normed = &mut normed[tile.start * normed_width..tile.end * normed_width];
        step.split(normed.len(), normed, normed_width, |first, normed| {
            for (i, normed) in normed.chunks_exact_mut(normed_width).enumerate() {
                let row = tile.start + first + i;
                let (e, m) = (&e[row * hidden..(row + 1) * hidden], &m[row * width..(row + 1) * width]);
                let (e_out, m_out) = normed.split_at_mut(hidden);
                step.run(GroupNorm { x: e, weight: &norm_embedding, group: hidden, eps: op.eps, out: e_out });
                step.run(GroupNorm { x: m, weight: &norm_hidden, group: width, eps: op.eps, out: m_out });
            }
        });
        let mut embedded = step.scratch(tile.len() * hidden);
        let normed_rows = || normed.chunks_exact(normed_width);
        let input = Input::new(step.machine, normed_rows().map(|row| &row[..hidden]).collect());
        input.multiply(&fc_embedding, round, embedded.chunks_exact_mut(hidden).collect());
        let input =
            Input::new(step.machine, normed_rows().flat_map(|row| row[hidden..].chunks_exact(hidden)).collect());
        let out = &mut out[tile.start * width..tile.end * width];
        input.multiply(&fc_hidden, round, out.chunks_exact_mut(hidden).collect());
        for (out, e) in out.chunks_exact_mut(width).zip(embedded.chunks_exact(hidden)) {
            out.chunks_exact_mut(hidden).for_each(|out| out.iter_mut().zip(e).for_each(|(out, e)| *out += e));
        }
    }
    step.tap_layer("fused", &[rows as usize, width], &out);
    Ok(())
}
