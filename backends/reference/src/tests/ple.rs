//! Owns: cases of the n-gram injection.

use ss_backend::Format;
use ss_backend::op::{self, PleShape, Streams};

use super::cases::{Case, Outcome, pieces};
use super::rig::*;
use crate::Reference;

/// Projections.
pub struct Project {
    streams: usize,
    hidden: usize,
    key: Weight,
    value: Weight,
    e: Vec<f32>,
}

impl Project {
    pub fn new(random: &mut Random, streams: usize, hidden: usize, format: Format) -> Self {
        let ple = 64;
        Project {
            streams,
            hidden,
            key: Weight::random(random, streams * hidden, ple, format),
            value: Weight::random(random, hidden, ple, format),
            e: random.vec(37 * ple, 1.0),
        }
    }
}

impl Case for Project {
    fn name(&self) -> String {
        format!("PleProject {:?}", self.key.matrix)
    }

    fn rows(&self) -> usize {
        37
    }

    fn rounded(&self) -> &[&str] {
        &["keys", "values"]
    }

    fn run(&self, on: &Reference, mode: Mode, split: &[usize]) -> Outcome<f32> {
        let (key, value) = (self.key.linear(on), self.value.linear(on));
        let mut outputs = vec![("keys", vec![]), ("values", vec![])];
        pieces(split, |first, rows| {
            let [keys, values] = [self.streams * self.hidden, self.hidden].map(|width| zeros(on, rows * width));
            let project = op::PleProject {
                rows: mode.rows(rows),
                e: upload(on, &self.e[first * 64..(first + rows) * 64]),
                key: key.clone(),
                value: value.clone(),
                keys: keys.clone(),
                values: values.clone(),
            };
            mode.submit(on, |r| r.ple_project(project)).unwrap();
            outputs[0].1.extend(download(on, &keys));
            outputs[1].1.extend(download(on, &values));
        });
        Outcome { outputs, state: vec![] }
    }

    fn oracle(&self, mode: Mode) -> Outcome<f64> {
        let rows = || self.e.chunks(64).map(wide);
        let keys = rows().flat_map(|e| self.key.multiply(mode, &e)).collect();
        let values = rows().flat_map(|e| self.value.multiply(mode, &e)).collect();
        Outcome { outputs: vec![("keys", keys), ("values", values)], state: vec![] }
    }
}

/// Gate, convolution and sum.
pub struct Mix {
    shape: PleShape,
    norms: [Vec<f32>; 3],
    conv: Vec<f32>,
    keys: Vec<f32>,
    values: Vec<f32>,
    window: Vec<f32>,
    x: Vec<f32>,
}

impl Mix {
    pub fn new(random: &mut Random, count: usize, hidden: usize) -> Self {
        let streams = Streams { count: count as u32, hidden: hidden as u32 };
        let shape = PleShape { streams, kernel: 4, dilation: 3, eps: 1e-6 };
        let width = count * hidden;
        let mut keys = random.vec(37 * width, 1.0);
        keys[..width].fill(0.0); // a score of zero
        Mix {
            shape,
            norms: [random.norm(width), random.norm(width), random.norm(width)],
            conv: random.vec(4 * width, 0.5),
            keys,
            values: random.vec(37 * hidden, 1.0),
            window: random.vec(9 * width, 1.0),
            x: random.vec(37 * width, 1.0),
        }
    }
}

impl Case for Mix {
    fn name(&self) -> String {
        format!("PleMix {:?}", self.shape.streams)
    }

    fn rows(&self) -> usize {
        37
    }

    fn run(&self, on: &Reference, mode: Mode, split: &[usize]) -> Outcome<f32> {
        let (width, hidden) = (self.shape.streams.width() as usize, self.shape.streams.hidden as usize);
        let [norm_key, norm_query, norm_conv] = self.norms.each_ref().map(|norm| upload(on, norm));
        let (conv, window) = (upload(on, &self.conv), upload(on, &self.window));
        let mut outputs = vec![("inputs", vec![]), ("streams", vec![])];
        pieces(split, |first, rows| {
            let of = |all: &[f32], width: usize| upload(on, &all[first * width..(first + rows) * width]);
            let (out, inputs) = (of(&self.x, width), zeros(on, rows * width));
            let mix = op::PleMix {
                rows: mode.rows(rows),
                shape: self.shape,
                norm_key: norm_key.clone(),
                norm_query: norm_query.clone(),
                norm_conv: norm_conv.clone(),
                conv: conv.clone(),
                keys: of(&self.keys, width),
                values: of(&self.values, hidden),
                inputs: inputs.clone(),
                window: in_place(&window),
                out: out.clone(),
            };
            mode.submit(on, |r| r.ple_mix(mix)).unwrap();
            outputs[0].1.extend(download(on, &inputs));
            outputs[1].1.extend(download(on, &out));
        });
        Outcome { outputs, state: download(on, &window) }
    }

    fn oracle(&self, _mode: Mode) -> Outcome<f64> {
        let (hidden, width, eps) = (self.shape.streams.hidden as usize, self.shape.streams.width() as usize, 1e-6);
        let mut rows: Vec<Vec<f64>> = wide(&self.window).chunks(width).map(<[f64]>::to_vec).collect();
        let (mut inputs, mut streams) = (vec![], vec![]);
        for (t, x) in wide(&self.x).chunks(width).enumerate() {
            let (key, value) =
                (wide(&self.keys[t * width..(t + 1) * width]), wide(&self.values[t * hidden..(t + 1) * hidden]));
            let (mut n, mut g) = (vec![], vec![]);
            for s in 0..width / hidden {
                let r = s * hidden..(s + 1) * hidden;
                let kk = rms(&key[r.clone()], &self.norms[0][r.clone()], eps);
                let qq = rms(&x[r.clone()], &self.norms[1][r.clone()], eps);
                let s = kk.iter().zip(&qq).map(|(k, q)| k * q).sum::<f64>() / (hidden as f64).sqrt();
                let root = if s == 0.0 { 0.0 } else { s.signum() * s.abs().max(1e-6).sqrt() };
                let gated: Vec<f64> = value.iter().map(|v| sigmoid(root) * v).collect();
                n.extend(rms(&gated, &self.norms[2][r], eps));
                g.extend(gated);
            }
            rows.push(n.clone());
            let d = |c: usize| (0..4).map(|j| f64::from(self.conv[4 * c + j]) * rows[t + 3 * j][c]).sum::<f64>();
            streams.extend((0..width).map(|c| x[c] + g[c] + silu(d(c))));
            inputs.extend(n);
        }
        Outcome { outputs: vec![("inputs", inputs), ("streams", streams)], state: rows[rows.len() - 9..].concat() }
    }
}
