//! Owns: an opened model directory: geometry, tensors, experts, n-gram rows, and the reads that fetch them.
//! Refuses: at open, everything that the other files of this crate refuse; at a read, short files and numbers that are not
//! finite.
//! Invariants: opening reads headers, integer buffers and stream norms, and no other data; all checks come before any
//! weight is read.

mod filled;
mod packed;

pub use filled::SPARSE_NGRAMS;

use std::path::{Path, PathBuf};

use serde_json::Value;
use ss_backend::{Matrix, RecordLayout, Scalar};

use crate::catalogue::{Catalogue, Naming, TensorInfo};
use crate::check::{Checker, Weights, scalar, shown_format};
use crate::config::{present, read_json};
use crate::error::{Error, Result, shown};
use crate::expect;
use crate::experts::ExpertFiles;
use crate::file::{Access, FileId, FileRange, IoMode, PositionedFile};
use crate::geometry::Geometry;
use crate::linear::{LinearData, LinearInfo};
use crate::ngram::NgramTables;
use crate::norms::{BORDER, NormConvention, is_centred, is_stream_norm};
use crate::pack::Packs;
use crate::quantization::Quantization;
use crate::sidecar;
use crate::values::{BadScale, Values, called, check_record, decode, first_not_finite};

const CONFIG: &str = "config.json";
/// How names of the MTP layer begin.
const MTP_PREFIX: &str = "mtp.";
/// How names of the vision tower begin.
pub(crate) const VISION_PREFIX: &str = "vision_tower.";

/// How to open a checkpoint.
#[derive(Clone, Copy, Debug)]
pub struct OpenOptions {
    /// Through the page cache or past it.
    pub io: IoMode,
    /// The machine's memory in bytes, for [`IoMode::Auto`].
    pub physical_memory: u64,
    /// Whether records come from the packs of `ss pack` where there are some.
    pub packs: bool,
    /// Whether the checksum of a packed expert is looked at whenever it is read. It takes a core some 0.3 to 0.6 ms for a
    /// released record, which a disk of 7 GB/s reads in 0.4, so that only those who doubt their disk ask for it. Without
    /// it, a record is looked at once, when it is first used, if its original is gone: damage of the only copy stays until
    /// it is noticed, no second copy says otherwise, and a process spends 15 s of one core at most on all records of the
    /// released model. The checksums of packed n-gram rows, which take 20 ns, are always looked at.
    pub check_records: bool,
}

impl Default for OpenOptions {
    /// Auto, on a machine of unlimited memory: through the cache; from packs.
    fn default() -> Self {
        OpenOptions { io: IoMode::Auto, physical_memory: u64::MAX, packs: true, check_records: false }
    }
}

/// The rows of one n-gram injection.
#[derive(Debug)]
struct NgramStore {
    tables: NgramTables,
    shards: Vec<LinearInfo>,
}

/// The norm conventions of the two parts of a model, which can come from different writers.
#[derive(Clone, Copy, Debug)]
struct Conventions {
    main: NormConvention,
    mtp: NormConvention,
}

/// An opened model directory. Shared freely between threads.
pub struct Checkpoint {
    config: Value,
    geometry: Geometry,
    catalogue: Catalogue,
    weights: Weights,
    layout: RecordLayout,
    ngram: Vec<NgramStore>,
    conventions: Conventions,
    has_mtp: bool,
    packs: Packs,
    check_records: bool,
}

impl std::fmt::Debug for Checkpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Checkpoint").field("dir", &self.catalogue.dir).finish_non_exhaustive()
    }
}

impl Checkpoint {
    /// Opens a model directory and checks every tensor the model needs. Errors: one sentence that names file and tensor.
    pub fn open(dir: &Path) -> Result<Checkpoint> {
        Self::open_with(dir, OpenOptions::default())
    }

    /// Opens with a choice of how files are read.
    pub fn open_with(dir: &Path, options: OpenOptions) -> Result<Checkpoint> {
        let config = read_config(dir)?;
        let path = dir.join(CONFIG);
        let geometry = Geometry::from_config(&config, &path)?;
        let quantization = Quantization::from_config(&config, &path)?;
        let tables = NgramTables::all(&geometry.ngram, geometry.vocab, geometry.ple.len());
        let needs = expect::main_model(&geometry, &tables, &path)?;
        let mut catalogue = Catalogue::open(dir)?;
        let has_mtp = geometry.has_mtp && catalogue.tensors.range(MTP_PREFIX.to_owned()..).next().is_some_and(is_mtp);
        let mut checker = Checker::new(&catalogue, &quantization, &path);
        checker.check(&needs)?;
        if has_mtp {
            checker.check(&expect::mtp(&geometry))?;
        }
        let weights = checker.finish();
        refuse_strangers(&catalogue, &geometry, &weights, &path)?;
        let layout = shared_layout(&catalogue, &geometry, &weights)?;
        let ngram = ngram_stores(&catalogue, &geometry, &weights, tables)?;
        let conventions = Conventions {
            main: convention(&catalogue, &weights, false)?,
            mtp: convention(&catalogue, &weights, true)?,
        };
        if weights.linears.values().any(|linear| linear.matrix.format.is_affine()) && !quantization.present {
            catalogue
                .warnings
                .push(format!("{}: quantization is absent; bits and groups come from shapes", path.display()));
        }
        let expert_bytes = weights.experts.iter().map(|e| e.layout.bytes.saturating_mul(e.experts.into()));
        let access = options.io.resolve(expert_bytes.fold(0, u64::saturating_add), options.physical_memory);
        let (packs, check_records) = (Packs::default(), options.check_records);
        let mut checkpoint = Checkpoint {
            config,
            geometry,
            catalogue,
            weights,
            layout,
            ngram,
            conventions,
            has_mtp,
            packs,
            check_records,
        };
        checkpoint.open_packs(&options)?;
        checkpoint.catalogue.files.iter_mut().for_each(|file| file.set_access(access));
        Ok(checkpoint)
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.catalogue.dir
    }

    /// `config.json` as it is.
    pub fn config(&self) -> &Value {
        &self.config
    }

    /// The model's dimensions.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// What the centred norms of the main model hold in the file. [`Checkpoint::read_f32`] gives `1 + w'` either way.
    pub fn norm_convention(&self) -> NormConvention {
        self.conventions.main
    }

    /// Whose names the tensors have.
    pub fn naming(&self) -> Naming {
        self.catalogue.naming
    }

    /// Whether an MTP layer is there.
    pub fn has_mtp(&self) -> bool {
        self.has_mtp
    }

    /// Whether vision tensors are there.
    pub fn has_vision(&self) -> bool {
        self.tensors().any(|(name, _)| name.starts_with(VISION_PREFIX))
    }

    /// How the files are read: direct only if all of them are.
    pub fn access(&self) -> Access {
        let direct = self.files().iter().all(|file| file.access() == Access::Direct);
        if direct { Access::Direct } else { Access::Cached }
    }

    /// What is odd but harmless, a sentence each.
    pub fn warnings(&self) -> &[String] {
        &self.catalogue.warnings
    }

    /// A tensor by its canonical name (checkpoint.md section 2, without `language_model.`).
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.catalogue.get(name)
    }

    /// All tensors by canonical name, sorted.
    pub fn tensors(&self) -> impl Iterator<Item = (&str, &TensorInfo)> {
        self.catalogue.tensors.iter().map(|(name, info)| (name.as_str(), info))
    }

    /// Whether the model uses a tensor; vision tensors and strays are not used.
    pub fn uses(&self, name: &str) -> bool {
        self.weights.used.contains(name)
    }

    /// The files, by [`FileId::index`].
    pub fn files(&self) -> &[PositionedFile] {
        &self.catalogue.files
    }

    /// One file. Ids come from this checkpoint's ranges.
    pub fn file(&self, id: FileId) -> Result<&PositionedFile> {
        self.files().get(id.index()).ok_or_else(|| Error::no_such(self.dir(), format!("file number {}", id.index())))
    }

    /// Fills `into`, which has the range's length, from the file.
    pub fn read(&self, range: FileRange, into: &mut [u8]) -> Result<()> {
        if into.len() as u64 != range.bytes {
            return Err(self.room(range.bytes, into.len()));
        }
        self.file(range.file)?.read_at(range.offset, into)
    }

    /// A weight of the trunk, or a shard of an n-gram table, by base name: `lm_head`, `model.layers.0.mlp.gate`.
    pub fn linear(&self, base: &str) -> Result<LinearInfo> {
        let info = self.weights.linears.get(base).copied();
        info.ok_or_else(|| Error::no_such(self.dir(), format!("weight {}", shown(base))))
    }

    /// Reads a weight whole; scales, biases and dense numbers must be finite.
    pub fn read_linear(&self, base: &str) -> Result<LinearData> {
        let info = self.linear(base)?;
        let codes = self.read_all(info.codes)?;
        let scales = info.scales.map(|range| self.read_all(range)).transpose()?.unwrap_or_default();
        let biases = info.biases.map(|range| self.read_all(range)).transpose()?.unwrap_or_default();
        match info.matrix.format {
            ss_backend::Format::Dense(scalar) => self.finite(&format!("{base}.weight"), scalar, &codes)?,
            ss_backend::Format::Affine { scale, .. } => {
                self.finite(&format!("{base}.scales"), scale, &scales)?;
                self.finite(&format!("{base}.biases"), scale, &biases)?;
                if let Some(info) = self.tensor(&format!("{base}.scales")).filter(|_| is_blank(&scales, &biases)) {
                    return Err(Error::Tensor {
                        path: self.catalogue.path_of(info.range).to_owned(),
                        tensor: shown(&info.stored),
                        expected: "numbers other than zero".into(),
                        found: "only zeros: the file was never filled".into(),
                    });
                }
            }
        }
        Ok(LinearData { matrix: info.matrix, codes, scales, biases })
    }

    /// Reads a dense tensor as F32, row-major. Centred norms come as `1 + w'`; every number must be finite.
    pub fn read_f32(&self, name: &str) -> Result<Vec<f32>> {
        let info = self.tensor(name).ok_or_else(|| Error::no_such(self.dir(), format!("tensor {}", shown(name))))?;
        let Some(scalar) = scalar(info.dtype) else {
            return Err(Error::Tensor {
                path: self.catalogue.path_of(info.range).to_owned(),
                tensor: shown(&info.stored),
                expected: "type BF16, F16 or F32".into(),
                found: format!("type {}", info.dtype),
            });
        };
        let bytes = self.read_all(info.range)?;
        self.finite(name, scalar, &bytes)?;
        let mut values = decode(scalar, &bytes);
        let convention = if name.starts_with(MTP_PREFIX) { self.conventions.mtp } else { self.conventions.main };
        if convention == NormConvention::Raw && is_centred(name) {
            values.iter_mut().for_each(|value| *value += 1.0);
        }
        Ok(values)
    }

    /// How an expert record of the main layers lies in a slot: the same in all of them.
    pub fn expert_layout(&self) -> &RecordLayout {
        &self.layout
    }

    /// The routed experts of a layer; `geometry().mtp_layer()` is the MTP layer.
    pub fn experts(&self, layer: usize) -> Option<&ExpertFiles> {
        self.weights.experts.get(layer)
    }

    /// Reads an expert's record into a slot of `layout.bytes` and checks its numbers; bytes between pieces stay as they are.
    pub fn read_expert(&self, layer: usize, expert: u32, slot: &mut [u8]) -> Result<()> {
        let files = self.experts(layer).filter(|files| expert < files.experts);
        let files = files.ok_or_else(|| Error::no_such(self.dir(), format!("expert {expert} in layer {layer}")))?;
        let room = slot.len();
        for piece in files.pieces(expert) {
            let into =
                slot.get_mut(piece.span.offset as usize..).and_then(|rest| rest.get_mut(..piece.span.bytes as usize));
            self.read(piece.range, into.ok_or_else(|| self.room(files.layout.bytes, room))?)?;
        }
        check_record(&files.layout, slot).map_err(|bad| self.bad_record(layer, expert, bad))?;
        self.check_packed(layer, expert, slot)
    }

    /// The error for a record that [`check_record`] refused, naming file and tensor.
    pub fn bad_record(&self, layer: usize, expert: u32, bad: BadScale) -> Error {
        let base = expect::experts_base(&self.geometry, layer);
        let (projection, values) = (bad.projection.name(), bad.values.name());
        let split = format!("{base}.switch_mlp.{projection}.{values}");
        let info = self.tensor(&split).or_else(|| self.fused_tensor(&base, bad));
        let piece = self.experts(layer).and_then(|files| files.pieces(expert).next().filter(|_| files.is_packed()));
        let range = piece.map(|piece| piece.range).or(info.map(|info| info.range));
        Error::NotFinite {
            path: range.map_or(self.dir(), |range| self.catalogue.path_of(range)).to_owned(),
            tensor: info.map_or(split, |info| shown(&info.stored)),
            place: format!("expert {expert}, row {}, column {}", bad.row, bad.column),
            found: bad.found,
        }
    }

    fn fused_tensor(&self, base: &str, bad: BadScale) -> Option<&TensorInfo> {
        let down = bad.projection == crate::values::Projection::Down && bad.values == Values::Numbers;
        self.tensor(&format!("{base}.experts.{}", if down { "down_proj" } else { "gate_up_proj" }))
    }

    /// The hash of an injection, by its place in `geometry().ple`.
    pub fn ngram_tables(&self, ple_index: usize) -> Option<&NgramTables> {
        self.ngram.get(ple_index).map(|store| &store.tables)
    }

    /// Shape and format of one shard of an injection's table; all its shards are alike.
    pub fn ngram_matrix(&self, ple_index: usize) -> Option<Matrix> {
        self.ngram.get(ple_index)?.shards.first().map(|shard| shard.matrix)
    }

    /// Where a row of an injection's table lies: one row of codes, scales and biases, or of dense numbers.
    pub fn ngram_row(&self, ple_index: usize, row: u64) -> Result<LinearInfo> {
        let found = self.ngram.get(ple_index).and_then(|store| {
            let rows = u64::from(store.shards.first()?.matrix.rows);
            let shard = store.shards.get(usize::try_from(row.checked_div(rows)?).ok()?)?;
            shard.rows((row % rows) as u32, 1)
        });
        found.ok_or_else(|| Error::no_such(self.dir(), format!("n-gram row {row} in injection {ple_index}")))
    }

    /// Where the tokenizer is.
    pub fn tokenizer_path(&self) -> Result<PathBuf> {
        sidecar::tokenizer_path(self.dir())
    }

    /// The chat template's source.
    pub fn chat_template(&self) -> Result<String> {
        sidecar::chat_template(self.dir())
    }

    /// `generation_config.json`, if there is one.
    pub fn generation_config(&self) -> Result<Option<Value>> {
        sidecar::generation_config(self.dir())
    }

    /// The ids that end an answer.
    pub fn stop_ids(&self) -> Result<Vec<u32>> {
        sidecar::stop_ids(self.dir(), &self.config, &self.dir().join(CONFIG), self.geometry.vocab)
    }

    fn room(&self, wanted: u64, room: usize) -> Error {
        Error::Room { path: self.dir().to_owned(), wanted, room: room as u64 }
    }

    fn read_all(&self, range: FileRange) -> Result<Vec<u8>> {
        // A range lies inside its file, so a header's claims cannot ask for more memory than there are bytes.
        let mut bytes = vec![0; range.bytes as usize];
        self.read(range, &mut bytes)?;
        Ok(bytes)
    }

    fn finite(&self, name: &str, scalar: Scalar, bytes: &[u8]) -> Result<()> {
        match self.tensor(name) {
            Some(info) => refuse_not_finite(&self.catalogue, info, scalar, bytes),
            None => Ok(()),
        }
    }
}

/// Refuses parts of a model that the configuration does not have: layers past its last, n-gram injections that it does
/// not name. They mean that the configuration was damaged or belongs to another model.
fn refuse_strangers(catalogue: &Catalogue, geometry: &Geometry, weights: &Weights, config: &Path) -> Result<()> {
    let layer_of = |name: &str| name.strip_prefix("model.layers.")?.split('.').next()?.parse::<usize>().ok();
    let strange = |name: &str| {
        let past_the_last = layer_of(name).is_some_and(|layer| layer >= geometry.layers.len());
        !weights.used.contains(name) && (past_the_last || name.contains(".ple."))
    };
    match catalogue.tensors.iter().find(|(name, _)| strange(name)) {
        None => Ok(()),
        Some((_, info)) => Err(Error::Tensor {
            path: catalogue.path_of(info.range).to_owned(),
            tensor: shown(&info.stored),
            expected: format!("no place, by the layers and ple_layer_ids of {}", config.display()),
            found: "one".into(),
        }),
    }
}

/// Whether a quantised weight holds nothing: what a file that was laid out but never filled looks like.
fn is_blank(scales: &[u8], biases: &[u8]) -> bool {
    let zero = |bytes: &[u8]| bytes.iter().all(|&byte| byte == 0);
    zero(scales) && zero(biases)
}

fn read_config(dir: &Path) -> Result<Value> {
    let metadata = std::fs::metadata(dir).map_err(|cause| Error::io(dir, "open the model directory", cause))?;
    if !metadata.is_dir() {
        return Err(Error::NotADirectory { path: dir.to_owned() });
    }
    let path = dir.join(CONFIG);
    if !present(&path) {
        return Err(Error::Missing { path, needed: "a model directory holds config.json; check the path" });
    }
    read_json(&path)
}

fn is_mtp((name, _): (&String, &TensorInfo)) -> bool {
    name.starts_with(MTP_PREFIX)
}

fn refuse_not_finite(catalogue: &Catalogue, info: &TensorInfo, scalar: Scalar, bytes: &[u8]) -> Result<()> {
    let Some(place) = first_not_finite(scalar, bytes) else { return Ok(()) };
    Err(Error::NotFinite {
        path: catalogue.path_of(info.range).to_owned(),
        tensor: shown(&info.stored),
        place: format!("element {place}"),
        found: called(scalar, bytes, place),
    })
}

/// The record layout of the main layers, which share one pool of slots.
fn shared_layout(catalogue: &Catalogue, geometry: &Geometry, weights: &Weights) -> Result<RecordLayout> {
    let none = || Error::no_such(&catalogue.dir, "layer");
    let first = weights.experts.first().ok_or_else(none)?.layout;
    for (layer, files) in weights.experts.iter().enumerate().take(geometry.layers.len()) {
        if files.layout != first {
            let shown = |layout: RecordLayout| {
                [layout.gate, layout.up, layout.down].map(|part| shown_format(part.matrix.format)).join(", ")
            };
            let piece = files.pieces(0).next().ok_or_else(none)?;
            return Err(Error::Tensor {
                path: catalogue.path_of(piece.range).to_owned(),
                tensor: format!("{}.switch_mlp", expect::experts_base(geometry, layer)),
                expected: format!("the formats of layer 0 ({}), as all layers share one pool of slots", shown(first)),
                found: shown(files.layout),
            });
        }
    }
    Ok(first)
}

fn ngram_stores(
    catalogue: &Catalogue,
    geometry: &Geometry,
    weights: &Weights,
    tables: Vec<NgramTables>,
) -> Result<Vec<NgramStore>> {
    let store = |(&layer, tables): (&usize, NgramTables)| {
        let bases = (0..geometry.ngram.shards).map(|shard| expect::shard_base(layer, shard));
        let shards: Vec<LinearInfo> = bases.filter_map(|base| weights.linears.get(&base).copied()).collect();
        let unlike = shards.windows(2).position(|pair| matches!(pair, [a, b] if a.matrix != b.matrix));
        if let Some(shard) = unlike.and_then(|place| shards.get(place + 1)) {
            let format = |shard: Option<&LinearInfo>| shard.map_or_else(String::new, |s| shown_format(s.matrix.format));
            return Err(Error::Tensor {
                path: catalogue.path_of(shard.codes).to_owned(),
                tensor: expect::shard_base(layer, unlike.map_or(0, |place| place as u32 + 1)),
                expected: format!("the format of shard 0 ({})", format(shards.first())),
                found: format(Some(shard)),
            });
        }
        Ok(NgramStore { tables, shards })
    };
    geometry.ple.iter().zip(tables).map(store).collect()
}

/// Reads the stream norms of the main model or of the MTP layer and says which convention they follow.
fn convention(catalogue: &Catalogue, weights: &Weights, mtp: bool) -> Result<NormConvention> {
    let (mut above, mut count) = (0usize, 0usize);
    let wanted =
        |name: &str| is_stream_norm(name) && name.starts_with(MTP_PREFIX) == mtp && weights.used.contains(name);
    for (_, info) in catalogue.tensors.iter().filter(|(name, _)| wanted(name)) {
        let Some((scalar, file)) = scalar(info.dtype).zip(catalogue.files.get(info.range.file.index())) else {
            continue;
        };
        let mut bytes = vec![0; info.range.bytes as usize];
        file.read_at(info.range.offset, &mut bytes)?;
        refuse_not_finite(catalogue, info, scalar, &bytes)?;
        let values = decode(scalar, &bytes);
        above += values.iter().filter(|&&value| value > BORDER).count();
        count += values.len();
    }
    let share = if count == 0 { 1.0 } else { above as f64 / count as f64 };
    // The MTP layer's file has the same names in both worlds.
    let naming = if mtp { Naming::Mlx } else { catalogue.naming };
    Ok(NormConvention::recognise(naming, share))
}
