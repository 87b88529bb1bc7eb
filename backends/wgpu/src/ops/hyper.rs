//! Owns: hyper-connections (architecture.md section 4).
//!
//! Read: `n = rms_group(x) * w`, `a = silu(Wdown n / S)`, `m = sigmoid(Wup a)`, `u_j = sum_s m[s,j] n[s,j] / S`,
//! `inject_s = 2 sigmoid((Winj n)_s / S)`. Write: `streams[r, s, :] += inject[r, s] * (weight x[r])`.
//!
//! Invariants: a read is two dispatches in the decode form, four in the prompt form (three without injection); a write
//! is one. Injection never takes rounded inputs.

use ss_backend::op::{HcRead, ProjectWrite};
use ss_backend::{Form, Result, Rows};

use super::linear::{GEMV_TUNING, gemm_grid, gemv_grid};
use crate::encoding::{Encoding, Launch, View, WORD_BYTES, Weight, volume};
use crate::parts;
use crate::registry::{Kernel, Part, Product};
use crate::tuning::{ROOM_FOR_OUTPUTS, THREADS};

const READ_IN: Kernel = Kernel {
    main: Part { file: "hc_read_in.wgsl", text: include_str!("../../../../wgsl/hc_read_in.wgsl") },
    operation: "HcRead",
    parts: &[&parts::NUMBERS],
    weights: &["down", "inject"],
    product: Product::Walk,
    section: "architecture.md 4",
    twin: "backends/reference/src/ops/hyper.rs",
    tests: "backends/wgpu/src/selftest/hyper.rs",
    tuning: GEMV_TUNING,
};

const READ_OUT: Kernel = Kernel {
    main: Part { file: "hc_read_out.wgsl", text: include_str!("../../../../wgsl/hc_read_out.wgsl") },
    weights: &["up"],
    tuning: &["threads", "most lanes", "fewest steps", "most units abreast"],
    ..READ_IN
};

const DOWN_PROMPT: Kernel = Kernel {
    main: Part { file: "hc_down_prompt.wgsl", text: include_str!("../../../../wgsl/hc_down_prompt.wgsl") },
    parts: &[&parts::NUMBERS, &parts::GEMM_TAKEN],
    weights: &["down"],
    product: Product::Gemm,
    tuning: &[],
    ..READ_IN
};

const INJECT_PROMPT: Kernel = Kernel {
    main: Part { file: "hc_inject_prompt.wgsl", text: include_str!("../../../../wgsl/hc_inject_prompt.wgsl") },
    weights: &["inject"],
    product: Product::Gemv,
    ..READ_IN
};

const UP_PROMPT: Kernel = Kernel {
    main: Part { file: "hc_up_prompt.wgsl", text: include_str!("../../../../wgsl/hc_up_prompt.wgsl") },
    parts: &[&parts::NUMBERS],
    weights: &["up"],
    ..DOWN_PROMPT
};

const GROUP_NORM: Kernel = Kernel {
    main: Part { file: "group_norm.wgsl", text: include_str!("../../../../wgsl/group_norm.wgsl") },
    operation: "HcRead, MtpFuse",
    parts: &[],
    weights: &[],
    product: Product::Numbers,
    section: "architecture.md 3",
    twin: "backends/reference/src/norm.rs",
    tuning: &["threads"],
    ..READ_IN
};

const WRITE: Kernel = Kernel {
    main: Part { file: "project_write.wgsl", text: include_str!("../../../../wgsl/project_write.wgsl") },
    operation: "ProjectWrite, MtpFuse",
    weights: &["w"],
    product: Product::Gemv,
    ..READ_IN
};

const WRITE_PROMPT: Kernel = Kernel {
    main: Part { file: "project_write_prompt.wgsl", text: include_str!("../../../../wgsl/project_write_prompt.wgsl") },
    operation: "ProjectWrite, MtpFuse",
    parts: &[&parts::NUMBERS],
    weights: &["w"],
    ..DOWN_PROMPT
};

/// The kernels of this family.
pub(crate) const KERNELS: &[&Kernel] =
    &[&READ_IN, &READ_OUT, &GROUP_NORM, &DOWN_PROMPT, &INJECT_PROMPT, &UP_PROMPT, &WRITE, &WRITE_PROMPT];

/// What a read binds.
struct Read {
    x: View,
    norm: View,
    normed: View,
    lowrank: View,
    u: View,
    inject_out: View,
    down: Weight,
    up: Weight,
    inject: Option<Weight>,
}

impl Read {
    fn new(enc: &Encoding<'_>, op: &HcRead) -> Result<Self> {
        let (rows, streams, weights) = (op.rows.count, op.streams, &op.weights);
        let (width, rank) = (streams.count.saturating_mul(streams.hidden), weights.down.matrix.rows);
        enc.nonzero(&[("streams", streams.count), ("hidden", streams.hidden), ("lowrank", rank)])?;
        if streams.count > ROOM_FOR_OUTPUTS {
            return Err(enc.unavailable(format_args!("{} streams, only for {ROOM_FOR_OUTPUTS}", streams.count)));
        }
        let all = op.first.checked_add(rows).ok_or_else(|| enc.refuse("`first` and `rows` overflow"))?;
        let inputs = enc.inputs(op.rows);
        let inject = weights.inject.as_ref().map(|inject| enc.weight(inject, "inject", streams.count, width));
        let inject = inject.transpose()?;
        let normed = enc.view(&op.normed, "normed", volume(&[rows, width]))?;
        let inject_out = match inject {
            Some(_) => enc.view(&op.inject, "inject", volume(&[rows, streams.count]))?,
            // Never written, so that any buffer will do that is not bound twice.
            None => enc.view(&op.inject, "inject", 0)?,
        };
        Ok(Read {
            x: enc.view(&op.x, "x", volume(&[all, width]))?,
            norm: enc.view(&weights.norm, "norm", u64::from(width))?,
            normed,
            lowrank: enc.view(&op.lowrank, "lowrank", volume(&[rows, rank]))?,
            u: enc.view(&op.u, "u", volume(&[rows, streams.hidden]))?,
            inject_out,
            down: enc.weight(&weights.down, "down", rank, width)?.multiplied(inputs),
            up: enc.weight(&weights.up, "up", width, rank)?.multiplied(inputs),
            inject,
        })
    }

    fn generated(&self, enc: &mut Encoding<'_>, op: &HcRead) -> Result<()> {
        let (rows, streams) = (op.rows.count, op.streams);
        let injects = self.inject.as_ref().map_or(0, |_| streams.count);
        let constants = [("STREAMS", streams.count), ("HIDDEN", streams.hidden), ("INJECTS", injects)];
        let pitch = self.down.matrix.rows.saturating_add(injects).saturating_add(1);
        let parts = enc.scratch(WORD_BYTES.saturating_mul(volume(&[rows, streams.count, pitch])))?;
        let down = self.down.clone().with_part(streams.hidden);
        let inject = self.inject.as_ref().unwrap_or(&self.down).clone().with_part(streams.hidden);
        let tiles = [down.tiles(down.matrix.rows), if injects > 0 { inject.tiles(injects) } else { 0 }];
        // Behind the tiles of each stream a workgroup for its statistic.
        let groups = streams.count.saturating_mul(tiles[0] + tiles[1] + 1);
        enc.launch(&Launch {
            kernel: &READ_IN,
            constants: &constants,
            views: &[&self.x, &self.norm, &parts],
            weights: &[&down, &inject],
            immediates: &[rows, op.first, tiles[0], tiles[1]],
            grid: gemv_grid(rows, groups),
        })?;
        let up = self.up.clone().with_outputs(streams.count, streams.hidden).walked(streams.count);
        enc.launch(&Launch {
            kernel: &READ_OUT,
            constants: &constants,
            views: &[&self.x, &self.norm, &parts, &self.u, &self.inject_out],
            weights: &[&up],
            immediates: &[rows, op.first, op.eps.to_bits()],
            grid: gemv_grid(rows, up.tiles(up.matrix.rows)),
        })
    }

    fn prompt(&self, enc: &mut Encoding<'_>, op: &HcRead) -> Result<()> {
        let (rows, streams) = (op.rows.count, op.streams);
        let width = streams.width();
        let norm = Norm {
            x: (&self.x, op.first * width, width),
            weight: &self.norm,
            out: (&self.normed, 0, width),
            groups: streams.count,
            group: streams.hidden,
            eps: op.eps,
        };
        group_norm(enc, rows, &norm)?;
        let constants = [("STREAMS", streams.count), ("HIDDEN", streams.hidden)];
        enc.launch(&Launch {
            kernel: &DOWN_PROMPT,
            constants: &constants[..1],
            views: &[&self.normed, &self.lowrank],
            weights: &[&self.down],
            immediates: &[rows],
            grid: gemm_grid(rows, self.down.matrix.rows, self.down.tile),
        })?;
        if let Some(inject) = &self.inject {
            enc.launch(&Launch {
                kernel: &INJECT_PROMPT,
                constants: &constants[..1],
                views: &[&self.normed, &self.inject_out],
                weights: &[inject],
                immediates: &[rows],
                grid: gemv_grid(rows, inject.tiles(streams.count)),
            })?;
        }
        // Numbers of each stream in a tile.
        let tile = self.up.tile;
        let span = tile.outputs / streams.count / tile.columns * tile.columns;
        let constants = [constants[0], constants[1], ("SPAN", span)];
        enc.launch(&Launch {
            kernel: &UP_PROMPT,
            constants: &constants,
            views: &[&self.lowrank, &self.normed, &self.u],
            weights: &[&self.up],
            immediates: &[rows],
            grid: [streams.hidden.div_ceil(span), rows.div_ceil(tile.rows), 1],
        })
    }
}

/// Streams to one row.
pub(crate) fn read(enc: &mut Encoding<'_>, op: &HcRead) -> Result<()> {
    let read = Read::new(enc, op)?;
    match op.rows.form {
        Form::Generated => read.generated(enc, op),
        Form::Prompt => read.prompt(enc, op),
    }
}

/// Norms of the groups of rows; a place is a view, the number at which row 0 begins and the numbers between rows.
pub(super) struct Norm<'a> {
    pub(super) x: (&'a View, u32, u32),
    /// `[groups, group]`.
    pub(super) weight: &'a View,
    pub(super) out: (&'a View, u32, u32),
    pub(super) groups: u32,
    pub(super) group: u32,
    pub(super) eps: f32,
}

/// Records `out = rms(x) * weight` for each group of each row.
pub(super) fn group_norm(enc: &mut Encoding<'_>, rows: u32, norm: &Norm<'_>) -> Result<()> {
    let ((x, x_begin, x_pitch), (out, out_begin, out_pitch)) = (norm.x, norm.out);
    enc.launch(&Launch {
        kernel: &GROUP_NORM,
        constants: &[("THREADS", THREADS.value), ("GROUP", norm.group)],
        views: &[x, norm.weight, out],
        weights: &[],
        immediates: &[norm.eps.to_bits(), x_begin, x_pitch, out_begin, out_pitch],
        grid: [norm.groups, rows, 1],
    })
}

/// Output projection of a mixer and its hyper-connection write.
pub(crate) fn project_write(enc: &mut Encoding<'_>, op: &ProjectWrite) -> Result<()> {
    let (rows, streams, cols) = (op.rows, op.streams, op.weight.matrix.cols);
    enc.nonzero(&[("streams", streams.count), ("hidden", streams.hidden), ("cols", cols)])?;
    let x = enc.view(&op.x, "x", volume(&[rows.count, cols]))?;
    let weight = enc.weight(&op.weight, "weight", streams.hidden, cols)?.multiplied(enc.inputs(rows));
    let inject = enc.view(&op.inject, "inject", volume(&[rows.count, streams.count]))?;
    let out = enc.view(&op.out, "out", volume(&[rows.count, streams.count, streams.hidden]))?;
    write(enc, rows, &Write { streams: streams.count, x: &x, weight: &weight, inject: Some(&inject), out: &out })
}

/// A product that is added to streams.
pub(super) struct Write<'a> {
    pub(super) streams: u32,
    /// `[rows, cols]`.
    pub(super) x: &'a View,
    /// `[hidden, cols]`.
    pub(super) weight: &'a Weight,
    /// `[rows, streams]`; none for a factor of one.
    pub(super) inject: Option<&'a View>,
    /// `[rows, streams, hidden]`.
    pub(super) out: &'a View,
}

/// Records `out[r, s, :] += inject[r, s] * (weight x[r])`.
pub(super) fn write(enc: &mut Encoding<'_>, rows: Rows, op: &Write<'_>) -> Result<()> {
    let hidden = op.weight.matrix.rows;
    let (kernel, grid) = match rows.form {
        Form::Generated => (&WRITE, gemv_grid(rows.count, op.weight.tiles(hidden))),
        Form::Prompt => (&WRITE_PROMPT, gemm_grid(rows.count, hidden, op.weight.tile)),
    };
    enc.launch(&Launch {
        kernel,
        constants: &[("STREAMS", op.streams), ("PLAIN", u32::from(op.inject.is_none()))],
        views: &[op.x, op.inject.unwrap_or(op.x), op.out],
        weights: &[op.weight],
        immediates: &[rows.count],
        grid,
    })
}
