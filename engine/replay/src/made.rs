//! Owns: traces that nobody's tokens left: a router as skewed as a trained one's, whose choices last for a while.
//! Refuses: to stand for a model; it has a model's sizes, skew and persistence, nothing else.
//! Invariants: the same order gives the same trace.

use ss_synth::{Skew, Stream};

use crate::{Shape, Token, Trace};

/// How much of an expert's logit is left at the next token, as a correlation.
pub const PERSISTENCE: f64 = 0.6;

/// An order for a trace.
#[derive(Clone, Copy, Debug)]
pub struct Made {
    /// Sizes of the model.
    pub shape: Shape,
    /// Generated tokens.
    pub tokens: u32,
    /// Where the numbers come from.
    pub seed: u64,
    /// Correlation of an expert's logit with its logit at the token before, 0 to 1; see [`PERSISTENCE`].
    pub persistence: f64,
}

/// A layer's router.
struct Router {
    stream: Stream,
    /// `[experts]`: standard deviation of each logit.
    spreads: Vec<f64>,
    /// `[experts]`: logits, in standard deviations.
    state: Vec<f64>,
    /// Numbers drawn so far.
    drawn: u64,
}

impl Router {
    fn new(seed: u64, layer: u32, skew: &Skew) -> Self {
        let spreads = skew.spreads_by_expert(Stream::new(seed, &format!("favourites of layer {layer}")));
        let stream = Stream::new(seed, &format!("logits of layer {layer}"));
        let mut router = Router { stream, state: vec![0.0; spreads.len()], spreads, drawn: 0 };
        router.step(0.0);
        router
    }

    /// Moves every logit on to the next token: how it spreads stays what it is.
    fn step(&mut self, persistence: f64) {
        let fresh = (1.0 - persistence * persistence).sqrt();
        for state in &mut self.state {
            *state = persistence * *state + fresh * gaussian(self.stream.word(self.drawn));
            self.drawn += 1;
        }
    }

    /// The experts of the largest logits, largest first, and their margins.
    fn chosen(&self, choices: usize) -> Vec<(u16, f32)> {
        let mut logits: Vec<(f64, u16)> =
            self.state.iter().zip(&self.spreads).map(|(state, spread)| state * spread).zip(0..).collect();
        logits.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        logits.truncate(choices);
        let last = logits.last().map_or(0.0, |(logit, _)| *logit);
        logits.into_iter().map(|(logit, expert)| (expert, (logit - last) as f32)).collect()
    }
}

impl Made {
    /// Makes the trace; tells tokens done and in all.
    pub fn trace(&self, progress: &mut dyn FnMut(u64, u64)) -> Trace {
        let skew = Skew::new(self.shape.experts, self.shape.choices);
        let mut routers: Vec<Router> =
            (0..self.shape.layers).map(|layer| Router::new(self.seed, layer, &skew)).collect();
        let mut trace = Trace::new(self.shape);
        for number in 0..self.tokens {
            let chosen = routers.iter_mut().flat_map(|router| {
                router.step(self.persistence);
                router.chosen(self.shape.choices as usize)
            });
            let (choices, margins) = chosen.unzip();
            trace.push(&Token { pass: number, position: number, generated: true, choices, margins, expected: None });
            progress(u64::from(number) + 1, self.tokens.into());
        }
        trace
    }
}

/// A number of the standard normal distribution (Box and Muller).
fn gaussian(word: u64) -> f64 {
    let unit = |bits: u64| (bits as f64 + 0.5) / 2f64.powi(u32::BITS as i32);
    let radius = (-2.0 * unit(word >> u32::BITS).ln()).sqrt();
    radius * (std::f64::consts::TAU * unit(word & u64::from(u32::MAX))).cos()
}
