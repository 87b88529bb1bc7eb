//! Owns: the dispatches of [`ExpertsIn`] and [`ExpertsOut`] over a pool of 4-bit affine records.
//! Refuses: records in other formats, the shared expert, and buffers larger than a kernel can bind.
//! Invariants: the constants of a kernel follow from the record's layout and the form of the rows; rows, choices and
//! the pool's chunks are immediates, which enter no sum.

use ss_backend::op::{ExpertsIn, ExpertsOut};
use ss_backend::{Buffer, Error, Format, Part as Projection, RecordLayout, Result, Rows, Scalar};

use crate::encoding::{Encoding, Launch, View};
use crate::pool::Chunks;
use crate::registry::{Kernel, Part, Product, scalar_code};
use crate::tuning;

const EXPERTS_AFFINE4: Part =
    Part { file: "experts_affine4.wgsl", text: include_str!("../../../../wgsl/experts_affine4.wgsl") };

const GATE_UP: Kernel = Kernel {
    main: Part {
        file: "experts_gate_up_affine4.wgsl",
        text: include_str!("../../../../wgsl/experts_gate_up_affine4.wgsl"),
    },
    operation: "ExpertsIn",
    parts: &[&EXPERTS_AFFINE4],
    weights: &[],
    product: Product::Numbers,
    section: "architecture.md 8",
    twin: "backends/reference/src/ops/experts.rs",
    tests: "backends/wgpu/src/tests/experts.rs",
    tuning: &["threads", "most lanes", "fewest steps"],
};

const DOWN_PRODUCT: Kernel = Kernel {
    main: Part { file: "experts_down_affine4.wgsl", text: include_str!("../../../../wgsl/experts_down_affine4.wgsl") },
    operation: "ExpertsOut",
    ..GATE_UP
};

pub(crate) const PERMUTE_INPUTS: Kernel = Kernel {
    main: Part { file: "permute_inputs.wgsl", text: include_str!("../../../../wgsl/permute_inputs.wgsl") },
    operation: "ExpertsIn, ExpertsOut",
    parts: &[],
    tests: "backends/wgpu/src/tests/kernels.rs",
    ..GATE_UP
};

/// The kernels of this family.
pub(crate) const KERNELS: &[&Kernel] = &[&PERMUTE_INPUTS, &GATE_UP, &DOWN_PRODUCT];

const QUAD_BYTES: u64 = 16;
const WORD_BYTES: u64 = 4;

/// What the two halves have in common.
struct Gather<'a> {
    kernel: &'static Kernel,
    rows: Rows,
    /// Rows of inputs.
    input_rows: u32,
    /// Pairs (row, choice).
    pairs: u32,
    inputs: &'a Buffer,
    pool: &'a Chunks,
    slots: &'a Buffer,
    out: &'a Buffer,
    /// Projections of one product, with the prefix of their constants; all of one shape.
    parts: &'a [(Names, Projection)],
    record: &'a RecordLayout,
}

/// Names of the constants that say where a projection lies.
#[derive(Clone, Copy)]
struct Names {
    codes: &'static str,
    scales: &'static str,
    biases: &'static str,
}

const GATE: Names = Names { codes: "GATE_CODES", scales: "GATE_SCALES", biases: "GATE_BIASES" };
const UP: Names = Names { codes: "UP_CODES", scales: "UP_SCALES", biases: "UP_BIASES" };
const DOWN: Names = Names { codes: "DOWN_CODES", scales: "DOWN_SCALES", biases: "DOWN_BIASES" };

/// Gate and up projections with SwiGLU.
pub(crate) fn gate_up(enc: &mut Encoding<'_>, op: &ExpertsIn) -> Result<()> {
    refuse_shared(enc, op.shared.is_some())?;
    let record = op.pool.layout();
    let gather = Gather {
        kernel: &GATE_UP,
        rows: op.rows,
        input_rows: op.rows.count,
        pairs: pairs(op.rows, op.choices)?,
        inputs: &op.u,
        pool: Chunks::of(&op.pool)?,
        slots: &op.slots,
        out: &op.out,
        parts: &[(GATE, record.gate), (UP, record.up)],
        record,
    };
    gather.encode(enc)
}

/// Down projections.
pub(crate) fn down(enc: &mut Encoding<'_>, op: &ExpertsOut) -> Result<()> {
    refuse_shared(enc, op.shared.is_some())?;
    let record = op.pool.layout();
    let pairs = pairs(op.rows, op.choices)?;
    let gather = Gather {
        kernel: &DOWN_PRODUCT,
        rows: op.rows,
        input_rows: pairs,
        pairs,
        inputs: &op.x,
        pool: Chunks::of(&op.pool)?,
        slots: &op.slots,
        out: &op.out,
        parts: &[(DOWN, record.down)],
        record,
    };
    gather.encode(enc)
}

fn refuse_shared(enc: &Encoding<'_>, named: bool) -> Result<()> {
    if named { Err(enc.unavailable("the shared expert yet")) } else { Ok(()) }
}

fn pairs(rows: Rows, choices: u32) -> Result<u32> {
    let pairs = rows.count.checked_mul(choices);
    pairs.ok_or_else(|| Error::Refused(format!("{} rows of {choices} choices are more than 2^32", rows.count)))
}

/// Shape of the product and of its scales.
#[derive(Clone, Copy)]
struct Shape {
    inputs: u32,
    outputs: u32,
    group: u32,
    scale: Scalar,
}

impl Shape {
    fn of(part: &Projection) -> Result<Self> {
        let matrix = part.matrix;
        match matrix.format {
            Format::Affine { bits: 4, group: group @ (32 | 64), scale } if matrix.cols.is_multiple_of(group) => {
                Ok(Shape { inputs: matrix.cols, outputs: matrix.rows, group, scale })
            }
            format => Err(Error::Unavailable(format!(
                "the wgpu backend has no kernel yet for experts [{}, {}] stored as {format:?}, only for 4-bit groups \
                 of 32 and 64; use `--backend reference`",
                matrix.rows, matrix.cols
            ))),
        }
    }

    /// Quads in a permuted row of inputs, the last step's idle lanes included.
    fn permuted_quads(self) -> u32 {
        let lanes = tuning::lanes(self.inputs);
        (self.inputs / tuning::BLOCK).next_multiple_of(lanes) * (tuning::BLOCK / 4)
    }
}

impl Gather<'_> {
    fn encode(&self, enc: &mut Encoding<'_>) -> Result<()> {
        let Some((_, first)) = self.parts.first() else { return Ok(()) };
        let shape = Shape::of(first)?;
        if self.parts.iter().any(|(_, part)| part.matrix != first.matrix) {
            return Err(enc.refuse("gate and up projections of different shapes"));
        }
        if self.pairs == 0 {
            return Ok(());
        }
        let permuted = enc.scratch(u64::from(self.input_rows) * u64::from(shape.permuted_quads()) * QUAD_BYTES)?;
        self.permute(enc, shape, &permuted)?;
        self.multiply(enc, shape, &permuted)
    }

    fn permute(&self, enc: &mut Encoding<'_>, shape: Shape, permuted: &View) -> Result<()> {
        let constants = [
            ("INPUTS", shape.inputs),
            ("LANES", tuning::lanes(shape.inputs)),
            ("ROUNDED", u32::from(enc.rounds(self.rows))),
            ("THREADS", tuning::THREADS.value),
        ];
        let inputs = enc.view(self.inputs, "u", u64::from(self.input_rows) * u64::from(shape.inputs))?;
        let width = shape.permuted_quads().div_ceil(tuning::THREADS.value);
        for (first, count) in slices(enc, self.input_rows) {
            enc.launch(&Launch {
                kernel: &PERMUTE_INPUTS,
                constants: &constants,
                views: &[&inputs, permuted],
                weights: &[],
                immediates: &[first],
                grid: [width, count, 1],
            })?;
        }
        Ok(())
    }

    fn multiply(&self, enc: &mut Encoding<'_>, shape: Shape, permuted: &View) -> Result<()> {
        let tile = tuning::THREADS.value / tuning::lanes(shape.inputs);
        let pairs = u64::from(self.pairs);
        let slots = enc.view(self.slots, "slots", pairs)?;
        let out = enc.view(self.out, "out", pairs * u64::from(shape.outputs))?;
        let (constants, plan) = (self.constants(shape, tile)?, self.pool.plan);
        for (first, count) in slices(enc, self.pairs) {
            enc.launch_over(
                Some(self.pool),
                &Launch {
                    kernel: self.kernel,
                    constants: &constants,
                    views: &[permuted, &slots, &out],
                    weights: &[],
                    immediates: &[first, self.pairs / self.input_rows, plan.slots, plan.slots_per_chunk],
                    grid: [shape.outputs.div_ceil(tile), count, 1],
                },
            )?;
        }
        Ok(())
    }

    fn constants(&self, shape: Shape, tile: u32) -> Result<Vec<(&'static str, u32)>> {
        let mut constants = vec![
            ("INPUTS", shape.inputs),
            ("OUTPUTS", shape.outputs),
            ("GROUP", shape.group),
            ("SCALAR", scalar_code(shape.scale)),
            ("LANES", tuning::lanes(shape.inputs)),
            ("TILE", tile),
            ("RECORD_QUADS", units(self.record.bytes, QUAD_BYTES)?),
        ];
        for (names, part) in self.parts {
            constants.push((names.codes, units(part.codes.offset, QUAD_BYTES)?));
            constants.push((names.scales, units(part.scales.offset, WORD_BYTES)?));
            constants.push((names.biases, units(part.biases.offset, WORD_BYTES)?));
        }
        Ok(constants)
    }
}

/// `bytes` in whole units of `unit` bytes.
fn units(bytes: u64, unit: u64) -> Result<u32> {
    let whole = if bytes.is_multiple_of(unit) { u32::try_from(bytes / unit).ok() } else { None };
    whole.ok_or_else(|| Error::Refused(format!("byte {bytes} of an expert record is not a multiple of {unit}")))
}

/// Ranges of at most as many workgroups as the device takes in one direction.
fn slices(enc: &Encoding<'_>, count: u32) -> Vec<(u32, u32)> {
    let most = enc.shared.device.limits.max_compute_workgroups_per_dimension.max(1);
    (0..count).step_by(most as usize).map(|first| (first, (count - first).min(most))).collect()
}
