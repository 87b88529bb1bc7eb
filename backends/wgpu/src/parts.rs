//! Owns: the files of `wgsl/` that several kernels share.
//! Refuses: entry points; each lies beside the operation that it serves.

use crate::registry::Part;

/// Stored numbers and functions of one number.
pub(crate) const NUMBERS: Part = Part { file: "numbers.wgsl", text: include_str!("../../../wgsl/numbers.wgsl") };

/// The slot pool, all chunks at once.
pub(crate) const POOL_ARRAY: Part =
    Part { file: "pool_array.wgsl", text: include_str!("../../../wgsl/pool_array.wgsl") };

/// The slot pool, one chunk.
pub(crate) const POOL_CHUNK: Part =
    Part { file: "pool_chunk.wgsl", text: include_str!("../../../wgsl/pool_chunk.wgsl") };

/// A weight of 4-bit codes.
pub(crate) const WEIGHT_AFFINE4: Part =
    Part { file: "weight_affine4.wgsl", text: include_str!("../../../wgsl/weight_affine4.wgsl") };

/// A weight of 8-bit codes.
pub(crate) const WEIGHT_AFFINE8: Part =
    Part { file: "weight_affine8.wgsl", text: include_str!("../../../wgsl/weight_affine8.wgsl") };

/// A weight of BF16 or F16 numbers in rows of whole quads.
pub(crate) const WEIGHT_DENSE16: Part =
    Part { file: "weight_dense16.wgsl", text: include_str!("../../../wgsl/weight_dense16.wgsl") };

/// A weight of F32 numbers in rows of whole quads.
pub(crate) const WEIGHT_DENSE32: Part =
    Part { file: "weight_dense32.wgsl", text: include_str!("../../../wgsl/weight_dense32.wgsl") };

/// A dense weight with rows of any length.
pub(crate) const WEIGHT_LOOSE: Part =
    Part { file: "weight_loose.wgsl", text: include_str!("../../../wgsl/weight_loose.wgsl") };

/// Cells of the caches of sparse attention.
pub(crate) const QSA_CELLS: Part = Part { file: "qsa_cells.wgsl", text: include_str!("../../../wgsl/qsa_cells.wgsl") };

/// Memory of the decode form of products.
pub(crate) const GEMV: Part = Part { file: "gemv.wgsl", text: include_str!("../../../wgsl/gemv.wgsl") };

/// The decode form of products, once a weight.
pub(crate) const GEMV_WEIGHT: Part =
    Part { file: "gemv_weight.wgsl", text: include_str!("../../../wgsl/gemv_weight.wgsl") };

/// Memory of the prompt form of products.
pub(crate) const GEMM: Part = Part { file: "gemm.wgsl", text: include_str!("../../../wgsl/gemm.wgsl") };

/// The prompt form of products, once a weight.
pub(crate) const GEMM_WEIGHT: Part =
    Part { file: "gemm_weight.wgsl", text: include_str!("../../../wgsl/gemm_weight.wgsl") };
