//! Owns: what is told of a checkpoint: its size, its name of itself, an identity of its weights.
//! Invariants: an identity follows from names, sizes and shapes alone, so that starting does not read a hundred gigabytes.

use std::time::UNIX_EPOCH;

use serde_json::Value;
use ss_checkpoint::{Checkpoint, Dtype, TensorInfo};
use xxhash_rust::xxh3::Xxh3;

use crate::engine::Facts;

/// What a checkpoint says of itself.
pub fn facts(checkpoint: &Checkpoint) -> Facts {
    let config = checkpoint.config();
    let mut hash = Xxh3::new();
    hash.update(config.to_string().as_bytes());
    let (mut bytes, mut modified) = (0, 0);
    for file in checkpoint.files() {
        hash.update(file.path().file_name().map_or(&[][..], |name| name.as_encoded_bytes()));
        if let Ok(metadata) = std::fs::metadata(file.path()) {
            bytes += metadata.len();
            hash.update(&metadata.len().to_le_bytes());
            let written = metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
            modified = modified.max(written.map_or(0, |time| time.as_secs()));
        }
    }
    let digest = hash.digest128();
    Facts {
        bytes,
        modified,
        digest: format!("{digest:032x}{:032x}", digest.rotate_left(64)),
        architecture: config["model_type"].as_str().unwrap_or("unknown").to_owned(),
        parameters: parameters(checkpoint),
        quantization: quantization(config),
        ..Facts::default()
    }
}

/// The number of weights, in words.
fn parameters(checkpoint: &Checkpoint) -> String {
    if checkpoint.geometry().is_released() {
        return "176B".to_owned();
    }
    let bits = checkpoint.config()["quantization"]["bits"].as_u64().unwrap_or(16).max(1);
    let weights = |(name, tensor): (&str, &TensorInfo)| match tensor.dtype {
        // Codes lie in words; what belongs to them is no weight of its own.
        Dtype::U32 => tensor.shape.iter().product::<u64>() * 32 / bits,
        _ if name.ends_with(".scales") || name.ends_with(".biases") => 0,
        _ => tensor.shape.iter().product(),
    };
    let count: u64 = checkpoint.tensors().map(weights).sum();
    match count {
        1_000_000_000.. => format!("{}B", count / 1_000_000_000),
        1_000_000.. => format!("{}M", count / 1_000_000),
        _ => format!("{count}"),
    }
}

fn quantization(config: &Value) -> String {
    match config["quantization"]["bits"].as_u64() {
        Some(bits) => format!("{bits}-bit"),
        None => "none".to_owned(),
    }
}
