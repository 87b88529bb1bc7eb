//! Owns: the numbers that make kernels fast, in one table, each with the device and the measurement behind it.
//! Invariants: they follow from the shape of a weight, never from the number of rows (engine.md 3.7h).

use ss_backend::{Format, Matrix, Scalar};

/// A number that was chosen by measuring.
#[derive(Debug)]
pub(crate) struct Tuned {
    pub(crate) name: &'static str,
    pub(crate) value: u32,
    /// Where it was measured.
    pub(crate) device: &'static str,
    /// What was measured, or why no other value will do.
    pub(crate) note: &'static str,
}

/// Threads of a workgroup.
pub(crate) const THREADS: Tuned = Tuned {
    name: "threads",
    value: 128,
    device: "H200",
    note: "four subgroups of 32; small enough for any adapter, WebGPU grants 256",
};

/// Most lanes that share an output.
pub(crate) const MOST_LANES: Tuned = Tuned {
    name: "most lanes",
    value: 16,
    device: "H200",
    note: "past 16 the sum at the end costs more than the shorter walk gains",
};

/// Fewest units of a weight row that a lane walks.
pub(crate) const FEWEST_STEPS: Tuned = Tuned {
    name: "fewest steps",
    value: 5,
    device: "H200",
    note: "2560 inputs of 4 bits then take 16 lanes and 640 take 4, the fastest there",
};

/// Outputs of a lane in the decode form of products, where there are enough of them for all of the device.
pub(crate) const MOST_OUTPUTS: Tuned = Tuned {
    name: "most outputs of a lane",
    value: 4,
    device: "H200",
    note: "a unit of inputs is read once for four weight rows: 204 us for the head, 289 with two and 227 with one",
};

/// Workgroups below which a product gives a lane fewer outputs.
pub(crate) const FEWEST_GROUPS: Tuned = Tuned {
    name: "fewest workgroups",
    value: 264,
    device: "H200",
    note: "two for each of its 132 processors: without more lanes for narrow weights hc_read took 38 us in place of 26",
};

/// Steps of a row whose inputs are staged at once, if there is one row.
pub(crate) const STEPS_AT_ONCE: Tuned = Tuned {
    name: "steps at once",
    value: 2,
    device: "H200",
    note: "memory of a workgroup is room for others: gate and up in 18.6 us where three steps took 20.8",
};

/// Outputs of a lane in the decode form of the experts.
pub(crate) const EXPERT_OUTPUTS: Tuned = Tuned {
    name: "outputs of an expert's lane",
    value: 1,
    device: "H200",
    note: "ten choices fill the device; two outputs of a lane took 17.3 us for down where one took 12.8",
};

/// Threads of a workgroup that walks all tokens or blocks of a row alone.
pub(crate) const ROW_THREADS: Tuned = Tuned {
    name: "threads of a row",
    value: 256,
    device: "any",
    note: "a generated row has few workgroups, and WebGPU grants no more threads to one",
};

/// Query heads that share what `qsa_attend.wgsl` loads of a key, at most its MOST_AT_ONCE.
pub(crate) const ATTENDED_AT_ONCE: Tuned = Tuned {
    name: "query heads at once",
    value: 2,
    device: "H200",
    note: "24 heads of 256 over 2048 tokens, split every 256, in 20 us where one workgroup a head took 116",
};

/// All of them.
pub(crate) const TABLE: [&Tuned; 9] = [
    &THREADS,
    &MOST_LANES,
    &FEWEST_STEPS,
    &MOST_OUTPUTS,
    &FEWEST_GROUPS,
    &STEPS_AT_ONCE,
    &EXPERT_OUTPUTS,
    &ROW_THREADS,
    &ATTENDED_AT_ONCE,
];

/// Most quads of workgroup memory that `gemv.wgsl` takes.
const MOST_STAGED: u32 = 1152;

/// Rows at once in `gemv.wgsl`.
pub(crate) const ROWS_AT_ONCE: u32 = 4;

/// Most outputs of a lane that `gemv_weight.wgsl` has room for.
pub(crate) const ROOM_FOR_OUTPUTS: u32 = 8;

/// Most threads of a workgroup of `gdn_recurrence.wgsl`, which has a whole value head: what WebGPU grants.
pub(crate) const RECURRENCE_THREADS: u32 = 256;

/// Rows and outputs of a tile of `gemm.wgsl`.
pub(crate) const GEMM_TILE: (u32, u32) = (32, 64);

/// Slot writes that wait for a submission before they are submitted by themselves: a bound on staging memory.
pub(crate) const MOST_PENDING_SLOTS: usize = 64;

/// Uploaded bytes that wait for a submission before they are submitted by themselves, for the same reason.
pub(crate) const MOST_PENDING_BYTES: u64 = 256 << 20;

/// Lanes that share an output of a weight whose rows have this many units of 16 bytes.
const fn lanes_for(units: u32) -> u32 {
    let mut lanes = 1;
    while lanes < MOST_LANES.value && units >= 2 * lanes * FEWEST_STEPS.value {
        lanes *= 2;
    }
    lanes
}

/// How a product is spread over threads in the decode form (`gemv_weight.wgsl`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Gemv {
    /// Lanes that share an output.
    pub(crate) lanes: u32,
    /// Outputs of a lane.
    pub(crate) outputs: u32,
}

impl Gemv {
    /// Outputs of a workgroup.
    pub(crate) const fn tile(self) -> u32 {
        THREADS.value / self.lanes * self.outputs
    }

    /// The spread for two weights whose outputs meet: the fewer of both, which fits the staged inputs of both.
    pub(crate) fn least(self, other: Self) -> Self {
        Gemv { lanes: self.lanes.min(other.lanes), outputs: self.outputs.min(other.outputs) }
    }
}

/// Inputs in a unit of a weight's part; one of F32 numbers in rows of odd length has 8.
pub(crate) const fn unit(format: Format) -> u32 {
    match format {
        Format::Affine { bits: 4, .. } => 32,
        Format::Affine { .. } => 16,
        Format::Dense(Scalar::F32) => 4,
        Format::Dense(_) => 8,
    }
}

/// Quads of workgroup memory that one step of a row takes. F32 rows of odd length go by 8 inputs: room for both.
fn room(format: Format, lanes: u32) -> u32 {
    unit(format).max(8) / 4 * (lanes + 1)
}

/// Quads of workgroup memory for a kernel with these weights and up to `at_once` rows: some steps of the inputs, and at the
/// end the sums.
pub(crate) fn staged(at_once: u32, weights: &[(Format, Gemv)]) -> u32 {
    let of = |&(format, spread): &(Format, Gemv)| {
        let inputs = at_once.max(STEPS_AT_ONCE.value) * room(format, spread.lanes);
        inputs.max(THREADS.value * spread.outputs)
    };
    weights.iter().map(of).max().unwrap_or(1)
}

/// The spread for a weight; `fixed` is the number of outputs of a lane where the kernel gives it.
pub(crate) fn gemv(matrix: Matrix, fixed: Option<u32>) -> Gemv {
    let unit = unit(matrix.format);
    let units = matrix.cols.div_ceil(unit);
    let mut shape = Gemv { lanes: lanes_for(units), outputs: fixed.unwrap_or(MOST_OUTPUTS.value) };
    let few = |shape: Gemv| matrix.rows.div_ceil(shape.tile()) < FEWEST_GROUPS.value;
    while fixed.is_none() && shape.outputs > 1 && few(shape) {
        shape.outputs /= 2;
    }
    // One step of all rows at once must fit the staged inputs.
    let fits = |lanes: u32| ROWS_AT_ONCE * room(matrix.format, lanes) <= MOST_STAGED;
    while few(shape) && 2 * shape.lanes <= THREADS.value && 2 * shape.lanes <= units && fits(2 * shape.lanes) {
        shape.lanes *= 2;
    }
    shape
}

/// The spread for a projection of an expert, whose pairs fill the device by their number.
pub(crate) const fn gemv_in_slot(matrix: Matrix) -> Gemv {
    Gemv { lanes: lanes_for(matrix.cols.div_ceil(unit(matrix.format))), outputs: EXPERT_OUTPUTS.value }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn q4(rows: u32, cols: u32) -> Matrix {
        Matrix { rows, cols, format: Format::Affine { bits: 4, group: 64, scale: Scalar::Bf16 } }
    }

    #[test]
    fn the_released_experts_get_the_lanes_that_were_measured() {
        assert_eq!(gemv_in_slot(q4(640, 2560)).lanes, 16);
        assert_eq!(gemv_in_slot(q4(2560, 640)).lanes, 4);
        assert_eq!(gemv_in_slot(q4(64, 32)).lanes, 1);
    }

    #[test]
    fn wide_products_share_inputs_and_narrow_ones_fill_the_device() {
        assert_eq!(gemv(q4(248_320, 2560), None), Gemv { lanes: 16, outputs: 4 });
        assert_eq!(gemv(q4(320, 10_240), None), Gemv { lanes: 32, outputs: 1 });
    }
}
