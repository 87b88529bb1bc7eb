//! Each operation alone, on golden inputs, within four times what a reference alone differs by (`op:` rows of the
//! agreement table).

mod bench;
mod experts;
mod stored;

use ss_backend::{Scope, Stage};
use ss_model::weights::Mixer;
use ss_tests::golden::{Golden, Tensor, Tensors};
use ss_tests::rig::{Device, Rig, adapter};
use ss_tests::{Bound, Table};

use crate::goldens::rig;
use bench::Bench;
use experts::ExpertPool;
use stored::linear;

fn operations_alone(device: &Device) {
    let mut measured = 0;
    for golden in device.goldens().iter().filter(|g| g.has("ops_p64") && g.has("ops_p300")) {
        let (rig, mut table) = (rig(golden, device), Table::default());
        let (p64, p300) = (golden.tensors("ops_p64"), golden.tensors("ops_p300"));
        of_p64(golden, &rig, &p64, &mut table);
        of_p300(golden, &rig, &p300, &mut table);
        let hidden = golden.tensors("hidden");
        let last = &hidden["p64"];
        let rows = last.shape[1];
        let x = Tensor {
            shape: vec![rows, last.shape[2]],
            values: last.values[(last.shape[0] - 1) * last.width()..].to_vec(),
        };
        let mut bench = Bench::new(golden, &rig, rows);
        bench.rec.at(Scope::Whole, Stage::Mixer);
        let (u, _) = bench.hc_read(&rig.model.weights().mixer, &x);
        bench.run();
        let theirs = &p64["mixer.mixed"];
        table.add(
            "op:mixer.mixed",
            bench.bound("op:mixer.mixed"),
            &bench.read(&u, theirs.values.len()),
            &theirs.values,
        );
        head(golden, &rig, theirs, &mut table);
        table.judge(&format!("{}: operations alone", golden.name));
        measured += 1;
    }
    assert!(measured > 0, "no golden set holds kernel-level tensors");
}

/// The head, as many rows at a time as it takes.
fn head(golden: &Golden, rig: &Rig, mixed: &Tensor, table: &mut Table) {
    let logits = &golden.tensors("logits")["p64"];
    let rows = ss_backend::op::Head::MAX_ROWS as usize;
    let bound = Bound::of(&golden.agreement, "op:lm_head");
    for (x, theirs) in mixed.values.chunks(rows * mixed.width()).zip(logits.values.chunks(rows * logits.width())) {
        let x = Tensor { shape: vec![x.len() / mixed.width(), mixed.width()], values: x.to_vec() };
        table.add("op:lm_head", bound, &linear(golden, rig, "lm_head", &x), theirs);
    }
}

fn of_p64(golden: &Golden, rig: &Rig, theirs: &Tensors, table: &mut Table) {
    let layers = &rig.model.weights().layers;
    for l in 0..2 {
        let t = |name: &str| &theirs[&format!("L{l}.{name}")];
        let mut bench = Bench::new(golden, rig, t("hidden").shape[0]);
        let x = if l == 0 { t("in") } else { t("after_ple") };
        for (part, weights, x) in [("attn_hc", &layers[l].attn_hc, x), ("mlp_hc", &layers[l].mlp_hc, t("after_attn"))] {
            let (u, inject) = bench.hc_read(weights, x);
            bench.run();
            for (field, ours) in [("mixed", u), ("inject", inject)] {
                let golden_rows = t(&format!("{part}.{field}"));
                let name = format!("op:{part}.{field}");
                // One reference alone has no row for the second injection; the first one's is the measure of both.
                let bound = bench.bound(&name.replace("mlp_hc.inject", "attn_hc.inject"));
                table.add(&name, bound, &bench.read(&ours, golden_rows.values.len()), &golden_rows.values);
            }
        }
        if let Mixer::Gdn(w) = &layers[l].mixer {
            let out = bench.gdn(w, t("attn_hc.mixed"));
            bench.run();
            table.add("op:gdn.out", bench.bound("op:gdn.out"), &bench.first_stream(&out), &t("gdn.out").values);
        }
        if let Some(w) = &layers[l].ple {
            let streams = bench.ple(w, t("ple.embed"), t("in"));
            bench.run();
            let after = bench.read(&streams, t("in").values.len());
            let added: Vec<f32> = after.iter().zip(&t("in").f32()).map(|(after, before)| after - before).collect();
            table.add("op:ple.out", bench.bound("op:ple.out"), &added, &t("ple.out").values);
        }
        let moe = bench.moe(&layers[l].moe, t("mlp_hc.mixed"), &ExpertPool::of_layer(rig, l));
        bench.run();
        let (idx, shared) = (t("moe.router_idx"), &t("moe.shared").values);
        assert_eq!(bench.ids(&moe.experts, idx.values.len()), idx.i32(), "routes of layer {l}");
        table.add("op:moe.shared", bench.bound("op:moe.shared"), &bench.read(&moe.shared, shared.len()), shared);
        table.add("op:moe.out", bench.bound("op:moe.out"), &bench.first_stream(&moe.out), &t("moe.out").values);
    }
}

fn of_p300(golden: &Golden, rig: &Rig, theirs: &Tensors, table: &mut Table) {
    let layer = &rig.model.weights().layers[3];
    let mut bench = Bench::new(golden, rig, theirs["L3.in"].shape[0]);
    let (u, _) = bench.hc_read(&layer.attn_hc, &theirs["L3.in"]);
    bench.run();
    let mixed = &theirs["L3.attn_hc.mixed"];
    table.add("op:attn_hc.mixed", bench.bound("op:attn_hc.mixed"), &bench.read(&u, mixed.values.len()), &mixed.values);
    let Mixer::Qsa(w) = &layer.mixer else { panic!("layer 3 is sparse attention") };
    let (kept, out) = bench.qsa(w, mixed);
    bench.run();
    let blocks = &theirs["L3.qsa.index_blocks"];
    assert_eq!(bench.ids(&kept, blocks.values.len()), blocks.i32());
    table.add("op:qsa.out", bench.bound("op:qsa.out"), &bench.first_stream(&out), &theirs["L3.qsa.out"].values);
}

#[test]
fn operations_alone_on_golden_inputs() {
    operations_alone(&Device::Reference);
}

#[test]
fn operations_alone_on_golden_inputs_on_the_adapter() {
    operations_alone(&adapter());
}
