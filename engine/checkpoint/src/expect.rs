//! Owns: the list of tensors that a geometry implies, with their shapes (checkpoint.md section 2).
//! Refuses: n-gram tables that do not split into equal shards.
//! Invariants: this list is the only place that knows a tensor's name and shape together.

use std::path::Path;

use crate::error::{Error, Result};
use crate::geometry::{Geometry, LayerKind};
use crate::ngram::NgramTables;

/// A tensor, or a group of tensors, that must be there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// A weight `[rows, cols]`, quantised or not.
    Linear { base: String, rows: u32, cols: u32 },
    /// The routed experts of a layer: gate and up `[inner, hidden]`, down `[hidden, inner]`, for each expert.
    Experts { base: String, experts: u32, inner: u32, hidden: u32 },
    /// A dense vector.
    Vector { name: String, length: u32 },
    /// A dense depthwise kernel, `[channels, taps, 1]` or `[channels, 1, taps]`: the same bytes.
    Taps { name: String, channels: u32, taps: u32 },
    /// Integers, which may be absent and must otherwise be these.
    Integers { name: String, values: Vec<u64> },
}

/// Everything the main model needs. `tables` are those of the PLE layers, in the order of `geometry.ple`.
pub(crate) fn main_model(geometry: &Geometry, tables: &[NgramTables], path: &Path) -> Result<Vec<Need>> {
    let mut list = List { geometry, needs: Vec::new() };
    list.linear("model.embed_tokens", geometry.vocab, geometry.hidden);
    list.linear("lm_head", geometry.vocab, geometry.hidden);
    list.mixer("model.hyper_connection_mixer");
    for (layer, kind) in geometry.layers.iter().enumerate() {
        list.layer(&format!("model.layers.{layer}"), *kind);
    }
    for (layer, tables) in geometry.ple.iter().zip(tables) {
        list.ple(&format!("model.layers.{layer}.ple"), tables, shard_rows(geometry, tables, path)?);
    }
    Ok(list.needs)
}

/// Everything the MTP layer needs (checkpoint.md section 5).
pub(crate) fn mtp(geometry: &Geometry) -> Vec<Need> {
    let mut list = List { geometry, needs: Vec::new() };
    list.vector("mtp.pre_fc_norm_embedding.weight", geometry.hidden);
    list.vector("mtp.pre_fc_norm_hidden.weight", geometry.stream_width());
    list.linear("mtp.fc_embedding", geometry.hidden, geometry.hidden);
    list.linear("mtp.fc_hidden", geometry.hidden, geometry.hidden);
    list.mixer("mtp.hyper_connection_mixer");
    list.layer("mtp.layers.0", LayerKind::Qsa);
    list.needs
}

/// The base name of a layer's routed experts; the number past the main layers is the MTP layer's.
pub(crate) fn experts_base(geometry: &Geometry, layer: usize) -> String {
    if layer == geometry.mtp_layer() { "mtp.layers.0.mlp".into() } else { format!("model.layers.{layer}.mlp") }
}

/// The base name of a shard of a PLE layer's table.
pub(crate) fn shard_base(layer: usize, shard: u32) -> String {
    format!("model.layers.{layer}.ple.ple_embedding.ngram_embedding.shard_{shard}")
}

fn shard_rows(geometry: &Geometry, tables: &NgramTables, path: &Path) -> Result<u32> {
    let shards = u64::from(geometry.ngram.shards);
    let rows = tables.rows / shards;
    match u32::try_from(rows) {
        Ok(rows) if tables.rows.is_multiple_of(shards) => Ok(rows),
        _ => Err(Error::Field {
            path: path.to_owned(),
            field: "text_config.split_ngram_parts".into(),
            expected: format!("a number of equal parts, each below 2^32 rows, of the {} n-gram rows", tables.rows),
            found: shards.to_string(),
        }),
    }
}

struct List<'a> {
    geometry: &'a Geometry,
    needs: Vec<Need>,
}

impl List<'_> {
    fn linear(&mut self, base: impl Into<String>, rows: u32, cols: u32) {
        self.needs.push(Need::Linear { base: base.into(), rows, cols });
    }

    fn vector(&mut self, name: impl Into<String>, length: u32) {
        self.needs.push(Need::Vector { name: name.into(), length });
    }

    fn mixer(&mut self, base: &str) {
        let (streams, lowrank) = (self.geometry.stream_width(), self.geometry.lowrank);
        self.vector(format!("{base}.hc_norm.weight"), streams);
        self.linear(format!("{base}.input_mix_weight_down"), lowrank, streams);
        self.linear(format!("{base}.input_mix_weight_up"), streams, lowrank);
    }

    fn layer(&mut self, base: &str, kind: LayerKind) {
        for half in ["attn", "mlp"] {
            let half = format!("{base}.{half}_hyper_connection");
            self.mixer(&half);
            self.linear(format!("{half}.block_inject_weight"), self.geometry.streams, self.geometry.stream_width());
        }
        match kind {
            LayerKind::Gdn => self.gdn(&format!("{base}.linear_attn")),
            LayerKind::Qsa => self.qsa(&format!("{base}.self_attn")),
        }
        self.moe(&format!("{base}.mlp"));
    }

    fn gdn(&mut self, base: &str) {
        let g = self.geometry;
        self.linear(format!("{base}.in_proj_qkv"), g.gdn_conv_width(), g.hidden);
        self.linear(format!("{base}.in_proj_z"), g.gdn_value_width(), g.hidden);
        self.linear(format!("{base}.in_proj_a"), g.gdn_value_heads, g.hidden);
        self.linear(format!("{base}.in_proj_b"), g.gdn_value_heads, g.hidden);
        self.linear(format!("{base}.out_proj"), g.hidden, g.gdn_value_width());
        let name = format!("{base}.conv1d.weight");
        self.needs.push(Need::Taps { name, channels: g.gdn_conv_width(), taps: g.gdn_conv });
        self.vector(format!("{base}.A_log"), g.gdn_value_heads);
        self.vector(format!("{base}.dt_bias"), g.gdn_value_heads);
        self.vector(format!("{base}.norm.weight"), g.gdn_value_dim);
    }

    fn qsa(&mut self, base: &str) {
        let g = self.geometry;
        // Each head's query is followed by its output gate.
        self.linear(format!("{base}.q_proj"), 2 * g.query_width(), g.hidden);
        self.linear(format!("{base}.k_proj"), g.kv_width(), g.hidden);
        self.linear(format!("{base}.v_proj"), g.kv_width(), g.hidden);
        self.linear(format!("{base}.o_proj"), g.hidden, g.query_width());
        self.linear(format!("{base}.indexer.index_qk_proj"), g.index_width(), g.hidden);
        self.vector(format!("{base}.q_norm.weight"), g.head_dim);
        self.vector(format!("{base}.k_norm.weight"), g.head_dim);
        self.vector(format!("{base}.indexer.q_layernorm.weight"), g.index_dim);
        self.vector(format!("{base}.indexer.k_layernorm.weight"), g.index_dim);
    }

    fn moe(&mut self, base: &str) {
        let g = self.geometry;
        self.linear(format!("{base}.gate"), g.experts, g.hidden);
        self.linear(format!("{base}.shared_expert.gate_proj"), g.shared_inner, g.hidden);
        self.linear(format!("{base}.shared_expert.up_proj"), g.shared_inner, g.hidden);
        self.linear(format!("{base}.shared_expert.down_proj"), g.hidden, g.shared_inner);
        self.linear(format!("{base}.shared_expert_gate"), 1, g.hidden);
        self.needs.push(Need::Experts { base: base.into(), experts: g.experts, inner: g.inner, hidden: g.hidden });
    }

    fn ple(&mut self, base: &str, tables: &NgramTables, shard_rows: u32) {
        let g = self.geometry;
        self.linear(format!("{base}.key_proj"), g.stream_width(), g.ple_dim);
        self.linear(format!("{base}.value_proj"), g.hidden, g.ple_dim);
        for norm in ["norm_key", "norm_query", "norm_conv"] {
            self.vector(format!("{base}.{norm}.weight"), g.stream_width());
        }
        let name = format!("{base}.conv1d.weight");
        self.needs.push(Need::Taps { name, channels: g.stream_width(), taps: g.ple_conv });
        let base = format!("{base}.ple_embedding");
        for shard in 0..g.ngram.shards {
            self.linear(format!("{base}.ngram_embedding.shard_{shard}"), shard_rows, g.ngram_row_width());
        }
        let integers = [
            ("layer_multipliers", &tables.multipliers),
            ("ngram_heads_vocab_sizes", &tables.sizes),
            ("ngram_heads_offsets", &tables.offsets),
        ];
        for (name, values) in integers {
            self.needs.push(Need::Integers { name: format!("{base}.{name}"), values: values.clone() });
        }
    }
}
