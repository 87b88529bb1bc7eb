//! The fast profile stays close to the exact one (engine.md 3.4): mean KL, argmax, held-out perplexity; every choice that
//! differs is counted and printed.

use std::collections::HashMap;

use ss_backend::Arithmetic;
use ss_model::{Pass, Want};
use ss_tests::golden::{goldens, root};
use ss_tests::rig::{Rig, RigOptions, Tap};

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

#[test]
fn the_next_token_distribution_stays_close() {
    println!("| set | prompt | mean KL | bar | same argmax | choices that differ |\n|---|---|---|---|---|---|");
    for golden in goldens() {
        let with =
            |arithmetic| Rig::new(&golden.model(), &RigOptions { arithmetic, taps: true, ..RigOptions::default() });
        let (mut exact, mut fast) = (with(Arithmetic::Exact), with(Arithmetic::Fast));
        for (n, bar) in [(7, 5e-5), (64, 5e-5), (300, 2e-3)] {
            let prompt = golden.prompt(n);
            let ((e, e_taps), (f, f_taps)) = (read(&mut exact, &prompt), read(&mut fast, &prompt));
            let (kl, same) = compare(&e, &f, exact.model.geometry().vocab as usize);
            let (differ, of) = differing(&e_taps, &f_taps, n);
            println!("| {} | p{n} | {kl:.1e} | {bar:.0e} | {:.1} % | {differ} of {of} |", golden.name, 100.0 * same);
            assert!(e != f, "the profiles differ, or nothing was compared");
            assert!(kl <= bar && kl >= -1e-12, "{}: p{n}: mean KL {kl:e}", golden.name);
            assert!(same >= 0.97, "{}: p{n}: argmax equal in {same}", golden.name);
        }
    }
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
