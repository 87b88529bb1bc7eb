//! Each operation alone, on golden inputs, within four times what a reference alone differs by (`op:` rows of the
//! agreement table); the stored linears; the tie rule.

use std::collections::HashMap;

use ss_backend::op::{
    Carry, Combine, ExpertsIn, ExpertsOut, GdnMix, GdnProject, HcRead, HyperWeights, PleMix, PleProject, ProjectWrite,
    QsaAppend, QsaAttend, QsaCache, QsaProject, QsaSelect, Route, SharedIn, SharedOut,
};
use ss_backend::{Arithmetic, Buffer, Form, Linear, NONE, Recorder, Rows, Scalar, Scope, Stage};
use ss_model::shapes::Shapes;
use ss_model::weights::{GdnLayer, Mixer, MoeLayer, PleLayer, QsaLayer};
use ss_tests::golden::{Golden, Tensor, Tensors, goldens};
use ss_tests::rig::{Rig, RigOptions, Tap};
use ss_tests::{Bound, Table};

/// One operation after another on buffers made for it.
struct Bench<'a> {
    golden: &'a Golden,
    rig: &'a Rig,
    shapes: Shapes,
    rows: Rows,
    rec: Recorder,
}

impl<'a> Bench<'a> {
    fn new(golden: &'a Golden, rig: &'a Rig, rows: usize) -> Self {
        Bench {
            golden,
            rig,
            shapes: Shapes::new(rig.model.geometry()),
            rows: Rows { count: rows as u32, form: Form::Prompt },
            rec: Recorder::new(Arithmetic::Exact),
        }
    }

    fn zeros(&self, numbers: u32) -> Buffer {
        self.rig.backend().alloc("test", 4 * u64::from(numbers).max(1)).unwrap()
    }

    /// Numbers for every row.
    fn area(&self, width: u32) -> Buffer {
        self.zeros(self.rows.count * width)
    }

    fn input(&self, tensor: &Tensor) -> Buffer {
        let buffer = self.zeros(tensor.values.len() as u32);
        self.rig.backend().upload(&buffer, 0, bytemuck::cast_slice(&tensor.f32())).unwrap();
        buffer
    }

    fn ones(&self, width: u32) -> Buffer {
        let buffer = self.area(width);
        self.rig
            .backend()
            .upload(&buffer, 0, bytemuck::cast_slice(&vec![1f32; (self.rows.count * width) as usize]))
            .unwrap();
        buffer
    }

    fn read(&self, buffer: &Buffer, numbers: usize) -> Vec<f32> {
        let mut out = vec![0f32; numbers];
        self.rig.backend().read(buffer, 0, bytemuck::cast_slice_mut(&mut out)).unwrap();
        out
    }

    /// Runs what is recorded; gives what the operations let out.
    fn run(&mut self) -> HashMap<String, Tap> {
        let rec = std::mem::replace(&mut self.rec, Recorder::new(Arithmetic::Exact));
        self.rig.backend().submit(rec).unwrap();
        self.rig.taps.take()
    }

    fn bound(&self, op: &str) -> Bound {
        Bound::of(&self.golden.agreement, op)
    }

    fn hc_read(&mut self, weights: &HyperWeights, x: &Tensor) -> (Buffer, Buffer) {
        let g = self.rig.model.geometry();
        let (u, inject) = (self.area(g.hidden), self.area(g.streams));
        let op = HcRead {
            rows: self.rows,
            first: 0,
            streams: self.shapes.streams,
            eps: g.eps,
            weights: weights.clone(),
            x: self.input(x),
            normed: self.area(g.stream_width()),
            lowrank: self.area(g.lowrank),
            u: u.clone(),
            inject: inject.clone(),
        };
        self.rec.hc_read(op);
        (u, inject)
    }

    /// The output projection, written with weight one to empty streams: stream 0 is the mixer's output.
    fn project(&mut self, weight: &Linear, x: Buffer) {
        let g = self.rig.model.geometry();
        let op = ProjectWrite {
            rows: self.rows,
            streams: self.shapes.streams,
            weight: weight.clone(),
            x,
            inject: self.ones(g.streams),
            out: self.area(g.stream_width()),
        };
        self.rec.project_write(op);
    }

    fn gdn(&mut self, w: &GdnLayer, u: &Tensor) {
        let shape = self.shapes.gdn;
        let (qkv, z, ab) = (self.area(shape.channels()), self.area(shape.values()), self.area(2 * shape.value_heads));
        let out = self.area(shape.values());
        let project = GdnProject {
            rows: self.rows,
            u: self.input(u),
            qkv: w.qkv.clone(),
            z: w.z.clone(),
            a: w.a.clone(),
            b: w.b.clone(),
            qkv_out: qkv.clone(),
            z_out: z.clone(),
            ab_out: ab.clone(),
        };
        let mix = GdnMix {
            rows: self.rows,
            shape,
            weights: w.small.clone(),
            qkv,
            z,
            ab,
            window: Carry { from: None, state: self.zeros((shape.kernel - 1) * shape.channels()) },
            state: Carry { from: None, state: self.zeros(shape.state()) },
            inputs: None,
            out: out.clone(),
        };
        self.rec.at(Scope::Layer(0), Stage::Gdn).gdn_project(project);
        self.rec.gdn_mix(mix);
        self.project(&w.out, out);
    }

    fn ple(&mut self, w: &PleLayer, e: &Tensor, x: &Tensor) {
        let wide = self.shapes.streams.width();
        let (keys, values) = (self.area(wide), self.area(self.shapes.streams.hidden));
        let project = PleProject {
            rows: self.rows,
            e: self.input(e),
            key: w.key.clone(),
            value: w.value.clone(),
            keys: keys.clone(),
            values: values.clone(),
        };
        let mix = PleMix {
            rows: self.rows,
            shape: self.shapes.ple,
            norm_key: w.norm_key.clone(),
            norm_query: w.norm_query.clone(),
            norm_conv: w.norm_conv.clone(),
            conv: w.conv.clone(),
            keys,
            values,
            inputs: self.area(wide),
            window: Carry { from: None, state: self.zeros(self.shapes.ple.window() * wide) },
            out: self.input(x),
        };
        self.rec.at(Scope::Layer(1), Stage::Ple).ple_project(project);
        self.rec.ple_mix(mix);
    }

    fn qsa(&mut self, w: &QsaLayer, u: &Tensor) {
        let (shape, rows) = (self.shapes.qsa, self.rows.count);
        let q_width = shape.heads * shape.head_dim;
        let kv_width = shape.kv_heads * shape.head_dim;
        let blocks = rows / shape.block;
        let (rope, block_rope) = self.angles(rows, shape.block);
        let cache = QsaCache {
            scalar: Scalar::F32,
            k: self.area(kv_width),
            v: self.area(kv_width),
            raw: self.area(shape.index_dim),
            pooled: self.zeros(blocks * shape.index_dim),
        };
        let (q_out, kv_out) = (self.area(2 * q_width), self.area(2 * kv_width));
        let index_out = self.area((shape.index_heads + 1) * shape.index_dim);
        let (q, index_q) = (self.area(q_width), self.area(shape.index_heads * shape.index_dim));
        let (kept, mixed) = (self.area(shape.topk), self.area(q_width));
        self.rec.at(Scope::Layer(3), Stage::Qsa);
        let project = QsaProject {
            rows: self.rows,
            u: self.input(u),
            q: w.q.clone(),
            k: w.k.clone(),
            v: w.v.clone(),
            index: w.index.clone(),
            q_out: q_out.clone(),
            kv_out: kv_out.clone(),
            index_out: index_out.clone(),
        };
        self.rec.qsa_project(project);
        self.rec.qsa_append(QsaAppend {
            rows: self.rows,
            first: 0,
            shape,
            norms: w.norms.clone(),
            q: q_out.clone(),
            kv: kv_out,
            index: index_out,
            rope,
            block_rope,
            cache: cache.clone(),
            q_out: q.clone(),
            index_q_out: index_q.clone(),
        });
        let scores = self.area(blocks);
        self.rec.qsa_select(QsaSelect {
            rows: self.rows,
            first: 0,
            slice: 0,
            slice_rows: rows,
            shape,
            index_q,
            cache: cache.clone(),
            scores,
            blocks: kept.clone(),
        });
        self.rec.qsa_attend(QsaAttend {
            rows: self.rows,
            first: 0,
            shape,
            q,
            gate: q_out,
            cache,
            blocks: kept,
            out: mixed.clone(),
        });
        self.project(&w.out, mixed);
    }

    /// Angles of text rows, and of the first token of each block.
    fn angles(&self, rows: u32, block: u32) -> (Buffer, Buffer) {
        let rope = ss_model::rope::Rope::new(self.rig.model.geometry());
        let mut of_rows = Vec::new();
        (0..rows).for_each(|t| rope.push([t; 3], &mut of_rows));
        let mut of_blocks = Vec::new();
        (0..rows / block).for_each(|b| rope.push([b * block; 3], &mut of_blocks));
        let upload = |angles: &[f32]| {
            let buffer = self.zeros(angles.len() as u32);
            self.rig.backend().upload(&buffer, 0, bytemuck::cast_slice(angles)).unwrap();
            buffer
        };
        (upload(&of_rows), upload(&of_blocks))
    }

    /// Router, experts and their sum. All experts lie in the pool, in a known order.
    fn moe(&mut self, w: &MoeLayer, u: &Tensor, pool: &ExpertPool) {
        let g = self.rig.model.geometry().clone();
        let u = self.input(u);
        let (experts, weights) = (self.area(g.choices), self.area(g.choices));
        self.rec.at(Scope::Layer(0), Stage::Moe);
        let logits = self.area(g.experts);
        self.rec.route(Route {
            rows: self.rows,
            choices: g.choices,
            u: u.clone(),
            weight: w.router.clone(),
            logits,
            experts: experts.clone(),
            weights: weights.clone(),
        });
        let rec = std::mem::replace(&mut self.rec, Recorder::new(Arithmetic::Exact));
        self.rig.backend().submit(rec).unwrap();
        let slots = pool.slots(self, &experts, g.choices);
        let (rows_in, routed) = (self.area(g.choices * g.inner), self.area(g.choices * g.hidden));
        let (shared_in, shared) = (self.area(g.shared_inner), self.area(g.hidden));
        self.rec.at(Scope::Layer(0), Stage::Moe).experts_in(ExpertsIn {
            rows: self.rows,
            choices: g.choices,
            u: u.clone(),
            pool: pool.pool.clone(),
            slots: slots.clone(),
            out: rows_in.clone(),
            shared: Some(SharedIn {
                gate: w.shared_gate_proj.clone(),
                up: w.shared_up.clone(),
                out: shared_in.clone(),
            }),
        });
        self.rec.experts_out(ExpertsOut {
            rows: self.rows,
            choices: g.choices,
            x: rows_in,
            pool: pool.pool.clone(),
            slots,
            out: routed.clone(),
            shared: Some(SharedOut { x: shared_in, down: w.shared_down.clone(), out: shared.clone() }),
        });
        let (inject, out) = (self.ones(g.streams), self.area(g.stream_width()));
        self.rec.combine(Combine {
            rows: self.rows,
            choices: g.choices,
            streams: self.shapes.streams,
            routed,
            weights,
            shared,
            gate: w.shared_gate.clone(),
            u,
            inject,
            out,
        });
    }
}

/// A layer's experts, each in the slot of its own number.
struct ExpertPool {
    pool: ss_backend::Pool,
}

impl ExpertPool {
    fn of_layer(rig: &Rig, layer: usize) -> Self {
        let checkpoint = rig.model.checkpoint();
        let pool = rig.backend().alloc_pool(checkpoint.expert_layout(), checkpoint.geometry().experts).unwrap();
        for expert in 0..checkpoint.geometry().experts {
            let mut slot = rig.backend().open_slot(&pool, expert).unwrap();
            checkpoint.read_expert(layer, expert, slot.bytes()).unwrap();
            slot.finish().unwrap();
        }
        ExpertPool { pool }
    }

    fn slots(&self, bench: &Bench<'_>, experts: &Buffer, choices: u32) -> Buffer {
        let mut ids = vec![0u32; (bench.rows.count * choices) as usize];
        bench.rig.backend().read(experts, 0, bytemuck::cast_slice_mut(&mut ids)).unwrap();
        let slots = bench.area(choices);
        bench.rig.backend().upload(&slots, 0, bytemuck::cast_slice(&ids)).unwrap();
        slots
    }
}

fn numbers<'a>(taps: &'a HashMap<String, Tap>, name: &str) -> &'a [f32] {
    match taps.get(name) {
        Some(Tap::F32(values)) => values,
        other => panic!("`{name}` is {other:?}"),
    }
}

fn ids<'a>(taps: &'a HashMap<String, Tap>, name: &str) -> &'a [i32] {
    match taps.get(name) {
        Some(Tap::I32(values)) => values,
        other => panic!("`{name}` is {other:?}"),
    }
}

fn rig(golden: &Golden) -> Rig {
    Rig::new(&golden.model(), &RigOptions { taps: true, ..RigOptions::default() })
}

#[test]
fn operations_alone_on_golden_inputs() {
    let mut measured = 0;
    for golden in goldens().iter().filter(|g| g.has("ops_p64") && g.has("ops_p300")) {
        let (rig, mut table) = (rig(golden), Table::default());
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
            bench.gdn(w, t("attn_hc.mixed"));
            let taps = bench.run();
            table.add("op:gdn.out", bench.bound("op:gdn.out"), numbers(&taps, "L0.gdn.out"), &t("gdn.out").values);
        }
        if let Some(w) = &layers[l].ple {
            bench.ple(w, t("ple.embed"), t("in"));
            let taps = bench.run();
            table.add("op:ple.out", bench.bound("op:ple.out"), numbers(&taps, "L1.ple.out"), &t("ple.out").values);
        }
        bench.moe(&layers[l].moe, t("mlp_hc.mixed"), &ExpertPool::of_layer(rig, l));
        let taps = bench.run();
        assert_eq!(ids(&taps, "L0.moe.router_idx"), t("moe.router_idx").i32(), "routes of layer {l}");
        table.add(
            "op:moe.shared",
            bench.bound("op:moe.shared"),
            numbers(&taps, "L0.moe.shared"),
            &t("moe.shared").values,
        );
        table.add("op:moe.out", bench.bound("op:moe.out"), numbers(&taps, "L0.moe.out"), &t("moe.out").values);
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
    bench.qsa(w, mixed);
    let taps = bench.run();
    assert_eq!(ids(&taps, "L3.qsa.index_blocks"), theirs["L3.qsa.index_blocks"].i32());
    table.add("op:qsa.out", bench.bound("op:qsa.out"), numbers(&taps, "L3.qsa.out"), &theirs["L3.qsa.out"].values);
}

#[test]
fn stored_linears_and_experts() {
    for golden in goldens() {
        let (rig, mut table) = (rig(&golden), Table::default());
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

/// `x W^T` through the operation that uses the linear.
fn linear(golden: &Golden, rig: &Rig, base: &str, x: &Tensor) -> Vec<f32> {
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

#[test]
fn equal_scores_keep_the_lower_index() {
    for golden in goldens().iter().filter(|g| g.dir.join("ties.safetensors").exists()) {
        let rig = rig(golden);
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
