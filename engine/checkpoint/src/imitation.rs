//! Owns: writing checkpoints that have everything but weights: support for tests, and for `ss inspect` without 104 GB.
//! Refuses: geometries that the engine refuses, and weights of other than 4 bits.
//! Invariants: names, shapes, types and sizes are those of checkpoint.md; files are sparse, so that the released imitation
//! takes a few megabytes of disk where the file system has holes. Integer buffers are right, norms are one, all else is zero.

use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;

use serde_json::{Map, Value, json};

pub use crate::catalogue::UNFINISHED;
use crate::catalogue::{INDEX, MTP};
use crate::config::Fields;
use crate::error::{Error, Result};
use crate::expect::{self, Need};
use crate::geometry::Geometry;
use crate::header::Dtype;
use crate::ngram::NgramTables;
use crate::quantization::{Affine, Quantization, Said, disagrees};
use crate::released;

/// Most bytes of a shard: above the published size, below what would make ten of the released eleven.
pub const SHARD_BYTES: u64 = 10_200_000_000;

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
    for (place, tensors) in shards.iter().enumerate() {
        write_safetensors(&dir.join(shard_name(place)), tensors)?;
    }
    write_json(&dir.join(INDEX), &index(shards))?;
    write_json(&dir.join("config.json"), config)
}

/// The file of the shard at a place, counted from zero.
pub fn shard_name(place: usize) -> String {
    format!("model-{:05}.safetensors", place + 1)
}

/// What `model.safetensors.index.json` says of shards: the file of each tensor, and the bytes of all.
pub fn index(shards: &[&[Tensor]]) -> Value {
    let mut map = Map::new();
    for (place, tensors) in shards.iter().enumerate() {
        let file = shard_name(place);
        map.extend(tensors.iter().map(|tensor| (tensor.name.clone(), Value::from(file.clone()))));
    }
    let total: u64 = shards.iter().flat_map(|tensors| tensors.iter()).map(Tensor::bytes).sum();
    json!({ "metadata": { "total_size": total }, "weight_map": map })
}

/// Writes `mtp.safetensors` for a configuration.
pub fn write_mtp(dir: &Path, config: &Value) -> Result<()> {
    write_safetensors(&dir.join(MTP), &mtp_tensors(config)?)
}

/// Writes a JSON file as the published ones are written: indented by two spaces, no line end after it.
pub fn write_json(path: &Path, value: &Value) -> Result<()> {
    fs::write(path, format!("{value:#}")).map_err(|cause| Error::io(path, "write", cause))
}

/// The first bytes of a safetensors file of these tensors, in order, nothing between them: length and header. The data
/// begin behind it (checkpoint.md section 4).
pub fn header(tensors: &[Tensor]) -> Vec<u8> {
    let mut header = Map::from_iter([("__metadata__".to_owned(), json!({ "format": "mlx" }))]);
    let mut end = 0;
    for tensor in tensors {
        let begin = end;
        end += tensor.bytes();
        let entry = json!({ "dtype": tensor.dtype.to_string(), "shape": tensor.shape, "data_offsets": [begin, end] });
        header.insert(tensor.name.clone(), entry);
    }
    let header = Value::Object(header).to_string();
    [&(header.len() as u64).to_le_bytes(), header.as_bytes()].concat()
}

/// Writes one safetensors file, tensors in order, nothing between them.
pub fn write_safetensors(path: &Path, tensors: &[Tensor]) -> Result<()> {
    write_parts(path, tensors).map_err(|cause| Error::io(path, "write", cause))
}

fn write_parts(path: &Path, tensors: &[Tensor]) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(&header(tensors))?;
    let mut offset = file.stream_position()?;
    file.set_len(offset + tensors.iter().map(Tensor::bytes).sum::<u64>())?;
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
    let mut tensors = tensors_of(&needs, config, path)?;
    tensors.iter_mut().for_each(|tensor| tensor.name.insert_str(0, "language_model."));
    if let Some(vision) = Fields::root(config, path)?.object("vision_config")? {
        tensors.extend(vision_tensors(&vision)?);
    }
    Ok(tensors)
}

/// The tensors of a configuration's `mtp.safetensors`.
pub fn mtp_tensors(config: &Value) -> Result<Vec<Tensor>> {
    let path = Path::new("config.json");
    tensors_of(&expect::mtp(&Geometry::from_config(config, path)?), config, path)
}

/// Weights that the released checkpoint leaves in BF16 (checkpoint.md section 2).
const DENSE: [&str; 6] =
    [".block_inject_weight", ".mlp.gate", ".shared_expert_gate", ".in_proj_a", ".in_proj_b", ".index_qk_proj"];

fn tensors_of(needs: &[Need], config: &Value, path: &Path) -> Result<Vec<Tensor>> {
    let formats = Formats { said: Quantization::from_config(config, path)?, path };
    let mut tensors = Vec::new();
    for need in needs {
        match need {
            Need::Linear { base, rows, cols } => tensors.extend(formats.linear(base, &[*rows], *cols)?),
            Need::Experts { base, experts, inner, hidden } => {
                for (name, rows, cols) in [("gate", inner, hidden), ("up", inner, hidden), ("down", hidden, inner)] {
                    let base = format!("{base}.switch_mlp.{name}_proj");
                    tensors.extend(formats.linear(&base, &[*experts, *rows], *cols)?);
                }
            }
            Need::Vector { name, length } => tensors.push(vector(name, *length)),
            Need::Taps { name, channels, taps } => {
                tensors.push(Tensor::zeros(name, Dtype::Bf16, [(*channels).into(), (*taps).into(), 1]));
            }
            Need::Integers { name, values } => {
                let content = values.iter().flat_map(|value| value.to_le_bytes()).collect();
                let shape = vec![values.len() as u64];
                tensors.push(Tensor { name: name.clone(), dtype: Dtype::I64, shape, content: Some(content) });
            }
        }
    }
    Ok(tensors)
}

/// How weights are stored: as the configuration says, else as the released checkpoint has them.
struct Formats<'a> {
    said: Quantization,
    path: &'a Path,
}

impl Formats<'_> {
    fn linear(&self, base: &str, lead: &[u32], cols: u32) -> Result<Vec<Tensor>> {
        let dense = DENSE.iter().any(|ending| base.ends_with(ending));
        let said = self.said.of(base);
        let affine = match said {
            Said::Own(own) => Some(own),
            Said::Default(default) => (!dense).then_some(default),
            Said::Nothing => {
                (!dense).then_some(Affine { bits: 4, group: if base.contains(".shard_") { 32 } else { 64 } })
            }
            Said::Dense => None,
        };
        let shape = |last: u64| lead.iter().map(|&rows| rows.into()).chain([last]).collect::<Vec<u64>>();
        let cols = u64::from(cols);
        match affine {
            None => Ok(vec![Tensor::zeros(format!("{base}.weight"), Dtype::Bf16, shape(cols))]),
            Some(Affine { bits: 4, group: group @ (32 | 64) }) if cols.is_multiple_of(group) => Ok(vec![
                Tensor::zeros(format!("{base}.weight"), Dtype::U32, shape(cols / 8)),
                Tensor::zeros(format!("{base}.scales"), Dtype::Bf16, shape(cols / group)),
                Tensor::zeros(format!("{base}.biases"), Dtype::Bf16, shape(cols / group)),
            ]),
            Some(_) => {
                let tensors = format!("4 bits in groups of 32 or 64 that divide its {cols} columns");
                Err(disagrees(self.path, base, &tensors, said))
            }
        }
    }
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
