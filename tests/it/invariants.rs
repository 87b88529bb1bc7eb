//! I1: residency never changes a bit. I2: pass size never changes a bit. (engine.md section 1.)
//! Each test asserts that what it is about did occur; `faults` shows that a planted fault turns it red.

mod ahead;
mod faults;
mod lists;
mod sharing;
mod sweep;

use std::path::PathBuf;

use ss_backend::Arithmetic;
use ss_model::{Pass, StateTensor, Want};
use ss_stream::PoolSize;
use ss_tests::golden::{Golden, root};
use ss_tests::rig::{Device, Rig, RigOptions, adapter, adapter_with_units};

/// What a run came to: logits as bits, and every state tensor.
#[derive(PartialEq)]
struct Outcome {
    logits: Vec<u32>,
    state: Vec<StateTensor>,
}

impl Outcome {
    /// Fails with the first difference.
    fn must_equal(&self, other: &Outcome, what: &str) {
        let first = self.logits.iter().zip(&other.logits).position(|(a, b)| a != b);
        assert_eq!((self.logits.len(), first), (other.logits.len(), None), "{what}: logits");
        for (a, b) in self.state.iter().zip(&other.state) {
            assert!(a == b, "{what}: state tensor `{}`", a.name);
        }
        assert_eq!(self.state.len(), other.state.len(), "{what}");
    }
}

fn bits(logits: &[f32]) -> impl Iterator<Item = u32> + '_ {
    assert!(logits.iter().all(|v| v.is_finite()), "logits are finite");
    logits.iter().map(|v| v.to_bits())
}

/// A model with a prompt that goes past the sparse threshold, and tokens to go on with.
struct Case {
    model: PathBuf,
    prompt: Vec<u32>,
    reply: Vec<u32>,
}

/// The golden models and the trained one; on the adapter, as many of their rows as its time is for.
fn cases(device: &Device) -> Vec<Case> {
    let (rows, nano_rows, nano_reply) = match device {
        Device::Reference => (300, 230, 20),
        Device::Adapter(_) => (112, 90, 6),
    };
    let golden = |g: &Golden| Case {
        model: g.model(),
        prompt: g.prompt(300)[..rows].to_vec(),
        reply: g.prompt(64)[..12].to_vec(),
    };
    let mut cases: Vec<Case> = device.goldens().iter().map(golden).collect();
    let heldout: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(root().join("models/nano-heldout.json")).unwrap()).unwrap();
    let ids: Vec<u32> = heldout["documents"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|d| d.as_array().unwrap())
        .map(|id| id.as_u64().unwrap() as u32)
        .collect();
    cases.push(Case {
        model: root().join("models/flash-next-nano"),
        prompt: ids[..nano_rows].to_vec(),
        reply: ids[nano_rows..nano_rows + nano_reply].to_vec(),
    });
    cases
}

/// Every case in the profiles of a device.
fn each(device: &Device, test: impl Fn(&Case, Arithmetic)) {
    for case in cases(device) {
        device.profiles().iter().for_each(|&arithmetic| test(&case, arithmetic));
    }
}

/// Reads the prompt in passes of these sizes (the last repeats), then the reply token by token.
fn run(rig: &mut Rig, case: &Case, passes: &[usize]) -> Outcome {
    let mut state = rig.state();
    let (mut logits, mut rest, mut sizes) = (Vec::new(), &case.prompt[..], passes.iter());
    let mut size = passes[0];
    while !rest.is_empty() {
        size = *sizes.next().unwrap_or(&size);
        let (pass, after) = rest.split_at(size.min(rest.len()));
        logits.extend(bits(&rig.prompt(&mut state, pass)));
        rest = after;
    }
    for id in &case.reply {
        logits.extend(bits(&rig.forward(&mut state, &Pass::generated(&[*id], Want::Last))));
    }
    Outcome { logits, state: state.tensors(rig.backend()).unwrap() }
}

fn rig(device: &Device, case: &Case, arithmetic: Arithmetic, slots: PoolSize) -> Rig {
    Rig::new(&case.model, &RigOptions { device: device.clone(), arithmetic, slots, ..RigOptions::default() })
}

/// Every prompt as one pass.
const WHOLE: [usize; 1] = [300];

fn residency(device: &Device) {
    each(device, |case, arithmetic| {
        let mut all = rig(device, case, arithmetic, PoolSize::All);
        let cold = run(&mut all, case, &WHOLE);
        let warmed = all.model.store().counters().experts;
        assert!(warmed.misses > 0 && warmed.evictions == 0, "the first run was cold, and everything fitted");
        let seen = all.watch.seen();
        run(&mut all, case, &WHOLE).must_equal(&cold, "warm");
        let again = all.model.store().counters().experts;
        assert_eq!(again.misses, warmed.misses, "the second run found everything");
        let seen = all.watch.seen().since(seen);
        assert!(seen.lookups > 0 && seen.halts == 0, "and no list of the reply ended early: {seen:?}");
        for slots in [PoolSize::Smallest, PoolSize::Floor, PoolSize::Percent(50)] {
            let mut small = rig(device, case, arithmetic, slots);
            run(&mut small, case, &WHOLE)
                .must_equal(&cold, &format!("{} {arithmetic} {slots:?}", case.model.display()));
            let counters = small.model.store().counters().experts;
            assert!(counters.misses > 0, "{slots:?}: experts were read");
            if slots == PoolSize::Smallest {
                let seen = small.watch.seen();
                assert!(counters.evictions > 0 && counters.misses > warmed.misses, "the smallest pool evicted");
                assert!(seen.later_groups > 0, "the choices of a layer came in groups: {seen:?}");
                assert!(seen.halts > 0, "lists of the reply ended at a miss: {seen:?}");
            }
        }
    });
}

#[test]
fn residency_never_changes_a_bit() {
    residency(&Device::Reference);
}

#[test]
fn residency_never_changes_a_bit_on_the_adapter() {
    residency(&adapter());
}

#[test]
fn the_row_cache_never_changes_a_bit() {
    for case in cases(&Device::Reference) {
        let with = |row_cache_bytes| {
            let mut rig = Rig::new(&case.model, &RigOptions { row_cache_bytes, ..RigOptions::default() });
            let outcome = run(&mut rig, &case, &[50]);
            (outcome, rig.model.store().counters().ngrams)
        };
        let (large, hits) = with(1 << 20);
        let (none, misses) = with(0);
        let (small, evictions) = with(4096);
        none.must_equal(&large, "no row cache");
        small.must_equal(&large, "a small row cache");
        assert!(hits.hits > 0 && misses.misses > hits.misses && evictions.evictions > 0);
    }
}

fn pass_size(device: &Device) {
    each(device, |case, arithmetic| {
        let mut one = rig(device, case, arithmetic, PoolSize::All);
        let whole = run(&mut one, case, &WHOLE);
        let block = one.model.geometry().index_block as usize;
        let conv = one.model.geometry().gdn_conv as usize;
        let budget = block * one.model.geometry().index_topk as usize;
        assert!(case.prompt.len() > budget, "the prompt goes past the sparse threshold");
        // Ends inside a block, inside the convolution's window, and past the threshold.
        let ragged = [conv - 2, 1, block + 1, 64, 7, 2, 31, budget];
        assert!(!(conv - 2).is_multiple_of(block));
        for passes in [&[1][..], &[3], &[64], &[100], &ragged] {
            run(&mut one, case, passes)
                .must_equal(&whole, &format!("{} {arithmetic} passes {passes:?}", case.model.display()));
        }
    });
}

#[test]
fn pass_size_never_changes_a_bit() {
    pass_size(&Device::Reference);
}

#[test]
fn pass_size_never_changes_a_bit_on_the_adapter() {
    pass_size(&adapter());
}

fn pass_size_and_pool(device: &Device) {
    each(device, |case, arithmetic| {
        let whole = run(&mut rig(device, case, arithmetic, PoolSize::All), case, &WHOLE);
        let mut small = rig(device, case, arithmetic, PoolSize::Smallest);
        run(&mut small, case, &[5, 64, 33]).must_equal(&whole, "ragged passes, smallest pool");
        let (experts, slots) = (small.model.geometry().experts, small.model.store().experts.pool().slots());
        assert!(slots < experts, "a pass of a layer does not fit the pool");
        assert!(small.watch.seen().later_groups > 0, "and did not");
    });
}

#[test]
fn pass_size_and_a_pool_that_evicts_inside_a_layer_together() {
    pass_size_and_pool(&Device::Reference);
}

#[test]
#[ignore = "needs an adapter with matrix units"]
fn residency_and_pass_size_never_change_a_bit_with_matrix_units() {
    let device = adapter_with_units();
    residency(&device);
    pass_size(&device);
}

#[test]
fn pass_size_and_a_pool_that_evicts_inside_a_layer_together_on_the_adapter() {
    pass_size_and_pool(&adapter());
}

#[test]
fn threads_never_change_a_bit() {
    for case in cases(&Device::Reference) {
        let with =
            |threads| run(&mut Rig::new(&case.model, &RigOptions { threads, ..RigOptions::default() }), &case, &[100]);
        with(3).must_equal(&with(1), "threads");
    }
}
