//! Owns: the dispatches of [`ExpertsIn`] and [`ExpertsOut`]: experts in the slots of a pool, and the shared expert
//! (architecture.md section 8).
//!
//! In: `out[p] = silu(gate u[row]) * (up u[row])` for each pair `p = (row, choice)` that has a slot. Out: `down x[p]`,
//! unweighted.
//!
//! Refuses: records in formats outside the envelope, and buffers larger than a kernel can bind.
//! Invariants: one dispatch in the decode form, the shared expert included; in the prompt form pairs are put in the order
//! of their slots and multiplied in tiles, which changes no sum. Rows, choices and the pool's chunks are immediates.

use ss_backend::op::{ExpertsIn, ExpertsOut, SharedIn, SharedOut};
use ss_backend::{Buffer, Form, Pool, RecordLayout, Result, Rows};

use super::linear::{Strided, multiply};
use crate::encoding::{Encoding, Launch, QUAD_BYTES, View, Weight, volume};
use crate::parts;
use crate::pool::Chunks;
use crate::registry::{Kernel, Part, Product};
use crate::tuning::{DOWN_OUTPUTS, ORDER_PARTS, PAIRS_WINDOW, THREADS};

const EXPERTS_IN: Kernel = Kernel {
    main: Part { file: "experts_in.wgsl", text: include_str!("../../../../wgsl/experts_in.wgsl") },
    operation: "ExpertsIn",
    parts: &[&parts::NUMBERS, &parts::SLOT, &parts::EXPERTS_IN_SHARED],
    weights: &["gate", "up", "shared_gate", "shared_up"],
    product: Product::Gemv,
    section: "architecture.md 8",
    twin: "backends/reference/src/ops/experts.rs",
    tests: "backends/wgpu/src/selftest/moe.rs",
    tuning: &[
        "threads",
        "most lanes",
        "fewest steps",
        "most outputs of a lane",
        "fewest workgroups",
        "outputs of an expert's lane",
    ],
};

const EXPERTS_IN_ALIKE: Kernel = Kernel {
    main: Part { file: "experts_in_alike.wgsl", text: include_str!("../../../../wgsl/experts_in_alike.wgsl") },
    weights: &["pair", "shared"],
    ..EXPERTS_IN
};

const EXPERTS_OUT: Kernel = Kernel {
    main: Part { file: "experts_out.wgsl", text: include_str!("../../../../wgsl/experts_out.wgsl") },
    operation: "ExpertsOut",
    parts: &[&parts::NUMBERS, &parts::SLOT],
    weights: &["down", "shared_down"],
    product: Product::Walk,
    tuning: &["threads", "most lanes", "fewest steps", "most units abreast", "outputs of a lane of down"],
    ..EXPERTS_IN
};

const EXPERTS_ORDER: Kernel = Kernel {
    main: Part { file: "experts_order.wgsl", text: include_str!("../../../../wgsl/experts_order.wgsl") },
    operation: "ExpertsIn, ExpertsOut",
    parts: &[],
    weights: &[],
    product: Product::Numbers,
    tuning: &["threads"],
    ..EXPERTS_IN
};

const EXPERTS_IN_PROMPT: Kernel = Kernel {
    main: Part { file: "experts_in_prompt.wgsl", text: include_str!("../../../../wgsl/experts_in_prompt.wgsl") },
    parts: &[&parts::NUMBERS, &parts::SLOT, &parts::EXPERTS_WALK, &parts::SWIGLU_ROWS],
    weights: &["gate", "up"],
    product: Product::Gemm,
    tuning: &[],
    ..EXPERTS_IN
};

const EXPERTS_OUT_PROMPT: Kernel = Kernel {
    main: Part { file: "experts_out_prompt.wgsl", text: include_str!("../../../../wgsl/experts_out_prompt.wgsl") },
    operation: "ExpertsOut",
    parts: &[&parts::NUMBERS, &parts::SLOT, &parts::EXPERTS_WALK, &parts::GEMM_TAKEN],
    weights: &["down"],
    ..EXPERTS_IN_PROMPT
};

const SWIGLU_PROMPT: Kernel = Kernel {
    main: Part { file: "swiglu_prompt.wgsl", text: include_str!("../../../../wgsl/swiglu_prompt.wgsl") },
    parts: &[&parts::NUMBERS, &parts::SWIGLU_ROWS],
    ..EXPERTS_IN_PROMPT
};

/// Numbers that `experts_order.wgsl` leaves of a pair.
const ORDERED: u32 = 3;

/// Workgroups over the outputs of gate and up, which share a tile.
fn swiglu_tiles(gate: &Weight) -> u32 {
    gate.matrix.rows.div_ceil(gate.tile.outputs / 2)
}

/// The kernels of this family.
pub(crate) const KERNELS: &[&Kernel] = &[
    &EXPERTS_IN,
    &EXPERTS_IN_ALIKE,
    &EXPERTS_OUT,
    &EXPERTS_ORDER,
    &EXPERTS_IN_PROMPT,
    &EXPERTS_OUT_PROMPT,
    &SWIGLU_PROMPT,
];

/// The pairs of rows and choices, and the pool that holds their experts.
struct Gather<'a> {
    rows: Rows,
    choices: u32,
    pairs: u32,
    pool: &'a Chunks,
    record: RecordLayout,
    slots: View,
    /// The size of a slot and the slots of a chunk, for kernels.
    slot_sizes: [(&'static str, u32); 2],
}

impl<'a> Gather<'a> {
    fn new(enc: &Encoding<'_>, rows: Rows, choices: u32, pool: &'a Pool, slots: &Buffer) -> Result<Self> {
        enc.nonzero(&[("choices", choices)])?;
        let pairs = rows.count.checked_mul(choices).ok_or_else(|| enc.refuse("`rows` times `choices` overflow"))?;
        let record = *pool.layout();
        let quads = u32::try_from(record.bytes / QUAD_BYTES)
            .map_err(|_| enc.refuse(format_args!("an expert record has {} bytes", record.bytes)))?;
        let slots = enc.view(slots, "slots", u64::from(pairs))?;
        let pool = Chunks::of(pool)?;
        let slot_sizes = [("RECORD_QUADS", quads), ("SLOTS_PER_CHUNK", pool.plan.slots_per_chunk)];
        Ok(Gather { rows, choices, pairs, pool, record, slots, slot_sizes })
    }

    /// Numbers and columns of all pairs.
    fn numbers(&self, width: u32) -> u64 {
        volume(&[self.pairs, width])
    }

    /// Runs a kernel of the decode form: workgroups for each pair, then for the rows of the shared expert.
    fn generated(&self, enc: &mut Encoding<'_>, half: &Half<'_>) -> Result<()> {
        let tiles = |weight: &Weight| weight.tiles(weight.matrix.rows);
        let (routed, shared) = (half.tiles, half.shared.map_or(0, tiles));
        let shared_groups = half.shared.map_or(0, |_| self.rows.count);
        let plan = self.pool.plan;
        let [size, chunk] = self.slot_sizes;
        enc.launch_over(
            Some(self.pool),
            &Launch {
                kernel: half.kernel,
                constants: &[size, chunk, ("CHOICES", self.choices)],
                views: half.views,
                weights: half.weights,
                immediates: &[self.rows.count, self.choices, plan.slots, plan.slots_per_chunk],
                grid: [routed.max(shared), self.pairs.saturating_add(shared_groups), 1],
            },
        )
    }

    /// Workgroups of a prompt form with so many tiles of outputs.
    fn prompt_grid(&self, tiles: u32) -> [u32; 3] {
        [tiles, self.pairs.div_ceil(PAIRS_WINDOW), 1]
    }

    /// Records the order of the pairs by slot.
    fn order(&self, enc: &mut Encoding<'_>) -> Result<View> {
        let order = enc.scratch(volume(&[ORDERED, self.pairs, size_of::<u32>() as u32]))?;
        enc.launch(&Launch {
            kernel: &EXPERTS_ORDER,
            constants: &[("THREADS", THREADS.value), ("PARTS", ORDER_PARTS)],
            views: &[&self.slots, &order],
            weights: &[],
            immediates: &[self.pairs],
            grid: [self.pairs.div_ceil(THREADS.value / ORDER_PARTS), 1, 1],
        })?;
        Ok(order)
    }
}

/// What a kernel of the decode form takes.
struct Half<'a> {
    kernel: &'static Kernel,
    views: &'a [&'a View],
    weights: &'a [&'a Weight],
    /// Workgroups of a pair.
    tiles: u32,
    /// The same of the shared expert, if it is named.
    shared: Option<&'a Weight>,
}

/// Gate and up projections with SwiGLU.
pub(crate) fn gate_up(enc: &mut Encoding<'_>, op: &ExpertsIn) -> Result<()> {
    let gather = Gather::new(enc, op.rows, op.choices, &op.pool, &op.slots)?;
    let (inner, hidden) = (gather.record.gate.matrix.rows, gather.record.gate.matrix.cols);
    let gate = enc.slot_weight(&gather.record.gate, "the pool's gate", inner, hidden)?;
    let up = enc.slot_weight(&gather.record.up, "the pool's up", inner, hidden)?;
    let (gate, up) = gate.paired(up);
    let u = enc.view(&op.u, "u", volume(&[op.rows.count, hidden]))?;
    let out = enc.view(&op.out, "out", gather.numbers(inner))?;
    let shared = op.shared.as_ref().map(|shared| GateUp::new(enc, shared, op.rows, hidden)).transpose()?;
    if op.rows.form == Form::Generated {
        // Without the shared expert nothing is written to its place.
        let nowhere = enc.scratch(0)?;
        let (shared_gate, shared_up, shared_out) =
            shared.as_ref().map_or((&gate, &up, &nowhere), |shared| (&shared.gate, &shared.up, &shared.out));
        let views = [&u, &gather.slots, &out, shared_out];
        let pair = gate.stacked(&up);
        let shared_pair = if shared.is_some() { shared_gate.beside(shared_up) } else { pair.clone() };
        if let Some((pair, shared_pair)) = pair.as_ref().zip(shared_pair.as_ref()) {
            let half = Half {
                kernel: &EXPERTS_IN_ALIKE,
                views: &views,
                weights: &[pair, shared_pair],
                tiles: pair.tiles(pair.matrix.rows),
                shared: shared.as_ref().map(|_| shared_pair),
            };
            return gather.generated(enc, &half);
        }
        let half = Half {
            kernel: &EXPERTS_IN,
            views: &views,
            weights: &[&gate, &up, shared_gate, shared_up],
            tiles: gate.tiles(inner),
            shared: shared.as_ref().map(|shared| &shared.gate),
        };
        return gather.generated(enc, &half);
    }
    let order = gather.order(enc)?;
    let inputs = enc.inputs(op.rows);
    let (gate, up) = (gate.multiplied(inputs), up.multiplied(inputs));
    let plan = gather.pool.plan;
    enc.launch_over(
        Some(gather.pool),
        &Launch {
            kernel: &EXPERTS_IN_PROMPT,
            constants: &gather.slot_sizes,
            views: &[&u, &gather.slots, &order, &out],
            weights: &[&gate, &up],
            immediates: &[op.choices, gather.pairs, plan.slots, plan.slots_per_chunk],
            grid: gather.prompt_grid(swiglu_tiles(&gate)),
        },
    )?;
    shared.map_or(Ok(()), |shared| shared.prompt(enc, op.rows, &u))
}

/// First half of the shared expert.
struct GateUp {
    gate: Weight,
    up: Weight,
    out: View,
}

impl GateUp {
    fn new(enc: &Encoding<'_>, shared: &SharedIn, rows: Rows, hidden: u32) -> Result<Self> {
        let inner = shared.gate.matrix.rows;
        let gate = enc.weight(&shared.gate, "shared.gate", inner, hidden)?.spread_as_in_slot(1);
        let (gate, up) = gate.paired(enc.weight(&shared.up, "shared.up", inner, hidden)?.spread_as_in_slot(1));
        Ok(GateUp { gate, up, out: enc.view(&shared.out, "shared.out", volume(&[rows.count, inner]))? })
    }

    fn prompt(self, enc: &mut Encoding<'_>, rows: Rows, u: &View) -> Result<()> {
        let inputs = enc.inputs(rows);
        let (gate, up) = (self.gate.multiplied(inputs), self.up.multiplied(inputs));
        enc.launch(&Launch {
            kernel: &SWIGLU_PROMPT,
            constants: &[],
            views: &[u, &self.out],
            weights: &[&gate, &up],
            immediates: &[rows.count],
            grid: [swiglu_tiles(&gate), rows.count.div_ceil(gate.tile.rows), 1],
        })
    }
}

/// Down projections.
pub(crate) fn down(enc: &mut Encoding<'_>, op: &ExpertsOut) -> Result<()> {
    let gather = Gather::new(enc, op.rows, op.choices, &op.pool, &op.slots)?;
    let (hidden, inner) = (gather.record.down.matrix.rows, gather.record.down.matrix.cols);
    let down = enc.slot_weight(&gather.record.down, "the pool's down", hidden, inner)?.walked(DOWN_OUTPUTS.value);
    let x = enc.view(&op.x, "x", gather.numbers(inner))?;
    let out = enc.view(&op.out, "out", gather.numbers(hidden))?;
    let shared = op.shared.as_ref().map(|shared| Down::new(enc, shared, op.rows, hidden)).transpose()?;
    if op.rows.form == Form::Generated {
        // Without the shared expert nothing is written to its place.
        let nowhere = enc.scratch(0)?;
        let (shared_down, shared_x, shared_out) =
            shared.as_ref().map_or((&down, &x, &nowhere), |shared| (&shared.down, &shared.x, &shared.out));
        let half = Half {
            kernel: &EXPERTS_OUT,
            views: &[&x, &gather.slots, shared_x, &out, shared_out],
            weights: &[&down, shared_down],
            tiles: down.tiles(hidden),
            shared: shared.as_ref().map(|shared| &shared.down),
        };
        return gather.generated(enc, &half);
    }
    let order = gather.order(enc)?;
    let plan = gather.pool.plan;
    let down = down.multiplied(enc.inputs(op.rows));
    enc.launch_over(
        Some(gather.pool),
        &Launch {
            kernel: &EXPERTS_OUT_PROMPT,
            constants: &gather.slot_sizes,
            views: &[&x, &gather.slots, &order, &out],
            weights: &[&down],
            immediates: &[gather.pairs, plan.slots, plan.slots_per_chunk],
            grid: gather.prompt_grid(hidden.div_ceil(down.tile.outputs)),
        },
    )?;
    shared.map_or(Ok(()), |shared| shared.prompt(enc, op.rows))
}

/// Second half of the shared expert.
struct Down {
    x: View,
    down: Weight,
    out: View,
}

impl Down {
    fn new(enc: &Encoding<'_>, shared: &SharedOut, rows: Rows, hidden: u32) -> Result<Self> {
        let inner = shared.down.matrix.cols;
        Ok(Down {
            x: enc.view(&shared.x, "shared.x", volume(&[rows.count, inner]))?,
            down: enc.weight(&shared.down, "shared.down", hidden, inner)?.walked(DOWN_OUTPUTS.value),
            out: enc.view(&shared.out, "shared.out", volume(&[rows.count, hidden]))?,
        })
    }

    fn prompt(self, enc: &mut Encoding<'_>, rows: Rows) -> Result<()> {
        let Down { x, down, out } = self;
        let (hidden, inner) = (down.matrix.rows, down.matrix.cols);
        let down = down.multiplied(enc.inputs(rows));
        multiply(enc, rows, &Strided::rows(&x, inner), &down, &Strided::rows(&out, hidden))
    }
}
