//! Owns: the device of a run, memory full of random numbers on it, and how one operation is timed.
//! Refuses: a run without a device, in one sentence.
//! Invariants: an operation is timed over many of its kind in one submission, each over other weights, so that neither a
//! submission's latency nor a cache enters; the time to encode does not count on a GPU.

use std::cell::RefCell;
use std::path::Path;
use std::time::{Duration, Instant};

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Throughput};
use ss_backend::{Arithmetic, Backend, Buffer, DeviceKind, Error, Form, Linear, Matrix, Recorder, Result, Rows};
use ss_backend::{Format, Scalar};
use ss_checkpoint::{Geometry, imitation};
use ss_model::shapes::Shapes;

use crate::table::Line;

/// As most released weights are stored.
pub const Q4: Format = Format::Affine { bits: 4, group: 64, scale: Scalar::Bf16 };
/// As released gates are stored.
pub const BF16: Format = Format::Dense(Scalar::Bf16);

/// One generated row.
pub const ONE: Rows = Rows { count: 1, form: Form::Generated };

/// Rows of a prompt.
const PROMPT: u32 = 2048;

/// How long a GPU works before it is timed.
const WAKING: Duration = Duration::from_millis(300);

/// Bytes of random data that are repeated over larger buffers.
const BLOCK: usize = 4 << 20;

/// How much of everything there is: as released, or little enough for a processor.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Weights that operations of a kind take turns with: several times a cache of 60 MB.
    pub rotated: u64,
    /// What the operations of a submission move together.
    pub moved: u64,
    /// Bytes of the slot pool.
    pub pool: u64,
    /// Choices a row.
    pub choices: u32,
    /// Rows of the vocabulary.
    pub vocab: u32,
    /// Rows of a prompt.
    pub prompt: u32,
    /// Bytes of the copied buffer.
    pub copied: u64,
}

impl Sizes {
    fn released(geometry: &Geometry, prompt: u32) -> Self {
        let (choices, vocab) = (geometry.choices, geometry.vocab);
        Sizes { rotated: 400 << 20, moved: 8 << 30, pool: 2 << 30, choices, vocab, prompt, copied: 1 << 30 }
    }

    /// Experts one matrix at a time, and no weight twice.
    fn small(geometry: &Geometry) -> Self {
        let vocab = geometry.vocab / 64;
        Sizes { rotated: 0, moved: 0, pool: 16 << 20, choices: 1, vocab, prompt: 32, copied: 64 << 20 }
    }
}

/// The device of a run.
pub struct Rig {
    pub backend: Box<dyn Backend>,
    pub geometry: Geometry,
    pub shapes: Shapes,
    pub sizes: Sizes,
    /// The profile of all operations.
    pub arithmetic: Arithmetic,
    /// Whether the device keeps its own time.
    timed: bool,
    /// Random codes, then BF16 numbers around 0.01, two of which make an F32 number of that size.
    codes: Vec<u8>,
    numbers: Vec<u8>,
    pub lines: RefCell<Vec<Line>>,
}

/// What an operation does that can be compared with what a device can do.
#[derive(Clone, Copy, Debug)]
pub enum Work {
    /// Bytes that it must move: weights, state, rows.
    Bytes(u64),
    /// Multiplications and additions.
    Flops(u64),
}

/// Records the operation of a place in a submission.
pub type Record = Box<dyn Fn(&mut Recorder, usize)>;

/// Makes the buffers of a case, and what records it.
pub type Make = dyn Fn(&Rig) -> Result<Record>;

/// An operation to be timed.
pub struct Case {
    pub name: String,
    pub work: Work,
    /// Allocates what it needs.
    pub make: Box<Make>,
}

impl Case {
    /// A case; `make` is called if it is not filtered out.
    pub fn new(name: impl Into<String>, work: Work, make: impl Fn(&Rig) -> Result<Record> + 'static) -> Self {
        Case { name: name.into(), work, make: Box::new(make) }
    }
}

impl Rig {
    /// The device that the environment names: `SS_BACKEND=reference`, `SS_ADAPTER=NAME`, else the first GPU. `SS_SIZES`
    /// is `released` or `small`; none: small on anything that is no GPU.
    pub fn open() -> Result<Self> {
        let config = imitation::released_config();
        let geometry = Geometry::from_config(&config, Path::new("config.json"))
            .map_err(|error| Error::Refused(error.to_string()))?;
        let backend = open()?;
        let kind = backend.facts().kind;
        let prompt = rows()?;
        let sizes = match std::env::var("SS_SIZES").as_deref() {
            Ok("released") => Sizes::released(&geometry, prompt),
            Ok("small") => Sizes::small(&geometry),
            Ok(other) => {
                return Err(Error::Refused(format!("`SS_SIZES` is `{other}`, expected `released` or `small`")));
            }
            Err(_) if kind == DeviceKind::Hardware => Sizes::released(&geometry, prompt),
            Err(_) => Sizes::small(&geometry),
        };
        let (mut state, mut codes, mut numbers) = (1, Vec::with_capacity(BLOCK), Vec::with_capacity(BLOCK));
        while codes.len() < BLOCK {
            let bits = random(&mut state);
            codes.extend(bits.to_le_bytes());
            numbers.extend((0x3c24_3c24_3c24_3c24 ^ (bits & 0x807f_807f_807f_807f)).to_le_bytes());
        }
        let arithmetic = arithmetic()?;
        let timed = kind != DeviceKind::Reference;
        let shapes = Shapes::new(&geometry);
        Ok(Rig { backend, geometry, shapes, sizes, arithmetic, timed, codes, numbers, lines: RefCell::default() })
    }

    /// Prompt rows.
    pub fn prompt(&self) -> Rows {
        Rows { count: self.sizes.prompt, form: Form::Prompt }
    }

    /// A zero-filled buffer of `numbers` numbers.
    pub fn zeros(&self, numbers: u32) -> Result<Buffer> {
        self.backend.alloc("bench", 4 * u64::from(numbers))
    }

    /// A buffer of small F32 numbers.
    pub fn numbers(&self, numbers: u32) -> Result<Buffer> {
        self.filled(4 * u64::from(numbers), &self.numbers)
    }

    /// A buffer of words.
    pub fn words(&self, words: &[u32]) -> Result<Buffer> {
        let buffer = self.backend.alloc("bench", size_of_val(words) as u64)?;
        self.backend.upload(&buffer, 0, bytemuck::cast_slice(words))?;
        Ok(buffer)
    }

    /// A buffer of small numbers of any type, so many bytes.
    pub fn bytes(&self, bytes: u64) -> Result<Buffer> {
        self.filled(bytes, &self.numbers)
    }

    fn filled(&self, bytes: u64, block: &[u8]) -> Result<Buffer> {
        let buffer = self.backend.alloc("bench", bytes)?;
        for offset in (0..bytes).step_by(block.len()) {
            let piece = block.len().min((bytes - offset) as usize);
            self.backend.upload(&buffer, offset, block.get(..piece).unwrap_or_default())?;
        }
        Ok(buffer)
    }

    /// A weight.
    pub fn linear(&self, rows: u32, cols: u32, format: Format) -> Result<Linear> {
        let matrix = Matrix { rows, cols, format };
        if !format.is_affine() {
            return Ok(Linear { matrix, codes: self.bytes(matrix.code_bytes())?, scales: None, biases: None });
        }
        let codes = self.filled(matrix.code_bytes(), &self.codes)?;
        let side = || self.bytes(matrix.scale_bytes()).map(Some);
        Ok(Linear { matrix, codes, scales: side()?, biases: side()? })
    }

    /// Fills an expert record; its codes are small numbers like all else.
    pub fn record(&self, slot: &mut [u8]) {
        slot.chunks_mut(self.numbers.len())
            .for_each(|to| to.copy_from_slice(self.numbers.get(..to.len()).unwrap_or_default()));
    }

    /// As many things of `bytes` bytes as operations take turns with.
    pub fn each<T>(&self, bytes: u64, make: impl Fn() -> Result<T>) -> Result<Vec<T>> {
        (0..self.sizes.rotated.div_ceil(bytes.max(1)).clamp(1, 128)).map(|_| make()).collect()
    }

    /// Times a case in a group of Criterion's, and keeps a line of the table.
    pub fn measure(&self, group: &mut BenchmarkGroup<'_, WallTime>, case: &Case) {
        let (throughput, most) = match case.work {
            Work::Bytes(bytes) => (Throughput::Bytes(bytes), self.sizes.moved / bytes.max(1)),
            Work::Flops(flops) => (Throughput::Elements(flops), self.sizes.moved.min(1) * 4),
        };
        let instances = most.clamp(1, 256) as usize;
        group.throughput(throughput);
        let (mut record, mut times) = (None, Vec::new());
        group.bench_function(&case.name, |b| {
            let record = record.get_or_insert_with(|| {
                let record = (case.make)(self).unwrap_or_else(|e| panic!("{}: {e}", case.name));
                self.wake(instances, &record);
                record
            });
            b.iter_custom(|iterations| {
                let rounds = iterations.div_ceil(instances as u64);
                let total: Duration = (0..rounds).map(|_| self.round(instances, record)).sum();
                let one = total.as_secs_f64() / (rounds * instances as u64) as f64;
                times.push(one);
                Duration::from_secs_f64(one * iterations as f64)
            });
        });
        times.sort_by(f64::total_cmp);
        if let Some(&seconds) = times.get(times.len() / 2) {
            self.lines.borrow_mut().push(Line { name: case.name.clone(), seconds, work: case.work });
        }
    }

    /// Keeps a GPU busy until its clocks are up, which an idle one takes down while memory is filled.
    fn wake(&self, instances: usize, record: &Record) {
        let start = Instant::now();
        while self.timed && start.elapsed() < WAKING {
            self.round(instances, record);
        }
    }

    /// One submission: how long the device took, by its own clock where it has one.
    fn round(&self, instances: usize, record: &Record) -> Duration {
        let mut recorder = Recorder::new(self.arithmetic);
        (0..instances).for_each(|place| record(&mut recorder, place));
        let (busy, start) = (self.busy(), Instant::now());
        let submission = self.backend.submit(recorder.all()).unwrap_or_else(|e| panic!("{e}"));
        self.backend.wait(submission).unwrap_or_else(|e| panic!("{e}"));
        let wall = start.elapsed();
        self.busy().zip(busy).map_or(wall, |(after, before)| after - before)
    }

    /// Time on the device so far, if it keeps it.
    fn busy(&self) -> Option<Duration> {
        self.timed.then(|| self.backend.counters().stages.get(ss_wgpu::WHOLE).copied().unwrap_or_default())
    }
}

/// Rows of a prompt on a GPU: `SS_ROWS`, else 2048.
fn rows() -> Result<u32> {
    let Some(text) = std::env::var_os("SS_ROWS") else { return Ok(PROMPT) };
    let rows = text.to_str().and_then(|text| text.parse().ok()).filter(|&rows| rows > 0);
    rows.ok_or_else(|| Error::Refused(format!("`SS_ROWS` is {text:?}, expected a number of rows")))
}

/// The profile: `SS_ARITHMETIC`, else fast.
fn arithmetic() -> Result<Arithmetic> {
    match std::env::var("SS_ARITHMETIC").as_deref() {
        Ok("exact") => Ok(Arithmetic::Exact),
        Ok("fast") | Err(_) => Ok(Arithmetic::Fast),
        Ok(other) => Err(Error::Refused(format!("`SS_ARITHMETIC` is `{other}`, expected `exact` or `fast`"))),
    }
}

fn open() -> Result<Box<dyn Backend>> {
    match std::env::var("SS_BACKEND").as_deref() {
        Ok("reference") => Ok(Box::new(ss_reference::Reference::new(ss_reference::Options::default())?)),
        Ok("wgpu") | Err(_) => {
            let adapter =
                std::env::var("SS_ADAPTER").map_or(ss_wgpu::AdapterChoice::Hardware, ss_wgpu::AdapterChoice::Named);
            let options = ss_wgpu::Options {
                timed: ss_wgpu::Timed::Submissions,
                matrix_units: true,
                ..ss_wgpu::Options::new(adapter)
            };
            Ok(Box::new(ss_wgpu::WgpuBackend::open(options)?))
        }
        Ok(other) => Err(Error::Refused(format!("`SS_BACKEND` is `{other}`, expected `wgpu` or `reference`"))),
    }
}

/// The next 64 random bits (splitmix64).
pub fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let v = (*state ^ (*state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let v = (v ^ (v >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    v ^ (v >> 31)
}

/// Bytes of numbers.
pub fn f32s(numbers: u32) -> u64 {
    4 * u64::from(numbers)
}

/// The thing whose turn it is.
pub fn turn<T>(things: &[T], place: usize) -> &T {
    &things[place % things.len()]
}
