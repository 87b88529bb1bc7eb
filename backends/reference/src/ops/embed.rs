//! Owns: embedding rows (architecture.md section 5).
//!
//! `out[r, s, :] = table[ids[r], :]` for every stream s, in F32, unrounded.
//!
//! Row rule: a row is a copy of its own table row.

use ss_backend::Result;
use ss_backend::op::Embed;

use crate::step::{Step, volume};

/// Fills the streams of each row with its table row.
pub fn embed(step: &Step<'_>, op: &Embed) -> Result<()> {
    let matrix = op.table.matrix;
    step.nonzero(&[("hidden", matrix.cols), ("copies", op.copies)])?;
    let (rows, hidden, copies) = (op.rows.count as usize, matrix.cols as usize, op.copies as usize);
    let ids = step.read::<u32>(&op.ids, "ids", rows)?;
    let table = step.weight(&op.table, "table", matrix.rows as usize, hidden)?;
    let mut out = step.write::<f32>(&op.out, "out", volume(&[op.rows.count, op.copies, matrix.cols]))?;
    if let Some(id) = ids.iter().find(|&&id| id >= matrix.rows) {
        return Err(step.refuse(format_args!("`ids` holds {id}, the table has {} rows", matrix.rows)));
    }
    let table = table.view();
    let width = copies * hidden;
    step.split(rows * width, &mut out, width, |first, out| {
        for (out, &id) in out.chunks_exact_mut(width).zip(&ids[first..]) {
            table.expand_plain(id as usize, &mut out[..hidden]);
            (1..copies).for_each(|copy| out.copy_within(..hidden, copy * hidden));
        }
    });
    step.tap("streams", &[rows, width], &out);
    Ok(())
}
