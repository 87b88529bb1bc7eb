//! The trained model says what the float64 model says: every expected output, at every size of the pool, on the reference
//! backend whole and on the adapter as far as its time goes; and what a token costs the adapter.

use std::path::PathBuf;

use serde_json::Value;
use ss_generate::{Ask, Engine, Finish, SamplerSettings, Told, Words};
use ss_model::{Cancel, Pass, Want};
use ss_stream::PoolSize;
use ss_tests::golden::root;
use ss_tests::rig::{Device, Rig, RigOptions, adapter};
use ss_text::{Event, SpecialTokens};

fn model() -> PathBuf {
    root().join("models/flash-next-nano")
}

fn expected() -> Vec<Value> {
    let text = std::fs::read_to_string(root().join("models/flash-next-nano-expected.json")).unwrap();
    let file: Value = serde_json::from_str(&text).unwrap();
    file["cases"].as_array().unwrap().clone()
}

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

/// Margins below this are within the reach of F32 rounding: a flip is excused, and said (the file's own rule).
const EXCUSED_MARGIN: f64 = 1e-5;

fn excused(case: &Value) -> bool {
    let margin = |name: &str| case[name].as_f64().unwrap_or(f64::MAX);
    margin("min_router_margin").min(margin("min_block_margin")) < EXCUSED_MARGIN
}

fn rig(device: &Device, slots: PoolSize) -> Rig {
    Rig::new(&model(), &RigOptions { device: device.clone(), slots, ..RigOptions::default() })
}

fn engine(rig: Rig) -> Engine {
    let words = Words::open(rig.model.checkpoint()).unwrap_or_else(|e| panic!("{e}"));
    Engine::new(rig.model, words)
}

/// What a model answers.
#[derive(Debug, PartialEq)]
struct Answer {
    ids: Vec<u32>,
    text: String,
    stopped: bool,
}

/// The answer to a case, of at most as many tokens as the file has, the id that ends it among them.
fn answer(engine: &mut Engine, case: &Value) -> Answer {
    let mut ask = Ask::new(ids(&case["prompt_ids"]), SamplerSettings::greedy());
    ask.max_tokens = Some(ids(&case["output_ids"]).len() as u32);
    let mut state = engine.model.new_state().unwrap();
    let mut text = String::new();
    let summary = engine.answer(&mut state, &ask, &Cancel::default(), &mut |told| {
        if let Told::Reply(Event::Text(piece)) = told {
            text += &piece;
        }
    });
    let summary = summary.unwrap_or_else(|e| panic!("{e}"));
    Answer { ids: summary.output, text, stopped: summary.finish == Finish::Stop }
}

/// What the file says that the answer is.
fn wanted(engine: &Engine, case: &Value) -> Answer {
    let (mut ids, stopped) = (ids(&case["output_ids"]), case["finish"] == "stop");
    // The file's outputs count the id that ends them; ours leave it out.
    ids.truncate(ids.len() - usize::from(stopped));
    let text = engine.tokenizer().decode(&ids, SpecialTokens::Drop);
    Answer { ids, text, stopped }
}

/// Asks for every case, whole, at each of these sizes of the pool.
fn every_expected_output(device: &Device, sizes: &[PoolSize]) {
    let cases = expected();
    assert!(cases.len() >= 5);
    for &slots in sizes {
        let rig = rig(device, slots);
        let watch = rig.watch.clone();
        let mut engine = engine(rig);
        let before = engine.model.backend().counters().dispatches;
        let mut flips = 0;
        for case in &cases {
            let (wanted, ours) = (wanted(&engine, case), answer(&mut engine, case));
            if ours != wanted && excused(case) {
                println!("{} at {slots:?}: a choice flipped within the reach of rounding", case["name"]);
                flips += 1;
                continue;
            }
            assert_eq!(ours, wanted, "{} at {slots:?}", case["name"]);
        }
        assert!(flips < cases.len(), "some case was compared");
        assert!(engine.model.backend().counters().dispatches > before, "the device computed it");
        let counters = engine.model.store().counters().experts;
        assert!(counters.misses > 0);
        // Three tokens' experts hold no layer from one token to the next, but for what is read early.
        assert!(counters.hits > 0 || slots == PoolSize::Smallest, "{slots:?}");
        assert_eq!(counters.evictions > 0, slots != PoolSize::All, "{slots:?}");
        let seen = watch.seen();
        assert!(seen.lookups > 0 && seen.halts > 0, "routers looked up slots, and some missed: {seen:?}");
        // Long prompts sweep in groups wherever experts stream.
        assert_eq!(seen.later_groups > 0, slots != PoolSize::All, "{slots:?}: {seen:?}");
    }
}

#[test]
fn every_expected_output_at_every_pool_size() {
    let sizes = [PoolSize::Smallest, PoolSize::Floor, PoolSize::Percent(50), PoolSize::All];
    every_expected_output(&Device::Reference, &sizes);
}

#[test]
fn every_expected_output_on_the_adapter() {
    every_expected_output(&adapter(), &[PoolSize::Smallest, PoolSize::All]);
}

/// Feeds the first reply token by token, twice; gives what each token of the second time cost.
fn warm_tokens(device: &Device, slots: PoolSize) -> Vec<Cost> {
    let case = &expected()[0];
    let mut rig = rig(device, slots);
    let mut costs = Vec::new();
    for _ in 0..2 {
        let mut state = rig.state();
        rig.forward(&mut state, &Pass::prompt(&ids(&case["prompt_ids"]), Want::Last));
        costs.clear();
        for id in &ids(&case["output_ids"])[..12] {
            let (seen, device) = (rig.watch.seen(), rig.backend().counters());
            rig.forward(&mut state, &Pass::generated(&[*id], Want::Last));
            let (now, after) = (rig.watch.seen().since(seen), rig.backend().counters());
            costs.push(Cost {
                asked: (now.submissions, now.readbacks),
                done: (after.submissions - device.submissions, after.readbacks - device.readbacks),
                dispatches: after.dispatches - device.dispatches,
            });
        }
    }
    costs
}

/// Submissions and readbacks of a token, as the model asked for them and as the device counts them.
#[derive(Debug)]
struct Cost {
    asked: (u64, u64),
    done: (u64, u64),
    dispatches: u64,
}

#[test]
fn a_resident_token_is_one_submission_and_one_readback_on_the_adapter() {
    let device = adapter();
    let resident = warm_tokens(&device, PoolSize::All);
    println!("dispatches of a resident token: {:?}", resident.iter().map(|c| c.dispatches).collect::<Vec<_>>());
    for cost in &resident {
        assert_eq!((cost.asked, cost.done), ((1, 1), (1, 1)), "engine.md 5.3");
        assert!(cost.dispatches > 0);
    }
    for cost in warm_tokens(&device, PoolSize::Smallest) {
        assert!(cost.done.0 > 1 && cost.done.1 > 1, "a token whose experts were evicted: {cost:?}");
    }
}

/// What a router that misses has behind it in its submission is skipped and encoded once more: it has nothing there where all
/// miss.
#[test]
fn a_token_whose_routers_all_miss_runs_nothing_twice_on_the_adapter() {
    let device = adapter();
    let resident = warm_tokens(&device, PoolSize::All);
    let missing = warm_tokens(&device, PoolSize::Smallest);
    let (resident, missing) = resident.last().zip(missing.last()).unwrap();
    let layers = rig(&Device::Reference, PoolSize::Floor).model.geometry().layers.len() as u64;
    assert_eq!(missing.done.1, layers + 1, "every router missed: {missing:?}");
    // Experts that have a slot are computed apart, in a submission that nothing is read behind: two dispatches.
    let apart = 2 * (missing.done.0 - missing.done.1);
    assert_eq!(missing.dispatches, resident.dispatches + apart, "{missing:?}, {resident:?}");
}

/// A device may stop work that takes it a second: of a prompt no submission is longer than a layer.
#[test]
fn a_prompt_is_handed_over_a_layer_at_a_time_even_where_all_experts_are_there() {
    for slots in [PoolSize::All, PoolSize::Floor] {
        let mut rig = rig(&Device::Reference, slots);
        let layers = rig.model.geometry().layers.len() as u64;
        let prompt: Vec<u32> = (0..64).map(|i| 100 + i % 50).collect();
        for _ in 0..2 {
            let mut state = rig.state();
            let before = rig.watch.seen();
            rig.forward(&mut state, &Pass::prompt(&prompt, Want::Last));
            let seen = rig.watch.seen().since(before);
            assert!(seen.submissions > layers, "{slots:?}: {} of {layers} layers", seen.submissions);
        }
    }
}

#[test]
fn the_prompts_encode_to_the_expected_ids() {
    let engine = engine(rig(&Device::Reference, PoolSize::Floor));
    for case in expected() {
        assert_eq!(
            engine.raw_ids(case["prompt"].as_str().unwrap()).unwrap(),
            ids(&case["prompt_ids"]),
            "{}",
            case["name"]
        );
    }
}
