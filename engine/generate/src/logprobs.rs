//! Owns: logarithms of probabilities behind rows of raw logits (server.md sections 6 and 7).
//! Refuses: temperature, bias, penalties, masks and filters: the numbers are the model's own softmax over every row of its
//! embedding.
//! Invariants: sums and differences are taken in 64-bit arithmetic over the whole row; the first of a list is what greedy
//! choice takes; an id has the same number alone and in a list.

/// Most alternatives told of a token.
pub const MAX_TOP_LOGPROBS: u8 = 20;

/// An id with the natural logarithm of its probability.
pub type IdLogprob = (u32, f32);

/// A token of the prompt, and how likely the model held it.
#[derive(Clone, Debug, PartialEq)]
pub struct PromptLogprob {
    /// The token.
    pub id: u32,
    /// The natural logarithm of its probability; none for the first token, which nothing comes before.
    pub logprob: Option<f32>,
    /// The likeliest ids in its place, descending, equal ones by id; as many as were asked for.
    pub top: Vec<IdLogprob>,
}

/// A row of raw logits, and the logarithm of the sum of their exponentials.
pub(crate) struct Row<'r> {
    logits: &'r [f32],
    largest: f64,
    /// Logarithm of the sum of `e^(logit - largest)`.
    log_sum: f64,
}

impl<'r> Row<'r> {
    pub(crate) fn new(logits: &'r [f32]) -> Self {
        let largest = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
        let sum: f64 = logits.iter().map(|&logit| (f64::from(logit) - largest).exp()).sum();
        Row { logits, largest, log_sum: sum.ln() }
    }

    /// The logarithm of an id's probability; minus infinity for an id that the model does not have.
    pub(crate) fn of(&self, id: u32) -> f32 {
        let logit = self.logits.get(id as usize).copied().unwrap_or(f32::NEG_INFINITY);
        (f64::from(logit) - self.largest - self.log_sum) as f32
    }

    /// The `count` likeliest ids below `vocabulary`.
    pub(crate) fn top(&self, count: usize, vocabulary: u32) -> Vec<IdLogprob> {
        let mut best: Vec<(u32, f32)> = Vec::with_capacity(count + 1);
        for (id, &logit) in (0..vocabulary).zip(self.logits) {
            if best.len() == count && best.last().is_none_or(|&(_, least)| logit <= least) {
                continue;
            }
            let place = best.partition_point(|&(_, other)| other >= logit);
            best.insert(place, (id, logit));
            best.truncate(count);
        }
        best.into_iter().map(|(id, _)| (id, self.of(id))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_ordered_by_logit_and_then_by_id() {
        let row = Row::new(&[1.0, 3.0, 2.0, 3.0, -1.0, 9.0]);
        let top = row.top(3, 5);
        assert_eq!(
            top.iter().map(|&(id, _)| id).collect::<Vec<_>>(),
            [1, 3, 2],
            "ids past the vocabulary are left out"
        );
        assert!(top.iter().all(|&(id, logprob)| logprob == row.of(id)));
        assert_eq!(row.top(0, 6), []);
        assert_eq!(row.top(20, 6).len(), 6);
    }

    #[test]
    fn probabilities_sum_to_one_over_the_whole_row() {
        let logits: Vec<f32> = (0..5000).map(|id| ((id * 37) % 101) as f32 * 0.3 - 80.0).collect();
        let row = Row::new(&logits);
        let sum: f64 = (0..5000).map(|id| f64::from(row.of(id)).exp()).sum();
        assert!((sum - 1.0).abs() < 1e-5, "{sum}");
        assert_eq!(row.of(5000), f32::NEG_INFINITY);
    }

    #[test]
    fn large_logits_neither_overflow_nor_vanish() {
        let row = Row::new(&[3e38, 3e38, -3e38]);
        assert_eq!(row.of(0), (0.5f64).ln() as f32);
        assert!(row.of(2) < -1e38);
    }
}
