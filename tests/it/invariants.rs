//! I1: residency never changes a bit. I2: pass size never changes a bit. (engine.md section 1.)
//! Each test asserts that what it is about did occur, and that a planted fault turns it red.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

use ss_backend::Arithmetic;
use ss_model::{Pass, PassMutation, StateTensor, Want};
use ss_stream::{Mutation, PoolSize};
use ss_tests::golden::{goldens, root};
use ss_tests::rig::{Rig, RigOptions};

const PROFILES: [Arithmetic; 2] = [Arithmetic::Exact, Arithmetic::Fast];

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

fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = goldens()
        .iter()
        .map(|g| Case { model: g.model(), prompt: g.prompt(300), reply: g.prompt(64)[..12].to_vec() })
        .collect();
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
        prompt: ids[..230].to_vec(),
        reply: ids[230..250].to_vec(),
    });
    cases
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

fn rig(case: &Case, arithmetic: Arithmetic, slots: PoolSize) -> Rig {
    Rig::new(&case.model, &RigOptions { arithmetic, slots, ..RigOptions::default() })
}

#[test]
fn residency_never_changes_a_bit() {
    for (case, arithmetic) in cases().iter().flat_map(|c| PROFILES.map(|p| (c, p))) {
        let mut all = rig(case, arithmetic, PoolSize::All);
        let cold = run(&mut all, case, &[300]);
        let warmed = all.model.store().counters().experts;
        assert!(warmed.misses > 0 && warmed.evictions == 0, "the first run was cold, and everything fitted");
        run(&mut all, case, &[300]).must_equal(&cold, "warm");
        let again = all.model.store().counters().experts;
        assert_eq!(again.misses, warmed.misses, "the second run found everything");
        for slots in [PoolSize::Smallest, PoolSize::Floor, PoolSize::Percent(50)] {
            let mut small = rig(case, arithmetic, slots);
            run(&mut small, case, &[300])
                .must_equal(&cold, &format!("{} {arithmetic} {slots:?}", case.model.display()));
            let seen = small.model.store().counters().experts;
            assert!(seen.misses > 0, "{slots:?}: experts were read");
            if slots == PoolSize::Smallest {
                assert!(seen.evictions > 0 && seen.misses > warmed.misses, "the smallest pool evicted");
            }
        }
    }
}

#[test]
fn the_row_cache_never_changes_a_bit() {
    for case in cases() {
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

#[test]
fn pass_size_never_changes_a_bit() {
    for (case, arithmetic) in cases().iter().flat_map(|c| PROFILES.map(|p| (c, p))) {
        let mut one = rig(case, arithmetic, PoolSize::All);
        let whole = run(&mut one, case, &[300]);
        let block = one.model.geometry().index_block as usize;
        let conv = one.model.geometry().gdn_conv as usize;
        let budget = block * one.model.geometry().index_topk as usize;
        assert!(case.prompt.len() > budget, "the prompt goes past the sparse threshold");
        // Ends inside a block, inside the convolution's window, and past the threshold.
        let ragged = [conv - 2, 1, block + 1, 64, budget, 7, 2, 31];
        assert!(!(conv - 2).is_multiple_of(block));
        for passes in [&[1][..], &[3], &[64], &[100], &ragged] {
            run(&mut one, case, passes)
                .must_equal(&whole, &format!("{} {arithmetic} passes {passes:?}", case.model.display()));
        }
    }
}

#[test]
fn pass_size_and_a_pool_that_evicts_inside_a_layer_together() {
    for (case, arithmetic) in cases().iter().flat_map(|c| PROFILES.map(|p| (c, p))) {
        let whole = run(&mut rig(case, arithmetic, PoolSize::All), case, &[300]);
        let mut small = rig(case, arithmetic, PoolSize::Smallest);
        run(&mut small, case, &[5, 64, 33]).must_equal(&whole, "ragged passes, smallest pool");
        let distinct = small.model.geometry().experts;
        let slots = small.model.store().experts.pool().slots();
        assert!(slots < distinct, "a pass of a layer does not fit the pool");
    }
}

#[test]
fn threads_never_change_a_bit() {
    for case in cases() {
        let with =
            |threads| run(&mut Rig::new(&case.model, &RigOptions { threads, ..RigOptions::default() }), &case, &[100]);
        with(3).must_equal(&with(1), "threads");
    }
}

/// A planted fault must turn a comparison red, or the comparison proves nothing.
fn must_turn_red(what: &str, compare: impl FnOnce()) {
    assert!(catch_unwind(AssertUnwindSafe(compare)).is_err(), "{what} went unnoticed");
}

#[test]
fn a_fault_in_the_stream_turns_the_residency_test_red() {
    let case = &cases()[0];
    let right = run(&mut rig(case, Arithmetic::Exact, PoolSize::All), case, &[300]);
    for mutation in [Mutation::StaleSlot, Mutation::SwapPieces] {
        must_turn_red(&format!("{mutation:?}"), || {
            let options = RigOptions { slots: PoolSize::Smallest, mutation, ..RigOptions::default() };
            run(&mut Rig::new(&case.model, &options), case, &[300]).must_equal(&right, "planted");
        });
    }
}

#[test]
fn a_fault_in_the_row_cache_turns_its_test_red() {
    let case = &cases()[0];
    let with =
        |mutation| run(&mut Rig::new(&case.model, &RigOptions { mutation, ..RigOptions::default() }), case, &[50]);
    let right = with(Mutation::None);
    must_turn_red("a cached row that differs", || with(Mutation::RoundedHits).must_equal(&right, "planted"));
}

#[test]
fn a_fault_at_pass_ends_turns_the_pass_size_test_red() {
    let case = &cases()[0];
    let right = run(&mut rig(case, Arithmetic::Exact, PoolSize::All), case, &[300]);
    for pass_mutation in [PassMutation::ForgottenWindow, PassMutation::ForgottenInjection] {
        let mut faulty = Rig::new(&case.model, &RigOptions { pass_mutation, ..RigOptions::default() });
        must_turn_red(&format!("{pass_mutation:?}"), || run(&mut faulty, case, &[64]).must_equal(&right, "planted"));
    }
    must_turn_red("generated rows in place of prompt rows", || {
        // The forms differ where inputs are rounded: on a device with matrix units.
        let options = RigOptions { arithmetic: Arithmetic::Fast, f16_inputs: true, ..RigOptions::default() };
        let mut rig = Rig::new(&case.model, &options);
        let prompt = run(&mut rig, case, &[300]);
        let mut state = rig.state();
        let logits: Vec<u32> = bits(&rig.generated(&mut state, &case.prompt)).collect();
        assert_eq!(logits, prompt.logits[..logits.len()]);
    });
}
