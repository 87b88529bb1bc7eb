//! Owns: how K, V and indexer rows are stored: F32, or BF16 rounded to nearest even (engine.md 3.3).
//! Invariants: a row is rounded when it is stored, and every reader, the pass that stored it included, reads that.

use bytemuck::Pod;

use crate::math::{bf16_to_f32, f32_to_bf16};

/// A stored number.
pub trait Cell: Pod + Send + Sync {
    /// Stores.
    fn store(x: f32) -> Self;
    /// Reads.
    fn load(self) -> f32;
    /// A whole row: itself, or `scratch` filled with it.
    fn row<'a>(row: &'a [Self], scratch: &'a mut [f32]) -> &'a [f32];
}

impl Cell for f32 {
    #[inline(always)]
    fn store(x: f32) -> f32 {
        x
    }

    #[inline(always)]
    fn load(self) -> f32 {
        self
    }

    #[inline(always)]
    fn row<'a>(row: &'a [f32], _scratch: &'a mut [f32]) -> &'a [f32] {
        row
    }
}

/// BF16.
impl Cell for u16 {
    #[inline(always)]
    fn store(x: f32) -> u16 {
        f32_to_bf16(x)
    }

    #[inline(always)]
    fn load(self) -> f32 {
        bf16_to_f32(self)
    }

    #[inline(always)]
    fn row<'a>(row: &'a [u16], scratch: &'a mut [f32]) -> &'a [f32] {
        let scratch = &mut scratch[..row.len()];
        for (out, &cell) in scratch.iter_mut().zip(row) {
            *out = cell.load();
        }
        scratch
    }
}
