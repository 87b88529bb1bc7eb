//! The fast profile stays close to the exact one (engine.md 3.4): mean KL, argmax, held-out perplexity; every choice that
//! differs is counted and printed.

use std::collections::HashMap;

use ss_backend::Arithmetic;
use ss_model::{Pass, Want};
use ss_tests::golden::root;
use ss_tests::rig::{Device, Rig, RigOptions, Tap, adapter, adapter_with_units};

use crate::goldens::argmax;

/// Logits of a prompt, and the choices made on the way.
fn read(rig: &mut Rig, prompt: &[u32]) -> (Vec<f32>, HashMap<String, Tap>) {
    let mut state = rig.state();
    let logits = rig.prompt(&mut state, prompt);
    assert!(logits.iter().all(|v| v.is_finite()));
    (logits, rig.taps.take())
}

fn log_softmax(logits: &[f32]) -> Vec<f64> {
    let top = logits.iter().fold(f64::NEG_INFINITY, |m, &v| m.max(v.into()));
    let total: f64 = logits.iter().map(|&v| (f64::from(v) - top).exp()).sum();
    logits.iter().map(|&v| f64::from(v) - top - total.ln()).collect()
}

/// Mean KL divergence of the next-token distributions, exact from fast, and the share of rows with the same argmax.
fn compare(exact: &[f32], fast: &[f32], vocab: usize) -> (f64, f64) {
    let rows = exact.len() / vocab;
    let (mut kl, mut same) = (0.0, 0);
    for (e, f) in exact.chunks_exact(vocab).zip(fast.chunks_exact(vocab)) {
        let (p, q) = (log_softmax(e), log_softmax(f));
        kl += p.iter().zip(&q).map(|(p, q)| p.exp() * (p - q)).sum::<f64>();
        same += usize::from(argmax(e) == argmax(f));
    }
    (kl / rows as f64, same as f64 / rows as f64)
}

/// Rows of routes and blocks that differ, and how many there are.
fn differing(exact: &HashMap<String, Tap>, fast: &HashMap<String, Tap>, rows: usize) -> (usize, usize) {
    let mut counted = (0, 0);
    for (name, tap) in exact {
        let (Tap::I32(e), Some(Tap::I32(f))) = (tap, fast.get(name)) else { continue };
        let width = e.len() / rows;
        counted.0 += e.chunks_exact(width).zip(f.chunks_exact(width)).filter(|(e, f)| e != f).count();
        counted.1 += rows;
    }
    counted
}

/// What one golden set's prompts came to under the fast profile.
struct Closeness {
    set: String,
    rows: usize,
    kl: f64,
    same: f64,
    differ: (usize, usize),
}

fn measure(device: &Device, f16_inputs: bool) -> Vec<Closeness> {
    println!(
        "\nF16 inputs: {f16_inputs}\n| set | prompt | mean KL | same argmax | choices that differ |\n|---|---|---|---|---|"
    );
    let mut all = Vec::new();
    for golden in device.goldens() {
        let with = |arithmetic| {
            let device = device.clone();
            let options = RigOptions { device, arithmetic, f16_inputs, taps: true, ..RigOptions::default() };
            Rig::new(&golden.model(), &options)
        };
        let (mut exact, mut fast) = (with(Arithmetic::Exact), with(Arithmetic::Fast));
        for rows in [7, 64, 300] {
            let prompt = golden.prompt(rows);
            let ((e, e_taps), (f, f_taps)) = (read(&mut exact, &prompt), read(&mut fast, &prompt));
            assert!(e != f, "the profiles differ, or nothing was compared");
            let (kl, same) = compare(&e, &f, exact.model.geometry().vocab as usize);
            let differ = differing(&e_taps, &f_taps, rows);
            println!("| {} | p{rows} | {kl:.1e} | {:.1} % | {} of {} |", golden.name, 100.0 * same, differ.0, differ.1);
            all.push(Closeness { set: golden.name.clone(), rows, kl, same, differ });
        }
    }
    all
}

fn judge(c: &Closeness) {
    let bar = if c.rows < 300 { 5e-5 } else { 2e-3 };
    assert!(c.kl <= bar && c.kl >= -1e-12, "{}: p{}: mean KL {:e}", c.set, c.rows, c.kl);
    assert!(c.same >= 0.97, "{}: p{}: argmax equal in {}", c.set, c.rows, c.same);
}

#[test]
fn the_next_token_distribution_stays_close() {
    measure(&Device::Reference, false).iter().for_each(judge);
}

#[test]
fn the_next_token_distribution_stays_close_on_the_adapter() {
    measure(&adapter(), false).iter().for_each(judge);
}

/// With F16 inputs, as devices with matrix units have them. A random model with a tie within their reach (the odd set has
/// one of 2.9e-4 in its first layer's router, at the third token) takes another route from there on and no bar can hold;
/// where no choice differs, the bars do.
#[test]
fn the_next_token_distribution_with_f16_inputs_stays_close_while_no_choice_differs() {
    let all = measure(&Device::Reference, true);
    let untouched: Vec<&Closeness> = all.iter().filter(|c| c.differ.0 == 0).collect();
    assert!(untouched.len() >= all.len() / 3, "choices differ nearly everywhere");
    untouched.into_iter().for_each(judge);
}

/// The same with the matrix units themselves, in products and in attention.
#[test]
#[ignore = "needs an adapter with matrix units"]
fn the_next_token_distribution_with_matrix_units_stays_close_while_no_choice_differs() {
    let all = measure(&adapter_with_units(), false);
    let untouched: Vec<&Closeness> = all.iter().filter(|c| c.differ.0 == 0).collect();
    assert!(untouched.len() >= all.len() / 3, "choices differ nearly everywhere");
    untouched.into_iter().for_each(judge);
}

/// Mean negative log-likelihood of tokens 1.. of every document, each from an empty state.
fn mean_nll(arithmetic: Arithmetic, documents: &[Vec<u32>]) -> (f64, usize) {
    let mut rig = Rig::new(&root().join("models/flash-next-nano"), &RigOptions { arithmetic, ..RigOptions::default() });
    let vocab = rig.model.geometry().vocab as usize;
    let (mut nll, mut scored) = (0.0, 0);
    for document in documents {
        let mut state = rig.state();
        let logits = rig.forward(&mut state, &Pass::prompt(&document[..document.len() - 1], Want::All));
        for (row, &next) in logits.chunks_exact(vocab).zip(&document[1..]) {
            nll -= log_softmax(row)[next as usize];
            scored += 1;
        }
    }
    (nll / scored as f64, scored)
}

#[test]
fn held_out_perplexity_of_the_trained_model() {
    let text = std::fs::read_to_string(root().join("models/nano-heldout.json")).unwrap();
    let file: serde_json::Value = serde_json::from_str(&text).unwrap();
    let ids = |d: &serde_json::Value| d.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect();
    let documents: Vec<Vec<u32>> = file["documents"].as_array().unwrap().iter().map(ids).collect();
    let f64_perplexity = file["f64"]["perplexity"].as_f64().unwrap();
    for (arithmetic, bar) in [(Arithmetic::Exact, 1e-4), (Arithmetic::Fast, 5e-3)] {
        let (nll, scored) = mean_nll(arithmetic, &documents);
        let off = nll.exp() / f64_perplexity - 1.0;
        println!("{arithmetic}: perplexity {:.6} over {scored} tokens, {:+.4} % of float64's", nll.exp(), 100.0 * off);
        assert_eq!(scored as u64, file["f64"]["tokens_scored"].as_u64().unwrap());
        assert!(off.abs() <= bar, "{arithmetic}: perplexity is off by {off}");
    }
}
