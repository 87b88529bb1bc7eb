//! A long prompt streams its experts past the pool (engine.md section 6).

use std::collections::BTreeMap;

use ss_model::{Pass, Want};
use ss_stream::{ExpertId, LookaheadOptions, PoolSize};
use ss_tests::rig::{Device, Rig, RigOptions, adapter};

use super::cases;

/// Which expert lies in which slot.
fn residents(rig: &Rig) -> BTreeMap<u32, ExpertId> {
    rig.model.store().experts.table().residents().map(|(id, slot)| (slot, id)).collect()
}

fn leaves_the_pool_alone(device: &Device, lookahead: LookaheadOptions) {
    let case = cases(device).pop().expect("there are cases");
    let options =
        RigOptions { device: device.clone(), slots: PoolSize::Percent(25), lookahead, ..RigOptions::default() };
    let mut rig = Rig::new(&case.model, &options);
    let mut state = rig.state();
    // Passes too short to sweep fill the pool; they are too long to be a list, so that nothing is read ahead for it.
    case.prompt[..32].chunks(16).for_each(|ids| _ = rig.forward(&mut state, &Pass::prompt(ids, Want::Nothing)));
    let (before, counters) = (residents(&rig), rig.model.store().counters().experts);
    assert_eq!(before.len(), rig.model.store().experts.table().len(), "the pool is full");
    rig.forward(&mut state, &Pass::prompt(&case.prompt[16..], Want::Nothing));
    let swept = rig.model.store().counters().experts;
    assert!(swept.misses > counters.misses && swept.hits > counters.hits, "some were used in place, some streamed");
    assert_eq!(residents(&rig), before, "a pass in the middle of a prompt leaves the pool as it was");
    rig.forward(&mut state, &Pass::prompt(&case.prompt[16..], Want::Last));
    let admitted = rig.model.store().counters().experts;
    let after = residents(&rig);
    assert!(admitted.evictions > swept.evictions && after != before, "the last pass brings what it used most");
    let share = after.len() / rig.model.geometry().layers.len();
    for layer in 0..rig.model.geometry().layers.len() as u32 {
        let of_layer = after.values().filter(|id| id.layer == layer).count();
        assert!(of_layer > 0, "layer {layer} has some of {share}");
    }
}

#[test]
fn a_long_prompt_leaves_the_pool_to_the_reply() {
    leaves_the_pool_alone(&Device::Reference, LookaheadOptions::default());
    leaves_the_pool_alone(&Device::Reference, LookaheadOptions { on: false, ..LookaheadOptions::default() });
}

#[test]
fn a_long_prompt_leaves_the_pool_to_the_reply_on_the_adapter() {
    leaves_the_pool_alone(&adapter(), LookaheadOptions::default());
}
