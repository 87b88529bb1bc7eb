//! Owns: the promises that every operation keeps.

use ss_backend::{Arithmetic, Form};

use super::cases::{Case, Outcome, all};
use super::rig::{EXACT, MODES, Mode, assert_bits, assert_close, fast, plain, threaded};

/// Largest error over the largest expected number.
const TOLERANCE: f64 = 3e-6;
/// The same where inputs are rounded to F16: an input beside a tie may round the other way in F64.
const ROUNDED_TOLERANCE: f64 = 4e-4;

fn whole(case: &dyn Case) -> Vec<usize> {
    let mut left = case.rows();
    std::iter::from_fn(|| {
        let count = left.min(case.most());
        left -= count;
        (count > 0).then_some(count)
    })
    .collect()
}

fn same_bits(what: &str, have: &Outcome<f32>, want: &Outcome<f32>) {
    for ((name, have), (_, want)) in have.outputs.iter().zip(&want.outputs) {
        assert_bits(&format!("{what}: {name}"), have, want);
    }
    assert_bits(&format!("{what}: state"), &have.state, &want.state);
}

fn close(what: &str, have: &Outcome<f32>, want: &Outcome<f64>, tolerance: f64) {
    assert_eq!(have.outputs.len(), want.outputs.len());
    for ((name, have), (_, want)) in have.outputs.iter().zip(&want.outputs) {
        assert_close(&format!("{what}: {name}"), have, want, tolerance);
    }
    assert_close(&format!("{what}: state"), &have.state, &want.state, tolerance);
}

#[test]
fn every_operation_agrees_with_the_oracle() {
    for case in all() {
        let want = case.oracle(EXACT);
        close(&case.name(), &case.run(&fast(), EXACT, &whole(&*case)), &want, TOLERANCE);
        close(&format!("{} (plain)", case.name()), &case.run(&plain(), EXACT, &whole(&*case)), &want, TOLERANCE);
    }
}

#[test]
fn fast_prompt_rows_round_inputs_and_weights_of_products_and_nothing_else() {
    let mode = Mode { arithmetic: Arithmetic::Fast, form: Form::Prompt };
    for case in all() {
        close(&case.name(), &case.run(&fast(), mode, &whole(&*case)), &case.oracle(mode), ROUNDED_TOLERANCE);
    }
}

#[test]
fn what_feeds_choices_and_gates_is_never_rounded() {
    let prompt = Mode { arithmetic: Arithmetic::Fast, form: Form::Prompt };
    for case in all() {
        let (have, want) = (case.run(&fast(), prompt, &whole(&*case)), case.run(&fast(), EXACT, &whole(&*case)));
        for ((name, have), (_, want)) in have.outputs.iter().zip(&want.outputs) {
            if !case.rounded().contains(name) {
                assert_bits(&format!("{}: {name}", case.name()), have, want);
            } else if *name != "blocks" {
                assert!(have != want, "{}: {name} was not rounded", case.name());
            }
        }
    }
}

#[test]
fn a_row_does_not_depend_on_the_rows_beside_it() {
    for case in all() {
        for mode in MODES {
            let on = fast();
            let want = case.run(&on, mode, &whole(&*case));
            let rows = case.rows();
            for size in [1, 2, 3, 5, 7, 8] {
                let mut split = vec![size; rows / size];
                split.extend((rows % size > 0).then_some(rows % size));
                same_bits(&format!("{} {mode:?} by {size}", case.name()), &case.run(&on, mode, &split), &want);
            }
            if case.most() >= rows && rows == 37 {
                let split = [1, 11, 2, 19, 4];
                same_bits(&format!("{} {mode:?} ragged", case.name()), &case.run(&on, mode, &split), &want);
            }
        }
    }
}

#[test]
fn plain_rows_do_not_depend_on_the_rows_beside_them() {
    for case in all() {
        let on = plain();
        let want = case.run(&on, EXACT, &whole(&*case));
        same_bits(&case.name(), &case.run(&on, EXACT, &vec![1; case.rows()]), &want);
    }
}

#[test]
fn threads_change_no_bit() {
    for case in all() {
        for mode in MODES {
            let want = case.run(&fast(), mode, &whole(&*case));
            same_bits(&format!("{} {mode:?}", case.name()), &case.run(&threaded(), mode, &whole(&*case)), &want);
            let ones = vec![1; case.rows()];
            same_bits(&format!("{} {mode:?} by 1", case.name()), &case.run(&threaded(), mode, &ones), &want);
        }
    }
}

#[test]
fn exact_prompt_and_generated_rows_have_the_same_bits() {
    let prompt = Mode { arithmetic: Arithmetic::Exact, form: Form::Prompt };
    for case in all() {
        let want = case.run(&fast(), EXACT, &whole(&*case));
        same_bits(&case.name(), &case.run(&fast(), prompt, &whole(&*case)), &want);
    }
}
