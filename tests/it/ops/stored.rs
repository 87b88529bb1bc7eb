//! The stored linears and experts give the golden products; equal scores keep the lower index.

use ss_backend::op::{ExpertsIn, ExpertsOut, GdnProject, PleProject, Route};
use ss_backend::{Linear, NONE, Scalar};
use ss_model::weights::Mixer;
use ss_tests::golden::{Golden, Tensor, Tensors};
use ss_tests::rig::{Device, Rig, adapter};
use ss_tests::{Bound, Table};

use super::bench::Bench;
use super::experts::ExpertPool;
use crate::goldens::rig;

fn stored(device: &Device) {
    for golden in device.goldens() {
        let (rig, mut table) = (rig(&golden, device), Table::default());
        let qmm = golden.tensors("qmm");
        for base in qmm.keys().filter_map(|name| name.strip_suffix(".x")).filter(|base| *base != "expert") {
            let (x, y) = (&qmm[&format!("{base}.x")], &qmm[&format!("{base}.y")]);
            let ours = linear(&golden, &rig, base, x);
            table.add("qmm", Bound::of(&golden.agreement, "qmm"), &ours, &y.values);
        }
        for base in qmm.keys().filter_map(|name| name.strip_suffix(".dequant_first4")) {
            let theirs = &qmm[&format!("{base}.dequant_first4")];
            let ours = dequantised(&rig, base, theirs.shape[0] as u32);
            table.add("dequantize", Bound::of(&golden.agreement, "dequantize"), &ours, &theirs.values);
        }
        let ours = experts(&golden, &rig, &qmm);
        table.add("expert_swiglu", Bound::of(&golden.agreement, "expert_swiglu"), &ours, &qmm["expert.y"].values);
        table.judge(&format!("{}: stored linears", golden.name));
    }
}

#[test]
fn stored_linears_and_experts() {
    stored(&Device::Reference);
}

#[test]
fn stored_linears_and_experts_on_the_adapter() {
    stored(&adapter());
}

/// `x W^T` through the operation that uses the linear.
pub fn linear(golden: &Golden, rig: &Rig, base: &str, x: &Tensor) -> Vec<f32> {
    let weights = rig.model.weights();
    let mut bench = Bench::new(golden, rig, x.shape[0]);
    let (input, shape) = (bench.input(x), bench.shapes.gdn);
    let (out, width) = match base {
        "lm_head" => {
            let logits = bench.area(weights.head.matrix.rows);
            bench.rec.head(ss_backend::op::Head {
                rows: bench.rows,
                x: input,
                weight: weights.head.clone(),
                logits: logits.clone(),
            });
            (logits, weights.head.matrix.rows)
        }
        "model.layers.0.linear_attn.in_proj_qkv" => {
            let Mixer::Gdn(w) = &weights.layers[0].mixer else { panic!("layer 0 is Gated DeltaNet") };
            let out = bench.area(shape.channels());
            let (z_out, ab_out) = (bench.area(shape.values()), bench.area(2 * shape.value_heads));
            bench.rec.gdn_project(GdnProject {
                rows: bench.rows,
                u: input,
                qkv: w.qkv.clone(),
                z: w.z.clone(),
                a: w.a.clone(),
                b: w.b.clone(),
                qkv_out: out.clone(),
                z_out,
                ab_out,
            });
            (out, shape.channels())
        }
        "model.layers.1.ple.key_proj" => {
            let w = weights.layers[1].ple.as_ref().expect("layer 1 has an injection");
            let (keys, values) = (bench.area(w.key.matrix.rows), bench.area(w.value.matrix.rows));
            bench.rec.ple_project(PleProject {
                rows: bench.rows,
                e: input,
                key: w.key.clone(),
                value: w.value.clone(),
                keys: keys.clone(),
                values,
            });
            (keys, w.key.matrix.rows)
        }
        other => panic!("no operation is known for the stored linear `{other}`"),
    };
    bench.run();
    bench.read(&out, x.shape[0] * width as usize)
}

/// The first rows of a quantised tensor, expanded.
fn dequantised(rig: &Rig, base: &str, rows: u32) -> Vec<f32> {
    let checkpoint = rig.model.checkpoint();
    let info = checkpoint.linear(base).unwrap().rows(0, rows).unwrap();
    let read = |range: Option<ss_checkpoint::FileRange>| {
        let range = range.expect("the tensor is quantised");
        let mut bytes = vec![0; range.bytes as usize];
        checkpoint.read(range, &mut bytes).unwrap();
        bytes
    };
    let (codes, scales, biases) = (read(Some(info.codes)), read(info.scales), read(info.biases));
    let bf16 = |bytes: &[u8], i: usize| half::bf16::from_le_bytes([bytes[2 * i], bytes[2 * i + 1]]).to_f32();
    let (cols, groups) = (info.matrix.cols as usize, info.matrix.groups() as usize);
    let value = |i: usize| {
        let (row, col) = (i / cols, i % cols);
        let (code, group) = ((codes[i / 2] >> (4 * (i % 2))) & 15, row * groups + col / (cols / groups));
        bf16(&scales, group) * f32::from(code) + bf16(&biases, group)
    };
    (0..rows as usize * cols).map(value).collect()
}

/// SwiGLU of one expert a row, unweighted.
fn experts(golden: &Golden, rig: &Rig, qmm: &Tensors) -> Vec<f32> {
    let g = rig.model.geometry();
    let (x, experts) = (&qmm["expert.x"], qmm["expert.ids"].u32());
    let pool = ExpertPool::of_layer(rig, 0);
    let mut bench = Bench::new(golden, rig, experts.len());
    // One choice a row is the expert; the others are not in the group.
    let choices = g.choices as usize;
    let slots: Vec<u32> =
        experts.iter().flat_map(|&e| (0..choices).map(move |c| if c == 0 { e } else { NONE })).collect();
    let slot_buffer = bench.area(g.choices);
    rig.backend().upload(&slot_buffer, 0, bytemuck::cast_slice(&slots)).unwrap();
    let (rows_in, out) = (bench.area(g.choices * g.inner), bench.area(g.choices * g.hidden));
    let u = bench.input(x);
    bench.rec.experts_in(ExpertsIn {
        rows: bench.rows,
        choices: g.choices,
        u,
        pool: pool.pool.clone(),
        slots: slot_buffer.clone(),
        out: rows_in.clone(),
        shared: None,
    });
    bench.rec.experts_out(ExpertsOut {
        rows: bench.rows,
        choices: g.choices,
        x: rows_in,
        pool: pool.pool,
        slots: slot_buffer,
        out: out.clone(),
        shared: None,
    });
    bench.run();
    let all = bench.read(&out, experts.len() * choices * g.hidden as usize);
    all.chunks_exact(choices * g.hidden as usize).flat_map(|row| row[..g.hidden as usize].to_vec()).collect()
}

fn ties(device: &Device) {
    for golden in device.goldens().iter().filter(|g| g.dir.join("ties.safetensors").exists()) {
        let rig = rig(golden, device);
        let ties = golden.tensors("ties");
        let scores = ties["scores"].f32();
        for (name, k) in [("topk6", 6u32), ("topk8", 8)] {
            let mut bench = Bench::new(golden, &rig, 1);
            // A router whose weight is the scores and whose input is one.
            let weight = dense(&bench, &scores);
            let (logits, experts, weights) = (bench.area(scores.len() as u32), bench.area(k), bench.area(k));
            let u = bench.ones(1);
            bench.rec.route(Route {
                rows: bench.rows,
                choices: k,
                u,
                weight,
                logits,
                experts: experts.clone(),
                weights,
                lookup: None,
            });
            bench.run();
            let mut chosen = vec![0u32; k as usize];
            rig.backend().read(&experts, 0, bytemuck::cast_slice_mut(&mut chosen)).unwrap();
            // The golden lists what is kept, in ascending order.
            chosen.sort_unstable();
            assert_eq!(chosen, ties[name].u32(), "{}: {name}", golden.name);
        }
    }
}

#[test]
fn equal_scores_keep_the_lower_index() {
    ties(&Device::Reference);
}

#[test]
fn equal_scores_keep_the_lower_index_on_the_adapter() {
    ties(&adapter());
}

/// A dense F32 weight `[values, 1]`.
fn dense(bench: &Bench<'_>, values: &[f32]) -> Linear {
    let codes = bench.zeros(values.len() as u32);
    bench.rig.backend().upload(&codes, 0, bytemuck::cast_slice(values)).unwrap();
    let format = ss_backend::Format::Dense(Scalar::F32);
    Linear {
        matrix: ss_backend::Matrix { rows: values.len() as u32, cols: 1, format },
        codes,
        scales: None,
        biases: None,
    }
}
