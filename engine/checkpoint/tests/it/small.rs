//! Owns: the small model that the other tests break: four layers, 32 wide, with n-gram rows, vision and an MTP layer.
//! Refuses: nothing.
//! Invariants: as written it opens; every change a test makes is one of its own.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use ss_checkpoint::imitation::{self, Tensor};
use ss_checkpoint::{Checkpoint, Result};

/// A model that can be changed before it is written.
pub struct Small {
    folder: tempfile::TempDir,
    pub config: Value,
    pub tensors: Vec<Tensor>,
    pub mtp: Vec<Tensor>,
}

/// The configuration: hidden 64, experts 8 of 64, one PLE layer, three shards of n-gram rows.
pub fn config() -> Value {
    let mut config = imitation::released_config();
    let text = config["text_config"].as_object_mut().unwrap();
    let smaller = json!({
        "vocab_size": 320, "hidden_size": 64, "num_hidden_layers": 4,
        "layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention"],
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64,
        "linear_num_key_heads": 1, "linear_key_head_dim": 32, "linear_num_value_heads": 2, "linear_value_head_dim": 32,
        "indexer_n_heads": 2, "indexer_head_dim": 32, "indexer_budget": 64,
        "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 64, "shared_expert_intermediate_size": 64,
        "hc_count": 2, "hc_lowrank": 64, "ple_embed_dim": 128, "heads_per_ngram": 2, "ngram_vocab_size_base": 100,
        "make_ngram_vocab_size_divisible_by": 12, "split_ngram_parts": 3, "eos_token_id": 300, "bos_token_id": 300,
        "max_position_embeddings": 4096,
    });
    text.extend(smaller.as_object().unwrap().clone());
    text["rope_parameters"]["mrope_section"] = json!([3, 3, 2]);
    let vision = config["vision_config"].as_object_mut().unwrap();
    vision.extend(
        json!({ "depth": 1, "hidden_size": 32, "intermediate_size": 48, "out_hidden_size": 64 })
            .as_object()
            .unwrap()
            .clone(),
    );
    let overrides = |shard| {
        (
            format!("model.layers.1.ple.ple_embedding.ngram_embedding.shard_{shard}"),
            json!({ "group_size": 32, "bits": 4 }),
        )
    };
    let mut quantization = json!({ "group_size": 64, "bits": 4 });
    quantization.as_object_mut().unwrap().extend((0..3).map(overrides));
    config["quantization"] = quantization;
    config.as_object_mut().unwrap().shift_remove("quantization_config");
    config
}

impl Small {
    pub fn new() -> Small {
        let config = config();
        let tensors = imitation::main_tensors(&config).unwrap();
        let mtp = imitation::mtp_tensors(&config).unwrap();
        Small { folder: tempfile::tempdir().unwrap(), config, tensors, mtp }
    }

    pub fn dir(&self) -> &Path {
        self.folder.path()
    }

    pub fn path(&self, file: &str) -> PathBuf {
        self.dir().join(file)
    }

    /// A tensor by the end of its name.
    pub fn tensor(&mut self, ending: &str) -> &mut Tensor {
        self.tensors.iter_mut().chain(&mut self.mtp).find(|tensor| tensor.name.ends_with(ending)).unwrap()
    }

    /// Removes the tensors whose names end so.
    pub fn remove(&mut self, ending: &str) {
        let before = self.tensors.len() + self.mtp.len();
        self.tensors.retain(|tensor| !tensor.name.ends_with(ending));
        self.mtp.retain(|tensor| !tensor.name.ends_with(ending));
        assert!(self.tensors.len() + self.mtp.len() < before, "{ending}");
    }

    /// Writes three shards, the index and `mtp.safetensors`.
    pub fn write(&self) {
        let total: u64 = self.tensors.iter().map(Tensor::bytes).sum();
        imitation::write_checkpoint(self.dir(), &self.config, &imitation::split(&self.tensors, total / 2)).unwrap();
        if !self.mtp.is_empty() {
            imitation::write_safetensors(&self.path("mtp.safetensors"), &self.mtp).unwrap();
        }
    }

    pub fn open(&self) -> Result<Checkpoint> {
        Checkpoint::open(self.dir())
    }

    /// Changes a written JSON file.
    pub fn edit(&self, file: &str, change: impl FnOnce(&mut Value)) {
        let mut json = serde_json::from_slice(&fs::read(self.path(file)).unwrap()).unwrap();
        change(&mut json);
        imitation::write_json(&self.path(file), &json).unwrap();
    }

    /// Changes the header of a written weight file, keeping its data.
    pub fn edit_header(&self, file: &str, change: impl FnOnce(&mut Value)) {
        let (header, data) = self.header(file);
        let mut json = serde_json::from_str(&header).unwrap();
        change(&mut json);
        self.write_header(file, &json.to_string(), &data);
    }

    /// The header's text and the data behind it.
    pub fn header(&self, file: &str) -> (String, Vec<u8>) {
        let bytes = fs::read(self.path(file)).unwrap();
        let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        (String::from_utf8(bytes[8..8 + length].to_vec()).unwrap(), bytes[8 + length..].to_vec())
    }

    /// Puts a weight file together again.
    pub fn write_header(&self, file: &str, header: &str, data: &[u8]) {
        let bytes = [&(header.len() as u64).to_le_bytes(), header.as_bytes(), data].concat();
        fs::write(self.path(file), bytes).unwrap();
    }
}

#[test]
fn the_small_model_opens_and_is_whole() {
    let small = Small::new();
    small.write();
    let checkpoint = small.open().unwrap();
    assert!(checkpoint.has_mtp() && checkpoint.has_vision());
    assert_eq!(checkpoint.files().len(), 4);
    assert_eq!(checkpoint.warnings(), [] as [&str; 0]);
}
