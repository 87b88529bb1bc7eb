//! Traces and their replay, from outside; each module holds one promise.

mod files;
mod lookahead;
mod policies;

use ss_replay::{Expected, NO_EXPERT, Shape, Token, Trace};

/// Random numbers that are the same in every run (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut v = self.0;
        v = (v ^ (v >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        v = (v ^ (v >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (v ^ (v >> 31)) % end
    }

    /// Distinct experts, small numbers more often.
    fn experts(&mut self, shape: Shape) -> Vec<u16> {
        let mut chosen = Vec::new();
        while chosen.len() < shape.choices as usize {
            let end = 1 + self.below(u64::from(shape.experts));
            let expert = self.below(end) as u16;
            if !chosen.contains(&expert) {
                chosen.push(expert);
            }
        }
        chosen
    }
}

/// A generated token with these choices.
fn token(pass: u32, choices: &[u16]) -> Token {
    let (choices, margins) = (choices.to_vec(), vec![0.5; choices.len()]);
    Token { pass, position: pass, generated: true, choices, margins, expected: None }
}

/// What all layers but the first are expected to choose, each choice a logit above the one behind it.
fn expected(shape: Shape, experts: &[u16]) -> Option<Expected> {
    let first = vec![NO_EXPERT; shape.choices as usize];
    let margins = (0..shape.layers).flat_map(|_| (0..shape.choices).rev().map(|place| place as f32));
    Some(Expected { experts: [first, experts.to_vec()].concat(), margins: margins.collect() })
}

/// Tokens of one layer, a pass each.
fn one_layer(experts: u32, tokens: &[&[u16]]) -> Trace {
    let choices = tokens.first().map_or(1, |first| first.len() as u32);
    let mut trace = Trace::new(Shape { layers: 1, experts, choices, record_bytes: 10 });
    (0..).zip(tokens).for_each(|(pass, chosen)| trace.push(&token(pass, chosen)));
    trace
}

/// Tokens that choose at random.
fn random(shape: Shape, tokens: u32, seed: u64) -> Trace {
    let (mut random, mut trace) = (Random(seed), Trace::new(shape));
    for pass in 0..tokens {
        let choices: Vec<u16> = (0..shape.layers).flat_map(|_| random.experts(shape)).collect();
        trace.push(&token(pass, &choices));
    }
    trace
}
