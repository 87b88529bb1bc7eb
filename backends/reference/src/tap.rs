//! Owns: the view that tests have of numbers inside operations.
//! Invariants: names and shapes are those of the golden tensors; without an observer nothing is computed for it.

use std::sync::Arc;

/// Numbers on their way through an operation.
#[derive(Clone, Copy, Debug)]
pub enum TapData<'a> {
    /// Numbers.
    F32(&'a [f32]),
    /// Ids; -1 where a list holds nothing.
    I32(&'a [i32]),
}

/// Hears of every named intermediate: name (`L0.attn_hc.mixed`), shape, row-major data.
pub type Tap = Arc<dyn Fn(&str, &[usize], TapData<'_>) + Send + Sync>;
