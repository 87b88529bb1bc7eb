//! Owns: products of rows with one weight, `out[r, o] = W(o) . x[r]`, in both forms, and what fused products share.
//! Invariants: the form picks the kernel, never the number of rows; a weight larger than a binding is multiplied in ranges
//! of its outputs, which changes no sum.

use ss_backend::{Form, Result, Rows};

use crate::encoding::{Encoding, Launch, View, Weight};
use crate::parts;
use crate::registry::{Kernel, Part, Product};
use crate::tuning::{GemmTile, ROWS_AT_ONCE};

/// Decode form.
const LINEAR: Kernel = Kernel {
    main: Part { file: "linear.wgsl", text: include_str!("../../../../wgsl/linear.wgsl") },
    operation: "Head, and products that are not fused",
    parts: &[&parts::NUMBERS],
    weights: &["w"],
    product: Product::Gemv,
    section: "architecture.md 10",
    twin: "backends/reference/src/gemm.rs",
    tests: "backends/wgpu/src/selftest/hyper.rs",
    tuning: GEMV_TUNING,
};

/// Prompt form.
const LINEAR_PROMPT: Kernel = Kernel {
    main: Part { file: "linear_prompt.wgsl", text: include_str!("../../../../wgsl/linear_prompt.wgsl") },
    operation: "products of prompt rows",
    parts: &[&parts::NUMBERS, &parts::GEMM_TAKEN],
    product: Product::Gemm,
    tuning: &[],
    ..LINEAR
};

/// Rows of the tuning table that every kernel of the decode form uses.
pub(crate) const GEMV_TUNING: &[&str] =
    &["threads", "most lanes", "fewest steps", "most outputs of a lane", "fewest workgroups"];

/// Those that a kernel of several weights uses.
pub(crate) const BESIDE_TUNING: &[&str] =
    &["threads", "most lanes", "fewest steps", "most outputs of a lane", "most steps beside others"];

/// The kernels of this family.
pub(crate) const KERNELS: &[&Kernel] = &[&LINEAR, &LINEAR_PROMPT];

/// Rows inside a buffer.
#[derive(Clone, Debug)]
pub(crate) struct Strided<'a> {
    pub(crate) view: &'a View,
    /// Number at which row 0 begins.
    pub(crate) begin: u32,
    /// Numbers from a row to the next.
    pub(crate) pitch: u32,
}

impl<'a> Strided<'a> {
    /// Rows of `width` numbers, one after the other.
    pub(crate) fn rows(view: &'a View, width: u32) -> Self {
        Strided { view, begin: 0, pitch: width }
    }
}

/// Records `out[r] = weight x[r]`; in the prompt form inputs are rounded if the weight says so, and lie row by row from
/// `x.begin` on, a whole number of rows.
pub(crate) fn multiply(
    enc: &mut Encoding<'_>,
    rows: Rows,
    x: &Strided<'_>,
    weight: &Weight,
    out: &Strided<'_>,
) -> Result<()> {
    for range in enc.row_ranges(weight, "weight")? {
        let out_begin = out.begin + range.first;
        let (kernel, immediates, grid) = match rows.form {
            Form::Generated => {
                let grid = gemv_grid(rows.count, weight.tiles(range.rows));
                (&LINEAR, vec![rows.count, range.rows, x.begin, x.pitch, out_begin, out.pitch], grid)
            }
            Form::Prompt => {
                // Rows of inputs lie one after the other there.
                let first = x.begin / weight.matrix.cols;
                let grid = gemm_grid(rows.count, range.rows, weight.tile);
                (&LINEAR_PROMPT, vec![rows.count, range.rows, first, out_begin, out.pitch], grid)
            }
        };
        enc.launch(&Launch {
            kernel,
            constants: &[],
            views: &[x.view, out.view],
            weights: &[&range.weight],
            immediates: &immediates,
            grid,
        })?;
    }
    Ok(())
}

/// Workgroups of a decode form with so many tiles of outputs.
pub(crate) fn gemv_grid(rows: u32, tiles: u32) -> [u32; 3] {
    [tiles, rows.div_ceil(ROWS_AT_ONCE), 1]
}

/// Workgroups of a prompt form.
pub(crate) fn gemm_grid(rows: u32, outputs: u32, tile: GemmTile) -> [u32; 3] {
    [outputs.div_ceil(tile.outputs), rows.div_ceil(tile.rows), 1]
}
