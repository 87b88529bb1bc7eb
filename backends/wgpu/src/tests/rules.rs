//! Owns: the promises that every operation keeps on software Vulkan: parity with the reference backend, row invariance
//! (engine.md I1 to I3, 3.7), repeatability, and the dispatches of section 4.

use ss_backend::{Arithmetic, Backend, Form};
use ss_reference::Reference;

use super::fixture::{Mutation, adapter, open, shared, with_large_tiles};
use crate::selftest::rig::{MODES, Mode};
use crate::selftest::{self, Case, cases};
use crate::{ChunkAccess, WgpuBackend};

const RUNS: u32 = 20;

/// One thread of the reference backend that takes F16 inputs, as the device of these tests does.
pub(super) fn twin() -> Reference {
    Reference::new(ss_reference::Options { threads: 1, f16_inputs: true, ..Default::default() }).unwrap()
}

/// Runs a check over every case in every mode that differs, and tells all that fail. `SS_CASE` picks operations.
fn every(check: impl Fn(&dyn Case, Mode) -> Result<String, selftest::Failure>) {
    let only = std::env::var("SS_CASE").unwrap_or_default();
    let mut failures = Vec::new();
    for case in cases().iter().filter(|case| case.operation().contains(&only)) {
        for &mode in case.modes() {
            let name = format!("{} {} {mode:?}", case.operation(), case.shape());
            match check(&**case, mode) {
                Ok(note) => println!("{name}: {note}"),
                Err(failure) => failures.push(format!("{name}: {failure}")),
            }
        }
    }
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

#[test]
fn every_operation_agrees_with_the_reference_backend() {
    let (device, twin) = (shared(), twin());
    every(|case, mode| selftest::parity(case, device, &twin, mode).map(|error| format!("{error:.1e}")));
    assert!(device.counters().dispatches > 0);
}

/// Software Vulkan compiles the tiles of a GPU slowly, so that only the smallest case of each way to take their sums is here;
/// on a GPU the tests above have them in all cases.
#[test]
fn the_tiles_of_a_gpu_keep_the_same_promises() {
    let (device, twin) = (with_large_tiles(), twin());
    let mode = Mode { arithmetic: Arithmetic::Exact, form: Form::Prompt };
    let cases = cases();
    for operation in ["PleProject", "HcRead", "ProjectWrite", "ExpertsIn, ExpertsOut"] {
        let of_it = cases.iter().filter(|case| case.operation() == operation);
        let case = of_it.min_by_key(|case| case.shape().len()).unwrap();
        selftest::parity(&**case, &device, &twin, mode).unwrap_or_else(|failure| panic!("{operation}: {failure}"));
        selftest::invariance(&**case, &device, mode).unwrap_or_else(|failure| panic!("{operation}: {failure}"));
    }
}

#[test]
fn a_row_does_not_depend_on_the_rows_beside_it() {
    every(|case, mode| selftest::invariance(case, shared(), mode).map(|()| "same bits".to_owned()));
}

#[test]
fn twenty_runs_of_every_operation_give_the_same_bits() {
    every(|case, mode| selftest::repeatability(case, shared(), mode, RUNS).map(|()| "same bits".to_owned()));
}

#[test]
fn a_generated_row_takes_no_more_dispatches_than_engine_md_allows() {
    let device = open(None, ChunkAccess::Array, None);
    for case in cases() {
        if let Some(most) = case.dispatches() {
            let taken = selftest::dispatches(&*case, &device).unwrap();
            assert!(taken <= most, "{} {}: {taken} dispatches, at most {most}", case.operation(), case.shape());
        }
    }
}

/// Whether one of the checks fails on a device whose kernels are changed.
fn noticed(mutation: Mutation, operation: &str, check: impl Fn(&dyn Case, &WgpuBackend, Mode) -> bool) -> bool {
    let device = open(None, ChunkAccess::Array, Some(mutation));
    let cases = cases();
    let mut cases = cases.iter().filter(|case| case.operation() == operation);
    cases.any(|case| case.modes().iter().any(|&mode| !check(&**case, &device, mode)))
}

fn keeps_bits(case: &dyn Case, device: &WgpuBackend, mode: Mode) -> bool {
    selftest::invariance(case, device, mode).is_ok()
}

#[test]
fn the_parity_check_notices_a_miss_that_ends_nothing() {
    let agrees = |case: &dyn Case, device: &WgpuBackend, mode| selftest::parity(case, device, &twin(), mode).is_ok();
    assert!(noticed(("grids[3u * dispatch] = 0u;", ""), "Route", agrees));
}

#[test]
fn the_invariance_check_notices_a_sum_whose_order_follows_the_row() {
    let by_row = ("totals[r * w_TILE + i] =", "totals[r * w_TILE + i] = (1.0 + f32(r) * 1e-6) *");
    assert!(noticed(by_row, "Head", keeps_bits));
    let by_tile =
        ("block < w_BLOCKS; block++", "block < w_BLOCKS - min(tile.end_row - tile.first_row - 1u, 1u); block++");
    assert!(noticed(by_tile, "ProjectWrite", keeps_bits));
}

#[test]
fn the_invariance_check_notices_a_state_that_is_not_carried_on() {
    let recurrent = ("own[i] = state[state_place(head, thread, i)];", "own[i] = vec4<f32>();");
    assert!(noticed(recurrent, "GdnMix", keeps_bits));
    let window = ("window[i * CHANNELS + channel] = kept[i];", "window[i * CHANNELS + channel] = 0.0 * kept[i];");
    assert!(noticed(window, "GdnMix", keeps_bits));
    let injection = ("return window_before[place * WIDTH + column];", "return 0.0;");
    assert!(noticed(injection, "PleMix", keeps_bits));
}

#[test]
fn the_parity_check_notices_a_replay_that_differs_in_its_last_bits() {
    let twin = twin();
    let agrees = |case: &dyn Case, device: &WgpuBackend, mode| selftest::parity(case, device, &twin, mode).is_ok();
    let beta = ("gates[2u * at + 1u]);", "gates[2u * at + 1u] * (1.0 + 0x1p-22));");
    assert!(noticed(beta, "GdnReplay", agrees));
}

/// The case that grows a cache, chooses and attends.
const ATTENTION: &str = "QsaAppend, QsaSelect, QsaAttend";

#[test]
fn the_invariance_check_notices_a_block_pooled_from_rows_that_are_not_rounded_yet() {
    let unrounded = ("select(through_bf16(x), x, SCALAR == F32)", "x");
    assert!(noticed(unrounded, ATTENTION, keeps_bits));
}

#[test]
fn the_invariance_check_notices_attention_that_weighs_tokens_by_the_row() {
    let by_row = (
        "first = weighed(first, numbers[0], weight);",
        "first = weighed(first, numbers[0], weight * (1.0 + f32(work.row * key) * 1e-6));",
    );
    assert!(noticed(by_row, ATTENTION, keeps_bits));
}

#[test]
fn the_parity_check_notices_a_tie_that_skips_the_lowest_block() {
    let twin = twin();
    let agrees = |case: &dyn Case, device: &WgpuBackend, mode| selftest::parity(case, device, &twin, mode).is_ok();
    let skips = ("key == edge.key && seen < edge.left", "key == edge.key && seen > 0u && seen <= edge.left");
    assert!(noticed(skips, "QsaSelect", agrees));
}

#[test]
fn a_weight_larger_than_a_binding_gives_the_same_bits_in_ranges() {
    // Less than the codes of the largest table and head, more than any activations.
    let options = crate::Options { binding_bytes: Some(80 << 10), ..crate::Options::new(adapter()) };
    let small = WgpuBackend::open(options).unwrap();
    let cases = cases();
    let mut ranges = 0;
    for case in cases.iter().filter(|case| case.operation() == "Head" && case.shape().contains("rows: 1300")) {
        let split = selftest::whole(&**case, MODES[0]);
        let (before, runs) = (small.counters().dispatches, split.len() as u64);
        let have = case.run(&small, MODES[0], &split).unwrap();
        ranges = (small.counters().dispatches - before) / runs;
        assert_eq!(have, case.run(shared(), MODES[0], &split).unwrap(), "{}", case.shape());
    }
    assert!(ranges > 2, "{ranges} ranges");
}

#[test]
fn the_parity_check_notices_tied_experts_that_are_not_chosen_from_the_lowest() {
    let twin = twin();
    let agrees = |case: &dyn Case, device: &WgpuBackend, mode| selftest::parity(case, device, &twin, mode).is_ok();
    assert!(noticed(
        ("keys[other] == mine && other < expert", "keys[other] == mine && other > expert"),
        "Route",
        agrees
    ));
}

#[test]
fn the_invariance_check_notices_choices_that_are_added_in_another_order() {
    let rotated = ("row * CHOICES + k;", "row * CHOICES + (k + group.y) % CHOICES;");
    assert!(noticed(rotated, "Combine", keeps_bits));
}

#[test]
fn the_invariance_check_notices_an_expert_that_weighs_pairs_by_their_place_in_a_tile() {
    let by_place = ("added_row(sums_1, row_tile[row", "added_row(sums_1, (1.0 + 1e-6) * row_tile[row");
    assert!(noticed(by_place, "ExpertsIn, ExpertsOut", keeps_bits));
}

#[test]
fn the_parity_check_notices_a_rule_on_logits_that_is_left_out() {
    let twin = twin();
    let agrees = |case: &dyn Case, device: &WgpuBackend, mode| selftest::parity(case, device, &twin, mode).is_ok();
    for (rule, left_out) in [
        ("fma(l, factor, -penalty)", "l * factor"),
        ("fma(l, factor, -penalty)", "l - penalty"),
        ("l += bias[id];", ""),
        ("(rules.masked == 0u ||", "(true ||"),
        ("id < rules.vocabulary && (rules", "(rules"),
        ("fed += u32(ids[before] == id);", ""),
        ("atomicOr(&flags, NOT_FINITE);", ""),
    ] {
        assert!(noticed((rule, left_out), "Top", agrees), "{rule}");
    }
}

#[test]
fn the_parity_check_notices_a_list_whose_ties_or_floor_are_wrong() {
    let twin = twin();
    let agrees = |case: &dyn Case, device: &WgpuBackend, mode| selftest::parity(case, device, &twin, mode).is_ok();
    assert!(noticed(("other.y < own.y", "other.y > own.y"), "Top", agrees));
    // One of the largest is missed where each has a block of its own.
    assert!(noticed(("var edge = Edge(0u, 0u, TOP);", "var edge = Edge(0u, 0u, TOP - 1u);"), "Top", agrees));
    assert!(noticed(("if part > 0u", "if part > 0u && group == thread && group > 0u"), "Top", agrees));
}

#[test]
fn the_invariance_check_notices_a_row_that_forgets_what_those_before_it_were_fed() {
    let alone = ("ids[before] == id", "before == row && ids[before] == id");
    assert!(noticed(alone, "Top", keeps_bits));
    let by_row = ("exponential(bitcast<f32>(bits) - largest)", "exponential(bitcast<f32>(bits) - largest - f32(row))");
    assert!(noticed(by_row, "Top", keeps_bits));
}
