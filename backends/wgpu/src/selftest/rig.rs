//! Owns: random data and weights, how a case is run, and short ways to and from buffers.

use std::fmt;

use ss_backend::op::Carry;
use ss_backend::{
    Arithmetic, Backend, Buffer, Form, Format, Linear, Matrix, Part, Recorder, Result, Rows, Scalar, Scope, Stage,
};

/// Most rows of a decode form (engine.md 3.7).
pub const MOST_GENERATED: u32 = 8;

/// Profile and form of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode {
    /// Profile.
    pub arithmetic: Arithmetic,
    /// Form of all rows.
    pub form: Form,
}

/// Every profile in every form.
pub const MODES: [Mode; 4] = [
    Mode { arithmetic: Arithmetic::Exact, form: Form::Generated },
    Mode { arithmetic: Arithmetic::Exact, form: Form::Prompt },
    Mode { arithmetic: Arithmetic::Fast, form: Form::Generated },
    Mode { arithmetic: Arithmetic::Fast, form: Form::Prompt },
];

/// Those that differ where nothing is stored rounded.
pub const PRODUCT_MODES: [Mode; 3] = [MODES[0], MODES[1], MODES[3]];

/// Those that differ where no profile rounds anything.
pub const UNROUNDED_MODES: [Mode; 2] = [MODES[0], MODES[1]];

/// What a tolerance becomes where inputs are rounded: an input beside a tie may round the other way on the twin, which is a
/// step of 2^-10 of one input, and that may be most of a sum of few.
const ROUNDED_TOLERANCE: f64 = 1e-3;

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = match self.form {
            Form::Prompt => "prompt rows",
            Form::Generated => "generated rows",
        };
        write!(f, "{rows} in {} arithmetic", self.arithmetic)
    }
}

impl Mode {
    /// The rows of an operation.
    pub fn rows(self, count: u32) -> Rows {
        Rows { count, form: self.form }
    }

    /// The tolerance of this mode for a case whose own is `tolerance`.
    pub fn bar(self, tolerance: f64) -> f64 {
        match self.arithmetic {
            Arithmetic::Exact => tolerance,
            Arithmetic::Fast => tolerance.max(ROUNDED_TOLERANCE),
        }
    }

    /// Records and submits some operations.
    ///
    /// # Errors
    /// What the backend refuses.
    pub fn submit(self, on: &dyn Backend, record: impl FnOnce(&mut Recorder)) -> Result<()> {
        let mut recorder = Recorder::new(self.arithmetic);
        recorder.at(Scope::Layer(0), Stage::State);
        record(&mut recorder);
        on.submit(recorder.all()).map(|_| ())
    }
}

/// A source of random numbers (splitmix64).
pub struct Random(pub u64);

impl Random {
    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut v = self.0;
        v = (v ^ (v >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        v = (v ^ (v >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        v ^ (v >> 31)
    }

    /// Below `limit`.
    pub fn below(&mut self, limit: u32) -> u32 {
        (self.bits() % u64::from(limit.max(1))) as u32
    }

    /// Evenly from -1 to 1.
    pub fn unit(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    /// `len` numbers from `-scale` to `scale`.
    pub fn numbers(&mut self, len: u32, scale: f32) -> Vec<f32> {
        (0..len).map(|_| self.unit() * scale).collect()
    }

    /// Norm weights around one.
    pub fn norm(&mut self, len: u32) -> Vec<f32> {
        (0..len).map(|_| 1.0 + 0.3 * self.unit()).collect()
    }
}

/// A random weight as stored.
#[derive(Clone, Debug)]
pub struct Weight {
    /// Shape and format.
    pub matrix: Matrix,
    codes: Vec<u8>,
    scales: Vec<u8>,
    biases: Vec<u8>,
}

impl Weight {
    /// Numbers of about `1 / sqrt(cols)`, so that products are about as large as their inputs.
    pub fn random(random: &mut Random, rows: u32, cols: u32, format: Format) -> Weight {
        let matrix = Matrix { rows, cols, format };
        let mut weight = Weight { matrix, codes: vec![], scales: vec![], biases: vec![] };
        let size = 1.5 / (cols as f32).sqrt();
        match format {
            Format::Dense(scalar) => {
                (0..rows * cols).for_each(|_| store(&mut weight.codes, scalar, random.unit() * size));
            }
            Format::Affine { bits, group, scale } => {
                let steps = (1u32 << bits) as f32;
                for _ in 0..rows * (cols / group) {
                    store(&mut weight.scales, scale, size * 2.0 / steps * (1.0 + 0.5 * random.unit()));
                    store(&mut weight.biases, scale, -size * (1.0 + 0.2 * random.unit()));
                }
                weight.codes = (0..matrix.code_bytes()).map(|_| random.bits() as u8).collect();
            }
        }
        weight
    }

    /// An F32 weight of given numbers.
    pub fn of(rows: u32, cols: u32, numbers: &[f32]) -> Weight {
        let codes = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        Weight { matrix: Matrix { rows, cols, format: F32 }, codes, scales: vec![], biases: vec![] }
    }

    /// The weight on a device.
    ///
    /// # Errors
    /// What the device refuses.
    pub fn linear(&self, on: &dyn Backend) -> Result<Linear> {
        let side = |bytes: &Vec<u8>| (!bytes.is_empty()).then(|| upload_bytes(on, bytes)).transpose();
        let codes = upload_bytes(on, &self.codes)?;
        Ok(Linear { matrix: self.matrix, codes, scales: side(&self.scales)?, biases: side(&self.biases)? })
    }

    /// Copies the pieces to their places in an expert record.
    pub fn place(&self, part: &Part, record: &mut [u8]) {
        for (span, bytes) in [(part.codes, &self.codes), (part.scales, &self.scales), (part.biases, &self.biases)] {
            let place = record.iter_mut().skip(span.offset as usize);
            place.zip(bytes).for_each(|(to, from)| *to = *from);
        }
    }
}

fn store(bytes: &mut Vec<u8>, scalar: Scalar, x: f32) {
    match scalar {
        Scalar::Bf16 => bytes.extend(half::bf16::from_f32(x).to_le_bytes()),
        Scalar::F16 => bytes.extend(half::f16::from_f32(x).to_le_bytes()),
        Scalar::F32 => bytes.extend(x.to_le_bytes()),
    }
}

/// A buffer that holds `bytes`, and zeros up to a whole word.
///
/// # Errors
/// What the device refuses.
pub fn upload_bytes(on: &dyn Backend, bytes: &[u8]) -> Result<Buffer> {
    let mut bytes = bytes.to_vec();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    let buffer = on.alloc("self-test", bytes.len() as u64)?;
    on.upload(&buffer, 0, &bytes)?;
    Ok(buffer)
}

/// A buffer that holds numbers or ids.
///
/// # Errors
/// What the device refuses.
pub fn upload<T: bytemuck::NoUninit>(on: &dyn Backend, words: &[T]) -> Result<Buffer> {
    upload_bytes(on, bytemuck::cast_slice(words))
}

/// A buffer for `len` numbers.
///
/// # Errors
/// What the device refuses.
pub fn zeros(on: &dyn Backend, len: u32) -> Result<Buffer> {
    on.alloc("self-test", 4 * u64::from(len))
}

/// All numbers or ids of a buffer.
///
/// # Errors
/// What the device refuses.
pub fn download<T: bytemuck::AnyBitPattern + bytemuck::NoUninit>(on: &dyn Backend, buffer: &Buffer) -> Result<Vec<T>> {
    let mut words = vec![T::zeroed(); buffer.bytes() as usize / size_of::<T>()];
    on.read(buffer, 0, bytemuck::cast_slice_mut(&mut words))?;
    Ok(words)
}

/// A state that is carried on where it lies.
pub fn in_place(state: &Buffer) -> Carry {
    Carry { from: None, state: state.clone() }
}

/// The rows `first .. first + count` of numbers `[rows, width]`.
pub fn rows_of(numbers: &[f32], first: u32, count: u32, width: u32) -> &[f32] {
    let (first, count, width) = (first as usize, count as usize, width as usize);
    numbers.get(first * width..(first + count) * width).unwrap_or_default()
}

/// Runs `f(first, count)` for each operation of a split.
///
/// # Errors
/// The first of `f`.
pub fn pieces(split: &[u32], mut f: impl FnMut(u32, u32) -> Result<()>) -> Result<()> {
    let mut first = 0;
    for &count in split {
        f(first, count)?;
        first += count;
    }
    Ok(())
}

/// Dense formats.
pub const BF16: Format = Format::Dense(Scalar::Bf16);
/// Dense formats.
pub const F16: Format = Format::Dense(Scalar::F16);
/// Dense formats.
pub const F32: Format = Format::Dense(Scalar::F32);

/// Affine formats.
pub const Q4: Format = Format::Affine { bits: 4, group: 64, scale: Scalar::Bf16 };
/// Affine formats.
pub const Q4_32: Format = Format::Affine { bits: 4, group: 32, scale: Scalar::F16 };
/// Affine formats.
pub const Q8: Format = Format::Affine { bits: 8, group: 32, scale: Scalar::F32 };
/// Affine formats.
pub const Q8_64: Format = Format::Affine { bits: 8, group: 64, scale: Scalar::Bf16 };
