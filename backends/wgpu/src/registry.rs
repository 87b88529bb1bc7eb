//! Owns: the kernel registry: which WGSL parts, bindings and constants make up each kernel, the overrides that replace
//! some, and the pipelines built so far (engine.md 2.1).
//! Refuses: layouts guessed by a driver; a layout is what the WGSL declares, and an override takes that very layout.
//! Invariants: a key holds weight shapes, form, profile and device features as parts and constants, never rows
//! (engine.md 3.7h); a pipeline is built once; an override that does not build leaves the WGSL in place.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::num::NonZeroU32;
use std::sync::{Arc, mpsc};

use parking_lot::Mutex;
use ss_backend::{Error, Format, Matrix, Result, Scalar, Steps};

use crate::bindings::{Access, Binding, declared};
use crate::device::{Device, IMMEDIATE_BYTES};
use crate::overrides::{Override, Replacement};
use crate::parts;
use crate::tuning::{self, GemmTile};
use crate::vulkan;

/// A file of `wgsl/`.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) file: &'static str,
    pub(crate) text: &'static str,
}

/// A kernel: one entry point, called `main`, and what is known of it.
#[derive(Debug)]
pub(crate) struct Kernel {
    /// Its file, which holds the entry point and opens with the maths and the row rule.
    pub(crate) main: Part,
    /// The operation that it serves, or the name of what several operations share.
    pub(crate) operation: &'static str,
    /// What it is made of besides, in order.
    pub(crate) parts: &'static [&'static Part],
    /// Names of its weights, which replace `W` in the parts that come once a weight.
    pub(crate) weights: &'static [&'static str],
    /// What it does with its weights.
    pub(crate) product: Product,
    /// Where the maths is.
    pub(crate) section: &'static str,
    /// The same in plain Rust.
    pub(crate) twin: &'static str,
    /// Where its promises are tested.
    pub(crate) tests: &'static str,
    /// Rows of the tuning table that it uses.
    pub(crate) tuning: &'static [&'static str],
}

impl Kernel {
    /// Name of its file without the ending.
    pub(crate) fn name(&self) -> &'static str {
        self.main.file.trim_end_matches(".wgsl")
    }
}

/// What a kernel does with its weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Product {
    /// Reads their numbers.
    Numbers,
    /// Multiplies a few rows with them: `gemv.wgsl`, then `gemv_spread.wgsl` and `gemv_weight.wgsl` a weight.
    Gemv,
    /// The same where a lane has a unit or a few of a row: `gemv_sums.wgsl` besides, and `gemv_walk.wgsl` for
    /// `gemv_weight.wgsl`.
    Walk,
    /// Multiplies tiles of rows with them: the part of their inputs, the size of a tile and `gemm.wgsl` or, with matrix
    /// units, `gemm_units.wgsl`, then `gemm_weight.wgsl` a weight.
    Gemm,
}

impl Product {
    /// The parts that come once in a kernel with these weights.
    pub(crate) fn once(self, weights: &[WeightKey]) -> Vec<&'static Part> {
        let first = weights.first();
        match self {
            Product::Numbers => Vec::new(),
            Product::Gemv => vec![&parts::GEMV],
            Product::Walk => vec![&parts::GEMV, &parts::GEMV_SUMS],
            Product::Gemm => {
                let whole = first.is_none_or(|weight| weight.matrix.cols.is_multiple_of(QUAD));
                let inputs = if whole { &parts::INPUTS_QUADS } else { &parts::INPUTS_LOOSE };
                match first.map_or(Inputs::F32, |weight| weight.inputs) {
                    Inputs::F32 | Inputs::F16 => {
                        let size = if small(weights) { &parts::GEMM_SMALL } else { &parts::GEMM_LARGE };
                        vec![inputs, &parts::GEMM_TILE, size, &parts::GEMM]
                    }
                    Inputs::Units(units) => {
                        let side = match units.side {
                            Side::Eight => &parts::UNITS_8,
                            Side::Sixteen => &parts::UNITS_16,
                        };
                        let low = first.is_some_and(|weight| weight.tile == tuning::UNITS_LOW_TILE);
                        let size = if low { &parts::UNITS_LOW } else { &parts::UNITS_TALL };
                        vec![inputs, &parts::GEMM_TILE, size, side, &parts::GEMM_UNITS]
                    }
                }
            }
        }
    }

    /// The parts that come once a weight.
    pub(crate) fn per_weight(self, weights: &[WeightKey]) -> &'static [&'static Part] {
        match self {
            Product::Numbers => &[],
            Product::Gemv => &[&parts::GEMV_SPREAD, &parts::GEMV_WEIGHT],
            Product::Walk => &[&parts::GEMV_SPREAD, &parts::GEMV_WALK],
            Product::Gemm if small(weights) => &[&parts::GEMM_DIRECT, &parts::GEMM_WEIGHT],
            Product::Gemm => &[&parts::GEMM_AHEAD, &parts::GEMM_WEIGHT],
        }
    }

    /// The constants that it takes once in a kernel with these weights.
    fn constants(self, weights: &[WeightKey]) -> Vec<(&'static str, u32)> {
        match self {
            Product::Numbers => Vec::new(),
            Product::Gemv | Product::Walk => {
                let walks = self == Product::Walk;
                let spreads = || weights.iter().map(|weight| (weight, weight.spread()));
                let staged =
                    spreads().map(|(weight, spread)| spread.staged(walks, weight.matrix.format, weight.part_units()));
                let totals = spreads().map(|(_, spread)| tuning::ROWS_AT_ONCE * spread.tile());
                let mut constants = vec![
                    ("THREADS", tuning::THREADS.value),
                    ("STAGED", staged.max().unwrap_or(1)),
                    ("TOTALS", totals.max().unwrap_or(1)),
                ];
                if walks {
                    let sums = spreads().map(|(_, spread)| spread.tile() * (spread.lanes + 1));
                    constants.push(("SUMS", sums.max().unwrap_or(1)));
                }
                constants
            }
            Product::Gemm => match weights.first().map_or(Inputs::F32, |weight| weight.inputs) {
                Inputs::F32 => vec![("ROUNDED", 0)],
                Inputs::F16 => vec![("ROUNDED", 1)],
                Inputs::Units(units) => vec![("SUBGROUP", units.subgroup)],
            },
        }
    }
}

/// The entry point of every WGSL kernel.
pub(crate) const ENTRY: &str = "main";

/// Numbers in a quad.
const QUAD: u32 = 4;

/// Whether the prompt form multiplies these in small tiles.
fn small(weights: &[WeightKey]) -> bool {
    weights.first().is_some_and(|weight| weight.tile == tuning::SMALL_TILE)
}

/// What the prompt form of a product multiplies (engine.md 3.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Inputs {
    /// F32 numbers.
    F32,
    /// Numbers rounded to F16, inputs and weights, without matrix units.
    F16,
    /// The same with matrix units.
    Units(Units),
}

/// Matrix units that multiply square matrices of F16 and add F32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Units {
    /// Rows and columns of a matrix.
    pub(crate) side: Side,
    /// Threads that share one.
    pub(crate) subgroup: u32,
}

/// Rows and columns of a matrix that kernels have a part for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Side {
    /// 8
    Eight,
    /// 16
    Sixteen,
}

/// What a pipeline depends on of one weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct WeightKey {
    pub(crate) matrix: Matrix,
    /// Decode form: outputs that meet in a lane, if the kernel says so, and the rows between them.
    pub(crate) outputs: Option<(u32, u32)>,
    /// Decode form: how it is spread, where that does not follow from the weight alone.
    pub(crate) spread: Option<tuning::Gemv>,
    /// Decode form: columns that are multiplied at once, where the kernel splits them.
    pub(crate) part: Option<u32>,
    /// Prompt form: what is multiplied.
    pub(crate) inputs: Inputs,
    /// Prompt form: rows and outputs of a workgroup.
    pub(crate) tile: GemmTile,
    /// Where it lies in an expert record; none: in buffers of its own.
    pub(crate) place: Option<Place>,
    /// Whether it is two of one shape in buffers of their own.
    pub(crate) halves: bool,
}

/// Where a projection lies in its expert record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    /// First codes or dense numbers, in 16 bytes.
    pub(crate) codes: u32,
    /// First scale, in 4 bytes.
    pub(crate) scales: u32,
    /// First bias, in 4 bytes.
    pub(crate) biases: u32,
    /// Where the rest lies, if it is two projections of one format that are read as one.
    pub(crate) rest: Option<Rest>,
}

/// The second of two projections of one format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Rest {
    /// Codes of the first, in 16 bytes.
    pub(crate) codes_at: u32,
    /// How much later than right behind the first's the second's codes lie, in 16 bytes.
    pub(crate) codes_by: u32,
    /// Scales of the first, and as many biases, in 4 bytes.
    pub(crate) scales_at: u32,
    /// How much later the second's scales lie, in 4 bytes.
    pub(crate) scales_by: u32,
    /// How much later the second's biases lie, in 4 bytes.
    pub(crate) biases_by: u32,
}

impl Rest {
    /// For a projection that is alone.
    const NONE: Rest = Rest { codes_at: u32::MAX, codes_by: 0, scales_at: u32::MAX, scales_by: 0, biases_by: 0 };
}

impl WeightKey {
    /// How the decode form spreads it.
    pub(crate) fn spread(&self) -> tuning::Gemv {
        self.spread.unwrap_or_else(|| tuning::gemv(self.matrix, self.part, self.outputs.map(|(count, _)| count)))
    }

    /// Most units of a row that the decode form multiplies at once.
    pub(crate) fn part_units(&self) -> u32 {
        tuning::part_units(self.matrix, self.part)
    }
}

impl Place {
    fn constants(self) -> [(&'static str, u32); 8] {
        let rest = self.rest.unwrap_or(Rest::NONE);
        [
            ("CODES", self.codes),
            ("SCALES", self.scales),
            ("BIASES", self.biases),
            ("CODES_AT", rest.codes_at),
            ("CODES_BY", rest.codes_by),
            ("SCALES_AT", rest.scales_at),
            ("SCALES_BY", rest.scales_by),
            ("BIASES_BY", rest.biases_by),
        ]
    }
}

/// How a kernel sees the slot pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum PoolBinding {
    /// Not at all.
    None,
    /// One chunk.
    Chunk,
    /// This many chunks in one array.
    Array(NonZeroU32),
}

/// Everything that a pipeline depends on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    /// Name of the kernel.
    pub(crate) kernel: &'static str,
    pub(crate) weights: Vec<WeightKey>,
    pub(crate) pool: PoolBinding,
    /// Values of its own override constants; those of its weights follow from the weights.
    pub(crate) constants: Vec<(&'static str, u32)>,
}

impl Key {
    /// The kernel and the shape of its first weight, which tells what it is used for, and the language of what replaces it.
    fn label(&self, language: Option<&str>) -> String {
        let shape = self.weights.first().map(|WeightKey { matrix, .. }| format!(" {}x{}", matrix.rows, matrix.cols));
        let language = language.map(|language| format!(" ({language})"));
        format!("{}{}{}", self.kernel, shape.unwrap_or_default(), language.unwrap_or_default())
    }
}

/// A pipeline, ready to be dispatched.
pub(crate) struct Pipeline {
    pub(crate) raw: wgpu::ComputePipeline,
    /// What its time is counted under.
    pub(crate) label: Arc<str>,
    /// Layout of group 0: inputs, outputs and weights. The pool, if there is one, is group 1.
    pub(crate) arguments: wgpu::BindGroupLayout,
    /// Bindings of group 0, in order.
    pub(crate) bindings: Vec<Binding>,
}

/// The pipelines built so far.
#[derive(Default)]
pub(crate) struct Registry {
    built: Mutex<HashMap<Key, Arc<Pipeline>>>,
    /// Kernels whose replacements did not build, so that the WGSL runs.
    refused: Mutex<BTreeSet<&'static str>>,
    overrides: Vec<Box<dyn Override>>,
    /// Replaces text in every source, to prove that the tests notice.
    #[cfg(test)]
    pub(crate) mutation: Option<(&'static str, &'static str)>,
}

impl Registry {
    /// A registry in which the first of `overrides` that knows a key replaces its WGSL.
    pub(crate) fn with_overrides(overrides: Vec<Box<dyn Override>>) -> Self {
        Registry { overrides, ..Registry::default() }
    }

    /// The pipeline of this key, built if it is new.
    pub(crate) fn pipeline(&self, device: &Device, kernel: &Kernel, key: Key) -> Result<Arc<Pipeline>> {
        if let Some(pipeline) = self.built.lock().get(&key) {
            return Ok(Arc::clone(pipeline));
        }
        // Not locked while it builds, which may take a second: others build theirs beside it.
        let pipeline = Arc::new(self.build(device, kernel, &key)?);
        Ok(Arc::clone(self.built.lock().entry(key).or_insert(pipeline)))
    }

    /// Builds those of these pipelines that are new, on all processors, and says after each how many are done.
    pub(crate) fn build_all(
        &self,
        device: &Device,
        wanted: Vec<(&'static Kernel, Key)>,
        progress: Steps<'_>,
    ) -> Result<()> {
        let mut new: HashMap<Key, &'static Kernel> = wanted.into_iter().map(|(kernel, key)| (key, kernel)).collect();
        new.retain(|key, _| !self.built.lock().contains_key(key));
        let all = new.len();
        let queue = Mutex::new(new.into_iter());
        let (done, finished) = mpsc::channel();
        std::thread::scope(|scope| {
            for _ in 0..std::thread::available_parallelism().map_or(1, usize::from).min(all) {
                let (queue, done) = (&queue, done.clone());
                scope.spawn(move || {
                    while let Some((key, kernel)) = { queue.lock().next() } {
                        let built = self.pipeline(device, kernel, key).map(drop);
                        // Nobody listens any more after a failure.
                        if done.send(built).is_err() {
                            break;
                        }
                    }
                });
            }
            drop(done);
            finished.into_iter().enumerate().try_for_each(|(before, built)| {
                built?;
                progress(before + 1, all);
                Ok(())
            })
        })
    }

    /// Kernels whose replacements did not build.
    pub(crate) fn refused(&self) -> Vec<&'static str> {
        self.refused.lock().iter().copied().collect()
    }

    /// How many pipelines were built so far.
    pub(crate) fn count(&self) -> usize {
        self.built.lock().len()
    }

    /// The keys of all pipelines built so far.
    #[cfg(test)]
    pub(crate) fn keys(&self) -> Vec<Key> {
        self.built.lock().keys().cloned().collect()
    }

    #[cfg(not(test))]
    fn source(&self, kernel: &Kernel, key: &Key) -> String {
        source(kernel, key)
    }

    #[cfg(test)]
    fn source(&self, kernel: &Kernel, key: &Key) -> String {
        let source = source(kernel, key);
        self.mutation.map_or(source.clone(), |(from, to)| source.replace(from, to))
    }

    fn build(&self, device: &Device, kernel: &Kernel, key: &Key) -> Result<Pipeline> {
        let source = self.source(kernel, key);
        let mut bindings: Vec<Binding> = declared(&source).into_iter().filter(|binding| binding.group == 0).collect();
        bindings.sort_by_key(|binding| binding.index);
        if bindings.iter().zip(0..).any(|(binding, index)| binding.index != index) {
            return Err(Error::Refused(format!(
                "bindings of kernel {} are not numbered from 0: {bindings:?}",
                key.kernel
            )));
        }
        let pool = pool_layout(device, key.pool);
        let arguments = layout(device, &bindings.iter().map(|binding| (binding.access, None)).collect::<Vec<_>>());
        let groups: Vec<_> = [&arguments].into_iter().chain(&pool).map(Some).collect();

        let made = |raw, language: Option<&str>| (raw, key.label(language).into());
        let replaced = self.overrides.iter().find_map(|replacement| {
            let module = || Ok(replacement.module(device, kernel, key));
            match checked(device, kernel, key, &groups, module) {
                Ok(raw) => raw.map(|raw| made(raw, Some(replacement.name()))),
                // The WGSL computes the same.
                Err(_) => {
                    self.refused.lock().insert(key.kernel);
                    None
                }
            }
        });
        let own = || {
            let raw = checked(device, kernel, key, &groups, || own(device, kernel, key, source).map(Some))?;
            let none = || Error::Refused(format!("kernel {key:?} has no module"));
            Ok::<_, Error>(made(raw.ok_or_else(none)?, None))
        };
        let (raw, label) = replaced.map_or_else(own, Ok)?;
        Ok(Pipeline { raw, label, arguments, bindings })
    }
}

/// The module of a kernel's WGSL.
fn own(device: &Device, kernel: &Kernel, key: &Key, source: String) -> Result<Replacement> {
    if device.api == wgpu::Backend::Vulkan && vulkan::has_units(&source) {
        let words = vulkan::lowered(&source, key, constants(kernel, key))
            .map_err(|why| Error::Refused(format!("kernel {key:?} does not build: {why}")))?;
        return Ok(Replacement { module: vulkan::module(device, key, &words), entry: ENTRY, takes_constants: false });
    }
    Ok(Replacement { module: wgsl(device, key, source), entry: ENTRY, takes_constants: true })
}

/// The pipeline of the module that `module` gives, if it gives one.
fn checked(
    device: &Device,
    kernel: &Kernel,
    key: &Key,
    groups: &[Option<&wgpu::BindGroupLayout>],
    module: impl FnOnce() -> Result<Option<Replacement>>,
) -> Result<Option<wgpu::ComputePipeline>> {
    let internal = device.raw.push_error_scope(wgpu::ErrorFilter::Internal);
    let invalid = device.raw.push_error_scope(wgpu::ErrorFilter::Validation);
    let raw = module()?.map(|module| {
        let constants = if module.takes_constants { constants(kernel, key) } else { Vec::new() };
        pipeline(device, key, groups, &module, &constants)
    });
    let invalid = pollster::block_on(invalid.pop());
    match invalid.or(pollster::block_on(internal.pop())) {
        Some(error) => Err(Error::Refused(format!("kernel {key:?} does not build: {error}"))),
        None => Ok(raw),
    }
}

/// Builds a module that checks every index and bounds no loop: a counter in each loop keeps drivers from unrolling it, which
/// cost three times the time on an H200, where the index checks cost nothing.
fn wgsl(device: &Device, key: &Key, source: String) -> wgpu::ShaderModule {
    let descriptor =
        wgpu::ShaderModuleDescriptor { label: Some(key.kernel), source: wgpu::ShaderSource::Wgsl(Cow::Owned(source)) };
    let checks = wgpu::ShaderRuntimeChecks { force_loop_bounding: false, ..wgpu::ShaderRuntimeChecks::checked() };
    // SAFETY: what may not be taken for granted without the counters is that loops end. Every loop of `wgsl/` counts
    // towards a bound by steps that are not zero; a test reads the sources for others.
    unsafe { device.raw.create_shader_module_trusted(descriptor, checks) }
}

fn pipeline(
    device: &Device,
    key: &Key,
    groups: &[Option<&wgpu::BindGroupLayout>],
    replacement: &Replacement,
    constants: &[(String, f64)],
) -> wgpu::ComputePipeline {
    let constants: Vec<(&str, f64)> = constants.iter().map(|(name, value)| (&**name, *value)).collect();
    let layout = device.raw.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
        label: Some(key.kernel),
        bind_group_layouts: groups,
        immediate_size: IMMEDIATE_BYTES,
    });
    device.raw.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: Some(key.kernel),
        layout: Some(&layout),
        module: &replacement.module,
        entry_point: Some(replacement.entry),
        compilation_options: wgpu::PipelineCompilationOptions {
            constants: &constants,
            // Every kernel writes its workgroup memory before it reads it.
            zero_initialize_workgroup_memory: false,
        },
        cache: device.cache.as_ref(),
    })
}

/// The WGSL of a kernel: the pool's functions, the parts, each weight, and the entry point.
pub(crate) fn source(kernel: &Kernel, key: &Key) -> String {
    let access = match key.pool {
        PoolBinding::None => None,
        PoolBinding::Chunk => Some(&parts::POOL_CHUNK),
        PoolBinding::Array(_) => Some(&parts::POOL_ARRAY),
    };
    let once = kernel.product.once(&key.weights);
    let mut text: Vec<Cow<'_, str>> = access.iter().map(|part| part.text.into()).collect();
    text.extend(kernel.parts.iter().chain(&once).map(|part| Cow::from(part.text)));
    let mut next = own_bindings(kernel, &once);
    for (name, weight) in kernel.weights.iter().zip(&key.weights) {
        let holder = holder_part(weight);
        let per_weight = kernel.product.per_weight(&key.weights).iter().copied();
        let parts = [holder, weight_part(weight.matrix)].into_iter().chain(per_weight);
        text.extend(parts.map(|part| Cow::from(named(part.text, name, next))));
        next += declared(holder.text).len() as u32;
    }
    text.push(kernel.main.text.into());
    enabled_first(&text.join("\n"))
}

/// Puts the lines that enable something in front of all else, each once, where WGSL wants them.
fn enabled_first(text: &str) -> String {
    let (mut enabled, rest): (Vec<_>, Vec<_>) = text.lines().partition(|line| line.starts_with("enable "));
    enabled.sort_unstable();
    enabled.dedup();
    enabled.extend(rest);
    enabled.join("\n")
}

/// Bindings of group 0 before those of the weights.
fn own_bindings(kernel: &Kernel, once: &[&Part]) -> u32 {
    let parts = [&kernel.main].into_iter().chain(kernel.parts.iter().chain(once).copied());
    parts.flat_map(|part| declared(part.text)).filter(|binding| binding.group == 0).count() as u32
}

/// The values of all override constants.
pub(crate) fn constants(kernel: &Kernel, key: &Key) -> Vec<(String, f64)> {
    let mut all: Vec<(String, u32)> = key.constants.iter().map(|&(name, value)| (name.to_owned(), value)).collect();
    let once = kernel.product.constants(&key.weights);
    all.extend(once.into_iter().map(|(name, value)| (name.to_owned(), value)));
    for (name, weight) in kernel.weights.iter().zip(&key.weights) {
        let product = match kernel.product {
            Product::Numbers | Product::Gemm => Vec::new(),
            Product::Gemv => gemv_constants(weight),
            Product::Walk => walk_constants(weight),
        };
        let place = weight.place.map(|place| place.constants()).into_iter().flatten();
        let constants = weight_constants(weight.matrix).into_iter().chain(product).chain(place);
        all.extend(constants.map(|(constant, value)| (format!("{name}_{constant}"), value)));
    }
    all.into_iter().map(|(name, value)| (name, f64::from(value))).collect()
}

fn gemv_constants(weight: &WeightKey) -> Vec<(&'static str, u32)> {
    let shape = weight.spread();
    let (alike, apart) = weight.outputs.unwrap_or((1, 1));
    let steps = shape.steps(weight.matrix.format, weight.part_units());
    vec![("LANES", shape.lanes), ("OUTPUTS", shape.outputs), ("ALIKE", alike), ("APART", apart), ("STEPS", steps)]
}

fn walk_constants(weight: &WeightKey) -> Vec<(&'static str, u32)> {
    let shape = weight.spread();
    let (alike, apart) = weight.outputs.unwrap_or((1, 1));
    let units = weight.part_units();
    vec![
        ("LANES", shape.lanes),
        ("OUTPUTS", shape.outputs),
        ("ALIKE", alike),
        ("APART", apart),
        ("STEPS", shape.walk_steps(weight.matrix.format, units)),
        ("ONCE", u32::from(units <= shape.lanes)),
        ("SPLIT", shape.split()),
    ]
}

/// The part that says where a weight lies.
fn holder_part(weight: &WeightKey) -> &'static Part {
    let format = weight_part(weight.matrix).file;
    match weight.place {
        Some(_) => &parts::SLOT_WEIGHT,
        None if weight.halves => &parts::BOUND_HALVES,
        None if weight.matrix.format.is_affine() => &parts::BOUND_AFFINE,
        None if format == parts::WEIGHT_LOOSE.file => &parts::BOUND_WORDS,
        None => &parts::BOUND_QUADS,
    }
}

/// The part for a weight's format.
pub(crate) fn weight_part(matrix: Matrix) -> &'static Part {
    let fills = |unit: u32| matrix.cols.is_multiple_of(unit);
    match matrix.format {
        Format::Affine { bits: 4, .. } => &parts::WEIGHT_AFFINE4,
        Format::Affine { .. } => &parts::WEIGHT_AFFINE8,
        Format::Dense(Scalar::F32) if fills(4) => &parts::WEIGHT_DENSE32,
        Format::Dense(Scalar::Bf16 | Scalar::F16) if fills(8) => &parts::WEIGHT_DENSE16,
        Format::Dense(_) => &parts::WEIGHT_LOOSE,
    }
}

/// The number by which WGSL knows a scalar (`numbers.wgsl`).
pub(crate) const fn scalar_code(scalar: Scalar) -> u32 {
    match scalar {
        Scalar::Bf16 => 0,
        Scalar::F16 => 1,
        Scalar::F32 => 2,
    }
}

/// The constants that the part for a weight's format takes.
fn weight_constants(matrix: Matrix) -> Vec<(&'static str, u32)> {
    let mut constants = vec![("ROWS", matrix.rows), ("COLS", matrix.cols)];
    match matrix.format {
        Format::Affine { group, scale, .. } => constants.extend([("GROUP", group), ("SCALAR", scalar_code(scale))]),
        Format::Dense(scalar) if weight_part(matrix).file != parts::WEIGHT_DENSE32.file => {
            constants.push(("SCALAR", scalar_code(scalar)));
        }
        Format::Dense(_) => {}
    }
    constants
}

/// A part of one weight: `W_` at the start of a word becomes the weight's name, `W_0`, `W_1`, `W_2` in a binding the
/// numbers from `first` on.
fn named(text: &str, name: &str, first: u32) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let mut before = ' ';
    while let Some(at) = rest.find("W_") {
        before = rest[..at].chars().next_back().unwrap_or(before);
        out.push_str(&rest[..at]);
        let after = &rest[at + 2..];
        let digit = after.chars().next().and_then(|c| c.to_digit(10));
        match digit {
            Some(digit) if before == '(' => out.push_str(&(first + digit).to_string()),
            _ if before.is_alphanumeric() || before == '_' => out.push_str("W_"),
            _ => out.extend([name, "_"]),
        }
        rest = &after[usize::from(digit.is_some() && before == '(')..];
        before = '_';
    }
    out.push_str(rest);
    out
}

/// Layout of the group that holds the pool: each chunk as quads and as words.
pub(crate) fn pool_layout(device: &Device, pool: PoolBinding) -> Option<wgpu::BindGroupLayout> {
    let count = match pool {
        PoolBinding::None => return None,
        PoolBinding::Chunk => None,
        PoolBinding::Array(chunks) => Some(chunks),
    };
    Some(layout(device, &[(Access::Read, count), (Access::Read, count)]))
}

fn layout(device: &Device, bindings: &[(Access, Option<NonZeroU32>)]) -> wgpu::BindGroupLayout {
    let entry = |(binding, &(access, count)): (u32, &(Access, Option<NonZeroU32>))| wgpu::BindGroupLayoutEntry {
        binding,
        visibility: wgpu::ShaderStages::COMPUTE,
        ty: wgpu::BindingType::Buffer {
            ty: wgpu::BufferBindingType::Storage { read_only: access == Access::Read },
            has_dynamic_offset: false,
            min_binding_size: None,
        },
        count,
    };
    let entries: Vec<_> = (0..).zip(bindings).map(entry).collect();
    device.raw.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor { label: None, entries: &entries })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_weights_part_takes_the_weights_name_at_the_start_of_words_only() {
        let text =
            "@group(0) @binding(W_1) var<storage, read> W_scales: array<u32>; // [ROWS, W_0]\nROW_W_X W_W_ROOM(W_a)";
        let named = named(text, "down", 5);
        assert_eq!(
            named,
            "@group(0) @binding(6) var<storage, read> down_scales: array<u32>; // [ROWS, down_0]\n\
             ROW_W_X down_W_ROOM(down_a)"
        );
    }
}
