//! Owns: opening the device under test, random records and inputs, and running one half of the experts.

use std::sync::LazyLock;

use ss_backend::op::{ExpertsIn, ExpertsOut};
use ss_backend::{Arithmetic, Backend, Buffer, Form, Format, Matrix, Pool, RecordLayout, Recorder, Rows, Scalar};

use super::slot_writes::HandedOn;
use crate::registry::Registry;
use crate::{AdapterChoice, ChunkAccess, Options, SlotWrites, Timed, WgpuBackend};

/// Replaces text in every kernel.
pub(super) type Mutation = (&'static str, &'static str);

/// Opens software Vulkan with chunks of at most `chunk_bytes`.
pub(super) fn open(chunk_bytes: Option<u64>, chunk_access: ChunkAccess, mutation: Option<Mutation>) -> WgpuBackend {
    let mut registry = Registry::default();
    registry.mutation = mutation;
    open_with(chunk_bytes, chunk_access, registry)
}

/// One device for all tests that change nothing about it, so that kernels are built once.
pub(super) fn shared() -> &'static WgpuBackend {
    static DEVICE: LazyLock<WgpuBackend> = LazyLock::new(|| open(None, ChunkAccess::Array, None));
    &DEVICE
}

/// The adapter that `SS_ADAPTER` names, software Vulkan without it.
pub(super) fn adapter() -> AdapterChoice {
    AdapterChoice::Named(std::env::var("SS_ADAPTER").unwrap_or_else(|_| "llvmpipe".to_owned()))
}

/// The same with a registry of one's own.
pub(super) fn open_with(chunk_bytes: Option<u64>, chunk_access: ChunkAccess, registry: Registry) -> WgpuBackend {
    opened(Options { chunk_bytes, chunk_access, ..options() }, registry)
}

/// One that multiplies prompt rows in the tiles of a GPU.
pub(super) fn with_large_tiles() -> WgpuBackend {
    opened(Options { large_tiles: true, ..options() }, Registry::default())
}

/// One whose slots are written where they lie, in chunks of at most `chunk_bytes`.
pub(super) fn in_place(chunk_bytes: Option<u64>) -> WgpuBackend {
    opened(Options { chunk_bytes, slot_writes: SlotWrites::InPlace, ..options() }, Registry::default())
}

/// One whose slots are written through staging.
pub(super) fn staged(chunk_bytes: Option<u64>) -> WgpuBackend {
    opened(Options { chunk_bytes, slot_writes: SlotWrites::Staged, ..options() }, Registry::default())
}

/// One whose pools lie in memory of our own, in chunks of at most `chunk_bytes`.
pub(super) fn in_own_memory(chunk_bytes: Option<u64>) -> WgpuBackend {
    let options = Options { chunk_bytes, ..options() };
    WgpuBackend::with(options, Registry::default(), Some(Box::new(HandedOn))).unwrap_or_else(|error| panic!("{error}"))
}

/// One that is kept awake on demand.
pub(super) fn kept_awake() -> WgpuBackend {
    opened(Options { keep_awake: true, ..options() }, Registry::default())
}

/// One that times its work.
pub(super) fn timed(timed: Timed) -> WgpuBackend {
    opened(Options { timed, ..options() }, Registry::default())
}

/// Rounds in the fast profile, as devices with matrix units do.
fn options() -> Options {
    Options { matrix_units: true, f16_inputs: true, ..Options::new(adapter()) }
}

fn opened(options: Options, registry: Registry) -> WgpuBackend {
    match WgpuBackend::with_registry(options, registry) {
        Ok(backend) => backend,
        Err(error) => panic!("these tests need software Vulkan: run `scripts/install-mesa.sh`; {error}"),
    }
}

/// A source of random numbers (splitmix64).
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn word(&mut self) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed >> 32) as u32
    }

    /// Evenly from -1 to 1.
    pub(super) fn signed(&mut self) -> f32 {
        self.word() as f32 / (u32::MAX / 2) as f32 - 1.0
    }

    pub(super) fn floats(&mut self, count: u32) -> Vec<f32> {
        (0..count).map(|_| self.signed()).collect()
    }
}

/// Shape of the experts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) hidden: u32,
    pub(super) inner: u32,
    pub(super) group: u32,
    pub(super) scale: Scalar,
}

impl Shape {
    pub(super) fn layout(self) -> RecordLayout {
        let format = Format::Affine { bits: 4, group: self.group, scale: self.scale };
        let wide = Matrix { rows: self.inner, cols: self.hidden, format };
        RecordLayout::new(wide, wide, Matrix { rows: self.hidden, cols: self.inner, format })
    }

    /// The bytes of a random expert record.
    pub(super) fn record(self, seed: u64) -> Vec<u8> {
        let (layout, mut random) = (self.layout(), Random(seed));
        let mut bytes: Vec<u8> = (0..layout.bytes).map(|_| random.word() as u8).collect();
        for part in [layout.gate, layout.up, layout.down] {
            for span in [part.scales, part.biases] {
                let place = &mut bytes[span.offset as usize..(span.offset + span.bytes) as usize];
                for number in place.chunks_exact_mut(self.scale.bytes() as usize) {
                    let value = random.signed() / 16.0;
                    match self.scale {
                        Scalar::Bf16 => number.copy_from_slice(&half::bf16::from_f32(value).to_le_bytes()),
                        Scalar::F16 => number.copy_from_slice(&half::f16::from_f32(value).to_le_bytes()),
                        Scalar::F32 => number.copy_from_slice(&value.to_le_bytes()),
                    }
                }
            }
        }
        bytes
    }
}

/// Which half of the experts runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Half {
    In,
    Out,
}

impl Half {
    pub(super) const BOTH: [Half; 2] = [Half::In, Half::Out];

    /// Numbers in a row of inputs and in one of outputs.
    pub(super) fn widths(self, shape: Shape) -> (u32, u32) {
        match self {
            Half::In => (shape.hidden, shape.inner),
            Half::Out => (shape.inner, shape.hidden),
        }
    }
}

/// Some rows on their way through one half of the experts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work<'a> {
    pub(super) half: Half,
    pub(super) shape: Shape,
    pub(super) choices: u32,
    pub(super) form: Form,
    pub(super) arithmetic: Arithmetic,
    /// `[rows, hidden]` for the first half, `[rows, choices, inner]` for the second.
    pub(super) inputs: &'a [f32],
    /// `[rows, choices]`.
    pub(super) slots: &'a [u32],
}

impl Work<'_> {
    pub(super) fn rows(&self) -> u32 {
        self.slots.len() as u32 / self.choices
    }
}

/// Makes a pool and fills the slots that `records` names.
pub(super) fn pool(backend: &dyn Backend, shape: Shape, slots: u32, records: &[(u32, Vec<u8>)]) -> Pool {
    let pool = backend.alloc_pool(&shape.layout(), slots).unwrap();
    for (slot, bytes) in records {
        let mut writer = backend.open_slot(&pool, *slot).unwrap();
        writer.bytes().copy_from_slice(bytes);
        writer.finish().unwrap();
    }
    pool
}

/// A buffer that holds `words`.
pub(super) fn filled<T: bytemuck::NoUninit>(backend: &dyn Backend, words: &[T]) -> Buffer {
    let bytes = bytemuck::cast_slice(words);
    let buffer = backend.alloc("test", bytes.len() as u64).unwrap();
    backend.upload(&buffer, 0, bytes).unwrap();
    buffer
}

/// All numbers of a buffer.
pub(super) fn contents(backend: &dyn Backend, buffer: &Buffer) -> Vec<f32> {
    let mut numbers = vec![0.0f32; buffer.bytes() as usize / 4];
    backend.read(buffer, 0, bytemuck::cast_slice_mut(&mut numbers)).unwrap();
    numbers
}

/// What fills the outputs before a run, so that one sees which were written.
pub(super) const UNTOUCHED: f32 = -123.5;

/// Records the operation of `work` and a buffer for its outputs.
pub(super) fn record(backend: &dyn Backend, pool: &Pool, work: &Work<'_>) -> (Recorder, Buffer) {
    let rows = Rows { count: work.rows(), form: work.form };
    let outputs = work.half.widths(work.shape).1 * work.slots.len() as u32;
    let out = filled(backend, &vec![UNTOUCHED; outputs as usize]);
    let (inputs, slots) = (filled(backend, work.inputs), filled(backend, work.slots));
    let (pool, choices) = (pool.clone(), work.choices);
    let mut recorder = Recorder::new(work.arithmetic);
    match work.half {
        Half::In => {
            recorder.experts_in(ExpertsIn { rows, choices, u: inputs, pool, slots, out: out.clone(), shared: None })
        }
        Half::Out => {
            recorder.experts_out(ExpertsOut { rows, choices, x: inputs, pool, slots, out: out.clone(), shared: None })
        }
    }
    (recorder, out)
}

/// Runs `work` and returns its outputs, `[rows, choices, outputs]`.
pub(super) fn run(backend: &dyn Backend, pool: &Pool, work: &Work<'_>) -> Vec<f32> {
    let (recorder, out) = record(backend, pool, work);
    backend.submit(recorder.all()).unwrap();
    contents(backend, &out)
}

/// The bits of numbers, in which NaN equals itself and zero differs from its negative.
pub(super) fn bits(numbers: &[f32]) -> Vec<u32> {
    numbers.iter().map(|number| number.to_bits()).collect()
}
