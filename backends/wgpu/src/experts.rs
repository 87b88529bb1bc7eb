//! Owns: the dispatches of [`ExpertsIn`] and [`ExpertsOut`] over a pool of 4-bit affine records.
//! Refuses: records in other formats, the shared expert, and buffers larger than a kernel can bind.
//! Invariants: the constants of a kernel follow from the record's layout and the form of the rows; rows, choices and
//! the pool's chunks are immediates, which enter no sum.

use std::sync::Arc;

use ss_backend::op::{ExpertsIn, ExpertsOut};
use ss_backend::{Arithmetic, Buffer, Error, Format, Part, RecordLayout, Result, Rows, Scalar};

use crate::backend::{Dispatch, Shared, Step};
use crate::device::{Block, Device};
use crate::memory::Stored;
use crate::pipeline::{Family, Kernel, Key, PoolBinding};
use crate::pool::Chunks;
use crate::tuning;

const QUAD_BYTES: u64 = 16;
const WORD_BYTES: u64 = 4;

/// What the two halves have in common.
struct Gather<'a> {
    family: Family,
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
    parts: &'a [(Names, Part)],
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
pub(crate) fn gate_up(shared: &Shared, arithmetic: Arithmetic, op: &ExpertsIn, steps: &mut Vec<Step>) -> Result<()> {
    refuse_shared(op.shared.is_some())?;
    let record = op.pool.layout();
    let gather = Gather {
        family: Family::ExpertsGateUp,
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
    gather.encode(shared, arithmetic, steps)
}

/// Down projections.
pub(crate) fn down(shared: &Shared, arithmetic: Arithmetic, op: &ExpertsOut, steps: &mut Vec<Step>) -> Result<()> {
    refuse_shared(op.shared.is_some())?;
    let record = op.pool.layout();
    let pairs = pairs(op.rows, op.choices)?;
    let gather = Gather {
        family: Family::ExpertsDown,
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
    gather.encode(shared, arithmetic, steps)
}

fn refuse_shared(named: bool) -> Result<()> {
    if !named {
        return Ok(());
    }
    let text = "the wgpu backend has no kernel yet for the shared expert; use `--backend reference`";
    Err(Error::Unavailable(text.to_owned()))
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
    fn of(part: &Part) -> Result<Self> {
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
    fn encode(&self, shared: &Shared, arithmetic: Arithmetic, steps: &mut Vec<Step>) -> Result<()> {
        let Some((_, first)) = self.parts.first() else { return Ok(()) };
        let shape = Shape::of(first)?;
        if self.parts.iter().any(|(_, part)| part.matrix != first.matrix) {
            return Err(Error::Refused("gate and up projections of different shapes".to_owned()));
        }
        if self.pairs == 0 {
            return Ok(());
        }
        let device = &shared.device;
        let permuted = u64::from(self.input_rows) * u64::from(shape.permuted_quads()) * QUAD_BYTES;
        let scratch = shared.scratch.at_least(device, permuted)?;
        self.permute(shared, arithmetic, shape, &scratch, permuted, steps)?;
        self.multiply(shared, shape, &scratch, permuted, steps)
    }

    fn permute(
        &self,
        shared: &Shared,
        arithmetic: Arithmetic,
        shape: Shape,
        scratch: &Arc<Block>,
        bytes: u64,
        steps: &mut Vec<Step>,
    ) -> Result<()> {
        let device = &shared.device;
        let constants = vec![
            ("INPUTS", shape.inputs),
            ("LANES", tuning::lanes(shape.inputs)),
            ("ROUNDED", u32::from(arithmetic.rounds_inputs(self.rows.form))),
            ("THREADS", tuning::THREADS),
        ];
        let key = Key { family: Family::PermuteInputs, pool: PoolBinding::None, constants };
        let kernel = shared.registry.kernel(device, key)?;
        let inputs = whole(device, self.inputs, u64::from(self.input_rows) * u64::from(shape.inputs) * WORD_BYTES)?;
        let arguments = arguments(device, &kernel, [inputs, part_of(device, &scratch.raw, bytes)?]);
        let width = shape.permuted_quads().div_ceil(tuning::THREADS);
        for (first, count) in slices(device, self.input_rows) {
            steps.push(Step::Dispatch(Dispatch {
                kernel: Arc::clone(&kernel),
                pool: None,
                arguments: arguments.clone(),
                immediates: vec![first],
                grid: (width, count),
            }));
        }
        Ok(())
    }

    fn multiply(
        &self,
        shared: &Shared,
        shape: Shape,
        scratch: &Arc<Block>,
        bytes: u64,
        steps: &mut Vec<Step>,
    ) -> Result<()> {
        let device = &shared.device;
        let tile = tuning::THREADS / tuning::lanes(shape.inputs);
        let key = Key { family: self.family, pool: self.pool.binding, constants: self.constants(shape, tile)? };
        let kernel = shared.registry.kernel(device, key)?;
        let pairs = u64::from(self.pairs);
        let bindings = [
            part_of(device, &scratch.raw, bytes)?,
            whole(device, self.slots, pairs * WORD_BYTES)?,
            whole(device, self.out, pairs * u64::from(shape.outputs) * WORD_BYTES)?,
        ];
        let arguments = arguments(device, &kernel, bindings);
        let plan = self.pool.plan;
        for (first, count) in slices(device, self.pairs) {
            for (bound, pool) in (0..).zip(&self.pool.groups) {
                steps.push(Step::Dispatch(Dispatch {
                    kernel: Arc::clone(&kernel),
                    pool: Some(pool.clone()),
                    arguments: arguments.clone(),
                    immediates: vec![first, self.pairs / self.input_rows, plan.slots, plan.slots_per_chunk, bound],
                    grid: (shape.outputs.div_ceil(tile), count),
                }));
            }
        }
        Ok(())
    }

    fn constants(&self, shape: Shape, tile: u32) -> Result<Vec<(&'static str, u32)>> {
        let scalar = match shape.scale {
            Scalar::Bf16 => 0,
            Scalar::F16 => 1,
            Scalar::F32 => 2,
        };
        let mut constants = vec![
            ("INPUTS", shape.inputs),
            ("OUTPUTS", shape.outputs),
            ("GROUP", shape.group),
            ("SCALAR", scalar),
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
fn slices(device: &Device, count: u32) -> impl Iterator<Item = (u32, u32)> {
    let most = device.limits.max_compute_workgroups_per_dimension.max(1);
    (0..count).step_by(most as usize).map(move |first| (first, (count - first).min(most)))
}

/// The first `bytes` bytes of a buffer of the engine.
fn whole<'a>(device: &Device, buffer: &'a Buffer, bytes: u64) -> Result<wgpu::BufferBinding<'a>> {
    part_of(device, Stored::of(buffer)?.range(0, bytes)?, bytes)
}

/// The first `bytes` bytes of a buffer that holds at least as many.
fn part_of<'a>(device: &Device, buffer: &'a wgpu::Buffer, bytes: u64) -> Result<wgpu::BufferBinding<'a>> {
    let most = device.limits.max_storage_buffer_binding_size;
    if bytes > most {
        return Err(Error::Unavailable(format!(
            "{bytes} bytes of activations are more than the {most} that a kernel can bind on `{}`; use a smaller \
             `--prefill-pass`",
            device.facts.device
        )));
    }
    Ok(wgpu::BufferBinding { buffer, offset: 0, size: wgpu::BufferSize::new(bytes) })
}

fn arguments<const N: usize>(
    device: &Device,
    kernel: &Kernel,
    bindings: [wgpu::BufferBinding<'_>; N],
) -> wgpu::BindGroup {
    let entry = |(binding, part)| wgpu::BindGroupEntry { binding, resource: wgpu::BindingResource::Buffer(part) };
    let entries: Vec<_> = (0..).zip(bindings).map(entry).collect();
    device.raw.create_bind_group(&wgpu::BindGroupDescriptor {
        label: None,
        layout: &kernel.arguments,
        entries: &entries,
    })
}
