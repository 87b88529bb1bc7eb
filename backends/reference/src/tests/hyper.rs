//! Owns: cases of embedding, hyper-connections, MTP fusion and head.

use ss_backend::Format;
use ss_backend::op::{self, HyperWeights, Streams};

use super::cases::{Case, Outcome, pieces};
use super::rig::*;
use crate::Reference;

const EPS: f32 = 1e-6;

/// Hyper-connection read, from a row in the middle of its input.
pub struct Read {
    streams: Streams,
    norm: Vec<f32>,
    down: Weight,
    up: Weight,
    inject: Weight,
    x: Vec<f32>,
}

/// Rows of the input in front of the first one read.
const SKIPPED: usize = 2;

impl Read {
    pub fn new(random: &mut Random, count: usize, hidden: usize, lowrank: usize, formats: [Format; 3]) -> Self {
        let width = count * hidden;
        Read {
            streams: Streams { count: count as u32, hidden: hidden as u32 },
            norm: random.norm(width),
            down: Weight::random(random, lowrank, width, formats[0]),
            up: Weight::random(random, width, lowrank, formats[1]),
            inject: Weight::random(random, count, width, formats[2]),
            x: random.vec((SKIPPED + 37) * width, 2.0),
        }
    }
}

impl Case for Read {
    fn name(&self) -> String {
        format!("HcRead {:?} {:?}", self.streams, self.down.matrix.format)
    }

    fn rows(&self) -> usize {
        37
    }

    fn rounded(&self) -> &[&str] {
        &["lowrank", "u"]
    }

    fn run(&self, on: &Reference, mode: Mode, split: &[usize]) -> Outcome<f32> {
        let (width, hidden) = (self.streams.width() as usize, self.streams.hidden as usize);
        let (count, lowrank) = (self.streams.count as usize, self.down.matrix.rows as usize);
        let x = upload(on, &self.x);
        let weights = HyperWeights {
            norm: upload(on, &self.norm),
            down: self.down.linear(on),
            up: self.up.linear(on),
            inject: Some(self.inject.linear(on)),
        };
        let mut outputs = vec![("normed", vec![]), ("lowrank", vec![]), ("u", vec![]), ("inject", vec![])];
        pieces(split, |first, rows| {
            let outs = [width, lowrank, hidden, count].map(|width| zeros(on, rows * width));
            let [normed, lowrank, u, inject] = outs.clone();
            let read = op::HcRead {
                rows: mode.rows(rows),
                first: (SKIPPED + first) as u32,
                streams: self.streams,
                eps: EPS,
                weights: weights.clone(),
                x: x.clone(),
                normed,
                lowrank,
                u,
                inject,
            };
            mode.submit(on, |r| r.hc_read(read)).unwrap();
            outputs.iter_mut().zip(&outs).for_each(|((_, all), out)| all.extend(download(on, out)));
        });
        Outcome { outputs, state: vec![] }
    }

    fn oracle(&self, mode: Mode) -> Outcome<f64> {
        let (width, hidden, count) =
            (self.streams.width() as usize, self.streams.hidden as usize, self.streams.count as usize);
        let mut outputs = vec![("normed", vec![]), ("lowrank", vec![]), ("u", vec![]), ("inject", vec![])];
        for x in wide(&self.x).chunks(width).skip(SKIPPED) {
            let groups = x.chunks(hidden).zip(self.norm.chunks(hidden));
            let n: Vec<f64> = groups.flat_map(|(x, w)| rms(x, w, f64::from(EPS))).collect();
            let a: Vec<f64> = self.down.multiply(mode, &n).iter().map(|v| silu(v / count as f64)).collect();
            let m: Vec<f64> = self.up.multiply(mode, &a).into_iter().map(sigmoid).collect();
            let mean = |j: usize| (0..count).map(|s| m[s * hidden + j] * n[s * hidden + j]).sum::<f64>() / count as f64;
            let u: Vec<f64> = (0..hidden).map(mean).collect();
            let inject = self.inject.times(&n).iter().map(|v| 2.0 * sigmoid(v / count as f64)).collect();
            outputs.iter_mut().zip([n, a, u, inject]).for_each(|((_, all), out)| all.extend(out));
        }
        Outcome { outputs, state: vec![] }
    }
}

/// Output projection and hyper-connection write.
pub struct Write {
    streams: Streams,
    weight: Weight,
    x: Vec<f32>,
    inject: Vec<f32>,
    before: Vec<f32>,
}

impl Write {
    pub fn new(random: &mut Random, count: usize, hidden: usize, cols: usize, format: Format) -> Self {
        Write {
            streams: Streams { count: count as u32, hidden: hidden as u32 },
            weight: Weight::random(random, hidden, cols, format),
            x: random.vec(37 * cols, 2.0),
            inject: random.norm(37 * count),
            before: random.vec(37 * count * hidden, 1.0),
        }
    }
}

impl Case for Write {
    fn name(&self) -> String {
        format!("ProjectWrite {:?}", self.weight.matrix)
    }

    fn rows(&self) -> usize {
        37
    }

    fn rounded(&self) -> &[&str] {
        &["streams"]
    }

    fn run(&self, on: &Reference, mode: Mode, split: &[usize]) -> Outcome<f32> {
        let (cols, count, width) =
            (self.weight.matrix.cols as usize, self.streams.count as usize, self.streams.width() as usize);
        let weight = self.weight.linear(on);
        let mut streams = vec![];
        pieces(split, |first, rows| {
            let of = |all: &[f32], width: usize| upload(on, &all[first * width..(first + rows) * width]);
            let out = of(&self.before, width);
            let write = op::ProjectWrite {
                rows: mode.rows(rows),
                streams: self.streams,
                weight: weight.clone(),
                x: of(&self.x, cols),
                inject: of(&self.inject, count),
                out: out.clone(),
            };
            mode.submit(on, |r| r.project_write(write)).unwrap();
            streams.extend(download(on, &out));
        });
        Outcome { outputs: vec![("streams", streams)], state: vec![] }
    }

    fn oracle(&self, mode: Mode) -> Outcome<f64> {
        let (cols, count) = (self.weight.matrix.cols as usize, self.streams.count as usize);
        let rows = self.x.chunks(cols).zip(self.inject.chunks(count));
        let added = rows.flat_map(|(x, inject)| {
            let y = self.weight.multiply(mode, &wide(x));
            inject.iter().flat_map(|&i| y.iter().map(move |y| f64::from(i) * y).collect::<Vec<_>>()).collect::<Vec<_>>()
        });
        let streams = added.zip(wide(&self.before)).map(|(y, x)| x + y).collect();
        Outcome { outputs: vec![("streams", streams)], state: vec![] }
    }
}

/// Embedding rows.
pub struct Embed {
    copies: usize,
    table: Weight,
    ids: Vec<u32>,
}

impl Embed {
    pub fn new(random: &mut Random, copies: usize, hidden: usize, format: Format) -> Self {
        let table = Weight::random(random, 50, hidden, format);
        Embed { copies, table, ids: (0..37).map(|_| random.below(50) as u32).collect() }
    }
}

impl Case for Embed {
    fn name(&self) -> String {
        format!("Embed {:?}", self.table.matrix)
    }

    fn rows(&self) -> usize {
        37
    }

    fn run(&self, on: &Reference, mode: Mode, split: &[usize]) -> Outcome<f32> {
        let table = self.table.linear(on);
        let mut streams = vec![];
        pieces(split, |first, rows| {
            let out = zeros(on, rows * self.copies * self.table.matrix.cols as usize);
            let embed = op::Embed {
                rows: mode.rows(rows),
                ids: upload_ids(on, &self.ids[first..first + rows]),
                table: table.clone(),
                copies: self.copies as u32,
                out: out.clone(),
            };
            mode.submit(on, |r| r.embed(embed)).unwrap();
            streams.extend(download(on, &out));
        });
        Outcome { outputs: vec![("streams", streams)], state: vec![] }
    }

    fn oracle(&self, _mode: Mode) -> Outcome<f64> {
        let hidden = self.table.matrix.cols as usize;
        let row = |id: &u32| self.table.values[*id as usize * hidden..(*id as usize + 1) * hidden].repeat(self.copies);
        Outcome { outputs: vec![("streams", self.ids.iter().flat_map(row).collect())], state: vec![] }
    }
}

/// Output head.
pub struct Head {
    weight: Weight,
    x: Vec<f32>,
}

impl Head {
    pub fn new(random: &mut Random, vocab: usize, hidden: usize, format: Format) -> Self {
        Head { weight: Weight::random(random, vocab, hidden, format), x: random.vec(13 * hidden, 1.0) }
    }
}

impl Case for Head {
    fn name(&self) -> String {
        format!("Head {:?}", self.weight.matrix)
    }

    fn rows(&self) -> usize {
        13
    }

    fn most(&self) -> usize {
        op::Head::MAX_ROWS as usize
    }

    fn run(&self, on: &Reference, mode: Mode, split: &[usize]) -> Outcome<f32> {
        let (weight, hidden) = (self.weight.linear(on), self.weight.matrix.cols as usize);
        let mut all = vec![];
        pieces(split, |first, rows| {
            let logits = zeros(on, rows * self.weight.matrix.rows as usize);
            let head = op::Head {
                rows: mode.rows(rows),
                x: upload(on, &self.x[first * hidden..(first + rows) * hidden]),
                weight: weight.clone(),
                logits: logits.clone(),
            };
            mode.submit(on, |r| r.head(head)).unwrap();
            all.extend(download(on, &logits));
        });
        Outcome { outputs: vec![("logits", all)], state: vec![] }
    }

    fn oracle(&self, _mode: Mode) -> Outcome<f64> {
        let hidden = self.weight.matrix.cols as usize;
        let logits = self.x.chunks(hidden).flat_map(|x| self.weight.times(&wide(x))).collect();
        Outcome { outputs: vec![("logits", logits)], state: vec![] }
    }
}

/// Fusion in front of the MTP layer.
pub struct Fuse {
    streams: Streams,
    norm_embedding: Vec<f32>,
    norm_hidden: Vec<f32>,
    fc_embedding: Weight,
    fc_hidden: Weight,
    e: Vec<f32>,
    m: Vec<f32>,
}

impl Fuse {
    pub fn new(random: &mut Random, count: usize, hidden: usize, embedding: Format, stream: Format) -> Self {
        Fuse {
            streams: Streams { count: count as u32, hidden: hidden as u32 },
            norm_embedding: random.norm(hidden),
            norm_hidden: random.norm(count * hidden),
            fc_embedding: Weight::random(random, hidden, hidden, embedding),
            fc_hidden: Weight::random(random, hidden, hidden, stream),
            e: random.vec(37 * hidden, 0.1),
            m: random.vec(37 * count * hidden, 3.0),
        }
    }
}

impl Case for Fuse {
    fn name(&self) -> String {
        format!("MtpFuse {:?}", self.streams)
    }

    fn rows(&self) -> usize {
        37
    }

    fn rounded(&self) -> &[&str] {
        &["streams"]
    }

    fn run(&self, on: &Reference, mode: Mode, split: &[usize]) -> Outcome<f32> {
        let (hidden, width) = (self.streams.hidden as usize, self.streams.width() as usize);
        let (norm_embedding, norm_hidden) = (upload(on, &self.norm_embedding), upload(on, &self.norm_hidden));
        let (fc_embedding, fc_hidden) = (self.fc_embedding.linear(on), self.fc_hidden.linear(on));
        let mut streams = vec![];
        pieces(split, |first, rows| {
            let of = |all: &[f32], width: usize| upload(on, &all[first * width..(first + rows) * width]);
            let out = zeros(on, rows * width);
            let fuse = op::MtpFuse {
                rows: mode.rows(rows),
                streams: self.streams,
                eps: EPS,
                e: of(&self.e, hidden),
                m: of(&self.m, width),
                norm_embedding: norm_embedding.clone(),
                norm_hidden: norm_hidden.clone(),
                fc_embedding: fc_embedding.clone(),
                fc_hidden: fc_hidden.clone(),
                scratch: zeros(on, rows * (hidden + width)),
                out: out.clone(),
            };
            mode.submit(on, |r| r.mtp_fuse(fuse)).unwrap();
            streams.extend(download(on, &out));
        });
        Outcome { outputs: vec![("streams", streams)], state: vec![] }
    }

    fn oracle(&self, mode: Mode) -> Outcome<f64> {
        let (hidden, width, eps) = (self.streams.hidden as usize, self.streams.width() as usize, f64::from(EPS));
        let rows = self.e.chunks(hidden).zip(self.m.chunks(width));
        let streams = rows.flat_map(|(e, m)| {
            let e = self.fc_embedding.multiply(mode, &rms(&wide(e), &self.norm_embedding, eps));
            let m = rms(&wide(m), &self.norm_hidden, eps);
            let stream =
                |m: &[f64]| self.fc_hidden.multiply(mode, m).iter().zip(&e).map(|(m, e)| e + m).collect::<Vec<_>>();
            m.chunks(hidden).flat_map(stream).collect::<Vec<_>>()
        });
        Outcome { outputs: vec![("streams", streams.collect())], state: vec![] }
    }
}
