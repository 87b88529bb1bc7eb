//! Owns: what is to be written: the files of a checkpoint, their tensors, what each is filled with.
//! Refuses: what the engine would not open, before a byte is written.
//! Invariants: the tensors are those that the loader expects of the same configuration.

use serde_json::Value;
use ss_checkpoint::imitation::{self, SHARD_BYTES, Tensor};
use ss_checkpoint::{Dtype, Geometry, SPARSE_NGRAMS};

use crate::error::Result;
use crate::geometry::{Changes, Source};
use crate::recipe::{Fill, Recipe};
use crate::skew::Skew;
use crate::words::Words;

/// The file of the draft head.
const MTP: &str = "mtp.safetensors";
/// Part of the names of all tensors that hold experts.
const EXPERTS: &str = ".switch_mlp.";
/// Codes of a U32.
const CODES: u64 = 8;

/// How n-gram rows are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NgramRows {
    /// As holes, which read as rows of zeros and take no room on a disk that knows holes.
    #[default]
    Sparse,
    /// With random rows.
    Full,
}

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Order {
    /// Whose geometry.
    pub source: Source,
    /// Main layers; those of the source if nobody says.
    pub layers: Option<u32>,
    /// How n-gram rows are written.
    pub ngrams: NgramRows,
    /// Rows of each n-gram table, about; those of the source if nobody says.
    pub ngram_rows: Option<u64>,
    /// Whether there is a draft head (`mtp.safetensors`).
    pub draft_head: bool,
    /// Where all weights come from.
    pub seed: u64,
}

impl Order {
    /// A checkpoint of a geometry: sparse n-gram rows, no draft head.
    pub fn new(source: Source) -> Self {
        Order { source, layers: None, ngrams: NgramRows::Sparse, ngram_rows: None, draft_head: false, seed: 0 }
    }
}

/// A checkpoint that can be written.
pub struct Plan {
    pub(crate) config: Value,
    pub(crate) words: Words,
    pub(crate) index: Value,
    pub(crate) files: Vec<WeightFile>,
    geometry: Geometry,
    record_bytes: u64,
}

/// A file of weights.
pub(crate) struct WeightFile {
    pub name: String,
    /// Length and header, as they stand at its beginning.
    pub header: Vec<u8>,
    pub tensors: Vec<Filled>,
}

/// A tensor in a file.
pub(crate) struct Filled {
    /// First byte in the file.
    pub offset: u64,
    pub bytes: u64,
    pub fill: Fill,
}

impl Plan {
    /// Plans a checkpoint.
    ///
    /// # Errors
    /// When the configuration cannot be read, or is none that the engine supports.
    pub fn new(order: &Order) -> Result<Self> {
        let mut config = order.source.config(Changes { layers: order.layers, ngram_rows: order.ngram_rows })?;
        say_sparse(&mut config, order.ngrams);
        let geometry = Geometry::from_config(&config, &order.source.path())?;
        let words = Words::new(&config, &geometry)?;
        let recipe = Recipe {
            seed: order.seed,
            sparse_ngrams: order.ngrams == NgramRows::Sparse,
            skew: Skew::new(geometry.experts, geometry.choices),
        };
        let tensors = imitation::main_tensors(&config)?;
        let record_bytes = record_bytes(&tensors, &geometry);
        let shards = imitation::split(&tensors, SHARD_BYTES);
        let index = imitation::index(&shards);
        let mut widths = widths_of(&tensors).into_iter();
        let mut file = |name: String, tensors: &[Tensor]| WeightFile::new(name, tensors, widths.by_ref(), &recipe);
        let mut files: Vec<WeightFile> =
            (0..).zip(shards).map(|(place, tensors)| file(imitation::shard_name(place), tensors)).collect();
        if order.draft_head {
            let tensors = imitation::mtp_tensors(&config)?;
            files.push(WeightFile::new(MTP.into(), &tensors, widths_of(&tensors).into_iter(), &recipe));
        }
        Ok(Plan { config, words, index, files, geometry, record_bytes })
    }

    /// The geometry.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Bytes of an expert.
    pub fn record_bytes(&self) -> u64 {
        self.record_bytes
    }

    /// Files of weights.
    pub fn files(&self) -> usize {
        self.files.len()
    }

    /// Bytes of weights that are written.
    pub fn bytes(&self) -> u64 {
        self.sum(|fill| !fill.is_hole())
    }

    /// Bytes of weights that are left as holes.
    pub fn holes(&self) -> u64 {
        self.sum(Fill::is_hole)
    }

    fn sum(&self, which: impl Fn(&Fill) -> bool) -> u64 {
        let tensors = self.files.iter().flat_map(|file| &file.tensors);
        tensors.filter(|tensor| which(&tensor.fill)).map(|tensor| tensor.bytes).sum()
    }
}

/// Says in the configuration whether n-gram rows are zeros on purpose: else the engine takes them for lost.
fn say_sparse(config: &mut Value, ngrams: NgramRows) {
    if let Some(root) = config.as_object_mut() {
        root.remove(SPARSE_NGRAMS);
        if ngrams == NgramRows::Sparse {
            root.insert(SPARSE_NGRAMS.into(), true.into());
        }
    }
}

/// Bytes of an expert: its part of all of them.
fn record_bytes(tensors: &[Tensor], geometry: &Geometry) -> u64 {
    let experts = tensors.iter().filter(|tensor| tensor.name.contains(EXPERTS));
    let all = geometry.layers.len() as u64 * u64::from(geometry.experts);
    experts.map(Tensor::bytes).sum::<u64>() / all.max(1)
}

impl WeightFile {
    fn new(name: String, tensors: &[Tensor], widths: impl Iterator<Item = u64>, recipe: &Recipe) -> Self {
        let header = imitation::header(tensors);
        let mut offset = header.len() as u64;
        let filled = |(tensor, width): (&Tensor, u64)| {
            let here = Filled { offset, bytes: tensor.bytes(), fill: recipe.fill(tensor, width) };
            offset += here.bytes;
            here
        };
        let tensors = tensors.iter().zip(widths).map(filled).collect();
        WeightFile { name, header, tensors }
    }

    /// Bytes of the file.
    pub(crate) fn length(&self) -> u64 {
        self.tensors.last().map_or(self.header.len() as u64, |tensor| tensor.offset + tensor.bytes)
    }
}

/// Inputs of each tensor's rows, codes unpacked; scales and biases follow their codes and have the same.
fn widths_of(tensors: &[Tensor]) -> Vec<u64> {
    let mut packed = 1;
    let width = |tensor: &Tensor| {
        let inner = tensor.shape.get(1..).unwrap_or_default();
        match (tensor.dtype, inner) {
            (Dtype::U32, [.., last]) => {
                packed = CODES * last;
                packed
            }
            _ if tensor.name.ends_with(".scales") || tensor.name.ends_with(".biases") => packed,
            // Stacked experts, and nothing else of three dimensions but convolutions, which end in one.
            (_, [_, last]) if *last > 1 => *last,
            _ => inner.iter().product(),
        }
    };
    tensors.iter().map(width).collect()
}
