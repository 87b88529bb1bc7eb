//! The exact profile meets every kernel-level golden, in the context of a whole forward pass: within four times the
//! disagreement of the references, every discrete choice equal (engine.md 3.4). On the adapter, what operations write out.

use std::collections::{BTreeSet, HashMap};

use ss_tests::golden::{Golden, Tensor};
use ss_tests::rig::{Device, Tap, adapter};
use ss_tests::tapped::INSIDE;
use ss_tests::{Bound, Table};

use super::tapped;

/// The row of the agreement table that speaks for a tensor: its own, else that of the part it belongs to.
pub fn component(name: &str) -> &'static str {
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

/// Compares every tensor of a file with what one forward pass let out; gives how many were choices, and the names of
/// those that were not let out.
fn compare<'a>(
    golden: &Golden,
    theirs: &'a HashMap<String, Tensor>,
    ours: &HashMap<String, Tap>,
    table: &mut Table,
) -> (usize, BTreeSet<&'a str>) {
    let (mut choices, mut missing) = (0, BTreeSet::new());
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
            None => _ = missing.insert(short),
        }
    }
    (choices, missing)
}

/// Fails unless what was not let out is what cannot be.
pub fn must_be_inside(device: &Device, missing: &BTreeSet<&str>) {
    let excused = |name: &&str| matches!(device, Device::Adapter(_)) && INSIDE.contains(name);
    let unexcused: Vec<_> = missing.iter().filter(|name| !excused(name)).collect();
    assert!(unexcused.is_empty(), "no operation let these out: {unexcused:?}");
}

pub fn ids_of(ours: &HashMap<String, Tap>, name: &str) -> Vec<i32> {
    match ours.get(name) {
        Some(Tap::I32(values)) => values.clone(),
        other => panic!("`{name}` is {other:?}"),
    }
}

/// Tokens of an indexer block in every golden set.
const BLOCK: usize = 4;

/// The rows of block scores that decide something: a query that sees no more blocks than it keeps needs no scores.
pub fn deciding_scores(ours: &[f32], theirs: &Tensor, topk: usize) -> (Vec<f32>, Vec<f64>) {
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

fn every_tensor(device: &Device) {
    let mut measured = 0;
    for golden in device.goldens() {
        for n in [64, 300] {
            let file = format!("ops_p{n}");
            if !golden.has(&file) {
                continue;
            }
            let (mut rig, mut table) = (tapped(&golden, device), Table::default());
            let mut state = rig.state();
            rig.prompt(&mut state, &golden.prompt(n));
            let theirs = golden.tensors(&file);
            let (choices, missing) = compare(&golden, &theirs, &rig.taps.take(), &mut table);
            assert!(choices > 0, "routes and blocks were compared");
            must_be_inside(device, &missing);
            table.judge(&format!("{}: {file}", golden.name));
            measured += 1;
        }
    }
    assert!(measured > 0, "no golden set holds kernel-level tensors");
}

#[test]
fn every_kernel_level_tensor_in_a_forward_pass() {
    every_tensor(&Device::Reference);
}

#[test]
fn every_kernel_level_tensor_in_a_forward_pass_on_the_adapter() {
    every_tensor(&adapter());
}
