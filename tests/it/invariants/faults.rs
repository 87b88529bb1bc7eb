//! A planted fault must turn a comparison red, or the comparison proves nothing (engine.md section 1).

use std::panic::{AssertUnwindSafe, catch_unwind};

use ss_backend::Arithmetic;
use ss_model::PassMutation;
use ss_stream::{Mutation, PoolSize};
use ss_tests::rig::{Device, Rig, RigOptions, adapter};

use super::{WHOLE, bits, cases, rig, run};

/// What a comparison says that is to fail.
pub const PLANTED: &str = "planted";

/// Fails unless the comparison does, and no other part of the run.
pub fn must_turn_red(what: &str, compare: impl FnOnce()) {
    let message = match catch_unwind(AssertUnwindSafe(compare)) {
        Ok(()) => panic!("{what} went unnoticed"),
        Err(payload) => payload.downcast_ref::<String>().cloned().unwrap_or_default(),
    };
    assert!(message.contains(PLANTED), "{what}: something else failed: {message}");
}

fn in_the_stream(device: &Device) {
    let case = &cases(device)[0];
    let right = run(&mut rig(device, case, Arithmetic::Exact, PoolSize::All), case, &WHOLE);
    for mutation in [Mutation::StaleSlot, Mutation::SwapPieces] {
        let options =
            RigOptions { device: device.clone(), slots: PoolSize::Smallest, mutation, ..RigOptions::default() };
        let mut faulty = Rig::new(&case.model, &options);
        must_turn_red(&format!("{mutation:?}"), || run(&mut faulty, case, &WHOLE).must_equal(&right, PLANTED));
    }
}

#[test]
fn a_fault_in_the_stream_turns_the_residency_test_red() {
    in_the_stream(&Device::Reference);
}

#[test]
fn a_fault_in_the_stream_turns_the_residency_test_red_on_the_adapter() {
    in_the_stream(&adapter());
}

#[test]
fn a_fault_in_the_row_cache_turns_its_test_red() {
    let case = &cases(&Device::Reference)[0];
    let with =
        |mutation| run(&mut Rig::new(&case.model, &RigOptions { mutation, ..RigOptions::default() }), case, &[50]);
    let right = with(Mutation::None);
    must_turn_red("a cached row that differs", || with(Mutation::RoundedHits).must_equal(&right, PLANTED));
}

fn at_pass_ends(device: &Device) {
    let case = &cases(device)[0];
    let right = run(&mut rig(device, case, Arithmetic::Exact, PoolSize::All), case, &WHOLE);
    for pass_mutation in [PassMutation::ForgottenWindow, PassMutation::ForgottenInjection] {
        let options = RigOptions { device: device.clone(), pass_mutation, ..RigOptions::default() };
        let mut faulty = Rig::new(&case.model, &options);
        must_turn_red(&format!("{pass_mutation:?}"), || run(&mut faulty, case, &[64]).must_equal(&right, PLANTED));
    }
}

#[test]
fn a_fault_at_pass_ends_turns_the_pass_size_test_red() {
    at_pass_ends(&Device::Reference);
}

#[test]
fn a_fault_at_pass_ends_turns_the_pass_size_test_red_on_the_adapter() {
    at_pass_ends(&adapter());
}

#[test]
fn generated_rows_in_place_of_prompt_rows_turn_the_pass_size_test_red() {
    let case = &cases(&Device::Reference)[0];
    // The forms differ where inputs are rounded: on a device with matrix units.
    let options = RigOptions { arithmetic: Arithmetic::Fast, f16_inputs: true, ..RigOptions::default() };
    let mut rig = Rig::new(&case.model, &options);
    let prompt = run(&mut rig, case, &WHOLE);
    must_turn_red("another form", || {
        let mut state = rig.state();
        let logits: Vec<u32> = bits(&rig.generated(&mut state, &case.prompt)).collect();
        assert_eq!(logits, prompt.logits[..logits.len()], "{PLANTED}");
    });
}
