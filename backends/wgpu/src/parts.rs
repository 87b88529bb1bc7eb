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

/// The slot at hand.
pub(crate) const SLOT: Part = Part { file: "slot.wgsl", text: include_str!("../../../wgsl/slot.wgsl") };

/// A weight in the slot at hand.
pub(crate) const SLOT_WEIGHT: Part =
    Part { file: "slot_weight.wgsl", text: include_str!("../../../wgsl/slot_weight.wgsl") };

/// An affine weight in buffers of its own.
pub(crate) const BOUND_AFFINE: Part =
    Part { file: "bound_affine.wgsl", text: include_str!("../../../wgsl/bound_affine.wgsl") };

/// Two affine weights of one shape, read as one.
pub(crate) const BOUND_HALVES: Part =
    Part { file: "bound_halves.wgsl", text: include_str!("../../../wgsl/bound_halves.wgsl") };

/// A dense weight with rows of whole quads in a buffer of its own.
pub(crate) const BOUND_QUADS: Part =
    Part { file: "bound_quads.wgsl", text: include_str!("../../../wgsl/bound_quads.wgsl") };

/// A dense weight with rows of any length in a buffer of its own.
pub(crate) const BOUND_WORDS: Part =
    Part { file: "bound_words.wgsl", text: include_str!("../../../wgsl/bound_words.wgsl") };

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

/// The last of several workgroups.
pub(crate) const TICKET: Part = Part { file: "ticket.wgsl", text: include_str!("../../../wgsl/ticket.wgsl") };

/// The choices of a router.
pub(crate) const ROUTE_TOPK: Part =
    Part { file: "route_topk.wgsl", text: include_str!("../../../wgsl/route_topk.wgsl") };

/// The slots of what a router chose.
pub(crate) const ROUTE_SLOTS: Part =
    Part { file: "route_slots.wgsl", text: include_str!("../../../wgsl/route_slots.wgsl") };

/// What all kernels of attention share.
pub(crate) const QSA_ATTENDED: Part =
    Part { file: "qsa_attended.wgsl", text: include_str!("../../../wgsl/qsa_attended.wgsl") };

/// Queries of attention without matrix units.
pub(crate) const QSA_QUERIES: Part =
    Part { file: "qsa_queries.wgsl", text: include_str!("../../../wgsl/qsa_queries.wgsl") };

/// Attention with matrix units of either size.
pub(crate) const QSA_ATTEND_UNITS: Part =
    Part { file: "qsa_attend_units.wgsl", text: include_str!("../../../wgsl/qsa_attend_units.wgsl") };

/// The walk over pairs in the order of their slots.
pub(crate) const EXPERTS_WALK: Part =
    Part { file: "experts_walk.wgsl", text: include_str!("../../../wgsl/experts_walk.wgsl") };

/// What both kernels of the first half of the experts share.
pub(crate) const EXPERTS_IN_SHARED: Part =
    Part { file: "experts_in_shared.wgsl", text: include_str!("../../../wgsl/experts_in_shared.wgsl") };

/// What both kernels of the largest logits share.
pub(crate) const TOP_SHARED: Part =
    Part { file: "top_shared.wgsl", text: include_str!("../../../wgsl/top_shared.wgsl") };

/// Memory of the decode form of products.
pub(crate) const GEMV: Part = Part { file: "gemv.wgsl", text: include_str!("../../../wgsl/gemv.wgsl") };

/// How the decode form of products is spread, once a weight.
pub(crate) const GEMV_SPREAD: Part =
    Part { file: "gemv_spread.wgsl", text: include_str!("../../../wgsl/gemv_spread.wgsl") };

/// The decode form of products, once a weight.
pub(crate) const GEMV_WEIGHT: Part =
    Part { file: "gemv_weight.wgsl", text: include_str!("../../../wgsl/gemv_weight.wgsl") };

/// Where the lanes of the part after this are added.
pub(crate) const GEMV_SUMS: Part = Part { file: "gemv_sums.wgsl", text: include_str!("../../../wgsl/gemv_sums.wgsl") };

/// The same where a row is few units.
pub(crate) const GEMV_WALK: Part = Part { file: "gemv_walk.wgsl", text: include_str!("../../../wgsl/gemv_walk.wgsl") };

/// The first half of an expert, prompt form.
pub(crate) const SWIGLU_ROWS: Part =
    Part { file: "swiglu_rows.wgsl", text: include_str!("../../../wgsl/swiglu_rows.wgsl") };

/// A tile of the prompt form of products.
pub(crate) const GEMM_TILE: Part = Part { file: "gemm_tile.wgsl", text: include_str!("../../../wgsl/gemm_tile.wgsl") };

/// How sums of it are taken one by one.
pub(crate) const GEMM_TAKEN: Part =
    Part { file: "gemm_taken.wgsl", text: include_str!("../../../wgsl/gemm_taken.wgsl") };

/// Its size where a GPU multiplies.
pub(crate) const GEMM_LARGE: Part =
    Part { file: "gemm_large.wgsl", text: include_str!("../../../wgsl/gemm_large.wgsl") };

/// Its size where a processor does.
pub(crate) const GEMM_SMALL: Part =
    Part { file: "gemm_small.wgsl", text: include_str!("../../../wgsl/gemm_small.wgsl") };

/// Sums of the prompt form of products.
pub(crate) const GEMM: Part = Part { file: "gemm.wgsl", text: include_str!("../../../wgsl/gemm.wgsl") };

/// Rows of a tile with matrix units where many rows meet many outputs.
pub(crate) const UNITS_TALL: Part =
    Part { file: "units_tall.wgsl", text: include_str!("../../../wgsl/units_tall.wgsl") };

/// The same where few rows or few outputs meet.
pub(crate) const UNITS_LOW: Part = Part { file: "units_low.wgsl", text: include_str!("../../../wgsl/units_low.wgsl") };

/// Sums of the prompt form of products with matrix units.
pub(crate) const GEMM_UNITS: Part =
    Part { file: "gemm_units.wgsl", text: include_str!("../../../wgsl/gemm_units.wgsl") };

/// Matrices of 8 x 8.
pub(crate) const UNITS_8: Part = Part { file: "units_8.wgsl", text: include_str!("../../../wgsl/units_8.wgsl") };

/// Matrices of 16 x 16.
pub(crate) const UNITS_16: Part = Part { file: "units_16.wgsl", text: include_str!("../../../wgsl/units_16.wgsl") };

/// Inputs of the prompt form of products in rows of whole quads.
pub(crate) const INPUTS_QUADS: Part =
    Part { file: "inputs_quads.wgsl", text: include_str!("../../../wgsl/inputs_quads.wgsl") };

/// Inputs of the prompt form of products in rows of any length.
pub(crate) const INPUTS_LOOSE: Part =
    Part { file: "inputs_loose.wgsl", text: include_str!("../../../wgsl/inputs_loose.wgsl") };

/// Blocks on their way to a large tile, once a weight.
pub(crate) const GEMM_AHEAD: Part =
    Part { file: "gemm_ahead.wgsl", text: include_str!("../../../wgsl/gemm_ahead.wgsl") };

/// Blocks on their way to a small tile, once a weight.
pub(crate) const GEMM_DIRECT: Part =
    Part { file: "gemm_direct.wgsl", text: include_str!("../../../wgsl/gemm_direct.wgsl") };

/// The prompt form of products, once a weight.
pub(crate) const GEMM_WEIGHT: Part =
    Part { file: "gemm_weight.wgsl", text: include_str!("../../../wgsl/gemm_weight.wgsl") };
