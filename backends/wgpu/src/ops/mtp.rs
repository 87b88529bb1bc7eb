//! Owns: the fusion in front of the MTP layer (architecture.md section 11):
//! `out[r, s] = Wemb (rms(e[r]) * w_emb) + Whid (rms(m[r]) * w_hid)[s]`, one statistic over all streams of `m[r]`.
//! Invariants: four dispatches in both forms: two norms, the product of all streams, and the product that is added to
//! them.

use ss_backend::op::MtpFuse;
use ss_backend::{Result, Rows};

use super::hyper::{Norm, Write, group_norm, write};
use super::linear::{Strided, multiply};
use crate::encoding::{Encoding, QUAD_BYTES, View, volume};
use crate::registry::Kernel;

/// The kernels of this family: all are shared with others.
pub(crate) const KERNELS: &[&Kernel] = &[];

/// Fuses embeddings and streams.
pub(crate) fn fuse(enc: &mut Encoding<'_>, op: &MtpFuse) -> Result<()> {
    let (rows, streams) = (op.rows.count, op.streams);
    enc.nonzero(&[("streams", streams.count), ("hidden", streams.hidden)])?;
    let (hidden, width) = (streams.hidden, streams.count.saturating_mul(streams.hidden));
    let stream_rows = rows.checked_mul(streams.count).ok_or_else(|| enc.refuse("`rows` and `streams` overflow"))?;
    let e = enc.view(&op.e, "e", volume(&[rows, hidden]))?;
    let m = enc.view(&op.m, "m", volume(&[rows, width]))?;
    let norm_embedding = enc.view(&op.norm_embedding, "norm_embedding", u64::from(hidden))?;
    let norm_hidden = enc.view(&op.norm_hidden, "norm_hidden", u64::from(width))?;
    let inputs = enc.inputs(op.rows);
    let fc_embedding = enc.weight(&op.fc_embedding, "fc_embedding", hidden, hidden)?.multiplied(inputs);
    let fc_hidden = enc.weight(&op.fc_hidden, "fc_hidden", hidden, hidden)?.multiplied(inputs);
    let normed = enc.view(&op.scratch, "scratch", volume(&[rows, hidden]).saturating_add(volume(&[rows, width])))?;
    let out = enc.view(&op.out, "out", volume(&[rows, width]))?;

    // All embeddings first, then all streams, so that the rows of each lie one after the other.
    let begin = rows.saturating_mul(hidden);
    let eps = op.eps;
    let norms = [
        Norm { x: (&e, 0, hidden), weight: &norm_embedding, out: (&normed, 0, hidden), groups: 1, group: hidden, eps },
        Norm { x: (&m, 0, width), weight: &norm_hidden, out: (&normed, begin, width), groups: 1, group: width, eps },
    ];
    for norm in &norms {
        group_norm(enc, rows, norm)?;
    }
    let stream_rows = Rows { count: stream_rows, form: op.rows.form };
    let x = Strided { view: &normed, begin, pitch: hidden };
    multiply(enc, stream_rows, &x, &fc_hidden, &Strided::rows(&out, hidden))?;
    let e = View { bytes: (4 * u64::from(begin.max(1))).next_multiple_of(QUAD_BYTES), ..normed.clone() };
    write(enc, op.rows, &Write { streams: streams.count, x: &e, weight: &fc_embedding, inject: None, out: &out })
}
