//! A pass of few rows is one list whose routers look their slots up on the device, a longer one goes layer by layer: neither
//! way changes a bit, nor does where a list ends (engine.md 5.3). Generated rows together are the rows one at a time.

use ss_backend::Arithmetic;
use ss_model::{Pass, Want};
use ss_stream::PoolSize;
use ss_tests::rig::{Device, Rig, RigOptions, adapter};
use ss_tests::watch::Seen;

use super::faults::{PLANTED, must_turn_red};
use super::{Case, Outcome, WHOLE, bits, cases, each, rig, run};

/// Most rows of a pass that goes as one list.
const LISTED: usize = 8;

fn lists_and_layers(device: &Device) {
    each(device, |case, arithmetic| {
        let case = Case { model: case.model.clone(), prompt: case.prompt[..81].to_vec(), reply: Vec::new() };
        let mut by_layer = rig(device, &case, arithmetic, PoolSize::All);
        let right = run(&mut by_layer, &case, &[LISTED + 1]);
        assert_eq!(by_layer.watch.seen().lookups, 0, "nine rows go layer by layer");
        for slots in [PoolSize::All, PoolSize::Smallest] {
            let mut listed = rig(device, &case, arithmetic, slots);
            run(&mut listed, &case, &[LISTED]).must_equal(&right, &format!("{arithmetic} {slots:?} in lists"));
            let seen = listed.watch.seen();
            assert!(seen.lookups > 0 && seen.halts > 0, "{slots:?}: lists ended at misses: {seen:?}");
            assert_eq!(seen.later_groups > 0, slots == PoolSize::Smallest, "{slots:?}: {seen:?}");
        }
    });
}

#[test]
fn a_list_leaves_the_bits_that_layer_by_layer_leaves() {
    lists_and_layers(&Device::Reference);
}

#[test]
fn a_list_leaves_the_bits_that_layer_by_layer_leaves_on_the_adapter() {
    lists_and_layers(&adapter());
}

/// Reads the prompt as one pass, then feeds what follows as generated rows, in passes of these sizes; gives also what was
/// seen of the latter.
fn generate(rig: &mut Rig, case: &Case, ids: &[u32], passes: &[usize]) -> (Outcome, Seen) {
    let mut state = rig.state();
    rig.forward(&mut state, &Pass::prompt(&case.prompt, Want::Last));
    let before = rig.watch.seen();
    let (mut logits, mut rest) = (Vec::new(), ids);
    for &size in passes {
        let (pass, after) = rest.split_at(size);
        logits.extend(bits(&rig.generated(&mut state, pass)));
        rest = after;
    }
    assert!(rest.is_empty());
    let seen = rig.watch.seen().since(before);
    (Outcome { logits, state: state.tensors(rig.backend()).unwrap() }, seen)
}

fn generated(device: &Device) {
    each(device, |case, arithmetic| {
        let together: Vec<usize> = (1..=LISTED).collect();
        let ids = &case.prompt[..together.iter().sum()];
        let mut all = rig(device, case, arithmetic, PoolSize::All);
        let (alone, _) = generate(&mut all, case, ids, &vec![1; ids.len()]);
        let mut small = rig(device, case, arithmetic, PoolSize::Smallest);
        let (together, seen) = generate(&mut small, case, ids, &together);
        together.must_equal(&alone, &format!("{} {arithmetic}: rows together, smallest pool", case.model.display()));
        assert!(seen.lookups > 0 && seen.halts > 0 && seen.later_groups > 0, "misses, choices in groups: {seen:?}");
        assert!(all.model.store().counters().experts.evictions == 0, "one at a time everything fitted");
    });
}

#[test]
fn generated_rows_together_are_the_rows_one_at_a_time() {
    generated(&Device::Reference);
}

#[test]
fn generated_rows_together_are_the_rows_one_at_a_time_on_the_adapter() {
    generated(&adapter());
}

fn beyond_halts(device: &Device) {
    let case = &cases(device)[0];
    let right = run(&mut rig(device, case, Arithmetic::Exact, PoolSize::All), case, &WHOLE);
    let options = RigOptions { device: device.clone(), slots: PoolSize::Smallest, ..RigOptions::default() };
    let mut halting = Rig::new(&case.model, &options);
    run(&mut halting, case, &WHOLE).must_equal(&right, "as it should be");
    assert!(halting.watch.seen().halts > 0);
    let mut faulty = Rig::new(&case.model, &RigOptions { beyond_halts: true, ..options });
    must_turn_red("a device that goes on behind a miss", || run(&mut faulty, case, &WHOLE).must_equal(&right, PLANTED));
}

#[test]
fn a_device_that_goes_on_behind_a_miss_turns_it_red() {
    beyond_halts(&Device::Reference);
}

#[test]
fn a_device_that_goes_on_behind_a_miss_turns_it_red_on_the_adapter() {
    beyond_halts(&adapter());
}
