//! Owns: the promises of prompt products and attention with matrix units (engine.md 3.5, 3.7).
//! Refuses: to run by itself, since software Vulkan has matrix units from Mesa 25.2 on and older ones have none:
//! `scripts/unpack-mesa.sh` gets one, and `cargo test -p ss-wgpu -- --ignored units` runs these tests on it.
//! Invariants: an adapter without matrix units fails.

use ss_backend::{Arithmetic, Form};

use super::fixture::{Mutation, open, with_large_tiles};
use super::rules::twin;
use crate::registry::Inputs;
use crate::selftest::rig::Mode;
use crate::selftest::{self, Case, Failure, Verdict, cases};
use crate::{ChunkAccess, WgpuBackend};

const ATTENTION: &str = "QsaAppend, QsaSelect, QsaAttend";
const MODE: Mode = Mode { arithmetic: Arithmetic::Fast, form: Form::Prompt };
const RUNS: u32 = 5;

/// A device whose prompt kernels multiply with matrix units, its kernels changed if so wanted.
fn with_units(mutation: Option<Mutation>) -> WgpuBackend {
    let device = open(None, ChunkAccess::Array, mutation);
    assert!(matches!(device.shared().rounded, Inputs::Units(_)), "this adapter has no matrix units");
    device
}

/// The first case of an operation that `check` refuses.
fn refused(operation: &str, check: impl Fn(&dyn Case) -> bool) -> Option<String> {
    let cases = cases();
    let mut of_it = cases.iter().filter(|case| case.operation() == operation);
    of_it.find(|case| !check(&***case)).map(|case| case.shape())
}

/// Whether a check passed; a kernel that does not even build says nothing of the check.
fn agrees<T>(verdict: Verdict<T>) -> bool {
    assert!(!matches!(verdict, Err(Failure::Backend(_))), "{:?}", verdict.err());
    verdict.is_ok()
}

fn disagrees(mutation: Mutation, operation: &str) -> Option<String> {
    let (device, twin) = (with_units(Some(mutation)), twin());
    refused(operation, |case| agrees(selftest::parity(case, &device, &twin, MODE)))
}

#[test]
#[ignore = "needs an adapter with matrix units"]
fn every_operation_agrees_and_does_not_depend_on_other_rows() {
    let (device, twin) = (with_units(None), twin());
    let mut failures = Vec::new();
    for case in cases().iter().filter(|case| case.modes().contains(&MODE)) {
        let checked = selftest::parity(&**case, &device, &twin, MODE)
            .and_then(|_| selftest::invariance(&**case, &device, MODE))
            .and_then(|()| selftest::repeatability(&**case, &device, MODE, RUNS));
        failures.extend(checked.err().map(|failure| format!("{} {}: {failure}", case.operation(), case.shape())));
    }
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

/// On software Vulkan the tests above have low tiles only.
#[test]
#[ignore = "needs an adapter with matrix units"]
fn tall_tiles_keep_the_same_promises() {
    let (device, twin) = (with_large_tiles(), twin());
    let cases = cases();
    let case = cases.iter().find(|case| case.operation() == "ProjectWrite" && case.rows() > 128).unwrap();
    selftest::parity(&**case, &device, &twin, MODE).unwrap();
    selftest::invariance_in(&**case, &device, MODE, &[vec![1, 64, 65, 3], vec![128, 5], vec![66, 67]]).unwrap();
    let tall =
        device.shared().registry.keys().iter().any(|key| key.weights.iter().any(|weight| weight.tile.rows == 128));
    assert!(tall, "no kernel had tall tiles");
}

#[test]
#[ignore = "needs an adapter with matrix units"]
fn the_base_of_attention_may_move_at_every_tile() {
    let at_once = "const SLACK = 0.0;";
    assert_eq!(disagrees(("const SLACK = 8.0;", at_once), ATTENTION), None);
    let forgotten = "if now > base {\n        turn = 1.0;";
    let moved = "if now > base + SLACK {\n        turn = exponential(base - now);";
    assert!(disagrees((moved, forgotten), ATTENTION).is_some());
}

#[test]
#[ignore = "needs an adapter with matrix units"]
fn the_parity_check_notices_rows_that_are_left_out_and_keys_that_are_swapped() {
    let left_out = ("2u * rows_here.x <= ROW_TILE", "rows_here.x <= ROW_TILE");
    assert!(disagrees(left_out, "ProjectWrite").is_some());
    let swapped = ("let y = coopLoad<Right>(&cell_tile[key + k]", "let y = coopLoadT<Right>(&cell_tile[key + k]");
    assert!(disagrees(swapped, ATTENTION).is_some());
    let past_the_last = ("sqrt(f32(HEAD))), i < here)", "sqrt(f32(HEAD))), i <= here)");
    assert!(disagrees(past_the_last, ATTENTION).is_some());
}

#[test]
#[ignore = "needs an adapter with matrix units"]
fn the_invariance_check_notices_units_whose_rows_lean_on_each_other() {
    let put = "let half = vec4<f16>(x);\n    let at = row * PITCH";
    let leaning = "let half = vec4<f16>(x * (1.0 + 0.001 * f32(row % 8u)));\n    let at = row * PITCH";
    let device = with_units(Some((put, leaning)));
    let keeps_bits = |case: &dyn Case| agrees(selftest::invariance(case, &device, MODE));
    assert!(refused("ProjectWrite", keeps_bits).is_some());
}
