//! Owns: the output head (architecture.md section 10): `logits[r] = weight x[r]`, always the decode form (engine.md 3.7d).

use ss_backend::op::Head;
use ss_backend::{Form, Result, Rows};

use super::linear::{Strided, multiply};
use crate::encoding::{Encoding, volume};

/// Logits of at most [`Head::MAX_ROWS`] rows.
pub(crate) fn head(enc: &mut Encoding<'_>, op: &Head) -> Result<()> {
    let (rows, matrix) = (op.rows.count, op.weight.matrix);
    if rows > Head::MAX_ROWS {
        let most = Head::MAX_ROWS;
        return Err(enc.refuse(format_args!("`rows` is {rows}, at most {most} are allowed")));
    }
    let x = enc.view(&op.x, "x", volume(&[rows, matrix.cols]))?;
    let weight = enc.large_weight(&op.weight, "weight", matrix.rows, matrix.cols)?;
    let logits = enc.view(&op.logits, "logits", volume(&[rows, matrix.rows]))?;
    let rows = Rows { count: rows, form: Form::Generated };
    multiply(enc, rows, &Strided::rows(&x, matrix.cols), &weight, &Strided::rows(&logits, matrix.rows))
}
