//! Owns: the configuration of the checkpoint to be made: whose geometry, how many layers, how large a table of n-grams.
//! Refuses: files that are no configuration; what the engine does not support it refuses itself.
//! Invariants: layers are cut or added in the model's own pattern; a table stays with its layer, or goes with it.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use ss_checkpoint::{Geometry, imitation};

use crate::error::{Error, Result};

/// Whose geometry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The released model's: 48 layers of 512 experts, 104 GB.
    Released,
    /// A small one in the proportions of flash-next-nano: 8 layers of 64 experts, 20 MB.
    NanoLike,
    /// That of a `config.json`, or of the one in a model directory.
    File(PathBuf),
}

/// What is changed in a configuration.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Changes {
    /// Main layers.
    pub layers: Option<u32>,
    /// Rows of each n-gram table, about.
    pub ngram_rows: Option<u64>,
}

impl Source {
    /// Where the configuration comes from, for messages.
    pub(crate) fn path(&self) -> PathBuf {
        match self {
            Source::File(path) if path.is_dir() => path.join("config.json"),
            Source::File(path) => path.clone(),
            _ => PathBuf::from("config.json"),
        }
    }

    /// The configuration, changed.
    pub(crate) fn config(&self, changes: Changes) -> Result<Value> {
        let path = self.path();
        let mut config = match self {
            Source::Released => imitation::released_config(),
            Source::NanoLike => nano_like(),
            Source::File(_) => read(&path)?,
        };
        let part = if config.get("text_config").is_some() { config.get_mut("text_config") } else { Some(&mut config) };
        let Some(text) = part.and_then(Value::as_object_mut) else {
            return Err(Error::Config { path, found: "text_config is not an object".into() });
        };
        if let Some(layers) = changes.layers {
            set_layers(text, layers as usize, &path)?;
        }
        if let Some(rows) = changes.ngram_rows {
            set_rows(text, rows);
        }
        // What the engine refuses is refused in its words.
        let geometry = Geometry::from_config(&config, &path)?;
        quantize(&mut config, &geometry);
        Ok(config)
    }
}

fn read(path: &Path) -> Result<Value> {
    let text = std::fs::read(path).map_err(|cause| Error::io(path, "read", cause))?;
    let wrong = |found: String| Error::Config { path: path.to_owned(), found };
    let config: Value = serde_json::from_slice(&text).map_err(|cause| wrong(format!("not JSON: {cause}")))?;
    if config.is_object() { Ok(config) } else { Err(wrong("not an object".into())) }
}

/// Cuts the layers, or goes on in their pattern; n-gram layers that are cut off go.
fn set_layers(text: &mut Map<String, Value>, layers: usize, path: &Path) -> Result<()> {
    if let Some(kinds) = text.get("layer_types") {
        let Some(kinds) = kinds.as_array().filter(|kinds| !kinds.is_empty()) else {
            return Err(Error::Config { path: path.to_owned(), found: "layer_types is not a list of layers".into() });
        };
        let period = period(kinds);
        let kinds: Vec<Value> = (0..layers).filter_map(|layer| kinds.get(layer % period).cloned()).collect();
        text.insert("layer_types".into(), kinds.into());
    }
    text.insert("num_hidden_layers".into(), layers.into());
    if let Some(Value::Array(ids)) = text.get_mut("ple_layer_ids") {
        // Counted from one; what is no number is left for the engine to refuse.
        ids.retain(|id| id.as_u64().is_none_or(|id| id <= layers as u64));
    }
    Ok(())
}

/// The shortest run of layers that the whole list repeats.
fn period(kinds: &[Value]) -> usize {
    let repeats = |period: &usize| kinds.iter().zip(kinds.iter().skip(*period)).all(|(a, b)| a == b);
    (1..kinds.len()).find(repeats).unwrap_or(kinds.len())
}

/// Shrinks or grows the tables; their sizes are primes, so the rows come out a little more.
fn set_rows(text: &mut Map<String, Value>, rows: u64) {
    let number = |name: &str| text.get(name).and_then(Value::as_u64);
    let heads = number("ngram_size")
        .zip(number("heads_per_ngram"))
        .map_or(1, |(order, heads)| order.saturating_sub(1).saturating_mul(heads).max(1));
    text.insert("ngram_vocab_size_base".into(), (rows / heads).max(2).into());
}

/// Gives a configuration without quantisation the released one's, and each n-gram shard an entry of its own.
fn quantize(config: &mut Value, geometry: &Geometry) {
    let names = ["quantization", "quantization_config"];
    let given = names.iter().find_map(|name| config.get(name).and_then(Value::as_object).cloned());
    let mut part =
        given.unwrap_or_else(|| Map::from_iter([("group_size".into(), 64.into()), ("bits".into(), 4.into())]));
    let shard =
        |layer: usize, shard: u32| format!("model.layers.{layer}.ple.ple_embedding.ngram_embedding.shard_{shard}");
    let plain = |name: &str| name.strip_prefix("language_model.").unwrap_or(name).to_owned();
    let wanted: Vec<String> =
        geometry.ple.iter().flat_map(|&layer| (0..geometry.ngram.shards).map(move |part| shard(layer, part))).collect();
    part.retain(|name, _| !name.contains(".ngram_embedding.") || wanted.contains(&plain(name)));
    let known: Vec<String> = part.keys().map(|name| plain(name)).collect();
    for name in wanted.into_iter().filter(|name| !known.contains(name)) {
        part.insert(name, json!({ "group_size": 32, "bits": 4 }));
    }
    if let Some(root) = config.as_object_mut() {
        names.into_iter().for_each(|name| _ = root.insert(name.into(), Value::Object(part.clone())));
    }
}

/// The released configuration with the dimensions of a model that a test can run.
fn nano_like() -> Value {
    let mut config = imitation::released_config();
    let smaller = json!({
        "vocab_size": 4096, "hidden_size": 256, "num_hidden_layers": 8, "max_position_embeddings": 4096,
        "num_attention_heads": 6, "head_dim": 64, "linear_num_key_heads": 2, "linear_num_value_heads": 6,
        "linear_key_head_dim": 64, "linear_value_head_dim": 64, "indexer_head_dim": 32, "indexer_budget": 64,
        "num_experts": 64, "num_experts_per_tok": 6, "moe_intermediate_size": 64, "shared_expert_intermediate_size": 64,
        "hc_lowrank": 64, "ple_embed_dim": 768, "heads_per_ngram": 4, "ngram_vocab_size_base": 4000,
        "split_ngram_parts": 8, "eos_token_id": 4070, "bos_token_id": 4070,
    });
    let ids = json!({
        "image_token_id": 4082, "video_token_id": 4083, "vision_start_token_id": 4079, "vision_end_token_id": 4080,
    });
    let changed = |into: Option<&mut Value>, from: &Value| {
        if let (Some(Value::Object(into)), Value::Object(from)) = (into, from) {
            into.extend(from.clone());
        }
    };
    changed(Some(&mut config), &ids);
    if let Some(text) = config.get_mut("text_config") {
        changed(Some(text), &smaller);
        changed(text.get_mut("rope_parameters"), &json!({ "mrope_section": [3, 3, 2] }));
        if let Some(Value::Array(kinds)) = text.get_mut("layer_types") {
            kinds.truncate(8);
        }
    }
    if let Some(root) = config.as_object_mut() {
        // No vision tower, as nano has none; entries of shards are made anew.
        root.retain(|name, _| !matches!(name.as_str(), "vision_config" | "quantization" | "quantization_config"));
    }
    config
}

#[cfg(test)]
mod tests {
    use super::*;
    use ss_checkpoint::LayerKind;

    fn geometry(source: &Source, layers: u32) -> Geometry {
        let config = source.config(Changes { layers: Some(layers), ngram_rows: None }).unwrap();
        Geometry::from_config(&config, Path::new("config.json")).unwrap()
    }

    #[test]
    fn layers_are_cut_and_added_in_the_models_pattern() {
        for layers in [1, 2, 4, 6, 48, 50] {
            let geometry = geometry(&Source::Released, layers);
            let kinds: Vec<LayerKind> =
                (0..layers).map(|l| if l % 4 == 3 { LayerKind::Qsa } else { LayerKind::Gdn }).collect();
            assert_eq!(geometry.layers, kinds);
            assert_eq!(geometry.ple, if layers < 2 { vec![] } else { vec![1] });
        }
        assert!(geometry(&Source::Released, 48).is_released());
    }

    #[test]
    fn the_small_geometry_is_supported() {
        let geometry = geometry(&Source::NanoLike, 8);
        assert_eq!((geometry.experts, geometry.choices, geometry.hidden), (64, 6, 256));
    }

    #[test]
    fn the_table_takes_the_rows_that_are_asked_for() {
        let config = Source::Released.config(Changes { layers: None, ngram_rows: Some(160_000) }).unwrap();
        let geometry = Geometry::from_config(&config, Path::new("config.json")).unwrap();
        let rows = ss_checkpoint::NgramTables::new(&geometry.ngram, geometry.vocab, 0).rows;
        assert!((160_000..164_000).contains(&rows), "{rows}");
    }
}
