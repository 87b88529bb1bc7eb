//! Owns: one operation after another on buffers made for it.
//! Refuses: judgement; it gives back what the device computed.

use ss_backend::op::{
    Carry, GdnMix, GdnProject, HcRead, HyperWeights, PleMix, PleProject, ProjectWrite, QsaAppend, QsaAttend, QsaCache,
    QsaProject, QsaSelect,
};
use ss_backend::{Arithmetic, Buffer, Form, Linear, Recorder, Rows, Scalar, Scope, Stage};
use ss_model::shapes::Shapes;
use ss_model::weights::{GdnLayer, PleLayer, QsaLayer};
use ss_tests::Bound;
use ss_tests::golden::{Golden, Tensor};
use ss_tests::rig::Rig;

/// One operation after another on buffers made for it.
pub struct Bench<'a> {
    golden: &'a Golden,
    pub rig: &'a Rig,
    pub shapes: Shapes,
    pub rows: Rows,
    pub rec: Recorder,
}

impl<'a> Bench<'a> {
    pub fn new(golden: &'a Golden, rig: &'a Rig, rows: usize) -> Self {
        Bench {
            golden,
            rig,
            shapes: Shapes::new(rig.model.geometry()),
            rows: Rows { count: rows as u32, form: Form::Prompt },
            rec: Recorder::new(Arithmetic::Exact),
        }
    }

    pub fn zeros(&self, numbers: u32) -> Buffer {
        self.rig.backend().alloc("test", 4 * u64::from(numbers).max(1)).unwrap()
    }

    /// Numbers for every row.
    pub fn area(&self, width: u32) -> Buffer {
        self.zeros(self.rows.count * width)
    }

    pub fn input(&self, tensor: &Tensor) -> Buffer {
        let buffer = self.zeros(tensor.values.len() as u32);
        self.rig.backend().upload(&buffer, 0, bytemuck::cast_slice(&tensor.f32())).unwrap();
        buffer
    }

    pub fn ones(&self, width: u32) -> Buffer {
        let buffer = self.area(width);
        self.rig
            .backend()
            .upload(&buffer, 0, bytemuck::cast_slice(&vec![1f32; (self.rows.count * width) as usize]))
            .unwrap();
        buffer
    }

    pub fn read(&self, buffer: &Buffer, numbers: usize) -> Vec<f32> {
        let mut out = vec![0f32; numbers];
        self.rig.backend().read(buffer, 0, bytemuck::cast_slice_mut(&mut out)).unwrap();
        out
    }

    /// The first stream of every row.
    pub fn first_stream(&self, out: &Buffer) -> Vec<f32> {
        let (wide, hidden) = (self.shapes.streams.width() as usize, self.shapes.streams.hidden as usize);
        let all = self.read(out, self.rows.count as usize * wide);
        all.chunks_exact(wide).flat_map(|row| &row[..hidden]).copied().collect()
    }

    /// Ids; -1 where a list holds nothing.
    pub fn ids(&self, buffer: &Buffer, count: usize) -> Vec<i32> {
        let mut ids = vec![0i32; count];
        self.rig.backend().read(buffer, 0, bytemuck::cast_slice_mut(&mut ids)).unwrap();
        ids
    }

    /// Runs what is recorded.
    pub fn run(&mut self) {
        let rec = std::mem::replace(&mut self.rec, Recorder::new(Arithmetic::Exact));
        self.rig.backend().submit(rec.all()).unwrap();
    }

    pub fn bound(&self, op: &str) -> Bound {
        Bound::of(&self.golden.agreement, op)
    }

    pub fn hc_read(&mut self, weights: &HyperWeights, x: &Tensor) -> (Buffer, Buffer) {
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
    fn project(&mut self, weight: &Linear, x: Buffer) -> Buffer {
        let g = self.rig.model.geometry();
        let out = self.area(g.stream_width());
        let op = ProjectWrite {
            rows: self.rows,
            streams: self.shapes.streams,
            weight: weight.clone(),
            x,
            inject: self.ones(g.streams),
            out: out.clone(),
        };
        self.rec.project_write(op);
        out
    }

    /// A mixer; gives its output, see [`Bench::first_stream`].
    pub fn gdn(&mut self, w: &GdnLayer, u: &Tensor) -> Buffer {
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
        self.project(&w.out, out)
    }

    /// The injection; gives the streams that it was added to.
    pub fn ple(&mut self, w: &PleLayer, e: &Tensor, x: &Tensor) -> Buffer {
        let wide = self.shapes.streams.width();
        let (keys, values) = (self.area(wide), self.area(self.shapes.streams.hidden));
        let out = self.input(x);
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
            out: out.clone(),
        };
        self.rec.at(Scope::Layer(1), Stage::Ple).ple_project(project);
        self.rec.ple_mix(mix);
        out
    }

    /// A mixer; gives the kept blocks and its output, see [`Bench::first_stream`].
    pub fn qsa(&mut self, w: &QsaLayer, u: &Tensor) -> (Buffer, Buffer) {
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
            blocks: kept.clone(),
            out: mixed.clone(),
        });
        (kept, self.project(&w.out, mixed))
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
}
