//! Owns: cases of Gated DeltaNet, replay and windows.

use ss_backend::Format;
use ss_backend::op::{self, Carry, Gate, GdnInputs, GdnShape, GdnWeights};

use super::cases::{Case, Outcome, pieces};
use super::rig::*;
use crate::Reference;

/// Projections.
pub struct Project {
    qkv: Weight,
    z: Weight,
    a: Weight,
    b: Weight,
    u: Vec<f32>,
}

impl Project {
    pub fn new(random: &mut Random, hidden: usize, formats: [Format; 3]) -> Self {
        Project {
            qkv: Weight::random(random, 50, hidden, formats[0]),
            z: Weight::random(random, 21, hidden, formats[1]),
            a: Weight::random(random, 3, hidden, formats[2]),
            b: Weight::random(random, 3, hidden, formats[2]),
            u: random.vec(37 * hidden, 1.0),
        }
    }
}

impl Case for Project {
    fn name(&self) -> String {
        format!("GdnProject {:?}", self.qkv.matrix)
    }

    fn rows(&self) -> usize {
        37
    }

    fn rounded(&self) -> &[&str] {
        &["qkv", "z"]
    }

    fn run(&self, on: &Reference, mode: Mode, split: &[usize]) -> Outcome<f32> {
        let hidden = self.qkv.matrix.cols as usize;
        let [qkv, z, a, b] = [&self.qkv, &self.z, &self.a, &self.b].map(|weight| weight.linear(on));
        let mut outputs = vec![("qkv", vec![]), ("z", vec![]), ("ab", vec![])];
        pieces(split, |first, rows| {
            let outs = [50, 21, 6].map(|width| zeros(on, rows * width));
            let [qkv_out, z_out, ab_out] = outs.clone();
            let project = op::GdnProject {
                rows: mode.rows(rows),
                u: upload(on, &self.u[first * hidden..(first + rows) * hidden]),
                qkv: qkv.clone(),
                z: z.clone(),
                a: a.clone(),
                b: b.clone(),
                qkv_out,
                z_out,
                ab_out,
            };
            mode.submit(on, |r| r.gdn_project(project)).unwrap();
            outputs.iter_mut().zip(&outs).for_each(|((_, all), out)| all.extend(download(on, out)));
        });
        Outcome { outputs, state: vec![] }
    }

    fn oracle(&self, mode: Mode) -> Outcome<f64> {
        let mut outputs = vec![("qkv", vec![]), ("z", vec![]), ("ab", vec![])];
        for u in wide(&self.u).chunks(self.qkv.matrix.cols as usize) {
            outputs[0].1.extend(self.qkv.multiply(mode, u));
            outputs[1].1.extend(self.z.multiply(mode, u));
            outputs[2].1.extend(self.a.times(u));
            outputs[2].1.extend(self.b.times(u));
        }
        Outcome { outputs, state: vec![] }
    }
}

/// Convolution, recurrence, norm and gate, from a state that is not zero.
pub struct Mix {
    shape: GdnShape,
    conv: Vec<f32>,
    a_log: Vec<f32>,
    dt_bias: Vec<f32>,
    norm: Vec<f32>,
    qkv: Vec<f32>,
    z: Vec<f32>,
    ab: Vec<f32>,
    window: Vec<f32>,
    state: Vec<f32>,
}

impl Mix {
    pub fn new(random: &mut Random, [key_heads, value_heads, key_dim, value_dim, kernel]: [u32; 5]) -> Self {
        let gate = if kernel == 4 { Gate::Sigmoid } else { Gate::Silu };
        let shape = GdnShape { key_heads, value_heads, key_dim, value_dim, kernel, gate, eps: 1e-6 };
        let (channels, heads) = (shape.channels() as usize, value_heads as usize);
        Mix {
            shape,
            conv: random.vec(channels * kernel as usize, 0.7),
            a_log: random.vec(heads, 1.0),
            dt_bias: random.vec(heads, 1.0),
            norm: random.norm(value_dim as usize),
            qkv: random.vec(37 * channels, 1.5),
            z: random.vec(37 * shape.values() as usize, 2.0),
            ab: random.vec(37 * 2 * heads, 3.0),
            window: random.vec((kernel as usize - 1) * channels, 1.0),
            state: random.vec(shape.state() as usize, 0.3),
        }
    }

    fn weights(&self, on: &Reference) -> GdnWeights {
        let [conv, a_log, dt_bias, norm] =
            [&self.conv, &self.a_log, &self.dt_bias, &self.norm].map(|numbers| upload(on, numbers));
        GdnWeights { conv, a_log, dt_bias, norm }
    }

    fn recorded(&self, on: &Reference, rows: usize) -> GdnInputs {
        let shape = &self.shape;
        let [k, v, gates] = [shape.key_heads * shape.key_dim, shape.values(), 2 * shape.value_heads]
            .map(|width| zeros(on, rows * width as usize));
        GdnInputs { k, v, gates }
    }

    fn op(&self, on: &Reference, mode: Mode, (first, rows): (usize, usize), window: Carry, state: Carry) -> op::GdnMix {
        let shape = self.shape;
        let of = |all: &[f32], width: u32| {
            let width = width as usize;
            upload(on, &all[first * width..(first + rows) * width])
        };
        op::GdnMix {
            rows: mode.rows(rows),
            shape,
            weights: self.weights(on),
            qkv: of(&self.qkv, shape.channels()),
            z: of(&self.z, shape.values()),
            ab: of(&self.ab, 2 * shape.value_heads),
            window,
            state,
            inputs: Some(self.recorded(on, rows)),
            out: zeros(on, rows * shape.values() as usize),
        }
    }
}

impl Case for Mix {
    fn name(&self) -> String {
        format!("GdnMix {:?}", self.shape)
    }

    fn rows(&self) -> usize {
        37
    }

    fn run(&self, on: &Reference, mode: Mode, split: &[usize]) -> Outcome<f32> {
        let (window, state) = (upload(on, &self.window), upload(on, &self.state));
        let mut outputs = vec![("k", vec![]), ("v", vec![]), ("gates", vec![]), ("out", vec![])];
        pieces(split, |first, rows| {
            let mix = self.op(on, mode, (first, rows), in_place(&window), in_place(&state));
            let inputs = mix.inputs.clone().unwrap();
            let outs = [inputs.k, inputs.v, inputs.gates, mix.out.clone()];
            mode.submit(on, |r| r.gdn_mix(mix)).unwrap();
            outputs.iter_mut().zip(&outs).for_each(|((_, all), out)| all.extend(download(on, out)));
        });
        Outcome { outputs, state: [download(on, &window), download(on, &state)].concat() }
    }

    fn oracle(&self, _mode: Mode) -> Outcome<f64> {
        let shape = &self.shape;
        let (channels, kernel) = (shape.channels() as usize, shape.kernel as usize);
        let (hk, hv) = (shape.key_heads as usize, shape.value_heads as usize);
        let (dk, dv) = (shape.key_dim as usize, shape.value_dim as usize);
        let mut rows: Vec<Vec<f64>> = wide(&self.window).chunks(channels).map(<[f64]>::to_vec).collect();
        rows.extend(wide(&self.qkv).chunks(channels).map(<[f64]>::to_vec));
        let mut state = wide(&self.state);
        let mut outputs = vec![("k", vec![]), ("v", vec![]), ("gates", vec![]), ("out", vec![])];
        for t in 0..37 {
            let tap =
                |c: usize| (0..kernel).map(|j| f64::from(self.conv[c * kernel + j]) * rows[t + j][c]).sum::<f64>();
            let c: Vec<f64> = (0..channels).map(|c| silu(tap(c))).collect();
            let l2 = |x: &[f64]| {
                let root = (x.iter().map(|x| x * x).sum::<f64>() + 1e-6).sqrt();
                x.iter().map(|x| x / root).collect::<Vec<_>>()
            };
            let q: Vec<f64> = c[..hk * dk].chunks(dk).flat_map(l2).map(|q| q / (dk as f64).sqrt()).collect();
            let k: Vec<f64> = c[hk * dk..2 * hk * dk].chunks(dk).flat_map(l2).collect();
            let v = &c[2 * hk * dk..];
            outputs[0].1.extend(&k);
            outputs[1].1.extend(v);
            for h in 0..hv {
                let (a, b) = (f64::from(self.ab[t * 2 * hv + h]), f64::from(self.ab[t * 2 * hv + hv + h]));
                let softplus = (a + f64::from(self.dt_bias[h])).exp().ln_1p();
                let (decay, beta) = ((-f64::from(self.a_log[h]).exp() * softplus).exp(), sigmoid(b));
                outputs[2].1.extend([decay, beta]);
                let kh = h / (hv / hk) * dk..(h / (hv / hk) + 1) * dk;
                let (k, q) = (&k[kh.clone()], &q[kh]);
                let mut y = vec![];
                for i in 0..dv {
                    let s = &mut state[(h * dv + i) * dk..(h * dv + i + 1) * dk];
                    s.iter_mut().for_each(|s| *s *= decay);
                    let r: f64 = s.iter().zip(k).map(|(s, k)| s * k).sum();
                    let d = beta * (v[h * dv + i] - r);
                    s.iter_mut().zip(k).for_each(|(s, k)| *s += d * k);
                    y.push(s.iter().zip(q).map(|(s, q)| s * q).sum::<f64>());
                }
                let z = &self.z[(t * hv + h) * dv..(t * hv + h + 1) * dv];
                let act = |z: f32| match shape.gate {
                    Gate::Sigmoid => sigmoid(f64::from(z)),
                    Gate::Silu => silu(f64::from(z)),
                };
                outputs[3].1.extend(rms(&y, &self.norm, 1e-6).iter().zip(z).map(|(o, &z)| o * act(z)));
            }
        }
        Outcome { outputs, state: [rows[rows.len() + 1 - kernel..].concat(), state].concat() }
    }
}

#[test]
fn a_replay_leaves_the_bits_that_a_shorter_pass_would_have_left() {
    let mut random = Random(5);
    for shape in [[2, 6, 64, 64, 4], [2, 2, 19, 7, 3]] {
        let case = Mix::new(&mut random, shape);
        for on in [fast(), plain(), threaded()] {
            let (window, state) = (upload(&on, &case.window), upload(&on, &case.state));
            let away = || (zeros(&on, case.window.len()), zeros(&on, case.state.len()));
            let from = |from: &ss_backend::Buffer, state: &ss_backend::Buffer| Carry {
                from: Some(from.clone()),
                state: state.clone(),
            };
            let (late_window, late_state) = away();
            let mix = case.op(&on, EXACT, (0, 5), from(&window, &late_window), from(&state, &late_state));
            let (inputs, qkv) = (mix.inputs.clone().unwrap(), mix.qkv.clone());
            EXACT.submit(&on, |r| r.gdn_mix(mix)).unwrap();
            assert_bits("the state before is untouched", &download(&on, &state), &case.state);
            for rows in 0..=5u32 {
                let (short_window, short_state) = away();
                let mix =
                    case.op(&on, EXACT, (0, rows as usize), from(&window, &short_window), from(&state, &short_state));
                let (again_window, again_state) = away();
                let replay = op::GdnReplay {
                    rows,
                    shape: case.shape,
                    inputs: inputs.clone(),
                    state: from(&state, &again_state),
                };
                let slide = op::Window {
                    rows,
                    depth: case.shape.kernel - 1,
                    width: case.shape.channels(),
                    inputs: qkv.clone(),
                    window: from(&window, &again_window),
                };
                EXACT
                    .submit(&on, |r| {
                        r.gdn_mix(mix);
                        r.gdn_replay(replay);
                        r.window(slide);
                    })
                    .unwrap();
                assert_bits("state", &download(&on, &again_state), &download(&on, &short_state));
                assert_bits("window", &download(&on, &again_window), &download(&on, &short_window));
            }
        }
    }
}
