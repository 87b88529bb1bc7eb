//! Owns: Gated DeltaNet without its output projection (architecture.md section 6), and its replay (engine.md 7.2).
//! Refuses: heads whose widths are no multiples of 32 up to 256, convolutions of other than 2 to 4 taps.
//! Invariants: the projections are one dispatch in the decode form, four in the prompt form; all between them is one
//! dispatch in the decode form, some a slice of rows in the prompt form. One recurrence, `gdn_recurrence.wgsl`, serves every form and the replay (engine.md 3.7f).

use ss_backend::op::{Carry, Gate, GdnInputs, GdnMix, GdnProject, GdnReplay, GdnShape};
use ss_backend::{Form, Result};

use super::copy::slide;
use super::linear::{BESIDE_TUNING, Strided, gemv_grid, multiply};
use crate::encoding::{Encoding, Launch, View, Weight, volume};
use crate::parts;
use crate::registry::{Kernel, Part, Product};
use crate::tuning::{RECURRENCE_THREADS, THREADS};

const RECURRENCE: Part =
    Part { file: "gdn_recurrence.wgsl", text: include_str!("../../../../wgsl/gdn_recurrence.wgsl") };

const SHAPE: Part = Part { file: "gdn_shape.wgsl", text: include_str!("../../../../wgsl/gdn_shape.wgsl") };

const TAPS_PART: Part = Part { file: "gdn_taps.wgsl", text: include_str!("../../../../wgsl/gdn_taps.wgsl") };

const GATED: Part = Part { file: "gdn_gated.wgsl", text: include_str!("../../../../wgsl/gdn_gated.wgsl") };

const ROWS: Part = Part { file: "gdn_rows.wgsl", text: include_str!("../../../../wgsl/gdn_rows.wgsl") };

const PROJECT: Kernel = Kernel {
    main: Part { file: "gdn_project.wgsl", text: include_str!("../../../../wgsl/gdn_project.wgsl") },
    operation: "GdnProject",
    parts: &[&parts::NUMBERS],
    weights: &["qkv", "z", "a", "b"],
    product: Product::Gemv,
    section: "architecture.md 6",
    twin: "backends/reference/src/ops/gdn.rs",
    tests: "backends/wgpu/src/selftest/gdn.rs",
    tuning: BESIDE_TUNING,
};

const MIX: Kernel = Kernel {
    main: Part { file: "gdn_mix.wgsl", text: include_str!("../../../../wgsl/gdn_mix.wgsl") },
    operation: "GdnMix",
    parts: &[&SHAPE, &RECURRENCE, &TAPS_PART, &GATED, &ROWS, &parts::NUMBERS, &parts::TICKET],
    weights: &[],
    product: Product::Numbers,
    tuning: &[],
    ..PROJECT
};

const MIX_KEPT: Kernel = Kernel {
    main: Part { file: "gdn_mix_kept.wgsl", text: include_str!("../../../../wgsl/gdn_mix_kept.wgsl") },
    ..MIX
};

const REPLAY: Kernel = Kernel {
    main: Part { file: "gdn_replay.wgsl", text: include_str!("../../../../wgsl/gdn_replay.wgsl") },
    operation: "GdnReplay",
    parts: &[&SHAPE, &RECURRENCE],
    section: "engine.md 7.2",
    twin: "backends/reference/src/ops/recurrence.rs",
    ..MIX
};

const INPUTS_PROMPT: Kernel = Kernel {
    main: Part { file: "gdn_inputs_prompt.wgsl", text: include_str!("../../../../wgsl/gdn_inputs_prompt.wgsl") },
    parts: &[&SHAPE, &TAPS_PART, &parts::NUMBERS],
    tuning: &["threads"],
    ..MIX
};

const ADVANCE_PROMPT: Kernel = Kernel {
    main: Part { file: "gdn_advance_prompt.wgsl", text: include_str!("../../../../wgsl/gdn_advance_prompt.wgsl") },
    parts: &[&SHAPE, &RECURRENCE],
    twin: "backends/reference/src/ops/recurrence.rs",
    ..MIX
};

const GATED_PROMPT: Kernel = Kernel {
    main: Part { file: "gdn_gated_prompt.wgsl", text: include_str!("../../../../wgsl/gdn_gated_prompt.wgsl") },
    parts: &[&SHAPE, &GATED, &parts::NUMBERS],
    ..MIX
};

/// The kernels of this family.
pub(crate) const KERNELS: &[&Kernel] =
    &[&PROJECT, &MIX, &MIX_KEPT, &REPLAY, &INPUTS_PROMPT, &ADVANCE_PROMPT, &GATED_PROMPT];

/// Prompt rows whose inputs lie in scratch memory at once.
const SLICE: u32 = 512;

/// Rows of a workgroup of `gdn_inputs_prompt.wgsl`.
const MIXED_AT_ONCE: u32 = 8;

/// Rows that `gdn_advance_prompt.wgsl` fetches at once.
const BATCH: u32 = 4;

/// Threads of a workgroup of `gdn_advance_prompt.wgsl`, where the threads of a head are a multiple of it.
const GROUP: u32 = 64;

/// Widths of heads are multiples of this, so that sums fall into equal parts.
const WIDTH_STEP: u32 = 32;

/// Widest head that the kernels have workgroup memory for.
const MOST_WIDTH: u32 = 256;

/// Most lanes of a state row: each has a quad of the narrowest head then.
const MOST_LANES: u32 = 8;

/// Taps that the convolution may have.
const TAPS: std::ops::RangeInclusive<u32> = 2..=4;

/// Projections.
pub(crate) fn project(enc: &mut Encoding<'_>, op: &GdnProject) -> Result<()> {
    let (channels, values, heads) = (op.qkv.matrix.rows, op.z.matrix.rows, op.a.matrix.rows);
    let (rows, hidden) = (op.rows.count, op.qkv.matrix.cols);
    enc.nonzero(&[("hidden", hidden), ("channels", channels), ("values", values), ("value_heads", heads)])?;
    let u = enc.view(&op.u, "u", volume(&[rows, hidden]))?;
    let inputs = enc.inputs(op.rows);
    let qkv = enc.weight(&op.qkv, "qkv", channels, hidden)?.beside_others().multiplied(inputs);
    let z = enc.weight(&op.z, "z", values, hidden)?.beside_others().multiplied(inputs);
    let a = enc.weight(&op.a, "a", heads, hidden)?.beside_others();
    let b = enc.weight(&op.b, "b", heads, hidden)?.beside_others();
    let qkv_out = enc.view(&op.qkv_out, "qkv_out", volume(&[rows, channels]))?;
    let z_out = enc.view(&op.z_out, "z_out", volume(&[rows, values]))?;
    let ab_out = enc.view(&op.ab_out, "ab_out", volume(&[rows, 2, heads]))?;
    if op.rows.form == Form::Prompt {
        let u = Strided::rows(&u, hidden);
        let gates = |begin: u32| Strided { view: &ab_out, begin, pitch: 2 * heads };
        multiply(enc, op.rows, &u, &qkv, &Strided::rows(&qkv_out, channels))?;
        multiply(enc, op.rows, &u, &z, &Strided::rows(&z_out, values))?;
        multiply(enc, op.rows, &u, &a, &gates(0))?;
        return multiply(enc, op.rows, &u, &b, &gates(heads));
    }
    let weights = [&qkv, &z, &a, &b];
    let [qkv_tiles, z_tiles, a_tiles, b_tiles] = weights.map(|weight: &Weight| weight.tiles(weight.matrix.rows));
    enc.launch(&Launch {
        kernel: &PROJECT,
        constants: &[],
        views: &[&u, &qkv_out, &z_out, &ab_out],
        weights: &weights,
        immediates: &[rows, qkv_tiles, z_tiles, a_tiles],
        grid: gemv_grid(rows, qkv_tiles + z_tiles + a_tiles + b_tiles),
    })
}

/// Numbers in a row of everything, once they are known to be within the envelope.
struct Sizes {
    keys: u64,
    values: u64,
    state: u64,
}

fn sizes(enc: &Encoding<'_>, shape: &GdnShape) -> Result<Sizes> {
    let GdnShape { key_heads, value_heads, key_dim, value_dim, .. } = *shape;
    enc.nonzero(&[("key_heads", key_heads), ("value_heads", value_heads)])?;
    if !value_heads.is_multiple_of(key_heads) {
        let why = format_args!("`value_heads` is {value_heads}, not a multiple of the {key_heads} key heads");
        return Err(enc.refuse(why));
    }
    for (name, width) in [("key_dim", key_dim), ("value_dim", value_dim)] {
        if width == 0 || width > MOST_WIDTH || !width.is_multiple_of(WIDTH_STEP) {
            return Err(enc.unavailable(format_args!(
                "a `{name}` of {width}, only for multiples of {WIDTH_STEP} up to {MOST_WIDTH}"
            )));
        }
    }
    Ok(Sizes {
        keys: volume(&[key_heads, key_dim]),
        values: volume(&[value_heads, value_dim]),
        state: volume(&[value_heads, value_dim, key_dim]),
    })
}

/// Numbers of `rows` rows of `width`.
fn each(rows: u32, width: u64) -> u64 {
    width.saturating_mul(u64::from(rows))
}

/// A carried state: where it lies before, if that is elsewhere, and where it is left.
struct Carried {
    before: Option<View>,
    state: View,
}

impl Carried {
    fn new(enc: &Encoding<'_>, carry: &Carry, field: &str, numbers: u64) -> Result<Self> {
        let before = carry.from.as_ref().map(|from| enc.view(from, field, numbers)).transpose()?;
        Ok(Carried { before, state: enc.view(&carry.state, field, numbers)? })
    }

    fn in_place(&self) -> u32 {
        u32::from(self.before.is_none())
    }

    /// The place before, or anything that is only read where the state is carried on in place.
    fn before<'a>(&'a self, any: &'a View) -> &'a View {
        self.before.as_ref().unwrap_or(any)
    }
}

/// The inputs of the recurrence: keys, values, gates.
fn kept(enc: &Encoding<'_>, inputs: &GdnInputs, rows: u32, shape: &GdnShape, sizes: &Sizes) -> Result<[View; 3]> {
    Ok([
        enc.view(&inputs.k, "inputs.k", each(rows, sizes.keys))?,
        enc.view(&inputs.v, "inputs.v", each(rows, sizes.values))?,
        enc.view(&inputs.gates, "inputs.gates", volume(&[rows, shape.value_heads, 2]))?,
    ])
}

/// The constants of `gdn_shape.wgsl`.
fn sizes_of(shape: &GdnShape) -> [(&'static str, u32); 4] {
    [
        ("KEY_HEADS", shape.key_heads),
        ("VALUE_HEADS", shape.value_heads),
        ("KEY_DIM", shape.key_dim),
        ("VALUE_DIM", shape.value_dim),
    ]
}

/// Lanes of a row of the state: as many as threads allow.
fn lanes(shape: &GdnShape) -> u32 {
    (1 << (RECURRENCE_THREADS / shape.value_dim).ilog2()).min(MOST_LANES)
}

/// The constants of `gdn_recurrence.wgsl`.
fn recurrence(shape: &GdnShape, state: &Carried) -> [(&'static str, u32); 6] {
    let [key_heads, value_heads, key_dim, value_dim] = sizes_of(shape);
    [key_heads, value_heads, key_dim, value_dim, ("LANES", lanes(shape)), ("STATE_IN_PLACE", state.in_place())]
}

/// Convolution, norms, recurrence, output norm and gate.
pub(crate) fn mix(enc: &mut Encoding<'_>, op: &GdnMix) -> Result<()> {
    let (rows, shape, weights) = (op.rows.count, &op.shape, &op.weights);
    let sizes = sizes(enc, shape)?;
    if !TAPS.contains(&shape.kernel) {
        return Err(enc.unavailable(format_args!("a convolution of {} taps, only for {TAPS:?}", shape.kernel)));
    }
    let channels = sizes.keys.saturating_mul(2).saturating_add(sizes.values);
    let heads = u64::from(shape.value_heads);
    let state = Carried::new(enc, &op.state, "state", sizes.state)?;
    let window = Carried::new(enc, &op.window, "window", each(shape.kernel - 1, channels))?;
    let conv = enc.view(&weights.conv, "conv", each(shape.kernel, channels))?;
    let a_log = enc.view(&weights.a_log, "a_log", heads)?;
    let dt_bias = enc.view(&weights.dt_bias, "dt_bias", heads)?;
    let norm = enc.view(&weights.norm, "norm", u64::from(shape.value_dim))?;
    let qkv = enc.view(&op.qkv, "qkv", each(rows, channels))?;
    let z = enc.view(&op.z, "z", each(rows, sizes.values))?;
    let ab = enc.view(&op.ab, "ab", volume(&[rows, 2, shape.value_heads]))?;
    let out = enc.view(&op.out, "out", each(rows, sizes.values))?;
    let kept = op.inputs.as_ref().map(|inputs| kept(enc, inputs, rows, shape, &sizes)).transpose()?;
    if op.rows.form == Form::Prompt && kept.is_none() {
        let prompt = Prompt { state, window, conv, a_log, dt_bias, norm, qkv, z, ab, out };
        return prompt.record(enc, rows, shape);
    }
    let tickets = enc.tickets(shape.key_heads)?;

    let (before, window_before) = (state.before(&conv), window.before(&conv));
    let mut views = vec![before, &state.state, &conv, &a_log, &dt_bias, &norm, &qkv, &z, &ab, window_before];
    views.extend([&window.state, &out, &tickets]);
    views.extend(kept.iter().flatten());
    let mut constants = recurrence(shape, &state).to_vec();
    constants.extend([
        ("KERNEL", shape.kernel),
        ("SILU_GATE", u32::from(shape.gate == Gate::Silu)),
        ("WINDOW_IN_PLACE", window.in_place()),
    ]);
    enc.launch(&Launch {
        kernel: if kept.is_some() { &MIX_KEPT } else { &MIX },
        constants: &constants,
        views: &views,
        weights: &[],
        immediates: &[rows, shape.eps.to_bits()],
        grid: [shape.value_heads, 1, 1],
    })
}

/// What the prompt form binds.
struct Prompt {
    state: Carried,
    window: Carried,
    conv: View,
    a_log: View,
    dt_bias: View,
    norm: View,
    qkv: View,
    z: View,
    ab: View,
    out: View,
}

impl Prompt {
    /// Inputs of the recurrence, recurrence, norm and gate, a slice of the rows after the other; then the window.
    fn record(&self, enc: &mut Encoding<'_>, rows: u32, shape: &GdnShape) -> Result<()> {
        let channels = 2 * shape.key_heads * shape.key_dim + shape.value_heads * shape.value_dim;
        let mixed_row = channels + (2 * shape.value_heads).next_multiple_of(4);
        for first in (0..rows).step_by(SLICE as usize) {
            let count = SLICE.min(rows - first);
            let mixed = enc.scratch(volume(&[count, mixed_row, size_of::<f32>() as u32]))?;
            self.slice(enc, shape, first, count, &mixed)?;
        }
        slide(enc, [rows, shape.kernel - 1, channels], &self.qkv, self.window.before.as_ref(), &self.window.state)
    }

    fn slice(&self, enc: &mut Encoding<'_>, shape: &GdnShape, first: u32, count: u32, mixed: &View) -> Result<()> {
        let sizes = sizes_of(shape);
        let mut constants = sizes.to_vec();
        constants.extend([("KERNEL", shape.kernel), ("THREADS", THREADS.value)]);
        let window = self.window.before.as_ref().unwrap_or(&self.window.state);
        enc.launch(&Launch {
            kernel: &INPUTS_PROMPT,
            constants: &constants,
            views: &[&self.conv, &self.a_log, &self.dt_bias, &self.qkv, &self.ab, window, mixed],
            weights: &[],
            immediates: &[first, first + count],
            grid: [shape.key_heads + shape.value_heads, count.div_ceil(MIXED_AT_ONCE), 1],
        })?;
        // After the first slice the state is where it is left.
        let state =
            Carried { before: self.state.before.clone().filter(|_| first == 0), state: self.state.state.clone() };
        let lanes = lanes(shape);
        let threads = lanes * shape.value_dim;
        let group = if threads.is_multiple_of(GROUP) { GROUP } else { WIDTH_STEP };
        let mut constants = recurrence(shape, &state).to_vec();
        constants.extend([("BATCH", BATCH), ("GROUP", group)]);
        enc.launch(&Launch {
            kernel: &ADVANCE_PROMPT,
            constants: &constants,
            views: &[state.before(mixed), &state.state, mixed, mixed, &self.out],
            weights: &[],
            immediates: &[count, first],
            grid: [shape.value_heads, threads / group, 1],
        })?;
        let mut constants = sizes.to_vec();
        constants.push(("SILU_GATE", u32::from(shape.gate == Gate::Silu)));
        enc.launch(&Launch {
            kernel: &GATED_PROMPT,
            constants: &constants,
            views: &[&self.norm, &self.z, &self.out],
            weights: &[],
            immediates: &[first, shape.eps.to_bits()],
            grid: [shape.value_heads, count, 1],
        })
    }
}

/// The recurrence alone, over kept rows.
pub(crate) fn replay(enc: &mut Encoding<'_>, op: &GdnReplay) -> Result<()> {
    let sizes = sizes(enc, &op.shape)?;
    let [keys, values, gates] = kept(enc, &op.inputs, op.rows, &op.shape, &sizes)?;
    let state = Carried::new(enc, &op.state, "state", sizes.state)?;
    enc.launch(&Launch {
        kernel: &REPLAY,
        constants: &recurrence(&op.shape, &state),
        views: &[state.before(&keys), &state.state, &keys, &values, &gates],
        weights: &[],
        immediates: &[op.rows],
        grid: [op.shape.value_heads, 1, 1],
    })
}
