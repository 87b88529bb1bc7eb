//! Owns: the router and the sum of the experts' rows (architecture.md section 8).
//!
//! `logits = Wr u`; the `choices` largest, descending, ties by ascending expert; `w = softmax` of the chosen logits;
//! `y = sum_k w_k routed_k + sigmoid(wsg . u) shared`; `streams[s] += inject[s] * y`.
//!
//! Row rule: a row routes alone; choices are added in their order, whatever order the experts came in (engine.md 3.7e).

use ss_backend::op::{Combine, Lookup, Route};
use ss_backend::{NONE, Result};

use super::Then;
use super::attend::softmax;
use super::hyper::write;
use crate::gemm::Input;
use crate::math::{rank, ranked_index, sigmoid};
use crate::simd::{Arith, Kernel};
use crate::step::{Step, volume};

/// Router.
pub fn route(step: &Step<'_>, op: &Route) -> Result<Then> {
    let matrix = op.weight.matrix;
    step.nonzero(&[("experts", matrix.rows), ("hidden", matrix.cols), ("choices", op.choices)])?;
    if op.choices > matrix.rows {
        let (choices, experts) = (op.choices, matrix.rows);
        return Err(step.refuse(format_args!("`choices` is {choices}, there are {experts} experts")));
    }
    let (rows, experts, hidden) = (op.rows.count, matrix.rows as usize, matrix.cols as usize);
    let u = step.read::<f32>(&op.u, "u", volume(&[rows, matrix.cols]))?;
    let weight = step.weight(&op.weight, "weight", experts, hidden)?;
    let mut logits = step.write::<f32>(&op.logits, "logits", volume(&[rows, matrix.rows]))?;
    let mut chosen = step.write::<u32>(&op.experts, "experts", volume(&[rows, op.choices]))?;
    let mut weights = step.write::<f32>(&op.weights, "weights", volume(&[rows, op.choices]))?;
    for tile in step.tiles(rows) {
        let input = Input::contiguous(step.machine, &u[tile.start * hidden..tile.end * hidden], hidden);
        let out = &mut logits[tile.start * experts..tile.end * experts];
        input.multiply(&weight.view(), false, out.chunks_exact_mut(experts).collect());
    }
    let choices = op.choices as usize;
    let outs = chosen.chunks_exact_mut(choices).zip(weights.chunks_exact_mut(choices));
    let mut ranks = Vec::with_capacity(experts);
    for (logits, (chosen, weights)) in logits.chunks_exact(experts).zip(outs) {
        choose(logits, &mut ranks, chosen);
        step.run(ChoiceWeights { logits, chosen, weights });
    }
    let rows = rows as usize;
    step.tap("router_logits", &[rows, experts], &logits);
    step.tap_ids("router_idx", &[rows, choices], &chosen);
    step.tap("router_w", &[rows, choices], &weights);
    match &op.lookup {
        Some(lookup) => look_up(step, lookup, &chosen, matrix.rows),
        None => Ok(Then::GoOn),
    }
}

/// Slots of the choices; halts where one has none.
fn look_up(step: &Step<'_>, op: &Lookup, chosen: &[u32], experts: u32) -> Result<Then> {
    let (layer, layers) = (op.layer as usize, op.layer.saturating_add(1));
    let table = step.read::<u32>(&op.table, "table", volume(&[layers, experts]))?;
    let mut slots = step.write::<u32>(&op.slots, "slots", chosen.len())?;
    let mut control = step.write::<u32>(&op.control, "control", 1 + (layer + 1) * chosen.len())?;
    control[1 + layer * chosen.len()..].copy_from_slice(chosen);
    let table = &table[layer * experts as usize..];
    slots.iter_mut().zip(chosen).for_each(|(slot, &expert)| *slot = table[expert as usize]);
    if !slots.contains(&NONE) {
        return Ok(Then::GoOn);
    }
    control[0] = op.layer;
    Ok(Then::Halt)
}

/// The largest logits, descending.
fn choose(logits: &[f32], ranks: &mut Vec<u64>, chosen: &mut [u32]) {
    ranks.clear();
    ranks.extend(logits.iter().zip(0..).map(|(&logit, expert)| rank(logit, expert)));
    let descending = |a: &u64, b: &u64| b.cmp(a);
    ranks.select_nth_unstable_by(chosen.len() - 1, descending);
    ranks.truncate(chosen.len());
    ranks.sort_unstable_by(descending);
    for (expert, rank) in chosen.iter_mut().zip(ranks) {
        *expert = ranked_index(*rank);
    }
}

struct ChoiceWeights<'a> {
    logits: &'a [f32],
    chosen: &'a [u32],
    weights: &'a mut [f32],
}

impl Kernel for ChoiceWeights<'_> {
    #[inline(always)]
    fn run<A: Arith>(self) {
        let ChoiceWeights { logits, chosen, weights } = self;
        for (weight, &expert) in weights.iter_mut().zip(chosen) {
            *weight = logits[expert as usize];
        }
        softmax::<A>(weights);
    }
}

/// Sum of the experts' rows and hyper-connection write.
pub fn combine(step: &Step<'_>, op: &Combine) -> Result<()> {
    let streams = op.streams;
    step.nonzero(&[("streams", streams.count), ("hidden", streams.hidden), ("choices", op.choices)])?;
    let (rows, hidden, choices, count) =
        (op.rows.count, streams.hidden as usize, op.choices as usize, streams.count as usize);
    let routed = step.read::<f32>(&op.routed, "routed", volume(&[rows, op.choices, streams.hidden]))?;
    let weights = step.read::<f32>(&op.weights, "weights", volume(&[rows, op.choices]))?;
    let shared = step.read::<f32>(&op.shared, "shared", volume(&[rows, streams.hidden]))?;
    let gate = step.weight(&op.gate, "gate", 1, hidden)?;
    let u = step.read::<f32>(&op.u, "u", volume(&[rows, streams.hidden]))?;
    let inject = step.read::<f32>(&op.inject, "inject", volume(&[rows, streams.count]))?;
    let mut out = step.write::<f32>(&op.out, "out", volume(&[rows, streams.count, streams.hidden]))?;
    step.tap("expert_out", &[rows as usize, choices, hidden], &routed);
    step.tap("shared", &[rows as usize, hidden], &shared);
    for tile in step.tiles(rows) {
        let of = |width: usize| tile.start * width..tile.end * width;
        let mut gates = step.scratch(tile.len());
        let input = Input::contiguous(step.machine, &u[of(hidden)], hidden);
        input.multiply(&gate.view(), false, gates.chunks_exact_mut(1).collect());
        step.run(Sigmoids { x: &mut gates });
        step.tap("shared_gate", &[tile.len(), 1], &gates);
        let mut y = step.scratch(tile.len() * hidden);
        let (weights, routed, shared) = (&weights[of(choices)], &routed[of(choices * hidden)], &shared[of(hidden)]);
        step.split(routed.len(), &mut y, hidden, |first, y| {
            step.run(SumChoices {
                weights: &weights[first * choices..],
                routed: &routed[first * choices * hidden..],
                hidden,
                choices,
                y,
            });
        });
        step.tap("routed", &[tile.len(), hidden], &y);
        step.run(AddShared { gates: &gates, shared, hidden, y: &mut y });
        step.tap("out", &[tile.len(), hidden], &y);
        write(step, &y, &inject[of(count)], &mut out[of(count * hidden)], hidden);
    }
    step.tap_layer("hidden", &[rows as usize, count * hidden], &out);
    Ok(())
}

struct Sigmoids<'a> {
    x: &'a mut [f32],
}

impl Kernel for Sigmoids<'_> {
    #[inline(always)]
    fn run<A: Arith>(self) {
        for x in self.x.iter_mut() {
            *x = sigmoid::<A>(*x);
        }
    }
}

/// `y = sum of weights[k] * routed[k]`, in the order of the choices.
struct SumChoices<'a> {
    weights: &'a [f32],
    routed: &'a [f32],
    hidden: usize,
    choices: usize,
    y: &'a mut [f32],
}

impl Kernel for SumChoices<'_> {
    #[inline(always)]
    fn run<A: Arith>(self) {
        let SumChoices { weights, routed, hidden, choices, y } = self;
        let rows = weights.chunks_exact(choices).zip(routed.chunks_exact(choices * hidden));
        for (y, (weights, routed)) in y.chunks_exact_mut(hidden).zip(rows) {
            y.fill(0.0);
            for (&weight, routed) in weights.iter().zip(routed.chunks_exact(hidden)) {
                for (y, &x) in y.iter_mut().zip(routed) {
                    *y = A::fma(weight, x, *y);
                }
            }
        }
    }
}

/// `y += gate * shared`.
struct AddShared<'a> {
    gates: &'a [f32],
    shared: &'a [f32],
    hidden: usize,
    y: &'a mut [f32],
}

impl Kernel for AddShared<'_> {
    #[inline(always)]
    fn run<A: Arith>(self) {
        let AddShared { gates, shared, hidden, y } = self;
        for ((y, shared), &gate) in y.chunks_exact_mut(hidden).zip(shared.chunks_exact(hidden)).zip(gates) {
            for (y, &x) in y.iter_mut().zip(shared) {
                *y = A::fma(gate, x, *y);
            }
        }
    }
}
