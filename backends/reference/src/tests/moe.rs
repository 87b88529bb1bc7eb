//! Owns: cases of router, experts and their sum.

use ss_backend::op::{self, SharedIn, SharedOut, Streams};
use ss_backend::{Backend, Buffer, Error, Format, Matrix, NONE, Pool, RecordLayout};

use super::cases::{Case, F32, Outcome, pieces};
use super::rig::*;
use crate::Reference;

/// Router.
pub struct Route {
    weight: Weight,
    u: Vec<f32>,
}

const CHOICES: usize = 3;

impl Route {
    pub fn new(random: &mut Random, hidden: usize, format: Format) -> Self {
        Route { weight: Weight::random(random, 24, hidden, format), u: random.vec(37 * hidden, 2.0) }
    }
}

fn route(on: &Reference, mode: Mode, weight: &Weight, u: &[f32], choices: usize) -> [Buffer; 3] {
    let rows = u.len() / weight.matrix.cols as usize;
    let outs = [weight.matrix.rows as usize, choices, choices].map(|width| zeros(on, rows * width));
    let [logits, experts, weights] = outs.clone();
    let (u, weight) = (upload(on, u), weight.linear(on));
    let route =
        op::Route { rows: mode.rows(rows), choices: choices as u32, u, weight, logits, experts, weights, lookup: None };
    mode.submit(on, |r| r.route(route)).unwrap();
    outs
}

impl Case for Route {
    fn name(&self) -> String {
        format!("Route {:?}", self.weight.matrix)
    }

    fn rows(&self) -> usize {
        37
    }

    fn run(&self, on: &Reference, mode: Mode, split: &[usize]) -> Outcome<f32> {
        let hidden = self.weight.matrix.cols as usize;
        let mut outputs = vec![("logits", vec![]), ("experts", vec![]), ("weights", vec![])];
        pieces(split, |first, rows| {
            let u = &self.u[first * hidden..(first + rows) * hidden];
            let [logits, experts, weights] = route(on, mode, &self.weight, u, CHOICES);
            outputs[0].1.extend(download(on, &logits));
            outputs[1].1.extend(download_ids(on, &experts).into_iter().map(|id| id as f32));
            outputs[2].1.extend(download(on, &weights));
        });
        Outcome { outputs, state: vec![] }
    }

    fn oracle(&self, _mode: Mode) -> Outcome<f64> {
        let mut outputs = vec![("logits", vec![]), ("experts", vec![]), ("weights", vec![])];
        for u in wide(&self.u).chunks(self.weight.matrix.cols as usize) {
            let logits = self.weight.times(u);
            let mut order: Vec<usize> = (0..logits.len()).collect();
            order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]));
            let chosen = &order[..CHOICES];
            let total: f64 = chosen.iter().map(|&e| logits[e].exp()).sum();
            outputs[1].1.extend(chosen.iter().map(|&e| e as f64));
            outputs[2].1.extend(chosen.iter().map(|&e| logits[e].exp() / total));
            outputs[0].1.extend(logits);
        }
        Outcome { outputs, state: vec![] }
    }
}

/// A router whose logits are given: one input that is 1.
fn router_of(logits: &[f32]) -> Weight {
    let matrix = Matrix { rows: logits.len() as u32, cols: 1, format: F32 };
    let codes = logits.iter().flat_map(|x| x.to_le_bytes()).collect();
    Weight { matrix, codes, scales: vec![], biases: vec![], values: vec![] }
}

#[test]
fn tied_experts_are_chosen_from_the_lowest() {
    let router = router_of(&[1.0, 2.0, 0.0, 2.0, -0.0, 1.0]);
    for on in [fast(), plain(), threaded()] {
        let [_, experts, _] = route(&on, EXACT, &router, &[1.0], 5);
        assert_eq!(download_ids(&on, &experts), [1, 3, 0, 5, 2]);
    }
}

#[test]
fn logits_that_are_not_numbers_are_no_panic() {
    let router = router_of(&[f32::NAN, 1.0, f32::INFINITY, f32::NEG_INFINITY]);
    let on = fast();
    let [_, experts, weights] = route(&on, EXACT, &router, &[1.0], 3);
    let experts = download_ids(&on, &experts);
    assert!(experts.iter().all(|&e| e < 4) && experts[0] != experts[1] && experts[1] != experts[2]);
    assert!(download(&on, &weights).iter().any(|w| w.is_nan()), "what is not a number stays visible");
}

/// Both halves of routed and shared experts; some choices have no slot.
pub struct Experts {
    layout: RecordLayout,
    /// Gate, up, down of each expert.
    experts: Vec<[Weight; 3]>,
    shared: [Weight; 3],
    u: Vec<f32>,
    /// Expert of each (row, choice), or none.
    choice: Vec<Option<usize>>,
}

const EXPERTS: usize = 5;

impl Experts {
    pub fn new(random: &mut Random, hidden: usize, inner: usize, [gate, up, down]: [Format; 3]) -> Self {
        let make = |random: &mut Random| {
            [(inner, hidden, gate), (inner, hidden, up), (hidden, inner, down)]
                .map(|(rows, cols, format)| Weight::random(random, rows, cols, format))
        };
        let experts: Vec<_> = (0..EXPERTS).map(|_| make(random)).collect();
        let layout = RecordLayout::new(experts[0][0].matrix, experts[0][1].matrix, experts[0][2].matrix);
        let choice = (0..37 * CHOICES).map(|_| Some(random.below(EXPERTS + 1)).filter(|&e| e < EXPERTS)).collect();
        Experts { layout, shared: make(random), experts, u: random.vec(37 * hidden, 1.0), choice }
    }

    /// A pool with every expert in the slot that `slot` says.
    fn pool(&self, on: &Reference, slots: u32, slot: impl Fn(usize) -> u32) -> Pool {
        let pool = on.alloc_pool(&self.layout, slots).unwrap();
        for (e, [gate, up, down]) in self.experts.iter().enumerate() {
            let mut writer = on.open_slot(&pool, slot(e)).unwrap();
            gate.place(&self.layout.gate, writer.bytes());
            up.place(&self.layout.up, writer.bytes());
            down.place(&self.layout.down, writer.bytes());
            writer.finish().unwrap();
        }
        pool
    }

    fn run_in(
        &self,
        on: &Reference,
        mode: Mode,
        split: &[usize],
        pool: &Pool,
        slot: impl Fn(usize) -> u32,
    ) -> Outcome<f32> {
        let (hidden, inner) = (self.layout.gate.matrix.cols as usize, self.layout.gate.matrix.rows as usize);
        let [gate, up, down] = self.shared.each_ref().map(|weight| weight.linear(on));
        let mut outputs = vec![("inner", vec![]), ("shared inner", vec![]), ("routed", vec![]), ("shared", vec![])];
        pieces(split, |first, rows| {
            let choices = &self.choice[first * CHOICES..(first + rows) * CHOICES];
            let ids: Vec<u32> = choices.iter().map(|e| e.map_or(NONE, &slot)).collect();
            let slots = upload_ids(on, &ids);
            let outs = [CHOICES * inner, inner, CHOICES * hidden, hidden].map(|width| zeros(on, rows * width));
            let [h, shared_h, routed, shared] = outs.clone();
            let (rows_of, choices) = (mode.rows(rows), CHOICES as u32);
            let first_half = op::ExpertsIn {
                rows: rows_of,
                choices,
                u: upload(on, &self.u[first * hidden..(first + rows) * hidden]),
                pool: pool.clone(),
                slots: slots.clone(),
                out: h.clone(),
                shared: Some(SharedIn { gate: gate.clone(), up: up.clone(), out: shared_h.clone() }),
            };
            let second_half = op::ExpertsOut {
                rows: rows_of,
                choices,
                x: h,
                pool: pool.clone(),
                slots,
                out: routed,
                shared: Some(SharedOut { x: shared_h, down: down.clone(), out: shared }),
            };
            mode.submit(on, |r| {
                r.experts_in(first_half);
                r.experts_out(second_half);
            })
            .unwrap();
            outputs.iter_mut().zip(&outs).for_each(|((_, all), out)| all.extend(download(on, out)));
        });
        Outcome { outputs, state: vec![] }
    }
}

impl Case for Experts {
    fn name(&self) -> String {
        format!("ExpertsIn, ExpertsOut {:?}", self.layout.gate.matrix)
    }

    fn rows(&self) -> usize {
        37
    }

    fn rounded(&self) -> &[&str] {
        &["inner", "shared inner", "routed", "shared"]
    }

    fn run(&self, on: &Reference, mode: Mode, split: &[usize]) -> Outcome<f32> {
        let slot = |e: usize| (EXPERTS - e) as u32;
        self.run_in(on, mode, split, &self.pool(on, EXPERTS as u32 + 1, slot), slot)
    }

    fn oracle(&self, mode: Mode) -> Outcome<f64> {
        let (hidden, inner) = (self.layout.gate.matrix.cols as usize, self.layout.gate.matrix.rows as usize);
        let expert = |[gate, up, down]: &[Weight; 3], u: &[f64]| {
            let (gates, ups) = (gate.multiply(mode, u), up.multiply(mode, u));
            let h: Vec<f64> = gates.iter().zip(ups).map(|(g, u)| silu(*g) * u).collect();
            let y = down.multiply(mode, &h);
            (h, y)
        };
        let mut outputs = vec![("inner", vec![]), ("shared inner", vec![]), ("routed", vec![]), ("shared", vec![])];
        for (u, choices) in wide(&self.u).chunks(hidden).zip(self.choice.chunks(CHOICES)) {
            for choice in choices {
                let nothing = || (vec![0.0; inner], vec![0.0; hidden]);
                let (h, y) = choice.map_or_else(nothing, |e| expert(&self.experts[e], u));
                outputs[0].1.extend(h);
                outputs[2].1.extend(y);
            }
            let (h, y) = expert(&self.shared, u);
            outputs[1].1.extend(h);
            outputs[3].1.extend(y);
        }
        Outcome { outputs, state: vec![] }
    }
}

#[test]
fn the_slot_of_an_expert_changes_no_bit() {
    let case = Experts::new(&mut Random(4), 128, 64, [super::cases::Q4; 3]);
    let on = fast();
    let want = case.run(&on, EXACT, &[37]);
    let slot = |e: usize| (3 * e + 1) as u32;
    let have = case.run_in(&on, EXACT, &[37], &case.pool(&on, 20, slot), slot);
    for ((name, have), (_, want)) in have.outputs.iter().zip(&want.outputs) {
        assert_bits(name, have, want);
    }
}

#[test]
fn a_slot_that_is_open_or_missing_is_refused() {
    let case = Experts::new(&mut Random(4), 64, 32, [F32; 3]);
    let on = fast();
    let pool = case.pool(&on, 6, |e| e as u32);
    let experts = |slot: u32| op::ExpertsIn {
        rows: EXACT.rows(1),
        choices: 1,
        u: zeros(&on, 64),
        pool: pool.clone(),
        slots: upload_ids(&on, &[slot]),
        out: zeros(&on, 32),
        shared: None,
    };
    let run = |slot: u32| EXACT.submit(&on, |r| r.experts_in(experts(slot)));
    let writer = on.open_slot(&pool, 2).unwrap();
    assert!(run(1).is_ok());
    let Err(Error::Refused(why)) = run(2) else { panic!("an open slot was read") };
    assert!(why.contains("ExpertsIn") && why.contains("slots") && why.contains("open for writing"), "{why}");
    let Err(Error::Refused(why)) = run(6) else { panic!("a missing slot was read") };
    assert!(why.contains("6"), "{why}");
    assert!(on.open_slot(&pool, 2).is_err(), "a slot has one writer");
    drop(writer);
    assert!(run(2).is_ok());
    assert!(on.open_slot(&pool, 6).is_err());
}

/// Sum of the experts' rows.
pub struct Combine {
    streams: Streams,
    routed: Vec<f32>,
    weights: Vec<f32>,
    shared: Vec<f32>,
    gate: Weight,
    u: Vec<f32>,
    inject: Vec<f32>,
    before: Vec<f32>,
}

impl Combine {
    pub fn new(random: &mut Random, count: usize, hidden: usize, format: Format) -> Self {
        Combine {
            streams: Streams { count: count as u32, hidden: hidden as u32 },
            routed: random.vec(37 * CHOICES * hidden, 1.0),
            weights: random.norm(37 * CHOICES),
            shared: random.vec(37 * hidden, 1.0),
            gate: Weight::random(random, 1, hidden, format),
            u: random.vec(37 * hidden, 1.0),
            inject: random.norm(37 * count),
            before: random.vec(37 * count * hidden, 1.0),
        }
    }
}

impl Case for Combine {
    fn name(&self) -> String {
        format!("Combine {:?}", self.streams)
    }

    fn rows(&self) -> usize {
        37
    }

    fn run(&self, on: &Reference, mode: Mode, split: &[usize]) -> Outcome<f32> {
        let (hidden, count, width) =
            (self.streams.hidden as usize, self.streams.count as usize, self.streams.width() as usize);
        let gate = self.gate.linear(on);
        let mut streams = vec![];
        pieces(split, |first, rows| {
            let of = |all: &[f32], width: usize| upload(on, &all[first * width..(first + rows) * width]);
            let out = of(&self.before, width);
            let combine = op::Combine {
                rows: mode.rows(rows),
                choices: CHOICES as u32,
                streams: self.streams,
                routed: of(&self.routed, CHOICES * hidden),
                weights: of(&self.weights, CHOICES),
                shared: of(&self.shared, hidden),
                gate: gate.clone(),
                u: of(&self.u, hidden),
                inject: of(&self.inject, count),
                out: out.clone(),
            };
            mode.submit(on, |r| r.combine(combine)).unwrap();
            streams.extend(download(on, &out));
        });
        Outcome { outputs: vec![("streams", streams)], state: vec![] }
    }

    fn oracle(&self, _mode: Mode) -> Outcome<f64> {
        let (hidden, count) = (self.streams.hidden as usize, self.streams.count as usize);
        let mut streams = wide(&self.before);
        for (t, streams) in streams.chunks_mut(count * hidden).enumerate() {
            let gate = sigmoid(self.gate.times(&wide(&self.u[t * hidden..(t + 1) * hidden]))[0]);
            for (i, x) in streams.iter_mut().enumerate() {
                let (s, j) = (i / hidden, i % hidden);
                let routed = |c: usize| {
                    f64::from(self.weights[t * CHOICES + c]) * f64::from(self.routed[(t * CHOICES + c) * hidden + j])
                };
                let y = (0..CHOICES).map(routed).sum::<f64>() + gate * f64::from(self.shared[t * hidden + j]);
                *x += f64::from(self.inject[t * count + s]) * y;
            }
        }
        Outcome { outputs: vec![("streams", streams)], state: vec![] }
    }
}
