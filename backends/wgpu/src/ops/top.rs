//! Owns: what is done to logits before the largest are listed, and their list (engine.md 5.3).
//!
//! One kernel adjusts the logits and finds the peaks of blocks of ids, a second ranks the ids of the highest blocks.
//!
//! Refuses: more rows than the head makes.
//! Invariants: two dispatches; nothing of the request is a constant or an immediate, so that they can be encoded before
//! its last token is known; a list is exact, or the row is flagged.

use ss_backend::op::{Head, LogitRules, TOP, Top};
use ss_backend::{Form, Result};

use crate::encoding::{Encoding, Launch, View, volume};
use crate::parts;
use crate::registry::{Kernel, Part, Product};
use crate::tuning::{ROW_THREADS, THREADS};

const PEAKS: Kernel = Kernel {
    main: Part { file: "top_peaks.wgsl", text: include_str!("../../../../wgsl/top_peaks.wgsl") },
    operation: "Top",
    parts: &[&parts::NUMBERS, &parts::TOP_SHARED],
    weights: &[],
    product: Product::Numbers,
    section: "engine.md 5.3",
    twin: "backends/reference/src/ops/top.rs",
    tests: "backends/wgpu/src/selftest/top.rs",
    tuning: &["threads"],
};

const LIST: Kernel = Kernel {
    main: Part { file: "top_list.wgsl", text: include_str!("../../../../wgsl/top_list.wgsl") },
    tuning: &["threads of a row"],
    ..PEAKS
};

/// The kernels of this family.
pub(crate) const KERNELS: &[&Kernel] = &[&PEAKS, &LIST];

/// Blocks of a row, if its blocks may have fewer ids than [`MOST_IDS`]: four times as many as are listed, so that most
/// have one of the largest at most.
const FEWEST_BLOCKS: u32 = 4 * TOP;

/// Ids of a block at most: all those of the highest blocks are read again.
const MOST_IDS: u32 = 64;

/// Threads that share a block.
const MOST_LANES: u32 = 16;

/// Ids that `top_list.wgsl` ranks: three words of workgroup memory each.
const ROOM: u32 = 1024;

/// Words that a workgroup of `top_peaks.wgsl` leaves beside its peaks.
const PART_WORDS: u32 = 3;

/// How the ids of a row are divided.
struct Division {
    /// Ids of a block.
    block: u32,
    /// Blocks of a row.
    blocks: u32,
    /// Threads that share a block.
    lanes: u32,
    /// Workgroups of a row.
    groups: u32,
}

impl Division {
    fn of(vocab: u32) -> Self {
        let most = (vocab / FEWEST_BLOCKS).clamp(1, MOST_IDS);
        // The largest power of two that is not above.
        let block = 1 << most.ilog2();
        let (blocks, lanes) = (vocab.div_ceil(block), block.min(MOST_LANES));
        Division { block, blocks, lanes, groups: blocks.div_ceil(THREADS.value / lanes) }
    }
}

/// Adjusted logits and the list of each row.
pub(crate) fn top(enc: &mut Encoding<'_>, op: &Top) -> Result<()> {
    let (rows, vocab) = (op.rows.count, op.vocab);
    enc.nonzero(&[("vocab", vocab)])?;
    if rows > Head::MAX_ROWS {
        let most = Head::MAX_ROWS;
        return Err(enc.refuse(format_args!("`rows` is {rows}, at most {most} are allowed")));
    }
    let logits = enc.view(&op.logits, "logits", volume(&[rows, vocab]))?;
    let ids = enc.view(&op.ids, "ids", volume(&[rows]))?;
    let rules = enc.view(&op.rules, "rules", volume(&[LogitRules::WORDS]))?;
    let counts = enc.view(&op.counts, "counts", volume(&[vocab]))?;
    let bias = enc.view(&op.bias, "bias", volume(&[vocab]))?;
    let mask = enc.view(&op.mask, "mask", volume(&[vocab.div_ceil(u32::BITS)]))?;
    let adjusted = enc.view(&op.adjusted, "adjusted", volume(&[rows, vocab]))?;
    let out = enc.view(&op.out, "out", volume(&[rows, Top::WORDS]))?;
    let division = Division::of(vocab);
    let words = division.blocks + PART_WORDS * division.groups;
    let found = enc.scratch(size_of::<u32>() as u64 * volume(&[rows, words]))?;

    let of_row = [("VOCAB", vocab), ("BLOCKS", division.blocks), ("GROUPS", division.groups)];
    let generated = u32::from(op.rows.form == Form::Generated);
    let mut launch = |kernel, own: &[_], views: &[&View], grid| {
        let constants = [&of_row, own].concat();
        enc.launch(&Launch { kernel, constants: &constants, views, weights: &[], immediates: &[], grid })
    };
    launch(
        &PEAKS,
        &[("THREADS", THREADS.value), ("LANES", division.lanes), ("GENERATED", generated)],
        &[&logits, &ids, &rules, &counts, &bias, &mask, &adjusted, &found],
        [division.groups, rows, 1],
    )?;
    launch(
        &LIST,
        &[("THREADS", ROW_THREADS.value), ("BLOCK", division.block), ("TOP", TOP), ("ROOM", ROOM)],
        &[&adjusted, &found, &out],
        [rows, 1, 1],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_divided_into_blocks_of_a_power_of_two() {
        for (vocab, block) in [(1, 1), (2047, 1), (2048, 2), (4099, 4), (40_000, 32), (248_320, 64), (1 << 20, 64)] {
            let division = Division::of(vocab);
            assert_eq!(division.block, block, "{vocab}");
            assert!(division.blocks * block >= vocab && (division.blocks - 1) * block < vocab, "{vocab}");
        }
    }
}
