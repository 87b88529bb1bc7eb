//! Owns: random data, weights with their F64 values, and short ways to and from buffers.

use ss_backend::op::Carry;
use ss_backend::{
    Arithmetic, Backend, Buffer, Form, Format, Linear, Matrix, Part, Recorder, Rows, Scalar, Scope, Stage,
};

use crate::{Options, Reference};

/// One thread, vector units.
pub fn fast() -> Reference {
    Reference::new(Options { threads: 1, memory_limit: None, simd: true, f16_inputs: true }).unwrap()
}

/// One thread, the plain twin.
pub fn plain() -> Reference {
    Reference::new(Options { threads: 1, memory_limit: None, simd: false, f16_inputs: true }).unwrap()
}

/// Two threads that split everything.
pub fn threaded() -> Reference {
    let mut reference =
        Reference::new(Options { threads: 2, memory_limit: None, simd: true, f16_inputs: true }).unwrap();
    reference.split_everything();
    reference
}

/// SplitMix64.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut v = self.0;
        v = (v ^ (v >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        v = (v ^ (v >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        v ^ (v >> 31)
    }

    /// Below `limit`.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    /// In -1..1.
    pub fn unit(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    pub fn vec(&mut self, len: usize, scale: f32) -> Vec<f32> {
        (0..len).map(|_| self.unit() * scale).collect()
    }

    /// Norm weights around one.
    pub fn norm(&mut self, len: usize) -> Vec<f32> {
        (0..len).map(|_| 1.0 + 0.3 * self.unit()).collect()
    }
}

/// Bytes of a number, and the number that they stand for.
fn stored(scalar: Scalar, x: f32) -> (Vec<u8>, f64) {
    match scalar {
        Scalar::Bf16 => (half::bf16::from_f32(x).to_le_bytes().to_vec(), half::bf16::from_f32(x).to_f64()),
        Scalar::F16 => (half::f16::from_f32(x).to_le_bytes().to_vec(), half::f16::from_f32(x).to_f64()),
        Scalar::F32 => (x.to_le_bytes().to_vec(), f64::from(x)),
    }
}

/// A random weight and its values.
#[derive(Clone)]
pub struct Weight {
    pub matrix: Matrix,
    pub codes: Vec<u8>,
    pub scales: Vec<u8>,
    pub biases: Vec<u8>,
    /// `[rows, cols]`.
    pub values: Vec<f64>,
}

impl Weight {
    pub fn random(random: &mut Random, rows: usize, cols: usize, format: Format) -> Weight {
        let matrix = Matrix { rows: rows as u32, cols: cols as u32, format };
        let mut weight = Weight { matrix, codes: vec![], scales: vec![], biases: vec![], values: vec![] };
        let size = 1.5 / (cols as f32).sqrt();
        match format {
            Format::Dense(scalar) => {
                for _ in 0..rows * cols {
                    let (bytes, value) = stored(scalar, random.unit() * size);
                    weight.codes.extend(bytes);
                    weight.values.push(value);
                }
            }
            Format::Affine { bits, group, scale } => {
                for _ in 0..rows * cols / group as usize {
                    weight.push_group(random, bits, group as usize, scale, size);
                }
            }
        }
        weight
    }

    fn push_group(&mut self, random: &mut Random, bits: u32, group: usize, scalar: Scalar, size: f32) {
        let steps = (1 << bits) as f32;
        let (s_bytes, s) = stored(scalar, size * 2.0 / steps * (1.0 + 0.5 * random.unit()));
        let (b_bytes, b) = stored(scalar, -size * (1.0 + 0.2 * random.unit()));
        self.scales.extend(s_bytes);
        self.biases.extend(b_bytes);
        let codes: Vec<u8> = (0..group).map(|_| random.below(1 << bits) as u8).collect();
        self.values.extend(codes.iter().map(|&code| s * f64::from(code) + b));
        match bits {
            4 => self.codes.extend(codes.chunks(2).map(|pair| pair[0] | pair[1] << 4)),
            _ => self.codes.extend(codes),
        }
    }

    /// `W x`.
    pub fn times(&self, x: &[f64]) -> Vec<f64> {
        let cols = self.matrix.cols as usize;
        assert_eq!(x.len(), cols);
        self.values.chunks(cols).map(|row| row.iter().zip(x).map(|(w, x)| w * x).sum()).collect()
    }

    /// `W x` of a GEMM: inputs and weights are rounded to F16 where the mode says so.
    pub fn multiply(&self, mode: Mode, x: &[f64]) -> Vec<f64> {
        if !mode.rounds() {
            return self.times(x);
        }
        Weight { values: mode.input(&self.values), ..self.clone() }.times(&mode.input(x))
    }

    pub fn linear(&self, on: &Reference) -> Linear {
        let side = |bytes: &Vec<u8>| (!bytes.is_empty()).then(|| upload_bytes(on, bytes));
        let codes = upload_bytes(on, &self.codes);
        Linear { matrix: self.matrix, codes, scales: side(&self.scales), biases: side(&self.biases) }
    }

    /// Copies the pieces to their places in a record.
    pub fn place(&self, part: &Part, record: &mut [u8]) {
        for (span, bytes) in [(part.codes, &self.codes), (part.scales, &self.scales), (part.biases, &self.biases)] {
            record[span.offset as usize..(span.offset + span.bytes) as usize].copy_from_slice(bytes);
        }
    }
}

pub fn upload_bytes(on: &Reference, bytes: &[u8]) -> Buffer {
    let buffer = on.alloc("test", bytes.len() as u64).unwrap();
    let mut bytes = bytes.to_vec();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    on.upload(&buffer, 0, &bytes).unwrap();
    buffer
}

pub fn upload(on: &Reference, numbers: &[f32]) -> Buffer {
    upload_bytes(on, bytemuck::cast_slice(numbers))
}

pub fn upload_ids(on: &Reference, ids: &[u32]) -> Buffer {
    upload_bytes(on, bytemuck::cast_slice(ids))
}

pub fn zeros(on: &Reference, len: usize) -> Buffer {
    on.alloc("test", 4 * len as u64).unwrap()
}

pub fn download(on: &Reference, buffer: &Buffer) -> Vec<f32> {
    let mut numbers = vec![0.0f32; (buffer.bytes() / 4) as usize];
    on.read(buffer, 0, bytemuck::cast_slice_mut(&mut numbers)).unwrap();
    numbers
}

pub fn download_ids(on: &Reference, buffer: &Buffer) -> Vec<u32> {
    download(on, buffer).into_iter().map(f32::to_bits).collect()
}

pub fn in_place(state: &Buffer) -> Carry {
    Carry { from: None, state: state.clone() }
}

/// How a case is run.
#[derive(Clone, Copy, Debug)]
pub struct Mode {
    pub arithmetic: Arithmetic,
    pub form: Form,
}

pub const EXACT: Mode = Mode { arithmetic: Arithmetic::Exact, form: Form::Generated };
pub const MODES: [Mode; 4] = [
    EXACT,
    Mode { arithmetic: Arithmetic::Exact, form: Form::Prompt },
    Mode { arithmetic: Arithmetic::Fast, form: Form::Generated },
    Mode { arithmetic: Arithmetic::Fast, form: Form::Prompt },
];

impl Mode {
    pub fn rows(self, count: usize) -> Rows {
        Rows { count: count as u32, form: self.form }
    }

    pub fn rounds(self) -> bool {
        self.arithmetic.rounds_inputs(self.form)
    }

    /// A GEMM's inputs or weights, rounded to F16 where the mode says so.
    pub fn input(self, x: &[f64]) -> Vec<f64> {
        let round = |x: f64| half::f16::from_f32(x as f32).to_f64();
        x.iter().map(|&x| if self.rounds() { round(x) } else { x }).collect()
    }

    pub fn submit(self, on: &Reference, record: impl FnOnce(&mut Recorder)) -> ss_backend::Result<()> {
        let mut recorder = Recorder::new(self.arithmetic);
        recorder.at(Scope::Layer(0), Stage::State);
        record(&mut recorder);
        on.submit(recorder.all()).map(|_| ())
    }
}

pub fn wide(x: &[f32]) -> Vec<f64> {
    x.iter().map(|&x| f64::from(x)).collect()
}

pub fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

pub fn silu(x: f64) -> f64 {
    x * sigmoid(x)
}

pub fn rms(x: &[f64], weight: &[f32], eps: f64) -> Vec<f64> {
    let mean = x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64;
    x.iter().zip(weight).map(|(x, &w)| x / (mean + eps).sqrt() * f64::from(w)).collect()
}

/// Largest difference over the largest expected number; NaN fails.
pub fn assert_close(what: &str, have: &[f32], want: &[f64], tolerance: f64) {
    assert_eq!(have.len(), want.len(), "{what}: length");
    let largest = want.iter().fold(0.0f64, |a, b| a.max(b.abs()));
    for (i, (&have, &want)) in have.iter().zip(want).enumerate() {
        let error = (f64::from(have) - want).abs() / largest.max(1e-30);
        assert!(error <= tolerance, "{what}[{i}]: {have} instead of {want}, {error:e} of {largest}");
    }
}

pub fn assert_bits(what: &str, have: &[f32], want: &[f32]) {
    assert_eq!(have.len(), want.len(), "{what}: length");
    for (i, (have, want)) in have.iter().zip(want).enumerate() {
        assert_eq!(have.to_bits(), want.to_bits(), "{what}[{i}]: {have} instead of {want}");
        assert!(have.is_finite(), "{what}[{i}]: {have}");
    }
}
