//! Owns: which of the two norm conventions a file follows (architecture.md section 3).
//! Refuses: nothing; every file follows one of the two.
//! Invariants: outside this crate a centred norm's weight is always `1 + w'`; who reads through the crate never adds one.

use serde::Serialize;

use crate::catalogue::Naming;

/// What the weights of centred norms are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum NormConvention {
    /// `1 + w'`, as the MLX conversion stores them.
    Folded,
    /// The deviation from one, `w'`, as the original stores them; one is added when they are read.
    Raw,
}

/// Between the two: folded weights lie around one, raw ones around zero.
pub(crate) const BORDER: f32 = 0.5;

impl NormConvention {
    /// Recognised by the names, else by a vote of all `hc_norm` weights: the share that lies above [`BORDER`]. A mean could
    /// be turned by a single number.
    pub(crate) fn recognise(naming: Naming, share: f64) -> Self {
        if naming == Naming::HuggingFace || share < 0.5 { NormConvention::Raw } else { NormConvention::Folded }
    }
}

/// Whether a tensor is the weight of a grouped hyper-connection norm.
pub(crate) fn is_stream_norm(name: &str) -> bool {
    name.ends_with(".hc_norm.weight")
}

/// Whether a tensor is the weight of a centred norm: one whose raw form is a deviation from one.
pub(crate) fn is_centred(name: &str) -> bool {
    const ENDINGS: [&str; 10] = [
        ".hc_norm.weight",
        ".self_attn.q_norm.weight",
        ".self_attn.k_norm.weight",
        ".indexer.q_layernorm.weight",
        ".indexer.k_layernorm.weight",
        ".ple.norm_key.weight",
        ".ple.norm_query.weight",
        ".ple.norm_conv.weight",
        "mtp.pre_fc_norm_embedding.weight",
        "mtp.pre_fc_norm_hidden.weight",
    ];
    ENDINGS.iter().any(|ending| name.ends_with(ending))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_decide_first_and_values_second() {
        assert_eq!(NormConvention::recognise(Naming::HuggingFace, 1.0), NormConvention::Raw);
        assert_eq!(NormConvention::recognise(Naming::Mlx, 0.02), NormConvention::Raw);
        assert_eq!(NormConvention::recognise(Naming::Mlx, 0.97), NormConvention::Folded);
    }

    #[test]
    fn the_delta_net_output_norm_is_not_centred() {
        assert!(!is_centred("model.layers.0.linear_attn.norm.weight"));
        assert!(is_centred("model.layers.3.self_attn.indexer.k_layernorm.weight"));
        assert!(is_centred("mtp.pre_fc_norm_hidden.weight"));
        assert!(!is_centred("vision_tower.merger.norm.weight"));
    }
}
