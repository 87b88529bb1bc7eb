//! Owns: the output head (architecture.md section 10).
//!
//! `logits[r] = weight x[r]`, inputs never rounded: always the decode form (engine.md 3.7d).
//!
//! Row rule: see [`crate::gemm`].

use ss_backend::Result;
use ss_backend::op::Head;

use crate::gemm::Input;
use crate::step::{Step, volume};

/// Logits of at most [`Head::MAX_ROWS`] rows.
pub fn head(step: &Step<'_>, op: &Head) -> Result<()> {
    let matrix = op.weight.matrix;
    step.nonzero(&[("vocab", matrix.rows), ("hidden", matrix.cols)])?;
    if op.rows.count > Head::MAX_ROWS {
        let (count, most) = (op.rows.count, Head::MAX_ROWS);
        return Err(step.refuse(format_args!("`rows` is {count}, at most {most} are allowed")));
    }
    let (vocab, hidden) = (matrix.rows as usize, matrix.cols as usize);
    let x = step.read::<f32>(&op.x, "x", volume(&[op.rows.count, matrix.cols]))?;
    let weight = step.weight(&op.weight, "weight", vocab, hidden)?;
    let mut logits = step.write::<f32>(&op.logits, "logits", volume(&[op.rows.count, matrix.rows]))?;
    let input = Input::contiguous(step.machine, &x, hidden);
    input.multiply(&weight.view(), false, logits.chunks_exact_mut(vocab).collect());
    step.tap("logits", &[op.rows.count as usize, vocab], &logits);
    Ok(())
}
