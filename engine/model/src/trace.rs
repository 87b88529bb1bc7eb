//! Owns: telling the choices of passes, and what was forecast of them, to somebody who keeps a trace (engine.md 5.8).
//! Refuses: files, and the draft head's layer.
//! Invariants: nothing is read and nothing allocated while nobody listens; listening changes no bit.

use ss_backend::{Backend, Buffer, Form};
use ss_checkpoint::Geometry;

use crate::Result;
use crate::drive::Lookups;

/// The rows whose choices follow: a pass, or passes that share the reads of their experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TracedPass {
    /// Prompt rows or generated rows.
    pub form: Form,
    /// Tokens before row 0.
    pub first: u32,
    /// How many.
    pub rows: u32,
}

/// Who listens to what passes choose.
pub trait Trace: Send {
    /// A pass begins. One that failed before its last layer is never told to the end.
    fn begin(&mut self, pass: TracedPass);

    /// What the rows of a layer chose, `[rows, choices]`, likeliest first, and by how much the logit of each choice exceeds
    /// that of its row's last. Layers come in order.
    fn layer(&mut self, layer: u32, choices: &[u32], margins: &[f32]);

    /// What the rows of a layer were expected to choose, in the same way, told before they choose. Passes that go layer by
    /// layer have no forecasts, and neither has a first layer.
    fn forecast(&mut self, layer: u32, choices: &[u32], margins: &[f32]);
}

/// The listener, if there is one.
#[derive(Default)]
pub(crate) struct Tracer {
    sink: Option<Box<dyn Trace>>,
    /// Where the routers of a list leave the weights of their choices, a layer each, `[rows, choices]` F32.
    weights: Vec<Buffer>,
    choices: usize,
}

impl Tracer {
    pub fn new(backend: &dyn Backend, g: &Geometry, sink: Box<dyn Trace>) -> Result<Self> {
        let bytes = 4 * u64::from(Lookups::MOST_ROWS * g.choices);
        let weights = g.layers.iter().map(|_| backend.alloc("traced weights", bytes));
        let weights = weights.collect::<std::result::Result<_, _>>()?;
        Ok(Tracer { sink: Some(sink), weights, choices: g.choices as usize })
    }

    pub fn begin(&mut self, pass: TracedPass) {
        if let Some(sink) = &mut self.sink {
            sink.begin(pass);
        }
    }

    /// Whether anybody wants to know.
    pub fn listens(&self) -> bool {
        self.sink.is_some()
    }

    /// Whether anybody wants to know of a layer.
    pub fn wants(&self, layer: u32) -> bool {
        self.weights_of(layer).is_some()
    }

    /// Where the router of a layer in a list leaves its weights, if anybody wants to know.
    pub fn weights_of(&self, layer: u32) -> Option<&Buffer> {
        self.weights.get(layer as usize)
    }

    /// Tells what a layer chose, `[rows, choices]`, and with which weights.
    pub fn tell(&mut self, layer: u32, choices: &[u32], weights: &[f32]) {
        if let Some(sink) = &mut self.sink {
            sink.layer(layer, choices, &margins(weights, self.choices));
        }
    }

    /// Tells what a layer is expected to choose, `[rows, choices]`, and with which weights.
    pub fn foretell(&mut self, layer: u32, choices: &[u32], weights: &[f32]) {
        if let Some(sink) = &mut self.sink {
            sink.forecast(layer, choices, &margins(weights, self.choices));
        }
    }
}

/// By how much each logit exceeds the last of its row: softmax keeps the differences.
fn margins(weights: &[f32], choices: usize) -> Vec<f32> {
    let of_row = |row: &[f32]| {
        let last = row.last().copied().unwrap_or_default();
        row.iter().map(|&weight| if weight == last { 0.0 } else { (weight / last).ln() }).collect::<Vec<_>>()
    };
    weights.chunks(choices.max(1)).flat_map(of_row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn margins_are_the_differences_of_logits() {
        let logits: [f32; 6] = [2.5, 1.0, -0.5, 3.0, 3.0, 3.0];
        let weights: Vec<f32> = logits.iter().map(|logit| (logit - 4.0).exp()).collect();
        let expected = [3.0, 1.5, 0.0, 0.0, 0.0, 0.0];
        for (margin, expected) in margins(&weights, 3).into_iter().zip(expected) {
            assert!((margin - expected).abs() < 1e-5, "{margin} {expected}");
        }
        assert_eq!(margins(&[1.0, 0.0, 0.0], 3), [f32::INFINITY, 0.0, 0.0], "no number is invented");
    }
}
