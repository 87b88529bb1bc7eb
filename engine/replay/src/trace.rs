//! Owns: what a trace says: the sizes of its model, what each token chose, and what it was expected to.
//! Refuses: token ids; a trace does not tell what was said.
//! Invariants: the choices of a token's layer are distinct experts that exist.

use ss_checkpoint::Geometry;
use ss_stream::Candidate;

use crate::Figures;

/// More than any model has that the engine opens, or as much.
const MOST_LAYERS: u32 = 256;
const MOST_EXPERTS: u32 = 1024;
const MOST_CHOICES: u32 = 16;
/// Most bytes of an expert: a thousand times those of any model.
pub const MOST_RECORD_BYTES: u64 = 1 << 40;

/// Sizes of the model that a trace is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Main layers.
    pub layers: u32,
    /// Experts of a layer.
    pub experts: u32,
    /// Experts a token and layer.
    pub choices: u32,
    /// Bytes that are read for an expert.
    pub record_bytes: u64,
}

impl Shape {
    /// The shape of a model whose expert records have so many bytes.
    pub fn new(geometry: &Geometry, record_bytes: u64) -> Self {
        let (experts, choices) = (geometry.experts, geometry.choices);
        Shape { layers: geometry.layers.len() as u32, experts, choices, record_bytes }
    }

    /// Choices of a token in all layers.
    pub fn of_token(&self) -> usize {
        (self.layers * self.choices) as usize
    }

    /// What is wrong with it, if no model can have it.
    pub(crate) fn fault(&self) -> Option<String> {
        let known = (1..=MOST_LAYERS).contains(&self.layers)
            && (1..=MOST_EXPERTS).contains(&self.experts)
            && (1..=MOST_CHOICES.min(self.experts)).contains(&self.choices);
        let Shape { layers, experts, choices, record_bytes } = self;
        if !known {
            return Some(format!("it speaks of {layers} layers of {experts} experts, {choices} a token"));
        }
        let sensible = (1..=MOST_RECORD_BYTES).contains(record_bytes);
        (!sensible).then(|| format!("it speaks of experts of {record_bytes} bytes"))
    }

    /// What is wrong with a token, if no model of this shape can have left it.
    pub(crate) fn fault_of(&self, token: &Token) -> Option<String> {
        if token.choices.len() != self.of_token() || token.margins.len() != self.of_token() {
            return Some(format!("has {} choices, expected {}", token.choices.len(), self.of_token()));
        }
        for (layer, chosen) in token.choices.chunks_exact(self.choices as usize).enumerate() {
            if let Some(expert) = chosen.iter().find(|&&expert| u32::from(expert) >= self.experts) {
                return Some(format!("chose expert {expert} in layer {layer}, which has {}", self.experts));
            }
            let twice =
                chosen.iter().enumerate().find(|(place, expert)| chosen.iter().take(*place).any(|e| e == *expert));
            if let Some((_, expert)) = twice {
                return Some(format!("chose expert {expert} twice in layer {layer}"));
            }
        }
        if token.margins.iter().any(|margin| !margin.is_finite()) {
            return Some("has a margin that is no number".to_owned());
        }
        token.expected.as_ref().and_then(|expected| self.fault_of_forecast(expected))
    }

    fn fault_of_forecast(&self, expected: &Expected) -> Option<String> {
        let Expected { experts, margins } = expected;
        if experts.len() != self.of_token() || margins.len() != self.of_token() {
            return Some(format!("has forecasts of {} choices, expected {}", experts.len(), self.of_token()));
        }
        if margins.iter().any(|margin| !margin.is_finite()) {
            return Some("has the margin of a forecast that is no number".to_owned());
        }
        for (layer, forecast) in experts.chunks_exact(self.choices as usize).enumerate() {
            let some = || forecast.iter().enumerate().filter(|&(_, &expert)| expert != NO_EXPERT);
            if let Some((_, expert)) = some().find(|&(_, &expert)| u32::from(expert) >= self.experts) {
                return Some(format!(
                    "was expected to choose expert {expert} in layer {layer}, which has {}",
                    self.experts
                ));
            }
            if let Some((_, expert)) = some().find(|&(place, expert)| forecast[..place].contains(expert)) {
                return Some(format!("was expected to choose expert {expert} twice in layer {layer}"));
            }
        }
        None
    }
}

/// What a token chose.
#[derive(Clone, Debug, PartialEq)]
pub struct Token {
    /// The pass that it was a row of, counted from 0.
    pub pass: u32,
    /// Tokens before it in its sequence.
    pub position: u32,
    /// Whether it was generated; a row of a prompt otherwise.
    pub generated: bool,
    /// `[layers, choices]`: experts, likeliest first.
    pub choices: Vec<u16>,
    /// `[layers, choices]`: their router logits, less that of the layer's last choice.
    pub margins: Vec<f32>,
    /// What it was expected to choose; none for rows of prompts, and where nobody forecast.
    pub expected: Option<Expected>,
}

/// Stands where no expert was forecast, as in a first layer.
pub const NO_EXPERT: u16 = u16::MAX;

/// What a token was expected to choose: all of it, whether lookahead would ask for it or not, and whatever had a slot.
#[derive(Clone, Debug, PartialEq)]
pub struct Expected {
    /// `[layers, choices]`: experts, likeliest first, or [`NO_EXPERT`].
    pub experts: Vec<u16>,
    /// `[layers, choices]`: their expected logits, less that of the last.
    pub margins: Vec<f32>,
}

impl Expected {
    /// Nothing, in a model of this shape.
    pub fn nothing(shape: &Shape) -> Self {
        Expected { experts: vec![NO_EXPERT; shape.of_token()], margins: vec![0.0; shape.of_token()] }
    }

    /// What was expected of each layer of so many choices.
    fn layers(&self, choices: usize) -> impl Iterator<Item = Vec<Candidate>> {
        let layers = self.experts.chunks_exact(choices).zip(self.margins.chunks_exact(choices));
        layers.map(|(experts, margins)| {
            let known = experts.iter().zip(margins).filter(|(expert, _)| **expert != NO_EXPERT);
            known.map(|(&expert, &margin)| Candidate { expert: expert.into(), margin }).collect()
        })
    }
}

/// What the rows of one pass asked for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pass {
    /// Its rows.
    pub rows: u32,
    /// `[layers]`: distinct experts, ascending.
    pub experts: Vec<Vec<u32>>,
    /// `[layers]`: what they were expected to ask for, row after row; empty where nobody forecast.
    pub expected: Vec<Vec<Candidate>>,
}

/// The generated passes of a trace, in order.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    /// Sizes of its model.
    pub shape: Shape,
    /// Its passes.
    pub passes: Vec<Pass>,
    /// Rows of prompts, which are not replayed: long prompts sweep past the pool.
    pub prompt_rows: u64,
    /// What its choices are like.
    pub figures: Figures,
    last: Option<u32>,
}

impl Trace {
    /// A trace without tokens.
    pub fn new(shape: Shape) -> Self {
        Trace { shape, passes: Vec::new(), prompt_rows: 0, figures: Figures::new(&shape), last: None }
    }

    /// Generated tokens.
    pub fn tokens(&self) -> u64 {
        self.passes.iter().map(|pass| u64::from(pass.rows)).sum()
    }

    /// Adds a token, which must be one of this shape.
    pub fn push(&mut self, token: &Token) {
        if !token.generated {
            self.prompt_rows += 1;
            return;
        }
        self.figures.add(token);
        let layers = token.choices.chunks_exact(self.shape.choices as usize);
        if self.last.replace(token.pass) != Some(token.pass) || self.passes.is_empty() {
            self.passes.push(Pass { rows: 0, experts: vec![Vec::new(); layers.len()], expected: Vec::new() });
        }
        let Some(pass) = self.passes.last_mut() else { return };
        pass.rows += 1;
        for (experts, chosen) in pass.experts.iter_mut().zip(layers) {
            experts.extend(chosen.iter().map(|&expert| u32::from(expert)));
            experts.sort_unstable();
            experts.dedup();
        }
        if let Some(expected) = &token.expected {
            pass.expected.resize(pass.experts.len(), Vec::new());
            let layers = expected.layers(self.shape.choices as usize);
            pass.expected.iter_mut().zip(layers).for_each(|(all, row)| all.extend(row));
        }
    }
}
