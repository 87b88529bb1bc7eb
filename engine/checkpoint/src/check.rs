//! Owns: holding every tensor that the geometry implies against the catalogue, before anything is allocated.
//! Refuses: absent tensors, wrong types and shapes, half-quantised weights, bit widths and groups that the engine does not
//! compute, a configuration that says otherwise than the tensors, integers that differ from the recomputation.
//! Invariants: a weight is quantised iff its `.scales` exist; bits and group come from shapes, never from a name.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use ss_backend::{Format, Matrix, Scalar};

use crate::catalogue::{Catalogue, TensorInfo};
use crate::error::{Error, Result, shown};
use crate::expect::Need;
use crate::experts::{ExpertFiles, Stack};
use crate::file::FileRange;
use crate::header::{Dtype, shown_shape};
use crate::linear::LinearInfo;
use crate::quantization::{Affine, Quantization, Said, disagrees};
use crate::values::Projection;

/// Widths of a code that the engine computes.
const BITS: [u32; 2] = [4, 8];
/// Groups that the engine computes.
const GROUPS: [u32; 2] = [32, 64];
/// Bits of a word of codes.
const WORD: u64 = 32;

/// What the check found.
#[derive(Default)]
pub(crate) struct Weights {
    /// Every weight that is no routed expert, by base name.
    pub linears: HashMap<String, LinearInfo>,
    /// Routed experts by layer, in the order of the needs.
    pub experts: Vec<ExpertFiles>,
    /// Canonical names of all tensors that the model uses.
    pub used: HashSet<String>,
}

/// Checks needs against a catalogue.
pub(crate) struct Checker<'a> {
    catalogue: &'a Catalogue,
    quantization: &'a Quantization,
    config: &'a Path,
    weights: Weights,
}

impl<'a> Checker<'a> {
    pub fn new(catalogue: &'a Catalogue, quantization: &'a Quantization, config: &'a Path) -> Self {
        Checker { catalogue, quantization, config, weights: Weights::default() }
    }

    /// Checks all needs in order; the first that fails is the error.
    pub fn check(&mut self, needs: &[Need]) -> Result<()> {
        needs.iter().try_for_each(|need| self.one(need))
    }

    /// What was found.
    pub fn finish(self) -> Weights {
        self.weights
    }

    fn one(&mut self, need: &Need) -> Result<()> {
        match need {
            Need::Linear { base, rows, cols } => {
                let info = self.weight(base, None, *rows, *cols)?;
                self.weights.linears.insert(base.clone(), info);
                Ok(())
            }
            Need::Experts { base, experts, inner, hidden } => self.experts(base, *experts, *inner, *hidden),
            Need::Vector { name, length } => self.dense(name, &[&[u64::from(*length)]]),
            Need::Taps { name, channels, taps } => {
                let (channels, taps) = (u64::from(*channels), u64::from(*taps));
                self.dense(name, &[&[channels, taps, 1], &[channels, 1, taps]])
            }
            Need::Integers { name, values } => self.integers(name, values),
        }
    }

    /// Marks a tensor as used.
    fn take(&mut self, name: String) -> Option<&'a TensorInfo> {
        let info = self.catalogue.get(&name);
        if info.is_some() {
            self.weights.used.insert(name);
        }
        info
    }

    fn need(&mut self, name: String, expected: impl FnOnce() -> String) -> Result<&'a TensorInfo> {
        let shown_name = shown(&name);
        self.take(name).ok_or_else(|| Error::Absent {
            path: self.catalogue.dir.clone(),
            tensor: shown_name,
            expected: expected(),
        })
    }

    fn wrong(&self, info: &TensorInfo, expected: impl Into<String>, found: impl Into<String>) -> Error {
        Error::Tensor {
            path: self.catalogue.path_of(info.range).to_owned(),
            tensor: shown(&info.stored),
            expected: expected.into(),
            found: found.into(),
        }
    }

    /// A dense tensor that has one of several shapes.
    fn dense(&mut self, name: &str, shapes: &[&[u64]]) -> Result<()> {
        let expected = || {
            let shapes: Vec<String> = shapes.iter().map(|shape| shown_shape(shape)).collect();
            format!("type BF16, F16 or F32 and shape {}", shapes.join(" or "))
        };
        let info = self.need(name.to_owned(), expected)?;
        if scalar(info.dtype).is_none() || !shapes.iter().any(|shape| *shape == info.shape) {
            return Err(self.wrong(info, expected(), described(info)));
        }
        Ok(())
    }

    fn integers(&mut self, name: &str, values: &[u64]) -> Result<()> {
        let Some(info) = self.take(name.to_owned()) else { return Ok(()) };
        if info.dtype != Dtype::I64 || info.shape != [values.len() as u64] {
            let expected = format!("type I64 and shape [{}]", values.len());
            return Err(self.wrong(info, expected, described(info)));
        }
        let mut bytes = vec![0; info.range.bytes as usize];
        if let Some(file) = self.catalogue.files.get(info.range.file.index()) {
            file.read_at(info.range.offset, &mut bytes)?;
        }
        let stored = bytes.as_chunks().0.iter().map(|chunk| i64::from_le_bytes(*chunk));
        for (place, (stored, value)) in stored.zip(values).enumerate() {
            if u64::try_from(stored) != Ok(*value) {
                let expected = format!("{value} at place {place}, as config.json implies");
                return Err(self.wrong(info, expected, stored.to_string()));
            }
        }
        Ok(())
    }

    /// A weight `[rows, cols]`, or `lead` of them in one tensor. The matrix is that of one, the ranges are whole.
    fn weight(&mut self, base: &str, lead: Option<u32>, rows: u32, cols: u32) -> Result<LinearInfo> {
        let shape = Shape { lead, rows, cols };
        let codes = self.need(format!("{base}.weight"), || format!("a weight of shape {shape}"))?;
        let scales = self.take(format!("{base}.scales"));
        let biases = self.take(format!("{base}.biases"));
        let half = |missing: &str, has: &TensorInfo| Error::Absent {
            path: self.catalogue.path_of(has.range).to_owned(),
            tensor: shown(&format!("{base}.{missing}")),
            expected: format!("it beside {}", shown(&has.stored)),
        };
        match (scales, biases) {
            (Some(scales), Some(biases)) => self.affine_weight(base, shape, [codes, scales, biases]),
            (None, None) => self.dense_weight(base, shape, codes),
            (Some(scales), None) => Err(half("biases", scales)),
            (None, Some(biases)) => Err(half("scales", biases)),
        }
    }

    fn dense_weight(&self, base: &str, shape: Shape, codes: &TensorInfo) -> Result<LinearInfo> {
        let Some(scalar) = scalar(codes.dtype) else {
            let expected = format!("type BF16, F16 or F32, or {base}.scales beside it");
            return Err(self.wrong(codes, expected, format!("type {} and no scales", codes.dtype)));
        };
        if codes.shape != shape.dims(shape.cols.into()) {
            return Err(self.wrong(codes, format!("shape {shape}"), described(codes)));
        }
        let said = self.quantization.of(base);
        if let Said::Own(_) = said {
            return Err(disagrees(self.config, base, "false, as the tensor has no scales", said));
        }
        let matrix = Matrix { rows: shape.rows, cols: shape.cols, format: Format::Dense(scalar) };
        Ok(LinearInfo { matrix, codes: codes.range, scales: None, biases: None })
    }

    fn affine_weight(&self, base: &str, shape: Shape, tensors: [&TensorInfo; 3]) -> Result<LinearInfo> {
        let [codes, scales, biases] = tensors;
        let bits = self.bits(shape, codes)?;
        let group = self.group(shape, scales)?;
        let Some(scale) = scalar(scales.dtype) else {
            return Err(self.wrong(scales, "type BF16, F16 or F32", format!("type {}", scales.dtype)));
        };
        if (biases.dtype, &biases.shape) != (scales.dtype, &scales.shape) {
            return Err(self.wrong(biases, format!("{}, as the scales have", described(scales)), described(biases)));
        }
        let said = self.quantization.of(base);
        let same = Affine { bits: bits.into(), group: group.into() };
        match said {
            Said::Nothing => {}
            Said::Own(affine) | Said::Default(affine) if affine == same => {}
            _ => {
                let tensors = format!("bits {bits}, group_size {group}, as the shapes of the tensors say");
                return Err(disagrees(self.config, base, &tensors, said));
            }
        }
        let matrix = Matrix { rows: shape.rows, cols: shape.cols, format: Format::Affine { bits, group, scale } };
        Ok(LinearInfo { matrix, codes: codes.range, scales: Some(scales.range), biases: Some(biases.range) })
    }

    /// Bits of a code, from the number of words in a row.
    fn bits(&self, shape: Shape, codes: &TensorInfo) -> Result<u32> {
        let words = |bits: u32| u64::from(shape.cols) * u64::from(bits) / WORD;
        let fits = |bits: &u32| u64::from(shape.cols) * u64::from(*bits) % WORD == 0;
        let choices = BITS.into_iter().filter(fits);
        let found = choices.clone().find(|bits| codes.shape == shape.dims(words(*bits)));
        match found {
            Some(bits) if codes.dtype == Dtype::U32 => Ok(bits),
            _ => {
                let shapes: Vec<String> =
                    choices.map(|bits| format!("{} ({bits} bits)", shown_shape(&shape.dims(words(bits))))).collect();
                let expected = format!("type U32 and shape {}", shapes.join(" or "));
                Err(self.wrong(codes, expected, described(codes)))
            }
        }
    }

    /// Inputs that share a scale, from the number of scales in a row.
    fn group(&self, shape: Shape, scales: &TensorInfo) -> Result<u32> {
        let choices = GROUPS.into_iter().filter(|group| shape.cols.is_multiple_of(*group));
        let dims = |group: u32| shape.dims(u64::from(shape.cols / group));
        choices.clone().find(|group| scales.shape == dims(*group)).ok_or_else(|| {
            let shapes: Vec<String> =
                choices.map(|group| format!("{} (groups of {group})", shown_shape(&dims(group)))).collect();
            let none = format!("rows that are a multiple of 32 long, not {}", shape.cols);
            let expected = if shapes.is_empty() { none } else { format!("shape {}", shapes.join(" or ")) };
            self.wrong(scales, expected, described(scales))
        })
    }

    fn experts(&mut self, base: &str, experts: u32, inner: u32, hidden: u32) -> Result<()> {
        let fused = self.catalogue.get(&format!("{base}.experts.gate_up_proj")).is_some();
        let stacks =
            if fused { self.fused(base, experts, inner, hidden)? } else { self.split(base, experts, inner, hidden)? };
        self.weights.experts.push(ExpertFiles::new(experts, stacks));
        Ok(())
    }

    /// `switch_mlp.{gate,up,down}_proj`.
    fn split(&mut self, base: &str, experts: u32, inner: u32, hidden: u32) -> Result<[Stack; 3]> {
        let mut stack = |projection: Projection, rows, cols| {
            let base = format!("{base}.switch_mlp.{}", projection.name());
            self.weight(&base, Some(experts), rows, cols).map(first_expert)
        };
        Ok([
            stack(Projection::Gate, inner, hidden)?,
            stack(Projection::Up, inner, hidden)?,
            stack(Projection::Down, hidden, inner)?,
        ])
    }

    /// `experts.gate_up_proj [experts, 2 inner, hidden]`, gate rows first, and `experts.down_proj`; both dense.
    fn fused(&mut self, base: &str, experts: u32, inner: u32, hidden: u32) -> Result<[Stack; 3]> {
        let pair = self.fused_tensor(format!("{base}.experts.gate_up_proj"), experts, 2 * inner, hidden)?;
        let down = self.fused_tensor(format!("{base}.experts.down_proj"), experts, hidden, inner)?;
        let stride = pair.matrix.code_bytes();
        let halves = pair.rows(0, inner).zip(pair.rows(inner, inner));
        let (gate, up) = halves.ok_or_else(|| Error::no_such(&self.catalogue.dir, format!("expert in {base}")))?;
        Ok([Stack { first: gate, code_stride: stride }, Stack { first: up, code_stride: stride }, first_expert(down)])
    }

    fn fused_tensor(&mut self, name: String, experts: u32, rows: u32, cols: u32) -> Result<LinearInfo> {
        let shape = Shape { lead: Some(experts), rows, cols };
        let info = self.need(name, || format!("type BF16, F16 or F32 and shape {shape}"))?;
        match scalar(info.dtype) {
            Some(scalar) if info.shape == shape.dims(cols.into()) => {
                let matrix = Matrix { rows, cols, format: Format::Dense(scalar) };
                Ok(LinearInfo { matrix, codes: info.range, scales: None, biases: None })
            }
            _ => Err(self.wrong(info, format!("type BF16, F16 or F32 and shape {shape}"), described(info))),
        }
    }
}

/// Narrows the ranges of a stack to its first matrix.
fn first_expert(stack: LinearInfo) -> Stack {
    let matrix = stack.matrix;
    let scales = |range: Option<FileRange>| range.map(|range| FileRange { bytes: matrix.scale_bytes(), ..range });
    let first = LinearInfo {
        matrix,
        codes: FileRange { bytes: matrix.code_bytes(), ..stack.codes },
        scales: scales(stack.scales),
        biases: scales(stack.biases),
    };
    Stack { first, code_stride: matrix.code_bytes() }
}

/// `[rows, cols]` or `[lead, rows, cols]`.
#[derive(Clone, Copy)]
struct Shape {
    lead: Option<u32>,
    rows: u32,
    cols: u32,
}

impl Shape {
    /// The shape with another last dimension.
    fn dims(self, last: u64) -> Vec<u64> {
        self.lead.into_iter().chain([self.rows]).map(u64::from).chain([last]).collect()
    }
}

impl std::fmt::Display for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&shown_shape(&self.dims(self.cols.into())))
    }
}

/// The float types that weights come in.
pub(crate) fn scalar(dtype: Dtype) -> Option<Scalar> {
    match dtype {
        Dtype::Bf16 => Some(Scalar::Bf16),
        Dtype::F16 => Some(Scalar::F16),
        Dtype::F32 => Some(Scalar::F32),
        _ => None,
    }
}

fn described(info: &TensorInfo) -> String {
    format!("type {} and shape {}", info.dtype, shown_shape(&info.shape))
}

/// A format, fit for a message.
pub(crate) fn shown_format(format: Format) -> String {
    let name = |scalar| match scalar {
        Scalar::Bf16 => "BF16",
        Scalar::F16 => "F16",
        Scalar::F32 => "F32",
    };
    match format {
        Format::Dense(scalar) => name(scalar).into(),
        Format::Affine { bits, group, scale } => format!("{bits}-bit groups of {group} ({} scales)", name(scale)),
    }
}
