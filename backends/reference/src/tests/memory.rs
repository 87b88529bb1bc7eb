//! Owns: memory, counters, refusals, observers.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use ss_backend::op::{self, Carry};
use ss_backend::{Backend, Error, Recorder, Scope, Stage};

use super::cases::{BF16, Q4};
use super::rig::*;
use crate::{Options, Reference, TapData};

fn why(result: ss_backend::Result<()>) -> String {
    match result {
        Err(Error::Refused(why)) => why,
        other => panic!("expected a refusal, found {other:?}"),
    }
}

#[test]
fn bytes_are_counted_and_given_back() {
    let on = fast();
    let a = on.alloc("a", 100).unwrap();
    let b = on.alloc("b", 6).unwrap();
    assert_eq!((on.counters().memory_bytes, b.bytes()), (108, 6));
    drop(a);
    let _c = on.alloc("c", 4).unwrap();
    assert_eq!((on.counters().memory_bytes, on.counters().peak_memory_bytes), (12, 108));
    on.upload(&b, 0, &[1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
    let mut back = [0; 4];
    on.read(&b, 4, &mut back).unwrap();
    assert_eq!(back, [5, 6, 7, 8]);
    assert_eq!((on.counters().uploaded_bytes, on.counters().readbacks), (8, 1));
}

#[test]
fn what_does_not_fit_is_refused_before_it_is_allocated() {
    let on = Reference::new(Options { threads: 1, memory_limit: Some(1000), simd: true, f16_inputs: true }).unwrap();
    let _held = on.alloc("held", 600).unwrap();
    let Err(Error::OutOfMemory { what, bytes, .. }) = on.alloc("more", 500) else { panic!("over the limit") };
    assert_eq!((what.as_str(), bytes), ("more", 500));
    assert_eq!(on.counters().memory_bytes, 600);
    for bytes in [u64::MAX, 1 << 62, isize::MAX as u64] {
        assert!(matches!(fast().alloc("huge", bytes), Err(Error::OutOfMemory { .. })));
    }
    let format = Q4;
    let square = ss_backend::Matrix { rows: 64, cols: 64, format };
    let layout = ss_backend::RecordLayout::new(square, square, square);
    assert!(matches!(on.alloc_pool(&layout, 1), Err(Error::OutOfMemory { .. })));
    assert!(matches!(fast().alloc_pool(&layout, u32::MAX), Err(Error::OutOfMemory { .. })));
}

#[test]
fn ranges_outside_a_buffer_are_refused() {
    let on = fast();
    let a = on.alloc("a", 16).unwrap();
    assert!(on.upload(&a, 12, &[0; 8]).is_err());
    assert!(on.upload(&a, u64::MAX - 3, &[0; 8]).is_err());
    assert!(on.upload(&a, 2, &[0; 4]).is_err());
    assert!(on.read(&a, 0, &mut [0; 3]).is_err());
    let foreign = ss_backend::Buffer::new(Foreign);
    assert!(on.read(&foreign, 0, &mut [0; 4]).is_err());
    let copy = |from: &ss_backend::Buffer| op::Copy {
        from: from.clone(),
        from_offset: 0,
        to: a.clone(),
        to_offset: 0,
        bytes: 4,
    };
    assert!(why(EXACT.submit(&on, |r| r.copy(copy(&foreign)))).contains("another backend"));
    assert!(why(EXACT.submit(&on, |r| r.copy(copy(&a)))).contains("bound as input and output"));
    let b = on.alloc("b", 16).unwrap();
    let beyond = op::Copy { to_offset: u64::MAX - 3, ..copy(&b) };
    assert!(why(EXACT.submit(&on, |r| r.copy(beyond))).contains("`to`"));
    assert!(why(EXACT.submit(&on, |r| r.copy(op::Copy { bytes: 6, ..copy(&b) }))).contains("multiples of 4"));
    let shifted = op::Copy { from_offset: 4, to_offset: 8, bytes: 8, ..copy(&upload(&on, &[1.0, 2.0, 3.0])) };
    EXACT.submit(&on, |r| r.copy(shifted)).unwrap();
    assert_eq!(download(&on, &a), [0.0, 0.0, 2.0, 3.0]);
}

struct Foreign;

impl ss_backend::Memory for Foreign {
    fn bytes(&self) -> u64 {
        1 << 20
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}

#[test]
fn operations_name_what_does_not_fit() {
    let on = fast();
    let weight = Weight::random(&mut Random(1), 8, 64, BF16).linear(&on);
    let head = op::Head { rows: EXACT.rows(2), x: zeros(&on, 128), weight, logits: zeros(&on, 16) };
    let run = |head: op::Head| EXACT.submit(&on, |r| r.head(head));
    run(head.clone()).unwrap();
    let short = run(op::Head { logits: zeros(&on, 15), ..head.clone() });
    let text = why(short);
    assert!(
        text.contains("Head at L0.state") && text.contains("`logits`") && text.contains("60") && text.contains("64"),
        "{text}"
    );
    assert!(why(run(op::Head { rows: EXACT.rows(9), ..head.clone() })).contains("`rows` is 9"));
    assert!(why(run(op::Head { logits: head.x.clone(), ..head.clone() })).contains("bound as input and output"));
    let mut odd = head.clone();
    odd.weight.matrix.format = super::cases::affine(3, 64, ss_backend::Scalar::Bf16);
    assert!(why(run(odd)).contains("envelope"));
    let mut lacking = head.clone();
    lacking.weight.matrix.format = Q4;
    assert!(why(run(lacking)).contains("lacks scales or biases"));
    let mut empty = head;
    empty.weight.matrix.cols = 0;
    assert!(why(run(empty)).contains("`hidden` is 0"));
}

#[test]
fn no_shape_makes_an_operation_panic() {
    let on = fast();
    let nothing = zeros(&on, 1);
    let mut random = Random(11);
    let numbers = [0, 1, 2, 3, 4, 64, 1 << 16, 1 << 31, u32::MAX];
    let mut pick = || numbers[random.below(numbers.len())];
    for _ in 0..4000 {
        let carry = || Carry { from: None, state: nothing.clone() };
        let rows = ss_backend::Rows { count: pick(), form: ss_backend::Form::Prompt };
        let window = op::Window { rows: pick(), depth: pick(), width: pick(), inputs: zeros(&on, 1), window: carry() };
        let shape = op::GdnShape {
            key_heads: pick(),
            value_heads: pick(),
            key_dim: pick(),
            value_dim: pick(),
            kernel: pick(),
            gate: op::Gate::Sigmoid,
            eps: 1e-6,
        };
        let inputs = op::GdnInputs { k: zeros(&on, 1), v: zeros(&on, 1), gates: zeros(&on, 1) };
        let replay = op::GdnReplay { rows: pick(), shape, inputs, state: carry() };
        let shape = op::QsaShape {
            heads: pick(),
            kv_heads: pick(),
            head_dim: pick(),
            rotary: pick(),
            index_heads: pick(),
            index_dim: pick(),
            block: pick(),
            topk: pick(),
            eps: 1e-6,
        };
        let [k, v, raw, pooled, scores, blocks] = [(); 6].map(|()| zeros(&on, 1));
        let cache = op::QsaCache { scalar: ss_backend::Scalar::F32, k, v, raw, pooled };
        let select = op::QsaSelect {
            rows,
            first: pick(),
            slice: pick(),
            slice_rows: pick(),
            shape,
            index_q: zeros(&on, 1),
            cache,
            scores,
            blocks,
        };
        // Most are refused; none may panic.
        let _ = EXACT.submit(&on, |r| r.window(window));
        let _ = EXACT.submit(&on, |r| r.gdn_replay(replay));
        let _ = EXACT.submit(&on, |r| r.qsa_select(select));
    }
}

#[test]
fn counters_count_and_stages_take_time() {
    let on = fast();
    let (a, b) = (zeros(&on, 64), zeros(&on, 64));
    let copy = |from: &ss_backend::Buffer, to: &ss_backend::Buffer| op::Copy {
        from: from.clone(),
        from_offset: 0,
        to: to.clone(),
        to_offset: 0,
        bytes: 256,
    };
    let mut recorder = Recorder::new(EXACT.arithmetic);
    recorder.at(Scope::Whole, Stage::State).copy(copy(&a, &b));
    recorder.at(Scope::Layer(1), Stage::Moe).copy(copy(&b, &a));
    let submission = on.submit(recorder.all()).unwrap();
    on.wait(submission).unwrap();
    let counters = on.counters();
    assert_eq!((counters.dispatches, counters.submissions), (2, 1));
    assert_eq!(counters.stages.keys().copied().collect::<Vec<_>>(), ["moe", "state"]);
}

#[test]
fn an_observer_hears_names_and_shapes_and_changes_no_bit() {
    let heard = Arc::new(Mutex::new(BTreeMap::new()));
    let seen = Arc::clone(&heard);
    let tapped = fast().with_tap(Arc::new(move |name, shape, data| {
        let len = match data {
            TapData::F32(data) => data.len(),
            TapData::I32(data) => data.len(),
        };
        assert_eq!(shape.iter().product::<usize>(), len, "{name}");
        seen.lock().insert(name.to_owned(), shape.to_vec());
    }));
    for case in super::cases::all().iter().filter(|case| case.most() >= case.rows()) {
        let (have, want) = (case.run(&tapped, EXACT, &[37]), case.run(&fast(), EXACT, &[37]));
        for ((name, have), (_, want)) in have.outputs.iter().zip(&want.outputs) {
            assert_bits(&format!("{} {name}", case.name()), have, want);
        }
    }
    let heard = heard.lock();
    let names: Vec<&str> = heard.keys().filter_map(|name| name.strip_prefix("L0.")).collect();
    let expected = "after_attn after_ple fused hidden state.a state.attn state.b state.beta state.conv_in state.conv_out \
        state.core state.decay state.embed state.expert_out state.gate state.gated state.index_blocks state.index_pooled \
        state.index_q state.index_raw_k state.index_scores state.inject state.k state.k_l2 state.lowrank state.mixed \
        state.norm state.out state.q state.q_l2 state.qkv state.routed state.router_idx state.router_logits \
        state.router_w state.score state.shared state.shared_gate state.state_in state.state_out state.streams state.v \
        state.value state.z";
    assert_eq!(names, expected.split_whitespace().collect::<Vec<_>>());
}
