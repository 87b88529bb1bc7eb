//! Owns: what is published about the released checkpoint: its configuration (architecture.md section 1) and its byte sums
//! (checkpoint.md).
//! Refuses: nothing.
//! Invariants: figures are the published ones, copied, not computed; they are what computation is held against.

use serde::Serialize;
use serde_json::{Map, Value, json};

/// Sums over a checkpoint's main files, without `mtp.safetensors`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// Number of tensors.
    pub tensors: u64,
    /// Bytes of the trunk.
    pub resident: u64,
    /// Bytes of routed experts.
    pub experts: u64,
    /// Bytes of n-gram rows.
    pub ngram: u64,
    /// Bytes of the vision tower.
    pub vision: u64,
    /// Bytes of all tensors.
    pub total: u64,
}

/// The sums of `pipenetwork/Qwen3.8-Flash-Next-MLX-4bit`.
pub const RELEASED: Totals = Totals {
    tensors: 3_215,
    resident: 2_924_005_400,
    experts: 67_947_724_800,
    ngram: 32_000_153_600,
    vision: 897_862_112,
    total: 103_769_745_912,
};

/// The released configuration, as far as it is published.
pub(crate) fn config() -> Value {
    let quantization = quantization();
    json!({
        "architectures": ["Qwen4ExpForConditionalGeneration"],
        "model_type": "qwen4_exp",
        "image_token_id": 248_056,
        "video_token_id": 248_057,
        "vision_start_token_id": 248_053,
        "vision_end_token_id": 248_054,
        "tie_word_embeddings": false,
        "text_config": text_config(),
        "vision_config": vision_config(),
        "quantization": quantization,
        "quantization_config": quantization,
    })
}

fn text_config() -> Value {
    const LAYERS: usize = 48;
    let kind = |layer: usize| if layer % 4 == 3 { "full_attention" } else { "linear_attention" };
    let layer_types: Vec<&str> = (0..LAYERS).map(kind).collect();
    let trunk = json!({
        "model_type": "qwen4_exp_text",
        "vocab_size": 248_320,
        "hidden_size": 2560,
        "num_hidden_layers": LAYERS,
        "layer_types": layer_types,
        "full_attention_interval": 4,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "max_position_embeddings": 262_144,
        "num_attention_heads": 24,
        "num_key_value_heads": 2,
        "head_dim": 256,
        "attention_bias": false,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10_000_000,
            "partial_rotary_factor": 0.25,
            "mrope_section": [11, 11, 10],
            "mrope_interleaved": true,
        },
    });
    let mixers = json!({
        "linear_num_key_heads": 16,
        "linear_key_head_dim": 128,
        "linear_num_value_heads": 48,
        "linear_value_head_dim": 128,
        "linear_conv_kernel_dim": 4,
        "mamba_ssm_dtype": "float32",
        "output_gate_type": "sigmoid",
        "indexer_n_heads": 4,
        "indexer_kv_heads": 1,
        "indexer_head_dim": 128,
        "indexer_budget": 2048,
        "indexer_compress_ratio": 4,
    });
    let rest = json!({
        "num_experts": 512,
        "num_experts_per_tok": 10,
        "moe_intermediate_size": 640,
        "shared_expert_intermediate_size": 640,
        "norm_topk_prob": true,
        "hc_count": 4,
        "hc_lowrank": 320,
        "ple_layer_ids": [2],
        "ple_embed_dim": 2560,
        "ple_conv_kernel_size": 4,
        "ngram_size": 3,
        "heads_per_ngram": 8,
        "ngram_vocab_size_base": 20_000_000,
        "make_ngram_vocab_size_divisible_by": 128,
        "split_ngram_parts": SHARDS,
        "eos_token_id": 248_044,
        "bos_token_id": 248_044,
        "mtp_num_hidden_layers": 1,
        "mtp_use_dedicated_embeddings": false,
        "tie_word_embeddings": false,
    });
    let parts = [trunk, mixers, rest].into_iter().filter_map(|part| part.as_object().cloned());
    Value::Object(parts.flatten().collect())
}

fn vision_config() -> Value {
    json!({
        "model_type": "qwen4_exp",
        "depth": 27,
        "hidden_size": 1152,
        "num_heads": 16,
        "intermediate_size": 4304,
        "patch_size": 16,
        "temporal_patch_size": 2,
        "spatial_merge_size": 2,
        "in_channels": 3,
        "num_position_embeddings": 2304,
        "out_hidden_size": 2560,
        "hidden_act": "gelu_pytorch_tanh",
        "deepstack_visual_indexes": [],
    })
}

/// Parts of the n-gram table.
const SHARDS: u32 = 128;

fn quantization() -> Value {
    let mut map = Map::from_iter([("group_size".to_owned(), json!(64)), ("bits".to_owned(), json!(4))]);
    for shard in 0..SHARDS {
        map.insert(crate::expect::shard_base(1, shard), json!({ "group_size": 32, "bits": 4 }));
    }
    Value::Object(map)
}

impl crate::Geometry {
    /// Whether this is the released model's geometry.
    pub fn is_released(&self) -> bool {
        Self::from_config(&config(), std::path::Path::new("config.json")).is_ok_and(|known| known == *self)
    }
}
