//! Owns: the numbers that make kernels fast, in one table, each with the device and the measurement behind it.
//! Invariants: they follow from the shape of a weight, never from the number of rows (engine.md 3.7h).

use std::time::Duration;

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
    note: "a unit of inputs is read once for four weight rows: 136 us for the head, 164 with two",
};

/// Workgroups below which a product gives a lane fewer outputs.
pub(crate) const FEWEST_GROUPS: Tuned = Tuned {
    name: "fewest workgroups",
    value: 256,
    device: "H200",
    note: "about two for each of its 132 processors: route in 10.8 us with 256 workgroups, 12.0 with 512; project_write in 10.8 us with 320 workgroups, 11.7 with 160, 16.7 with 640",
};

/// Most units of a weight row that a lane walks, where a weight shares a dispatch with larger ones.
pub(crate) const MOST_STEPS: Tuned = Tuned {
    name: "most steps beside others",
    value: 10,
    device: "H200",
    note: "k, v and the indexer in 160 workgroups beside q: spread over all of the device they took qsa_project from 14 us to 30",
};

/// Outputs of a lane in the decode form of the experts, where they are not those of two projections.
pub(crate) const EXPERT_OUTPUTS: Tuned = Tuned {
    name: "outputs of an expert's lane",
    value: 4,
    device: "H200",
    note: "down, which has more since, in 9.0 us where one output of a lane took 10.7",
};

/// Outputs of a lane in the decode form of an expert's last projection.
pub(crate) const DOWN_OUTPUTS: Tuned = Tuned {
    name: "outputs of a lane of down",
    value: 8,
    device: "H200",
    note: "ten experts and the shared one, as part of a token and with a mark, in 15.7 us; 17.8 with four, 19.2 where four lanes shared a row",
};

/// Most units of a weight row that as many lanes have side by side in `gemv_walk.wgsl`.
pub(crate) const MOST_ABREAST: Tuned = Tuned {
    name: "most units abreast",
    value: 32,
    device: "H200",
    note: "as part of a token and with a mark: the 20 of down in 15.7 us, the 10 of hc_read_out in 13.4, of two lanes too few in 13.7; the 80 of hc_read_in in 15.0, on 32 lanes in 12.0",
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
pub(crate) const TABLE: [&Tuned; 11] = [
    &THREADS,
    &MOST_LANES,
    &FEWEST_STEPS,
    &MOST_OUTPUTS,
    &FEWEST_GROUPS,
    &MOST_STEPS,
    &EXPERT_OUTPUTS,
    &DOWN_OUTPUTS,
    &MOST_ABREAST,
    &ROW_THREADS,
    &ATTENDED_AT_ONCE,
];

/// Most quads of workgroup memory for inputs of `gemv.wgsl`: 16 KiB.
const MOST_STAGED: u32 = 1024;

/// Rows at once in `gemv.wgsl`.
pub(crate) const ROWS_AT_ONCE: u32 = 4;

/// Units that a lane of `gemv_weight.wgsl` loads at once.
const UNITS_AT_ONCE: u32 = 4;

/// Most outputs of a lane that `gemv_weight.wgsl` has room for.
pub(crate) const ROOM_FOR_OUTPUTS: u32 = 8;

/// Most threads of a workgroup of `gdn_recurrence.wgsl`, which has a whole value head: what WebGPU grants.
pub(crate) const RECURRENCE_THREADS: u32 = 256;

/// What a workgroup of the prompt form of a product multiplies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct GemmTile {
    pub(crate) rows: u32,
    pub(crate) outputs: u32,
    /// Threads over the outputs.
    pub(crate) columns: u32,
}

/// The tile of `gemm_large.wgsl`.
pub(crate) const LARGE_TILE: GemmTile = GemmTile { rows: 64, outputs: 128, columns: 16 };

/// The tile of `gemm_units.wgsl`: a product of 2048 x 2560 by 16384 in 1.1 ms on an H200, in 1.5 with half as many rows.
const UNITS_TILE: GemmTile = GemmTile { rows: 128, outputs: 128, columns: 16 };

/// The same where few rows meet, or few outputs: experts, of which 512 share the choices of a pass, and products with fewer
/// outputs than fill a device with workgroups. Also where a processor stands in for the units.
pub(crate) const UNITS_LOW_TILE: GemmTile = GemmTile { rows: 64, outputs: 128, columns: 16 };

/// Fewest outputs of a product in tiles of `UNITS_TILE`.
const FEWEST_UNITS_OUTPUTS: u32 = 1024;

impl GemmTile {
    /// The tile of the same product with matrix units; the weight of an expert lies in a slot.
    pub(crate) fn with_units(self, in_slot: bool, outputs: u32) -> Self {
        let low = in_slot || outputs < FEWEST_UNITS_OUTPUTS || self == SMALL_TILE;
        if low { UNITS_LOW_TILE } else { UNITS_TILE }
    }
}

/// The tile of `gemm_small.wgsl`.
pub(crate) const SMALL_TILE: GemmTile = GemmTile { rows: 32, outputs: 64, columns: 8 };

/// Threads that share a pair in `experts_order.wgsl`: with one, a pass of 20,480 pairs fills 80 workgroups, and an H200 took
/// over a millisecond for it.
pub(crate) const ORDER_PARTS: u32 = 8;

/// Places of pairs among which a workgroup of `experts_walk.wgsl` has the tiles that begin there.
pub(crate) const PAIRS_WINDOW: u32 = 32;

/// Largest subgroup that `units_8.wgsl` has room for.
pub(crate) const WIDEST_SUBGROUP: u32 = 64;

/// Threads of a subgroup for `units_16.wgsl`.
pub(crate) const SUBGROUP_OF_16: u32 = 32;

/// Slot writes that wait for a submission before they are submitted by themselves: a bound on staging memory.
pub(crate) const MOST_PENDING_SLOTS: usize = 64;

/// Uploaded bytes that wait for a submission before they are submitted by themselves, for the same reason.
pub(crate) const MOST_PENDING_BYTES: u64 = 256 << 20;

/// Bytes of the ring through which small uploads go, and most bytes of one: a reply's token takes some kilobytes, a mask over 248
/// thousand tokens 31 of them.
pub(crate) const RING_BYTES: u64 = 1 << 20;
/// See [`RING_BYTES`].
pub(crate) const MOST_SMALL_BYTES: u64 = 64 << 10;

/// How long the end of work is waited for awake: longer than a layer takes that misses. On an H200 a readback of the shortest
/// work takes 29 us awake and 53 us asleep.
pub(crate) const AWAKE: Duration = Duration::from_micros(500);

/// How often a device that waits for records is given a pulse, and the steps of one, 4 us. An H200 that works 210 us of every
/// 1,900 slows down, and its kernels take 4.2 ms a token instead of 1.7; with pulses a token takes 14.8 ms instead of 16.4 from a
/// disk of 3.7 GB/s. Longer and rarer ones (16 us every 200, 64 every 1,000) gain no more there and cost 5 and 14 % at 17.3 GB/s.
pub(crate) const PULSE_EVERY: Duration = Duration::from_micros(100);
pub(crate) const PULSE_STEPS: u32 = 1000;

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
    pub(crate) fn tile(self) -> u32 {
        THREADS.value / self.lanes * self.outputs
    }

    /// Threads that add the lanes of an output: a power of two.
    pub(crate) fn split(self) -> u32 {
        let most = (THREADS.value / self.tile()).clamp(1, 8).min(self.lanes);
        1 << most.ilog2()
    }

    /// The spread for two weights whose outputs meet: the fewer of both.
    pub(crate) fn least(self, other: Self) -> Self {
        Gemv { lanes: self.lanes.min(other.lanes), outputs: self.outputs.min(other.outputs) }
    }

    /// Steps of a row of `units` units whose inputs are staged at once: all, or equal stretches that fit, in multiples of
    /// what a lane loads at once.
    pub(crate) fn steps(self, format: Format, units: u32) -> u32 {
        let (steps, fit) = (units.div_ceil(self.lanes), (MOST_STAGED / room(format, self.lanes)).max(1));
        if steps <= fit {
            return steps;
        }
        let ahead = (UNITS_AT_ONCE / self.outputs).max(1);
        let most = (fit / ahead * ahead).max(ahead);
        steps.div_ceil(steps.div_ceil(most)).next_multiple_of(ahead)
    }

    /// The same for `gemv_walk.wgsl`, where a lane loads one unit at once.
    pub(crate) fn walk_steps(self, format: Format, units: u32) -> u32 {
        let (steps, fit) = (units.div_ceil(self.lanes), (MOST_STAGED / room(format, self.lanes)).max(1));
        steps.div_ceil(steps.div_ceil(fit))
    }

    /// Quads of workgroup memory for a weight of rows of `units` units: inputs, and in `gemv_weight.wgsl` at the end the sums of
    /// the lanes, which have a place of their own in `gemv_walk.wgsl`.
    pub(crate) fn staged(self, walks: bool, format: Format, units: u32) -> u32 {
        if walks {
            return self.walk_steps(format, units) * room(format, self.lanes);
        }
        let inputs = self.steps(format, units) * room(format, self.lanes);
        inputs.max((THREADS.value * self.outputs).div_ceil(4))
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

/// Most units of a row that are multiplied at once; parts of the columns may begin and end inside a unit.
pub(crate) const fn part_units(matrix: Matrix, part: Option<u32>) -> u32 {
    let unit = unit(matrix.format);
    match part {
        Some(columns) if columns.is_multiple_of(unit) => columns / unit,
        Some(columns) => columns.div_ceil(unit) + 1,
        None => matrix.cols.div_ceil(unit),
    }
}

/// The spread for a weight; `part` is the number of columns that are multiplied at once where they are split, `fixed` the
/// number of outputs of a lane where the kernel gives it.
pub(crate) fn gemv(matrix: Matrix, part: Option<u32>, fixed: Option<u32>) -> Gemv {
    let units = part_units(matrix, part);
    let parts = part.map_or(1, |columns| matrix.cols.div_ceil(columns));
    let (mut lanes, mut outputs) = (lanes_for(units), fixed.unwrap_or(MOST_OUTPUTS.value));
    let few =
        |lanes: u32, outputs: u32| matrix.rows.div_ceil(THREADS.value / lanes * outputs) * parts < FEWEST_GROUPS.value;
    while fixed.is_none() && outputs > 1 && few(lanes, outputs) {
        outputs /= 2;
    }
    // A step must fit the staged inputs.
    let fits = |lanes: u32| room(matrix.format, lanes) <= MOST_STAGED;
    while few(lanes, outputs) && 2 * lanes <= THREADS.value && 2 * lanes <= units && fits(2 * lanes) {
        lanes *= 2;
    }
    Gemv { lanes, outputs }
}

/// The spread for a weight of a dispatch that larger ones fill: as few workgroups as keep its walk short.
pub(crate) fn gemv_beside(matrix: Matrix) -> Gemv {
    let units = part_units(matrix, None);
    let mut lanes = lanes_for(units);
    while units.div_ceil(lanes) > MOST_STEPS.value && 2 * lanes <= THREADS.value {
        lanes *= 2;
    }
    // A unit of dense numbers is short: a lane takes several of one output at once.
    Gemv { lanes, outputs: if matrix.format.is_affine() { MOST_OUTPUTS.value } else { 1 } }
}

/// The spread for a projection of an expert, whose pairs fill the device by their number.
pub(crate) fn gemv_in_slot(matrix: Matrix, outputs: u32) -> Gemv {
    Gemv { lanes: lanes_for(part_units(matrix, None)), outputs }
}

/// The spread for two projections of an expert that are multiplied at once, a lane having two outputs of each. On an H200, as
/// part of a token and with a mark, 25.1 us for the ten experts of a layer and the shared one; with half the lanes 26.3, with one
/// output of each 27.2, with both 32.8 on a quarter of the lanes.
pub(crate) fn gemv_of_two(projection: Matrix) -> Gemv {
    gemv_in_slot(projection, 4)
}

/// The spread of `gemv_walk.wgsl`, where a lane has `outputs` outputs: a lane for each unit of a row, where those are few.
pub(crate) fn gemv_walked(matrix: Matrix, outputs: u32) -> Gemv {
    let units = part_units(matrix, None);
    Gemv { lanes: if units <= MOST_ABREAST.value { units } else { lanes_for(units) }, outputs }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn q4(rows: u32, cols: u32) -> Matrix {
        Matrix { rows, cols, format: Format::Affine { bits: 4, group: 64, scale: Scalar::Bf16 } }
    }

    #[test]
    fn the_released_experts_get_the_lanes_that_were_measured() {
        assert_eq!(gemv_of_two(q4(640, 2560)), Gemv { lanes: 16, outputs: 4 });
        assert_eq!(gemv_walked(q4(2560, 640), DOWN_OUTPUTS.value), Gemv { lanes: 20, outputs: 8 });
        assert_eq!(gemv_walked(q4(10_240, 320), 4).tile(), 48);
        assert_eq!((gemv_walked(q4(64, 32), 1).lanes, gemv_of_two(q4(64, 32)).lanes), (1, 1));
    }

    #[test]
    fn wide_products_share_inputs_and_narrow_ones_fill_the_device() {
        assert_eq!((gemv(q4(248_320, 2560), None, None).outputs, gemv(q4(320, 10_240), None, None).outputs), (4, 1));
    }
}
