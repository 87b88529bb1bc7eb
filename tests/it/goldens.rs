//! The exact profile meets every golden, with each part in the context of a whole forward pass: within four times the
//! disagreement of the references, every discrete choice equal (engine.md 3.4).

use std::collections::HashMap;

use ss_model::{Cancel, DraftSource, Pass, Want};
use ss_tests::golden::{Golden, Tensor, goldens};
use ss_tests::rig::{Rig, RigOptions, Tap};
use ss_tests::{Bound, Table};

const PROMPTS: [usize; 4] = [1, 7, 64, 300];

fn rig(golden: &Golden) -> Rig {
    Rig::new(&golden.model(), &RigOptions { taps: true, ..RigOptions::default() })
}

/// The row of the agreement table that speaks for a tensor: its own, else that of the part it belongs to.
fn component(name: &str) -> &'static str {
    let (part, field) = name.rsplit_once('.').unwrap_or(("", name));
    match (part, field) {
        ("attn_hc", "inject") => "attn_hc.inject",
        ("mlp_hc", "inject") => "mlp_hc.inject",
        ("attn_hc", _) => "attn_hc.mixed",
        ("mlp_hc", _) => "mlp_hc.mixed",
        ("mixer", _) => "mixer.mixed",
        ("gdn", "qkv" | "z" | "a" | "b") => "gdn.qkv",
        ("gdn", "gated") => "gdn.gated",
        ("gdn", "out") => "gdn.out",
        ("gdn", "state_in" | "state_out") => "gdn_state",
        ("gdn", _) => "gdn.core",
        ("moe", "router_logits") => "moe.router_logits",
        ("moe", "router_w") => "moe.router_w",
        ("moe", "routed" | "expert_out_first8") => "moe.routed",
        ("moe", "shared" | "shared_gate") => "moe.shared",
        ("moe", _) => "moe.out",
        ("ple", "embed") => "ple.embed",
        ("ple", _) => "ple.out",
        ("qsa", _) => "qsa.out",
        _ => "hidden",
    }
}

/// The name under which our operations let a golden tensor out.
fn our_name(golden: &str) -> String {
    match golden.strip_suffix(".in").and_then(|layer| layer.strip_prefix('L')).and_then(|l| l.parse::<usize>().ok()) {
        Some(0) => "embed.streams".into(),
        Some(layer) => format!("L{}.hidden", layer - 1),
        None => golden.replace("_first8", ""),
    }
}

/// Compares every tensor of a file with what one forward pass let out.
fn compare(golden: &Golden, theirs: &HashMap<String, Tensor>, ours: &HashMap<String, Tap>, table: &mut Table) -> usize {
    let mut choices = 0;
    for (name, tensor) in theirs {
        let short = name
            .split_once('.')
            .map_or(name.as_str(), |(scope, rest)| if scope.starts_with('L') { rest } else { name });
        if short.ends_with("_margin") || short == "ple.rows" {
            continue;
        }
        if short == "qsa.mask" {
            let blocks = ids_of(ours, &name.replace("mask", "index_blocks"));
            assert_eq!(mask_of(&blocks, tensor), tensor.values, "{}: `{name}`", golden.name);
            choices += 1;
            continue;
        }
        match ours.get(&our_name(name)) {
            Some(Tap::I32(values)) => {
                assert_eq!(*values, tensor.i32(), "{}: `{name}`", golden.name);
                choices += 1;
            }
            Some(Tap::F32(values)) if short == "qsa.index_scores" => {
                let topk = theirs[&name.replace("scores", "blocks")].width();
                let (ours, theirs) = deciding_scores(values, tensor, topk);
                if !theirs.is_empty() {
                    table.add(short, Bound::of(&golden.agreement, component(short)), &ours, &theirs);
                }
            }
            Some(Tap::F32(values)) => {
                let values = &values[..values.len().min(tensor.values.len())];
                table.add(short, Bound::of(&golden.agreement, component(short)), values, &tensor.values);
            }
            None => panic!("{}: no operation let `{name}` out", golden.name),
        }
    }
    choices
}

fn ids_of(ours: &HashMap<String, Tap>, name: &str) -> Vec<i32> {
    match ours.get(name) {
        Some(Tap::I32(values)) => values.clone(),
        other => panic!("`{name}` is {other:?}"),
    }
}

/// Tokens of an indexer block in every golden set.
const BLOCK: usize = 4;

/// The rows of block scores that decide something: a query that sees no more blocks than it keeps needs no scores.
fn deciding_scores(ours: &[f32], theirs: &Tensor, topk: usize) -> (Vec<f32>, Vec<f64>) {
    let from = (BLOCK * (topk + 1) - 1).min(theirs.shape[0]) * theirs.width();
    (ours[from..].to_vec(), theirs.values[from..].to_vec())
}

/// Which tokens each query sees, from the blocks it keeps (architecture.md 7.3).
fn mask_of(blocks: &[i32], shape: &Tensor) -> Vec<f64> {
    let (rows, tokens) = (shape.shape[0], shape.shape[1]);
    let kept = blocks.len() / rows;
    let mut mask = vec![0.0; rows * tokens];
    for (row, blocks) in blocks.chunks_exact(kept).enumerate() {
        let seen = &mut mask[row * tokens..][..tokens];
        for &block in blocks.iter().filter(|&&b| b >= 0) {
            seen[block as usize * BLOCK..][..BLOCK].fill(1.0);
        }
        seen[(row + 1) / BLOCK * BLOCK..=row].fill(1.0);
    }
    mask
}

#[test]
fn logits_and_residual_streams_of_every_prompt() {
    for golden in goldens() {
        let (mut rig, mut table) = (rig(&golden), Table::default());
        let (logits, hidden) = (golden.tensors("logits"), golden.tensors("hidden"));
        for n in PROMPTS {
            let mut state = rig.state();
            let ours = rig.prompt(&mut state, &golden.prompt(n));
            let taps = rig.taps.take();
            table.add("logits", Bound::of(&golden.agreement, "logits"), &ours, &logits[&format!("p{n}")].values);
            let theirs = &hidden[&format!("p{n}")];
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
fn greedy_continuations_token_by_token() {
    for golden in goldens() {
        let (mut rig, mut table) = (rig(&golden), Table::default());
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
            rig.taps.take();
        }
        table.judge(&format!("{}: decode", golden.name));
    }
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

#[test]
fn a_prompt_in_chunks_and_the_state_it_leaves() {
    for golden in goldens() {
        let (mut rig, mut table) = (rig(&golden), Table::default());
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
fn every_kernel_level_tensor_in_a_forward_pass() {
    let mut measured = 0;
    for golden in goldens() {
        for n in [64, 300] {
            let file = format!("ops_p{n}");
            if !golden.has(&file) {
                continue;
            }
            let (mut rig, mut table) = (rig(&golden), Table::default());
            let mut state = rig.state();
            rig.prompt(&mut state, &golden.prompt(n));
            let choices = compare(&golden, &golden.tensors(&file), &rig.taps.take(), &mut table);
            assert!(choices > 0, "routes and blocks were compared");
            table.judge(&format!("{}: {file}", golden.name));
            measured += 1;
        }
    }
    assert!(measured > 0, "no golden set holds kernel-level tensors");
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

#[test]
fn the_draft_head_and_its_chain() {
    let mut measured = 0;
    for golden in goldens().iter().filter(|g| g.has("mtp")) {
        let (mut rig, mut table) = (rig(golden), Table::default());
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
            compare_draft(golden, &mtp, n, &taps, &mut table);
            chain(golden, &mut rig, &mut state, (theirs("draft_tokens"), theirs("draft_logits")), &logits, &mut table);
            measured += 1;
        }
        table.judge(&format!("{}: draft head", golden.name));
    }
    assert!(measured > 0, "no golden set holds the draft head");
}

/// The parts of the head; their inputs are a whole forward pass away, so the main model's bounds are the measure.
fn compare_draft(
    golden: &Golden,
    mtp: &HashMap<String, Tensor>,
    n: usize,
    taps: &HashMap<String, Tap>,
    table: &mut Table,
) {
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
            None => panic!("no operation let `mtp.{name}` out"),
        }
    }
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
fn positions_on_three_axes() {
    // Beside the repository's own sets lies what the float64 model makes of image positions on prompt p64.
    let sets: Vec<Golden> = goldens().into_iter().filter(|g| g.has("mrope")).collect();
    for golden in &sets {
        let (mut rig, mut table) = (rig(golden), Table::default());
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
