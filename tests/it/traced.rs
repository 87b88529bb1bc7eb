//! A trace tells what the engine did, and neither keeping one nor starting from a hot set changes a bit (engine.md 5.8, 5.9).

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ss_backend::Form;
use ss_model::{Cancel, Prompt, State, Trace, TracedPass, Want};
use ss_replay::{Assembly, NO_EXPERT, Pace, Policy, Shape, Token, compare, simulate};
use ss_stream::{HotExpert, LookaheadOptions, PoolSize};
use ss_tests::golden::root;
use ss_tests::rig::{Device, Rig, RigOptions, adapter};

/// Tokens in memory.
#[derive(Clone)]
struct Sink(Arc<Mutex<(Assembly, Vec<Token>)>>);

impl Sink {
    fn of(rig: &mut Rig) -> Self {
        let shape = shape(rig);
        let sink = Sink(Arc::new(Mutex::new((Assembly::new(shape), Vec::new()))));
        rig.model.trace(Box::new(sink.clone())).unwrap();
        sink
    }

    fn take(&self) -> Vec<Token> {
        std::mem::take(&mut self.0.lock().unwrap().1)
    }
}

impl Trace for Sink {
    fn begin(&mut self, pass: TracedPass) {
        self.0.lock().unwrap().0.begin(pass.form == Form::Generated, pass.first, pass.rows);
    }

    fn layer(&mut self, layer: u32, choices: &[u32], margins: &[f32]) {
        let (assembly, tokens) = &mut *self.0.lock().unwrap();
        tokens.extend(assembly.layer(layer, choices, margins));
    }

    fn forecast(&mut self, layer: u32, choices: &[u32], margins: &[f32]) {
        self.0.lock().unwrap().0.forecast(layer, choices, margins);
    }
}

fn shape(rig: &Rig) -> Shape {
    let pieces = rig.model.checkpoint().expert_layout().pieces();
    Shape::new(rig.model.geometry(), pieces.map(|piece| piece.bytes).sum())
}

fn rig(device: &Device, slots: PoolSize, lookahead: bool) -> Rig {
    let lookahead = LookaheadOptions { on: lookahead, ..LookaheadOptions::default() };
    let options = RigOptions { device: device.clone(), slots, lookahead, ..RigOptions::default() };
    Rig::new(&root().join("models/flash-next-nano"), &options)
}

/// Words that nano was not trained on.
fn heldout(count: usize) -> Vec<u32> {
    let text = std::fs::read_to_string(root().join("models/nano-heldout.json")).unwrap();
    let file: serde_json::Value = serde_json::from_str(&text).unwrap();
    let documents = file["documents"].as_array().unwrap().iter().flat_map(|document| document.as_array().unwrap());
    documents.map(|id| id.as_u64().unwrap() as u32).take(count).collect()
}

/// Feeds ids as generated rows; gives the logits as bits.
fn steps(rig: &mut Rig, state: &mut State, ids: &[u32]) -> Vec<u32> {
    let mut decoder = rig.model.decoder(state).unwrap();
    let mut bits = Vec::new();
    for &id in ids {
        decoder.step(id, &Cancel::default()).unwrap();
        bits.extend(decoder.adjusted_row().unwrap().into_iter().map(f32::to_bits));
    }
    bits
}

#[test]
fn clock_in_a_replay_finds_what_the_engine_found() {
    let ids = heldout(160);
    for slots in [PoolSize::Smallest, PoolSize::Percent(25), PoolSize::Percent(50)] {
        let mut rig = rig(&Device::Reference, slots, false);
        let sink = Sink::of(&mut rig);
        let mut trace = ss_replay::Trace::new(shape(&rig));
        let mut state = rig.state();
        steps(&mut rig, &mut state, &ids);
        sink.take().iter().for_each(|token| trace.push(token));
        let found = rig.model.store().counters().experts;
        let pool = rig.model.store().experts.table().len() as u32;
        let replayed = simulate(&trace, Policy::Clock, pool, &mut |_, _| ()).unwrap().cold;
        assert_eq!(replayed.tokens, 160);
        assert_eq!((replayed.hits, replayed.misses), (found.hits, found.misses), "{slots:?}");
        assert_eq!(replayed.misses * trace.shape.record_bytes, found.bytes_read, "{slots:?}: bytes");
        assert!(found.evictions > 100, "{slots:?}: the pool was too small: {found:?}");
    }
}

fn tracing(device: &Device, rows: usize) {
    let ids = heldout(rows + 12);
    let (prompt, reply) = ids.split_at(rows);
    let mut tokens: Vec<Vec<Token>> = Vec::new();
    for slots in [PoolSize::All, PoolSize::Percent(25)] {
        let runs: Vec<_> = [false, true]
            .map(|traced| {
                let mut rig = rig(device, slots, true);
                let sink = traced.then(|| Sink::of(&mut rig));
                let mut state = rig.state();
                // A pass that sweeps where not all fit, one that goes layer by layer, one that is a list; then single rows.
                let (long, rest) = prompt.split_at(rows - 25);
                let (middle, short) = rest.split_at(20);
                let mut bits: Vec<u32> = Vec::new();
                for pass in [long, middle, short] {
                    bits.extend(rig.prompt(&mut state, pass).iter().map(|logit| logit.to_bits()));
                }
                bits.extend(steps(&mut rig, &mut state, reply));
                tokens.extend(sink.map(|sink| sink.take()));
                bits
            })
            .into();
        assert!(runs[0] == runs[1], "{slots:?}: tracing changed a bit");
    }
    let [all, quarter] = &tokens[..] else { panic!("two traces") };
    assert!(all == quarter, "the pool has no say in what is chosen, nor in what is told");
    assert_eq!(all.len(), ids.len());
    for (token, position) in all.iter().zip(0..) {
        assert_eq!((token.position, token.generated), (position, position >= rows as u32));
        let margins = token.margins.chunks(6);
        assert!(margins.clone().all(|row| row[5] == 0.0 && row.is_sorted_by(|a, b| a >= b)), "{:?}", token.margins);
        assert!(margins.clone().any(|row| row[0] > 0.1));
        assert_eq!(token.expected.is_some(), token.generated);
        let layers = token.expected.iter().flat_map(|expected| expected.experts.chunks(6)).enumerate();
        for (layer, experts) in layers {
            assert!(experts.iter().all(|&expert| if layer == 0 { expert == NO_EXPERT } else { expert < 64 }));
        }
    }
}

#[test]
fn a_trace_has_every_row_and_changes_no_bit() {
    tracing(&Device::Reference, 95);
}

#[test]
fn a_trace_has_every_row_and_changes_no_bit_on_the_adapter() {
    tracing(&adapter(), 90);
}

#[test]
fn forecasts_of_a_trace_are_those_of_any_pool_whether_anything_is_read_early_or_not() {
    let ids = heldout(60);
    let traced = |slots, lookahead| {
        let mut rig = rig(&Device::Reference, slots, lookahead);
        let sink = Sink::of(&mut rig);
        let mut state = rig.state();
        steps(&mut rig, &mut state, &ids);
        let early = rig.model.store().counters().early;
        (sink.take(), shape(&rig), early.issued)
    };
    let (tokens, shape, issued) = traced(PoolSize::Percent(25), false);
    assert_eq!(issued, 0, "whoever listens has nothing read");
    for (slots, lookahead) in [(PoolSize::Percent(25), true), (PoolSize::All, true), (PoolSize::Smallest, false)] {
        assert!(traced(slots, lookahead).0 == tokens, "{slots:?}");
    }
    let mut trace = ss_replay::Trace::new(shape);
    tokens.iter().for_each(|token| trace.push(token));
    let (mut right, mut all) = (0, 0);
    for token in &tokens {
        let expected = token.expected.as_ref().unwrap();
        for (chosen, expected) in token.choices.chunks(6).zip(expected.experts.chunks(6)).skip(1) {
            right += expected.iter().filter(|expert| chosen.contains(expert)).count();
            all += expected.len();
        }
    }
    assert_eq!(all, 60 * 7 * 6);
    let right = f64::from(right as u32) / f64::from(all as u32);
    assert!(right > 0.5, "of the choices {right} were expected");
    // The forecasts are what makes the difference: a disk that takes half a layer's time for a record.
    let us = Duration::from_micros;
    let pace = Pace { layer: us(300), record: us(160), latency: us(80) };
    let both = compare(&trace, Policy::Clock, 128, (pace, LookaheadOptions::default()), &mut |_, _| ()).unwrap();
    assert!(10 * both.on.counts.misses < 7 * both.off.counts.misses, "{both:?}");
    assert!(both.rate() > 1.0, "{both:?}");
}

#[test]
fn a_trace_of_passes_that_share_their_reads_is_that_of_each_alone() {
    let ids = heldout(230);
    let trace = |read_group| {
        let slots = PoolSize::Percent(25);
        let options = RigOptions { slots, read_group, ..RigOptions::default() };
        let mut rig = Rig::new(&root().join("models/flash-next-nano"), &options);
        let sink = Sink::of(&mut rig);
        let prompt = Prompt { ids: &ids, positions: None, pass: 64, want: Want::Last };
        let mut state = rig.state();
        rig.model.read(&mut state, &prompt, &Cancel::default(), &mut |_| {}).unwrap();
        (sink.take(), rig.model.store().counters().experts.shared_groups)
    };
    let ((shared, groups), (alone, none)) = (trace(256), trace(0));
    assert!(groups > 0 && none == 0);
    assert_eq!(shared.len(), ids.len());
    assert!(shared.iter().all(|token| token.pass == 0), "what shares its reads is one pass of a trace");
    let chosen =
        |tokens: Vec<Token>| tokens.into_iter().map(|t| (t.position, t.choices, t.margins)).collect::<Vec<_>>();
    assert!(chosen(shared) == chosen(alone), "every row chose what it chooses alone");
}

fn hot_start(device: &Device, count: usize) {
    let ids = heldout(count);
    let mut cold = rig(device, PoolSize::Percent(25), true);
    let mut state = cold.state();
    let expected = steps(&mut cold, &mut state, &ids);
    let hot = cold.model.store().experts.uses().hottest();
    assert!(hot.len() > 128, "more than the pool holds: {}", hot.len());
    // At once, and when all of it has been read; and experts that hardly anybody uses.
    let reversed: Vec<HotExpert> = hot.iter().rev().copied().collect();
    for (hot, patient) in [(&hot, false), (&hot, true), (&reversed, true)] {
        let mut warm = rig(device, PoolSize::Percent(25), true);
        warm.model.warm(hot);
        if patient {
            fill(&mut warm, hot);
        }
        let mut state = warm.state();
        assert!(steps(&mut warm, &mut state, &ids) == expected, "a hot set changed a bit");
        assert!(warm.model.store().experts.warmed() > 0, "it was read");
    }
    // Nano hardly has favourites, so that only the first tokens tell the difference.
    let misses = |hot: &[HotExpert]| {
        let mut rig = rig(device, PoolSize::Percent(25), false);
        if !hot.is_empty() {
            fill(&mut rig, hot);
        }
        let mut state = rig.state();
        steps(&mut rig, &mut state, &ids[..4]);
        rig.model.store().counters().experts.misses
    };
    let (warm, cold) = (misses(&hot), misses(&[]));
    assert!(warm < cold, "the first tokens find some of theirs: {warm} misses, {cold} cold");
}

/// Has the hot set read until the pool is full.
fn fill(rig: &mut Rig, hot: &[HotExpert]) {
    let patience = Instant::now() + Duration::from_secs(60);
    while rig.model.store().experts.table().residents().count() < 128 {
        assert!(Instant::now() < patience, "{} records", rig.model.store().experts.warmed());
        // What has landed is let in whenever more is asked for.
        rig.model.warm(hot);
        std::thread::yield_now();
    }
}

#[test]
fn a_hot_set_changes_no_bit_and_spares_the_first_misses() {
    hot_start(&Device::Reference, 48);
}

#[test]
fn a_hot_set_changes_no_bit_on_the_adapter() {
    hot_start(&adapter(), 24);
}
