//! Owns: copies between buffers, and windows of the last rows (engine.md 7.2).
//! Refuses: a copy within one buffer.
//! Invariants: a copy is a kernel like any other, so that it does not end the pass, unless it is larger than a binding.

use ss_backend::op::{Copy, Window};
use ss_backend::{Buffer, Error, Result};

use crate::backend::{BufferCopy, Step};
use crate::encoding::{Encoding, Launch, View, volume};
use crate::memory::Stored;
use crate::registry::{Kernel, Part, Product};
use crate::tuning::THREADS;

const COPY: Kernel = Kernel {
    main: Part { file: "copy.wgsl", text: include_str!("../../../../wgsl/copy.wgsl") },
    operation: "Copy",
    parts: &[],
    weights: &[],
    product: Product::Numbers,
    section: "engine.md 7.2",
    twin: "backends/reference/src/ops/copy.rs",
    tests: "backends/wgpu/src/tests/memory.rs",
    tuning: &["threads"],
};

const WINDOW: Kernel = Kernel {
    main: Part { file: "window.wgsl", text: include_str!("../../../../wgsl/window.wgsl") },
    operation: "Window",
    section: "architecture.md 6, 9.2",
    tests: "backends/wgpu/src/selftest/hyper.rs",
    ..COPY
};

const COPY_QUADS: Kernel =
    Kernel { main: Part { file: "copy_quads.wgsl", text: include_str!("../../../../wgsl/copy_quads.wgsl") }, ..COPY };

/// The kernels of this family.
pub(crate) const KERNELS: &[&Kernel] = &[&COPY, &COPY_QUADS, &WINDOW];

/// Words of a quad.
const QUAD_WORDS: u32 = 4;

const WORD_BYTES: u64 = 4;

/// Copies bytes.
pub(crate) fn copy(enc: &mut Encoding<'_>, op: &Copy) -> Result<()> {
    if op.from.same(&op.to) {
        return Err(enc.refuse("a copy within one buffer"));
    }
    let from = range(enc, &op.from, op.from_offset, op.bytes)?;
    let to = range(enc, &op.to, op.to_offset, op.bytes)?;
    if op.bytes == 0 {
        return Ok(());
    }
    let limits = &enc.shared.device.limits;
    if from.view.bytes.max(to.view.bytes) > limits.max_storage_buffer_binding_size {
        let (from_offset, to_offset, bytes) = (op.from_offset, op.to_offset, op.bytes);
        let (from, to) = (from.view.buffer, to.view.buffer);
        enc.steps.push(Step::Copy(BufferCopy { from, from_offset, to, to_offset, bytes }));
        return Ok(());
    }
    let words = u32::try_from(op.bytes / WORD_BYTES).map_err(|_| Error::Refused("a copy of over 16 GiB".into()))?;
    let quads = [words, from.begin, to.begin].iter().all(|words| words.is_multiple_of(QUAD_WORDS));
    let (kernel, unit) = if quads { (&COPY_QUADS, QUAD_WORDS) } else { (&COPY, 1) };
    let groups = (words / unit).div_ceil(THREADS.value).min(limits.max_compute_workgroups_per_dimension);
    enc.launch(&Launch {
        kernel,
        constants: &[("THREADS", THREADS.value)],
        views: &[&from.view, &to.view],
        weights: &[],
        immediates: &[words / unit, from.begin / unit, to.begin / unit],
        grid: [groups, 1, 1],
    })
}

/// Words of a buffer, bound from where the device takes an offset.
struct Range {
    view: View,
    begin: u32,
}

fn range(enc: &Encoding<'_>, buffer: &Buffer, offset: u64, bytes: u64) -> Result<Range> {
    let raw = Stored::of(buffer)?.range(offset, bytes)?;
    let align = u64::from(enc.shared.device.limits.min_storage_buffer_offset_alignment.max(1));
    let before = offset % align;
    let view = View { buffer: raw.clone(), offset: offset - before, bytes: (before + bytes).max(WORD_BYTES) };
    Ok(Range { view, begin: (before / WORD_BYTES) as u32 })
}

/// Moves a convolution window over recorded rows.
pub(crate) fn window(enc: &mut Encoding<'_>, op: &Window) -> Result<()> {
    enc.nonzero(&[("width", op.width)])?;
    let inputs = enc.view(&op.inputs, "inputs", volume(&[op.rows, op.width]))?;
    let size = volume(&[op.depth, op.width]);
    let state = enc.view(&op.window.state, "window", size)?;
    let before = op.window.from.as_ref().map(|from| enc.view(from, "window", size)).transpose()?;
    slide(enc, [op.rows, op.depth, op.width], &inputs, before.as_ref(), &state)
}

/// Records that a window of `[depth, width]` moves over `[rows, width]` inputs.
pub(super) fn slide(
    enc: &mut Encoding<'_>,
    sizes @ [_, depth, width]: [u32; 3],
    inputs: &View,
    before: Option<&View>,
    state: &View,
) -> Result<()> {
    enc.launch(&Launch {
        kernel: &WINDOW,
        constants: &[("THREADS", THREADS.value), ("IN_PLACE", u32::from(before.is_none()))],
        views: &[inputs, before.unwrap_or(inputs), state],
        weights: &[],
        immediates: &sizes,
        grid: [width.div_ceil(THREADS.value), depth.min(1), 1],
    })
}
