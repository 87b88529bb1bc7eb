//! The draft head meets its goldens in the exact profile: logits, streams, parts, kept blocks, and a chain of four drafts
//! (architecture.md section 11, engine.md 3.4).

use std::collections::{BTreeSet, HashMap};

use ss_model::{Cancel, DraftSource, Want};
use ss_tests::golden::{Golden, Tensor};
use ss_tests::rig::{Device, Rig, Tap, adapter};
use ss_tests::{Bound, Table};

use super::inside::{component, deciding_scores, ids_of, must_be_inside};
use super::{argmax, tapped};

fn head_and_chain(device: &Device) {
    let mut measured = 0;
    for golden in device.goldens().iter().filter(|g| g.has("mtp")) {
        let (mut rig, mut table) = (tapped(golden, device), Table::default());
        let mtp = golden.tensors("mtp");
        let cancel = Cancel::default();
        for n in [64, 300] {
            let mut state = rig.state();
            rig.prompt(&mut state, &golden.prompt(n));
            let theirs = |name: &str| &mtp[&format!("p{n}.{name}")];
            let main = rig.model.read_streams(n as u32).unwrap();
            let x = theirs("main_X_last16");
            table.add(
                "pre_mixer_X",
                Bound::of(&golden.agreement, "pre_mixer_X"),
                &main[main.len() - x.values.len()..],
                &x.values,
            );
            rig.taps.take();
            let next = theirs("next_tokens").u32();
            let logits =
                rig.model.draft(&mut state, &next, DraftSource::Main { first: 0 }, Want::All, &cancel).unwrap();
            let last = theirs("logits_last16");
            table.add(
                "mtp.logits",
                Bound::of(&golden.agreement, "mtp.logits"),
                &logits[logits.len() - last.values.len()..],
                &last.values,
            );
            let hidden = rig.model.read_draft_streams(n as u32).unwrap();
            let last = theirs("hidden_last16");
            table.add(
                "mtp.hidden",
                Bound::of(&golden.agreement, "mtp.hidden"),
                &hidden[hidden.len() - last.values.len()..],
                &last.values,
            );
            let taps = rig.taps.take();
            assert_eq!(ids_of(&taps, "mtp.qsa.index_blocks"), theirs("index_blocks").i32());
            must_be_inside(device, &compare_draft(golden, &mtp, n, &taps, &mut table));
            chain(golden, &mut rig, &mut state, (theirs("draft_tokens"), theirs("draft_logits")), &logits, &mut table);
            measured += 1;
        }
        table.judge(&format!("{}: draft head", golden.name));
    }
    assert!(measured > 0, "no golden set holds the draft head");
}

/// The parts of the head; their inputs are a whole forward pass away, so the main model's bounds are the measure. Gives the names of those that
/// were not let out.
fn compare_draft<'a>(
    golden: &Golden,
    mtp: &'a HashMap<String, Tensor>,
    n: usize,
    taps: &HashMap<String, Tap>,
    table: &mut Table,
) -> BTreeSet<&'a str> {
    let mut missing = BTreeSet::new();
    let prefix = format!("p{n}.mtp.");
    for (name, theirs) in mtp.iter().filter_map(|(name, t)| Some((name.strip_prefix(&prefix)?, t))) {
        if name.ends_with("_margin") || name == "logits" {
            continue;
        }
        match taps.get(&format!("mtp.{name}")) {
            Some(Tap::I32(values)) => assert_eq!(*values, theirs.i32(), "`{name}`"),
            Some(Tap::F32(values)) if name == "qsa.index_scores" => {
                let topk = mtp[&format!("{prefix}qsa.index_blocks")].width();
                let (ours, theirs) = deciding_scores(values, theirs, topk);
                if !theirs.is_empty() {
                    table.add(&format!("mtp.{name}"), Bound::of(&golden.agreement, component(name)), &ours, &theirs);
                }
            }
            Some(Tap::F32(values)) => {
                table.add(
                    &format!("mtp.{name}"),
                    Bound::of(&golden.agreement, component(name)),
                    values,
                    &theirs.values,
                );
            }
            None => _ = missing.insert(name),
        }
    }
    missing
}

/// Four drafts in a row, each from the head's own streams.
fn chain(
    golden: &Golden,
    rig: &mut Rig,
    state: &mut ss_model::State,
    theirs: (&Tensor, &Tensor),
    logits: &[f32],
    table: &mut Table,
) {
    let vocab = theirs.1.width();
    let mut row = logits.len() / vocab - 1;
    let mut ours = logits[row * vocab..].to_vec();
    for (token, golden_logits) in theirs.0.u32().into_iter().zip(theirs.1.values.chunks_exact(vocab)) {
        table.add("mtp.chain_logits", Bound::of(&golden.agreement, "mtp.chain_logits"), &ours, golden_logits);
        assert_eq!(argmax(&ours), token);
        let source = DraftSource::Own { row: row as u32 };
        ours = rig.model.draft(state, &[token], source, Want::Last, &Cancel::default()).unwrap();
        row = 0;
    }
}

#[test]
fn the_draft_head_and_its_chain() {
    head_and_chain(&Device::Reference);
}

#[test]
fn the_draft_head_and_its_chain_on_the_adapter() {
    head_and_chain(&adapter());
}
