//! Owns: copies between buffers, and windows of the last rows.
//!
//! `window' = last depth rows of (window ++ inputs[..rows])`
//!
//! Row rule: nothing is computed.

use ss_backend::Result;
use ss_backend::op::{Copy, Window};

use crate::step::{Carried, Step, volume};

/// Copies bytes.
pub fn copy(step: &Step<'_>, op: &Copy) -> Result<()> {
    if [op.from_offset, op.to_offset, op.bytes].iter().any(|n| !n.is_multiple_of(4)) {
        return Err(step.refuse("offsets and length are not multiples of 4"));
    }
    let words = |offset: u64| {
        let (first, count) = (offset / 4, op.bytes / 4);
        let end = first.checked_add(count).and_then(|end| usize::try_from(end).ok()).unwrap_or(usize::MAX);
        (first as usize, end)
    };
    let ((from, from_end), (to, to_end)) = (words(op.from_offset), words(op.to_offset));
    let source = step.read::<u32>(&op.from, "from", from_end)?;
    let mut target = step.write::<u32>(&op.to, "to", to_end)?;
    target[to..].copy_from_slice(&source[from..]);
    Ok(())
}

/// Moves a convolution window over recorded rows.
pub fn window(step: &Step<'_>, op: &Window) -> Result<()> {
    step.nonzero(&[("width", op.width)])?;
    let inputs = step.read::<f32>(&op.inputs, "inputs", volume(&[op.rows, op.width]))?;
    let mut window = step.carry(&op.window, "window", volume(&[op.depth, op.width]))?;
    slide(&mut window, &inputs);
    Ok(())
}

/// Leaves the last rows of window and inputs in the window.
pub fn slide(window: &mut Carried<'_>, inputs: &[f32]) {
    let Carried { from, state } = window;
    let size = state.len();
    let new = inputs.len().min(size);
    let kept = size - new;
    match from {
        Some(from) => state[..kept].copy_from_slice(&from[new..]),
        None => state.copy_within(new.., 0),
    }
    state[kept..].copy_from_slice(&inputs[inputs.len() - new..]);
}
