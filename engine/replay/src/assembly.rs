//! Owns: tokens put together from what a model tells layer by layer.
//! Refuses: passes that ended before their last layer; they leave no token.
//! Invariants: a pass's tokens come together, in the order of its rows.

use crate::{Expected, Shape, Token};

/// Tokens in the making.
pub struct Assembly {
    shape: Shape,
    passes: u32,
    tokens: Vec<Token>,
}

impl Assembly {
    /// Nothing yet, of a model of this shape.
    pub fn new(shape: Shape) -> Self {
        Assembly { shape, passes: 0, tokens: Vec::new() }
    }

    /// A pass of so many rows begins behind `first` tokens of its sequence.
    pub fn begin(&mut self, generated: bool, first: u32, rows: u32) {
        let (pass, room) = (self.passes, self.shape.of_token());
        self.passes += 1;
        let token = |row| Token {
            pass,
            position: first + row,
            generated,
            choices: Vec::with_capacity(room),
            margins: Vec::with_capacity(room),
            expected: generated.then(|| Expected::nothing(&self.shape)),
        };
        self.tokens = (0..rows).map(token).collect();
    }

    /// Takes what the rows of a layer chose, `[rows, choices]` both, likeliest first; gives the pass's tokens behind the last
    /// layer, and none before it.
    pub fn layer(&mut self, layer: u32, choices: &[u32], margins: &[f32]) -> Vec<Token> {
        let of_row = self.shape.choices as usize;
        let rows = choices.chunks_exact(of_row).zip(margins.chunks_exact(of_row));
        for (token, (choices, margins)) in self.tokens.iter_mut().zip(rows) {
            // A shape has fewer experts than a u16 has numbers.
            token.choices.extend(choices.iter().map(|&expert| expert as u16));
            token.margins.extend_from_slice(margins);
        }
        if layer + 1 == self.shape.layers { std::mem::take(&mut self.tokens) } else { Vec::new() }
    }

    /// Takes what the rows of a layer that has not chosen yet are expected to choose, in the same way; rows of prompts keep
    /// none.
    pub fn forecast(&mut self, layer: u32, choices: &[u32], margins: &[f32]) {
        let of_row = self.shape.choices as usize;
        let places = layer as usize * of_row..(layer as usize + 1) * of_row;
        let rows = choices.chunks_exact(of_row).zip(margins.chunks_exact(of_row));
        for (token, (choices, margins)) in self.tokens.iter_mut().zip(rows) {
            let Some(expected) = &mut token.expected else { continue };
            let places = expected.experts[places.clone()].iter_mut().zip(&mut expected.margins[places.clone()]);
            for ((expert, margin), (chosen, its)) in places.zip(choices.iter().zip(margins)) {
                (*expert, *margin) = (*chosen as u16, *its);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NO_EXPERT;

    #[test]
    fn rows_become_tokens_behind_the_last_layer_and_what_was_left_is_forgotten() {
        let mut assembly = Assembly::new(Shape { layers: 2, experts: 9, choices: 2, record_bytes: 1 });
        assembly.begin(false, 0, 3);
        assert_eq!(assembly.layer(0, &[1; 6], &[0.0; 6]), []);
        assembly.begin(true, 7, 2);
        assert_eq!(assembly.layer(0, &[1, 2, 3, 4], &[0.5, 0.0, 1.5, 0.0]), []);
        assembly.forecast(1, &[8, 5, 7, 1], &[0.25, 0.0, 0.75, 0.0]);
        let tokens = assembly.layer(1, &[5, 6, 7, 8], &[2.5, 0.0, 3.5, 0.0]);
        let token = |position, choices: [u16; 4], margins: [f32; 4]| Token {
            pass: 1,
            position,
            generated: true,
            choices: choices.to_vec(),
            margins: margins.to_vec(),
            expected: Some(match position {
                7 => Expected { experts: vec![NO_EXPERT, NO_EXPERT, 8, 5], margins: vec![0.0, 0.0, 0.25, 0.0] },
                _ => Expected { experts: vec![NO_EXPERT, NO_EXPERT, 7, 1], margins: vec![0.0, 0.0, 0.75, 0.0] },
            }),
        };
        assert_eq!(
            tokens,
            [token(7, [1, 2, 5, 6], [0.5, 0.0, 2.5, 0.0]), token(8, [3, 4, 7, 8], [1.5, 0.0, 3.5, 0.0])]
        );
    }

    #[test]
    fn rows_of_prompts_keep_no_forecasts() {
        let mut assembly = Assembly::new(Shape { layers: 2, experts: 9, choices: 1, record_bytes: 1 });
        assembly.begin(false, 0, 1);
        assembly.layer(0, &[3], &[0.0]);
        assembly.forecast(1, &[4], &[0.0]);
        let tokens = assembly.layer(1, &[4], &[0.0]);
        assert!(tokens.iter().all(|token| token.expected.is_none()) && tokens.len() == 1);
    }
}
