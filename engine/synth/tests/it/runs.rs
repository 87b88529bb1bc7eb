//! Owns: made-up models in the reference backend: their numbers, their choice of experts, their words.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use serde_json::json;
use ss_backend::{Arithmetic, Backend};
use ss_checkpoint::Checkpoint;
use ss_generate::Words;
use ss_model::{Cancel, Model, ModelOptions, Pass, PassMutation, State, Want};
use ss_reference::{Options, Reference, TapData};
use ss_stream::{PoolGeometry, PoolSize, StoreOptions};
use ss_synth::{NgramRows, Order, Source};

use crate::{Made, changed};

fn load(dir: &Path, backend: Arc<dyn Backend>) -> Model {
    let checkpoint = Arc::new(Checkpoint::open(dir).unwrap());
    let slots = PoolSize::All.resolve(PoolGeometry::from(checkpoint.geometry())).unwrap();
    let options = ModelOptions {
        store: StoreOptions::new(slots),
        arithmetic: Arithmetic::Exact,
        read_group: 0,
        mutation: PassMutation::None,
    };
    Model::load(backend, checkpoint, options, &mut |_, _| {}).unwrap()
}

fn reference() -> Reference {
    Reference::new(Options { threads: 2, ..Options::default() }).unwrap()
}

fn read(model: &mut Model, state: &mut State, ids: &[u32]) -> Vec<f32> {
    model.forward(state, &Pass::prompt(ids, Want::Last), &Cancel::default()).unwrap().logits
}

fn likeliest(logits: &[f32]) -> u32 {
    (0..).zip(logits).max_by(|a, b| a.1.total_cmp(b.1)).map(|(id, _)| id).unwrap()
}

/// Ids that follow no order.
fn ids(count: u32, vocab: u32) -> Vec<u32> {
    (0..count).map(|place| (place * place * 31 + place * 977 + 5) % vocab).collect()
}

#[test]
fn forty_eight_layers_later_logits_are_finite_and_differ_from_prompt_to_prompt() {
    let folder = tempfile::tempdir().unwrap();
    let source = changed(folder.path(), |text| {
        text["layer_types"] = json!(["linear_attention", "linear_attention", "linear_attention", "full_attention"]);
        text["num_hidden_layers"] = 4.into();
        text["ple_layer_ids"] = json!([2]);
        text["num_experts"] = 16.into();
        text["num_experts_per_tok"] = 2.into();
    });
    let order = Order { layers: Some(48), ngrams: NgramRows::Full, ..Order::new(source) };
    let made = Made::of(&order);
    let mut model = load(&made.dir(), Arc::new(reference()));
    let vocab = model.geometry().vocab;
    let mut replies = Vec::new();
    for first in [1, 77, 900] {
        let mut state = model.new_state().unwrap();
        let mut logits = read(&mut model, &mut state, &[first, 300, first + 5]);
        assert!(logits.iter().all(|logit| logit.is_finite()));
        let mean = logits.iter().sum::<f32>() / logits.len() as f32;
        let spread = (logits.iter().map(|l| (l - mean).powi(2)).sum::<f32>() / logits.len() as f32).sqrt();
        assert!((0.5..8.0).contains(&spread), "logits spread by {spread}");
        let mut reply = Vec::new();
        for _ in 0..12 {
            let id = likeliest(&logits);
            assert!(id < vocab);
            reply.push(id);
            logits = model.forward(&mut state, &Pass::generated(&[id], Want::Last), &Cancel::default()).unwrap().logits;
        }
        let mut different = reply.clone();
        different.sort_unstable();
        different.dedup();
        assert!(different.len() > 6, "{reply:?}");
        replies.push(reply);
    }
    assert!(replies[0] != replies[1] && replies[1] != replies[2], "{replies:?}");
}

#[test]
fn a_tenth_of_a_layers_experts_takes_about_seventy_percent_of_its_uses() {
    const EXPERTS: usize = 128;
    let folder = tempfile::tempdir().unwrap();
    let source = changed(folder.path(), |text| {
        text["num_experts"] = EXPERTS.into();
        text["num_experts_per_tok"] = 4.into();
        text["moe_intermediate_size"] = 64.into();
    });
    let made = Made::of(&Order { layers: Some(12), ..Order::new(source) });
    let counts: Arc<Mutex<BTreeMap<String, Vec<u64>>>> = Arc::default();
    let into = counts.clone();
    let backend = reference().with_tap(Arc::new(move |name: &str, _: &[usize], data: TapData<'_>| {
        let TapData::I32(chosen) = data else { return };
        if !name.ends_with("router_idx") {
            return;
        }
        let mut layers = into.lock().unwrap();
        let counts = layers.entry(name.to_owned()).or_insert_with(|| vec![0; EXPERTS]);
        chosen.iter().for_each(|&expert| counts[expert as usize] += 1);
    }));
    let mut model = load(&made.dir(), Arc::new(backend));
    let mut state = model.new_state().unwrap();
    let vocab = model.geometry().vocab;
    read(&mut model, &mut state, &ids(400, vocab));
    let layers = counts.lock().unwrap();
    assert_eq!(layers.len(), 12);
    for (layer, counts) in layers.iter() {
        let mut counts = counts.clone();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let (favoured, all): (u64, u64) = (counts[..EXPERTS.div_ceil(10)].iter().sum(), counts.iter().sum());
        let share = favoured as f64 / all as f64;
        let unused = counts.iter().filter(|&&count| count == 0).count();
        println!("{layer}: {share:.3}, {unused} unused");
        assert_eq!(all, 400 * 4);
        assert!((0.6..=0.8).contains(&share), "{layer}: {share}");
        assert!(unused < EXPERTS / 2, "{layer}: {unused} experts are never used");
    }
}

#[test]
fn text_becomes_bytes_and_control_tokens_and_every_id_is_some_text() {
    let made = Made::of(&Order { layers: Some(1), ..Order::new(Source::NanoLike) });
    let words = Words::open(&made.open()).unwrap();
    let tokenizer = ss_text::Tokenizer::open(&made.dir()).unwrap();
    let ids = tokenizer.encode("<|im_start|>hi 日<|im_end|>", ss_text::AddedTokens::Recognise).unwrap();
    assert_eq!(ids.len(), 2 + "hi 日".len());
    assert_eq!(tokenizer.decode(&ids, ss_text::SpecialTokens::Keep), "<|im_start|>hi 日<|im_end|>");
    assert_eq!(tokenizer.decode(&ids, ss_text::SpecialTokens::Drop), "hi 日");
    assert_eq!(tokenizer.id_of("<|endoftext|>"), Some(4070));
    assert_eq!(tokenizer.id_of("<|image_pad|>"), Some(4082));
    assert!((0..tokenizer.vocabulary() as u32).all(|id| !tokenizer.bytes_of(id).is_empty()));
    drop(words);
}

#[test]
fn the_released_vocabulary_opens_with_the_ids_of_its_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let source = changed(folder.path(), |text| {
        text["vocab_size"] = 248_320.into();
        text["eos_token_id"] = 248_044.into();
        text["hidden_size"] = 64.into();
    });
    let made = Made::of(&Order::new(source));
    let tokenizer = ss_text::Tokenizer::open(&made.dir()).unwrap();
    for (text, id) in [("<|endoftext|>", 248_044), ("<|im_start|>", 248_045), ("<|im_end|>", 248_046)] {
        assert_eq!(tokenizer.id_of(text), Some(id));
    }
    assert_eq!(made.open().stop_ids().unwrap(), [248_046, 248_044]);
}
