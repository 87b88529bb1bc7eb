//! Owns: writing checkpoints that have everything but weights: support for tests, and for `ss inspect` without 104 GB.
//! Refuses: geometries that the engine refuses.
//! Invariants: names, shapes, types and sizes are those of checkpoint.md; files are sparse, so that the released imitation
//! takes a few megabytes of disk where the file system has holes. Integer buffers are right, norms are one, all else is zero.

use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;

use serde_json::{Map, Value, json};

use crate::catalogue::{INDEX, MTP};
use crate::config::Fields;
use crate::error::{Error, Result};
use crate::expect::{self, Need};
use crate::geometry::Geometry;
use crate::header::Dtype;
use crate::ngram::NgramTables;
use crate::released;

/// A tensor to be written.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// Its name in the file.
    pub name: String,
    /// Element type.
    pub dtype: Dtype,
    /// Dimensions, outermost first.
    pub shape: Vec<u64>,
    /// Its bytes; None leaves a hole, which reads as zeros.
    pub content: Option<Vec<u8>>,
}

impl Tensor {
    /// A tensor of zeros.
    pub fn zeros(name: impl Into<String>, dtype: Dtype, shape: impl Into<Vec<u64>>) -> Tensor {
        Tensor { name: name.into(), dtype, shape: shape.into(), content: None }
    }

    /// Bytes of the tensor.
    pub fn bytes(&self) -> u64 {
        self.shape.iter().product::<u64>() * self.dtype.bytes()
    }
}

/// The released configuration, as far as it is published.
pub fn released_config() -> Value {
    released::config()
}

/// Writes an imitation of the released checkpoint: `config.json`, the index, eleven sparse shards.
pub fn write_released(dir: &Path) -> Result<()> {
    /// Above a shard's published size, below what would make ten of them.
    const SHARD_BYTES: u64 = 10_200_000_000;
    let config = released_config();
    let tensors = main_tensors(&config)?;
    write_checkpoint(dir, &config, &split(&tensors, SHARD_BYTES))
}

/// Groups tensors, in order, into shards of at most `bytes` each.
pub fn split(tensors: &[Tensor], bytes: u64) -> Vec<&[Tensor]> {
    let mut shards = Vec::new();
    let (mut first, mut size) = (0, 0);
    for (place, tensor) in tensors.iter().enumerate() {
        if place > first && size + tensor.bytes() > bytes {
            shards.push(tensors.get(first..place).unwrap_or_default());
            (first, size) = (place, 0);
        }
        size += tensor.bytes();
    }
    shards.push(tensors.get(first..).unwrap_or_default());
    shards
}

/// Writes `config.json`, `model-0000N.safetensors` for each shard, and the index.
pub fn write_checkpoint(dir: &Path, config: &Value, shards: &[&[Tensor]]) -> Result<()> {
    fs::create_dir_all(dir).map_err(|cause| Error::io(dir, "create the folder", cause))?;
    let mut map = Map::new();
    for (place, tensors) in shards.iter().enumerate() {
        let file = format!("model-{:05}.safetensors", place + 1);
        write_safetensors(&dir.join(&file), tensors)?;
        map.extend(tensors.iter().map(|tensor| (tensor.name.clone(), Value::from(file.clone()))));
    }
    let total: u64 = shards.iter().flat_map(|tensors| tensors.iter()).map(Tensor::bytes).sum();
    write_json(&dir.join(INDEX), &json!({ "metadata": { "total_size": total }, "weight_map": map }))?;
    write_json(&dir.join("config.json"), config)
}

/// Writes `mtp.safetensors` for a configuration.
pub fn write_mtp(dir: &Path, config: &Value) -> Result<()> {
    write_safetensors(&dir.join(MTP), &mtp_tensors(config)?)
}

/// Writes a JSON file as the published ones are written: indented by two spaces, no line end after it.
pub fn write_json(path: &Path, value: &Value) -> Result<()> {
    fs::write(path, format!("{value:#}")).map_err(|cause| Error::io(path, "write", cause))
}

/// Writes one safetensors file, tensors in order, nothing between them.
pub fn write_safetensors(path: &Path, tensors: &[Tensor]) -> Result<()> {
    let mut header = Map::from_iter([("__metadata__".to_owned(), json!({ "format": "mlx" }))]);
    let mut end = 0;
    for tensor in tensors {
        let begin = end;
        end += tensor.bytes();
        let entry = json!({ "dtype": tensor.dtype.to_string(), "shape": tensor.shape, "data_offsets": [begin, end] });
        header.insert(tensor.name.clone(), entry);
    }
    let header = Value::Object(header).to_string();
    write_parts(path, &header, end, tensors).map_err(|cause| Error::io(path, "write", cause))
}

fn write_parts(path: &Path, header: &str, data: u64, tensors: &[Tensor]) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(&(header.len() as u64).to_le_bytes())?;
    file.write_all(header.as_bytes())?;
    let mut offset = file.stream_position()?;
    file.set_len(offset + data)?;
    for tensor in tensors {
        if let Some(content) = &tensor.content {
            file.seek(SeekFrom::Start(offset))?;
            file.write_all(content)?;
        }
        offset += tensor.bytes();
    }
    Ok(())
}

/// The tensors of a configuration's main files, named as in the released checkpoint, vision tower included if configured.
pub fn main_tensors(config: &Value) -> Result<Vec<Tensor>> {
    let path = Path::new("config.json");
    let geometry = Geometry::from_config(config, path)?;
    let tables = NgramTables::all(&geometry.ngram, geometry.vocab, geometry.ple.len());
    let needs = expect::main_model(&geometry, &tables, path)?;
    let mut tensors: Vec<Tensor> = needs.iter().flat_map(tensors_of).collect();
    tensors.iter_mut().for_each(|tensor| tensor.name.insert_str(0, "language_model."));
    if let Some(vision) = Fields::root(config, path)?.object("vision_config")? {
        tensors.extend(vision_tensors(&vision)?);
    }
    Ok(tensors)
}

/// The tensors of a configuration's `mtp.safetensors`.
pub fn mtp_tensors(config: &Value) -> Result<Vec<Tensor>> {
    let geometry = Geometry::from_config(config, Path::new("config.json"))?;
    Ok(expect::mtp(&geometry).iter().flat_map(tensors_of).collect())
}

/// Weights that the released checkpoint leaves in BF16 (checkpoint.md section 2).
const DENSE: [&str; 6] =
    [".block_inject_weight", ".mlp.gate", ".shared_expert_gate", ".in_proj_a", ".in_proj_b", ".index_qk_proj"];

fn tensors_of(need: &Need) -> Vec<Tensor> {
    match need {
        Need::Linear { base, rows, cols } => {
            if DENSE.iter().any(|ending| base.ends_with(ending)) {
                vec![Tensor::zeros(format!("{base}.weight"), Dtype::Bf16, [(*rows).into(), (*cols).into()])]
            } else {
                let group = if base.contains(".shard_") { 32 } else { 64 };
                triple(base, &[*rows], *cols, group)
            }
        }
        Need::Experts { base, experts, inner, hidden } => {
            [("gate", inner, hidden), ("up", inner, hidden), ("down", hidden, inner)]
                .into_iter()
                .flat_map(|(name, rows, cols)| {
                    triple(&format!("{base}.switch_mlp.{name}_proj"), &[*experts, *rows], *cols, 64)
                })
                .collect()
        }
        Need::Vector { name, length } => vec![vector(name, *length)],
        Need::Taps { name, channels, taps } => {
            vec![Tensor::zeros(name, Dtype::Bf16, [(*channels).into(), (*taps).into(), 1])]
        }
        Need::Integers { name, values } => {
            let content = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            let shape = vec![values.len() as u64];
            vec![Tensor { name: name.clone(), dtype: Dtype::I64, shape, content: Some(content) }]
        }
    }
}

/// Codes, scales, biases of 4-bit weights.
fn triple(base: &str, lead: &[u32], cols: u32, group: u32) -> Vec<Tensor> {
    let shape = |last: u32| lead.iter().copied().chain([last]).map(u64::from).collect::<Vec<u64>>();
    vec![
        Tensor::zeros(format!("{base}.weight"), Dtype::U32, shape(cols / 8)),
        Tensor::zeros(format!("{base}.scales"), Dtype::Bf16, shape(cols / group)),
        Tensor::zeros(format!("{base}.biases"), Dtype::Bf16, shape(cols / group)),
    ]
}

/// Norms are one, so that the convention is recognised; other vectors are zero.
fn vector(name: &str, length: u32) -> Tensor {
    const ONE: u16 = 0x3F80;
    let content = name.contains("norm").then(|| ONE.to_le_bytes().repeat(length as usize));
    Tensor { name: name.to_owned(), dtype: Dtype::Bf16, shape: vec![length.into()], content }
}

fn vision_tensors(config: &Fields) -> Result<Vec<Tensor>> {
    let need = |name: &str| config.need(name, 1..=1 << 16).map(u64::from);
    let (width, inner, out) = (need("hidden_size")?, need("intermediate_size")?, need("out_hidden_size")?);
    let merged = width * need("spatial_merge_size")?.pow(2);
    let patch = need("patch_size")?;
    let mut tensors = Vec::new();
    let mut pair = |name: &str, shape: &[u64]| {
        let rows = shape.first().copied().unwrap_or_default();
        tensors.push(Tensor::zeros(format!("vision_tower.{name}.weight"), Dtype::Bf16, shape));
        tensors.push(Tensor::zeros(format!("vision_tower.{name}.bias"), Dtype::Bf16, [rows]));
    };
    pair("patch_embed.proj", &[width, need("in_channels")?, need("temporal_patch_size")?, patch, patch]);
    for block in 0..need("depth")? {
        let block = format!("blocks.{block}");
        pair(&format!("{block}.norm1"), &[width]);
        pair(&format!("{block}.norm2"), &[width]);
        pair(&format!("{block}.attn.qkv"), &[3 * width, width]);
        pair(&format!("{block}.attn.proj"), &[width, width]);
        pair(&format!("{block}.mlp.linear_fc1"), &[inner, width]);
        pair(&format!("{block}.mlp.linear_fc2"), &[width, inner]);
    }
    pair("merger.norm", &[width]);
    pair("merger.linear_fc1", &[merged, merged]);
    pair("merger.linear_fc2", &[out, merged]);
    let positions = need("num_position_embeddings")?;
    tensors.push(Tensor::zeros("vision_tower.pos_embed.weight", Dtype::Bf16, [positions, width]));
    Ok(tensors)
}
