//! The trained model says what the float64 model says: every expected output, whole, at every size of the pool.

use std::path::PathBuf;

use serde_json::Value;
use ss_generate::{Ask, Engine, Finish, SamplerSettings, Told, Words};
use ss_model::Cancel;
use ss_stream::PoolSize;
use ss_tests::golden::root;
use ss_tests::rig::{Rig, RigOptions};
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

fn engine(slots: PoolSize) -> Engine {
    let rig = Rig::new(&model(), &RigOptions { slots, ..RigOptions::default() });
    let words = Words::open(rig.model.checkpoint()).unwrap_or_else(|e| panic!("{e}"));
    Engine::new(rig.model, words)
}

#[test]
fn every_expected_output_at_every_pool_size() {
    let cases = expected();
    assert!(cases.len() >= 5);
    for slots in [PoolSize::Smallest, PoolSize::Floor, PoolSize::Percent(50), PoolSize::All] {
        let mut engine = engine(slots);
        for case in &cases {
            let name = &case["name"];
            let wanted = ids(&case["output_ids"]);
            let mut ask = Ask::new(ids(&case["prompt_ids"]), SamplerSettings::greedy());
            // The file's outputs count the id that ends them; ours leave it out.
            ask.max_tokens = Some(wanted.len() as u32);
            let mut state = engine.model.new_state().unwrap();
            let mut text = String::new();
            let summary = engine.answer(&mut state, &ask, &Cancel::default(), &mut |told| {
                if let Told::Reply(Event::Text(piece)) = told {
                    text += &piece;
                }
            });
            let summary = summary.unwrap_or_else(|e| panic!("{e}"));
            let ended = summary.finish == Finish::Stop;
            let body = &wanted[..wanted.len() - usize::from(ended)];
            if summary.output != body {
                let margin = case["min_router_margin"]
                    .as_f64()
                    .unwrap()
                    .min(case["min_block_margin"].as_f64().unwrap_or(f64::MAX));
                assert!(margin < EXCUSED_MARGIN, "{name} at {slots:?}: {:?} is not {body:?}", summary.output);
                println!("{name} at {slots:?}: a choice flipped where the margin is {margin:e}");
                continue;
            }
            assert_eq!(ended, case["finish"] == "stop", "{name}");
            assert_eq!(text, engine.tokenizer().decode(body, SpecialTokens::Drop), "{name}: streamed and whole text");
        }
        let counters = engine.model.store().counters().experts;
        assert!(counters.misses > 0);
        // Three tokens' experts hold no layer from one token to the next.
        assert_eq!(counters.hits > 0, slots != PoolSize::Smallest, "{slots:?}");
        assert_eq!(counters.evictions > 0, slots != PoolSize::All, "{slots:?}");
    }
}

#[test]
fn the_prompts_encode_to_the_expected_ids() {
    let engine = engine(PoolSize::Floor);
    for case in expected() {
        assert_eq!(
            engine.raw_ids(case["prompt"].as_str().unwrap()).unwrap(),
            ids(&case["prompt_ids"]),
            "{}",
            case["name"]
        );
    }
}
