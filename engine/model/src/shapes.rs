//! Owns: the sizes that operations ask for, taken from the checkpoint's geometry.

use ss_backend::op::{Gate, GdnShape, PleShape, QsaShape, Streams};
use ss_checkpoint::{GateKind, Geometry};

/// Sizes of every family of operations.
#[derive(Clone, Copy, Debug)]
pub struct Shapes {
    /// Hyper-connection streams.
    pub streams: Streams,
    /// Gated DeltaNet.
    pub gdn: GdnShape,
    /// Sparse attention.
    pub qsa: QsaShape,
    /// n-gram injection.
    pub ple: PleShape,
}

impl Shapes {
    /// Sizes of a geometry.
    pub fn new(g: &Geometry) -> Self {
        let streams = Streams { count: g.streams, hidden: g.hidden };
        let gdn = GdnShape {
            key_heads: g.gdn_key_heads,
            value_heads: g.gdn_value_heads,
            key_dim: g.gdn_key_dim,
            value_dim: g.gdn_value_dim,
            kernel: g.gdn_conv,
            gate: match g.gate {
                GateKind::Sigmoid => Gate::Sigmoid,
                GateKind::Silu => Gate::Silu,
            },
            eps: g.eps,
        };
        let qsa = QsaShape {
            heads: g.heads,
            kv_heads: g.kv_heads,
            head_dim: g.head_dim,
            rotary: g.rotary,
            index_heads: g.index_heads,
            index_dim: g.index_dim,
            block: g.index_block,
            topk: g.index_topk,
            eps: g.eps,
        };
        let ple = PleShape { streams, kernel: g.ple_conv, dilation: g.ple_dilation(), eps: g.eps };
        Shapes { streams, gdn, qsa, ple }
    }
}
