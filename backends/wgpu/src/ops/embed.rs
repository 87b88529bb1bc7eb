//! Owns: embedding rows (architecture.md section 5): `out[r, s, :] = table[ids[r], :]`, unrounded.
//! Invariants: a table larger than a binding is looked up in ranges of its rows, one dispatch each; an id past the table
//! leaves its row as it was.

use ss_backend::Result;
use ss_backend::op::Embed;

use crate::encoding::{Encoding, Launch, volume};
use crate::parts;
use crate::registry::{Kernel, Part, Product};
use crate::tuning::THREADS;

const EMBED: Kernel = Kernel {
    main: Part { file: "embed.wgsl", text: include_str!("../../../../wgsl/embed.wgsl") },
    operation: "Embed",
    parts: &[&parts::NUMBERS],
    weights: &["table"],
    product: Product::Numbers,
    section: "architecture.md 5",
    twin: "backends/reference/src/ops/embed.rs",
    tests: "backends/wgpu/src/selftest/hyper.rs",
    tuning: &["threads"],
};

/// The kernels of this family.
pub(crate) const KERNELS: &[&Kernel] = &[&EMBED];

/// Fills the streams of each row with its table row.
pub(crate) fn embed(enc: &mut Encoding<'_>, op: &Embed) -> Result<()> {
    let (rows, matrix) = (op.rows.count, op.table.matrix);
    enc.nonzero(&[("hidden", matrix.cols), ("copies", op.copies)])?;
    let ids = enc.view(&op.ids, "ids", volume(&[rows]))?;
    let table = enc.large_weight(&op.table, "table", matrix.rows, matrix.cols)?;
    let out = enc.view(&op.out, "out", volume(&[rows, op.copies, matrix.cols]))?;
    for range in enc.row_ranges(&table, "table")? {
        enc.launch(&Launch {
            kernel: &EMBED,
            constants: &[("THREADS", THREADS.value)],
            views: &[&ids, &out],
            weights: &[&range.weight],
            immediates: &[range.first, range.rows, op.copies],
            grid: [table.units().div_ceil(THREADS.value), rows, 1],
        })?;
    }
    Ok(())
}
