//! Owns: making the bytes of packed records from the original weights.
//! Refuses: records with a NaN, an infinity or nothing but zeros, as every reader of them does.
//! Invariants: the same weights give the same bytes, padding and all.

use ss_checkpoint::{Checkpoint, FileRange, PackKind, PackPlan, RowForm};

use crate::Result;
use crate::batch::Unit;

/// The bytes of a unit's records.
pub(crate) fn fill(checkpoint: &Checkpoint, plan: &PackPlan, unit: &Unit) -> Result<Vec<u8>> {
    let mut bytes = vec![0; unit.bytes()];
    match plan.kind {
        PackKind::Experts => experts(checkpoint, unit, &mut bytes)?,
        PackKind::Ngram => {
            let rows =
                plan.sections.iter().find(|section| section.of == unit.first.of).map_or(0, |section| section.rows);
            blocks(checkpoint, unit, rows, &mut bytes)?;
        }
    }
    Ok(bytes)
}

fn experts(checkpoint: &Checkpoint, unit: &Unit, bytes: &mut [u8]) -> Result<()> {
    for (expert, record) in (unit.first.place as u32..).zip(bytes.chunks_exact_mut(unit.first.stride as usize)) {
        let (slot, _) = record.split_at_mut(unit.first.bytes as usize);
        checkpoint.read_expert(unit.first.of as usize, expert, slot)?;
    }
    Ok(())
}

fn blocks(checkpoint: &Checkpoint, unit: &Unit, rows: u64, bytes: &mut [u8]) -> Result<()> {
    let table = unit.first.of as usize;
    let Some(matrix) = checkpoint.ngram_matrix(table) else { return Ok(()) };
    let form = RowForm::of(matrix);
    let begin = unit.first.place * form.per_record;
    let end = rows.min(begin + unit.count * form.per_record);
    let mut next = begin;
    while next < end {
        let run = checkpoint.ngram_run(table, next, u32::try_from(end - next).unwrap_or(u32::MAX))?;
        let skip = ((next - begin) * form.stride) as usize;
        let mut at = 0;
        for range in run.ranges() {
            let into = bytes.get_mut(skip..).unwrap_or_default();
            at += interleave(checkpoint, range, run.matrix.rows, into, Place { at, stride: form.stride as usize })?;
        }
        next += u64::from(run.matrix.rows);
    }
    for (block, stored) in (unit.first.place..).zip(bytes.chunks_exact_mut(unit.first.stride as usize)) {
        seal(form, block * form.per_record..end, stored);
    }
    Ok(())
}

/// Where the parts of rows go.
#[derive(Clone, Copy)]
struct Place {
    /// First byte inside the first row.
    at: usize,
    /// Bytes from a row to the next.
    stride: usize,
}

/// Reads the codes, scales or biases of `rows` rows into their rows; returns the bytes of a row's share.
fn interleave(checkpoint: &Checkpoint, range: FileRange, rows: u32, into: &mut [u8], place: Place) -> Result<usize> {
    let mut bytes = vec![0; range.bytes as usize];
    checkpoint.read(range, &mut bytes)?;
    let share = bytes.len() / (rows as usize).max(1);
    for (stored, share) in into.chunks_exact_mut(place.stride).zip(bytes.chunks_exact(share.max(1))) {
        if let Some(into) = stored.get_mut(place.at..place.at + share.len()) {
            into.copy_from_slice(share);
        }
    }
    Ok(share)
}

/// Gives the rows of a block their checksums. A block of zeros is never written, and read as such.
fn seal(form: RowForm, rows: std::ops::Range<u64>, block: &mut [u8]) {
    if block.iter().all(|&byte| byte == 0) {
        return;
    }
    for (row, stored) in rows.zip(block.chunks_exact_mut(form.stride as usize)) {
        form.seal(row, stored);
    }
}
