//! Owns: what the choices of a trace are like: how skewed, how lasting, how close.
//! Invariants: generated tokens only.

use ss_stream::LookaheadOptions;

use crate::{Shape, Token};

/// The most used experts whose share of the uses is told: one in so many.
const ONE_IN: usize = 10;

/// Counts over the generated tokens of a trace.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    choices: usize,
    experts: usize,
    /// `[layers, experts]`.
    uses: Vec<u64>,
    /// `[layers, choices]` of the token before.
    before: Vec<u16>,
    /// Choices that had a token before.
    followed: u64,
    /// Those that the token before had made too.
    repeated: u64,
    /// Choices above the last of their layer.
    ranked: u64,
    /// Those closer to the last than what is read ahead.
    close: u64,
}

impl Figures {
    pub(crate) fn new(shape: &Shape) -> Self {
        Figures {
            choices: shape.choices as usize,
            experts: shape.experts as usize,
            uses: vec![0; (shape.layers * shape.experts) as usize],
            before: Vec::new(),
            followed: 0,
            repeated: 0,
            ranked: 0,
            close: 0,
        }
    }

    pub(crate) fn add(&mut self, token: &Token) {
        for (layer, chosen) in token.choices.chunks_exact(self.choices).enumerate() {
            let before = self.before.get(layer * self.choices..).and_then(|rest| rest.get(..self.choices));
            for expert in chosen {
                if let Some(uses) = self.uses.get_mut(layer * self.experts + usize::from(*expert)) {
                    *uses += 1;
                }
                self.followed += u64::from(before.is_some());
                self.repeated += u64::from(before.is_some_and(|before| before.contains(expert)));
            }
        }
        for margins in token.margins.chunks_exact(self.choices) {
            let above = margins.iter().take(self.choices - 1);
            self.ranked += above.len() as u64;
            self.close += above.filter(|&&margin| margin < LookaheadOptions::default().margin).count() as u64;
        }
        self.before.clone_from(&token.choices);
    }

    /// Share of the uses that the most used tenth of each layer's experts takes.
    pub fn favoured(&self) -> f64 {
        let favourites = self.experts.div_ceil(ONE_IN);
        let of_layer = |uses: &[u64]| {
            let mut uses = uses.to_vec();
            uses.sort_unstable_by(|a, b| b.cmp(a));
            uses.iter().take(favourites).sum::<u64>()
        };
        share(self.uses.chunks(self.experts.max(1)).map(of_layer).sum(), self.uses.iter().sum())
    }

    /// Share of the choices that the token before had made in the same layer.
    pub fn repeated(&self) -> f64 {
        share(self.repeated, self.followed)
    }

    /// Share of the choices above a layer's last whose margin is below what the lookahead asks for.
    pub fn close(&self) -> f64 {
        share(self.close, self.ranked)
    }
}

/// A part of a whole; 0 of nothing.
pub(crate) fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
