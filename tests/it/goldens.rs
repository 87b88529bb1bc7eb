//! The exact profile meets every golden of a whole pass: logits, residual streams, greedy replies, the state that a prompt
//! in chunks leaves, positions on three axes. Within four times the disagreement of the references (engine.md 3.4).

mod draft_head;
mod inside;

use ss_model::{Pass, Want};
use ss_tests::golden::{Golden, goldens};
use ss_tests::rig::{Device, Rig, RigOptions, Tap, adapter};
use ss_tests::{Bound, Table};

const PROMPTS: [usize; 4] = [1, 7, 64, 300];

/// An exact model.
pub fn rig(golden: &Golden, device: &Device) -> Rig {
    Rig::new(&golden.model(), &RigOptions { device: device.clone(), ..RigOptions::default() })
}

/// An exact model whose operations let their values out.
pub fn tapped(golden: &Golden, device: &Device) -> Rig {
    Rig::new(&golden.model(), &RigOptions { device: device.clone(), taps: true, ..RigOptions::default() })
}

fn whole_passes(device: &Device) {
    for golden in device.goldens() {
        let (mut rig, mut table) = (tapped(&golden, device), Table::default());
        let (logits, hidden) = (golden.tensors("logits"), golden.tensors("hidden"));
        for n in PROMPTS {
            let mut state = rig.state();
            let ours = rig.prompt(&mut state, &golden.prompt(n));
            let taps = rig.taps.take();
            table.add("logits", Bound::of(&golden.agreement, "logits"), &ours, &logits[&format!("p{n}")].values);
            // The repository keeps the streams of other prompts than p7 for one of its two sets.
            let Some(theirs) = hidden.get(&format!("p{n}")) else {
                assert!(n != 7 && golden.name != "dev", "{}: streams of p{n}", golden.name);
                continue;
            };
            let (rows, layers) = (theirs.shape[1], theirs.shape[0]);
            for (l, golden_rows) in theirs.values.chunks_exact(theirs.width()).enumerate().take(layers) {
                let name = if l == 0 { "embed.streams".to_string() } else { format!("L{}.hidden", l - 1) };
                let Some(Tap::F32(all)) = taps.get(&name) else { panic!("no `{name}`") };
                let last = &all[all.len() - theirs.width()..];
                assert_eq!(last.len() / rows * rows, last.len());
                table.add("hidden", Bound::of(&golden.agreement, "hidden"), last, golden_rows);
            }
        }
        table.judge(&format!("{}: whole forward passes", golden.name));
    }
}

#[test]
fn logits_and_residual_streams_of_every_prompt() {
    whole_passes(&Device::Reference);
}

#[test]
fn logits_and_residual_streams_of_every_prompt_on_the_adapter() {
    whole_passes(&adapter());
}

fn greedy(device: &Device) {
    for golden in device.goldens() {
        let (mut rig, mut table) = (rig(&golden, device), Table::default());
        let greedy = golden.tensors("greedy");
        for n in PROMPTS {
            let (tokens, logits) = (&greedy[&format!("p{n}.tokens")], &greedy[&format!("p{n}.logits")]);
            let mut state = rig.state();
            let prompt = golden.prompt(n);
            let mut ours = rig.forward(&mut state, &Pass::prompt(&prompt, Want::Last));
            for (token, theirs) in tokens.u32().into_iter().zip(logits.values.chunks_exact(logits.width())) {
                assert_eq!(argmax(&ours), token, "{}: p{n}", golden.name);
                table.add("decode_logits", Bound::of(&golden.agreement, "decode_logits"), &ours, theirs);
                ours = rig.forward(&mut state, &Pass::generated(&[token], Want::Last));
            }
        }
        table.judge(&format!("{}: decode", golden.name));
    }
}

#[test]
fn greedy_continuations_token_by_token() {
    greedy(&Device::Reference);
}

#[test]
fn greedy_continuations_token_by_token_on_the_adapter() {
    greedy(&adapter());
}

/// The largest logit, the first of equals.
pub fn argmax(logits: &[f32]) -> u32 {
    let mut best = 0;
    for (id, &logit) in logits.iter().enumerate() {
        assert!(logit.is_finite());
        if logit > logits[best] {
            best = id;
        }
    }
    best as u32
}

fn chunked(device: &Device) {
    for golden in device.goldens() {
        let (mut rig, mut table) = (rig(&golden, device), Table::default());
        let chunked = golden.tensors("chunked");
        let mut state = rig.state();
        let (prompt, mut logits, mut first) = (golden.prompt(300), Vec::new(), 0);
        for count in chunked["chunks"].u32() {
            logits.extend(rig.prompt(&mut state, &prompt[first..first + count as usize]));
            first += count as usize;
        }
        let theirs = &chunked["logits_last16"];
        let last = &logits[logits.len() - theirs.values.len()..];
        table.add("logits", Bound::of(&golden.agreement, "logits"), last, &theirs.values);
        assert_eq!(state.context, chunked["state.ngram_ids"].u32());
        let tensors = state.tensors(rig.backend()).unwrap();
        for (name, theirs) in chunked.iter().filter(|(name, _)| name.starts_with("state.L")) {
            let mut ours: Vec<f32> = match find(&tensors, name) {
                Some(bytes) => bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect(),
                None => panic!("the state has no `{name}`"),
            };
            ours.drain(..ours.len() - theirs.values.len());
            let row = if name.ends_with("ssm") || name.ends_with("conv") { "gdn_state" } else { "qsa.out" };
            table.add(name, Bound::of(&golden.agreement, row), &ours, &theirs.values);
        }
        table.judge(&format!("{}: chunked prefill", golden.name));
    }
}

#[test]
fn a_prompt_in_chunks_and_the_state_it_leaves() {
    chunked(&Device::Reference);
}

#[test]
fn a_prompt_in_chunks_and_the_state_it_leaves_on_the_adapter() {
    chunked(&adapter());
}

fn find<'a>(tensors: &'a [ss_model::StateTensor], golden: &str) -> Option<&'a [u8]> {
    let (layer, field) = golden.strip_prefix("state.")?.split_once('.')?;
    let name = match field {
        "conv" => format!("{layer}.window"),
        "ssm" => format!("{layer}.state"),
        "ple_conv" => "ple0.window".to_string(),
        other => format!("{layer}.{}", other.strip_suffix("_last8")?),
    };
    tensors.iter().find(|t| t.name == name).map(|t| t.bytes.as_slice())
}

#[test]
fn n_gram_rows_are_the_golden_ones() {
    let mut compared = 0;
    for golden in goldens() {
        let checkpoint = ss_checkpoint::Checkpoint::open(&golden.model()).unwrap();
        let tables = checkpoint.ngram_tables(0).expect("the model has an n-gram table");
        for n in [64, 300] {
            if !golden.has(&format!("ops_p{n}")) {
                continue;
            }
            let theirs = &golden.tensors(&format!("ops_p{n}"))["L1.ple.rows"];
            let prompt = golden.prompt(n);
            for (t, golden_row) in theirs.values.chunks_exact(theirs.width()).enumerate() {
                let mut row = vec![0; tables.heads()];
                tables.rows(&prompt[..t], prompt[t], &mut row);
                assert!(row.iter().zip(golden_row).all(|(&a, &b)| a as f64 == b), "{}: p{n}, token {t}", golden.name);
                compared += 1;
            }
        }
    }
    assert!(compared > 0);
}

fn three_axes(device: &Device) {
    // Beside the repository's own sets lies what the float64 model makes of image positions on prompt p64.
    let sets: Vec<Golden> = device.goldens().into_iter().filter(|g| g.has("mrope")).collect();
    for golden in &sets {
        let (mut rig, mut table) = (rig(golden, device), Table::default());
        let theirs = golden.tensors("mrope");
        let axes: Vec<Vec<u32>> = theirs["positions"].u32().chunks_exact(64).map(<[u32]>::to_vec).collect();
        let positions: Vec<[u32; 3]> = (0..64).map(|t| [axes[0][t], axes[1][t], axes[2][t]]).collect();
        let (prompt, mut state) = (golden.prompt(64), rig.state());
        let pass = Pass { positions: Some(&positions), ..Pass::prompt(&prompt, Want::All) };
        let ours = rig.forward(&mut state, &pass);
        table.add("mm:logits", Bound::of(&golden.agreement, "mm:logits"), &ours, &theirs["p64"].values);
        table.judge(&format!("{}: positions on three axes", golden.name));
    }
    assert!(std::env::var_os("SS_GOLDENS").is_some() || !sets.is_empty());
}

#[test]
fn positions_on_three_axes() {
    three_axes(&Device::Reference);
}

#[test]
fn positions_on_three_axes_on_the_adapter() {
    three_axes(&adapter());
}
