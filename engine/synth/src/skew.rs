//! Owns: how often each expert of a made-up router is used, and the norms of its rows that bring it about.
//! Refuses: nothing; where few experts have many choices, the favourites get what they can.
//! Invariants: every expert is used now and then; the favourites' share follows from experts and choices alone.

use crate::random::Stream;

/// Share of all uses that the favourites of a trained model take.
const SHARE: f64 = 0.7;
/// The favourites: one expert in so many.
const ONE_IN: usize = 10;
/// Uses by rank fall as `(1 + rank / knee)` to a negative power; the knee lies where the favourites end.
const STEEPEST: f64 = 8.0;
/// Logits spread around zero, so that a row without a bias wins less than half of the tokens.
const MOST_USED: f64 = 0.45;
/// Of the share that is possible at all, what is aimed at where [`SHARE`] is out of reach: more would starve the rest.
const ATTAINABLE: f64 = 0.9;
/// Spread of the favourite's logits: choices of a token then weigh neither the same nor all in one.
const FAVOURITE_SPREAD: f64 = 1.5;
/// Halvings of an interval: past what an F32 resolves.
const HALVINGS: usize = 60;

/// The uses of the experts of a layer, most used first.
#[derive(Clone, Debug)]
pub struct Skew {
    uses: Vec<f64>,
    choices: usize,
}

impl Skew {
    /// The skew of a layer of so many experts, of which a token uses so many.
    pub fn new(experts: u32, choices: u32) -> Self {
        let (experts, choices) = (experts as usize, choices as usize);
        let most = MOST_USED * favourites(experts) as f64 / choices.max(1) as f64;
        let share = SHARE.min(ATTAINABLE * most);
        let of = |power: f64| Skew { uses: uses(experts, choices, power), choices };
        of(halve(0.0, STEEPEST, |power| of(power).share() < share))
    }

    /// Part of all uses that goes to the most used tenth of the experts.
    pub fn share(&self) -> f64 {
        let favourites: f64 = self.uses.iter().take(favourites(self.uses.len())).sum();
        favourites / (self.choices.max(1) as f64)
    }

    /// Standard deviation of each expert's logits, most used first: over Gaussian logits, the part of the tokens in which
    /// an expert passes one common threshold is then its part of the uses.
    pub fn spreads(&self) -> Vec<f64> {
        let first = self.uses.first().map_or(1.0, |&uses| 1.0 / deviations(uses));
        self.uses.iter().map(|&uses| FAVOURITE_SPREAD / deviations(uses) / first).collect()
    }

    /// The same, by expert: who is a favourite is drawn.
    pub fn spreads_by_expert(&self, stream: Stream) -> Vec<f64> {
        let spreads = self.spreads();
        stream.permutation(spreads.len()).into_iter().filter_map(|rank| spreads.get(rank).copied()).collect()
    }
}

/// How many experts count as favourites.
fn favourites(experts: usize) -> usize {
    experts.div_ceil(ONE_IN)
}

/// Part of the tokens that use each expert: a power of its rank, cut at [`MOST_USED`]; they add up to the choices, where
/// there are experts enough.
fn uses(experts: usize, choices: usize, power: f64) -> Vec<f64> {
    let knee = favourites(experts) as f64;
    let falling: Vec<f64> = (0..experts).map(|rank| (1.0 + rank as f64 / knee).powf(-power)).collect();
    let cut = |factor: f64| falling.iter().map(move |part| (factor * part).min(MOST_USED));
    // Beyond this factor even the least used is cut.
    let most = MOST_USED / falling.last().copied().unwrap_or(1.0);
    let factor = halve(0.0, most, |factor| cut(factor).sum::<f64>() < choices as f64);
    cut(factor).collect()
}

/// Where `is_below` turns false between two numbers.
fn halve(mut low: f64, mut high: f64, is_below: impl Fn(f64) -> bool) -> f64 {
    for _ in 0..HALVINGS {
        let middle = (low + high) / 2.0;
        if is_below(middle) { low = middle } else { high = middle }
    }
    (low + high) / 2.0
}

/// How many standard deviations a Gaussian exceeds with this probability, below one half (Abramowitz and Stegun 26.2.23;
/// off by at most 4.5e-4).
fn deviations(probability: f64) -> f64 {
    const ABOVE: [f64; 3] = [2.515_517, 0.802_853, 0.010_328];
    const BELOW: [f64; 4] = [1.0, 1.432_788, 0.189_269, 0.001_308];
    let t = (-2.0 * probability.ln()).sqrt();
    let polynomial = |terms: &[f64]| terms.iter().rev().fold(0.0, |sum, term| sum * t + term);
    t - polynomial(&ABOVE) / polynomial(&BELOW)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Uses of each expert, most used first, over so many tokens of Gaussian logits.
    fn simulate(skew: &Skew, tokens: u64) -> Vec<u64> {
        let (stream, spreads) = (Stream::new(5, "simulation"), skew.spreads());
        let mut counts = vec![0; spreads.len()];
        for token in 0..tokens {
            let logit = |(expert, spread): (usize, &f64)| {
                let word = stream.word(token * spreads.len() as u64 + expert as u64);
                let unit = |bits: u64| (bits as f64 + 0.5) / f64::from(u32::MAX);
                let radius = (-2.0 * unit(word >> 32).ln()).sqrt();
                (radius * (std::f64::consts::TAU * unit(word & 0xFFFF_FFFF)).cos() * spread, expert)
            };
            let mut logits: Vec<(f64, usize)> = spreads.iter().enumerate().map(logit).collect();
            logits.sort_by(|a, b| b.0.total_cmp(&a.0));
            logits.iter().take(skew.choices).for_each(|&(_, expert)| counts[expert] += 1);
        }
        counts.sort_unstable_by(|a, b| b.cmp(a));
        counts
    }

    #[test]
    fn a_tenth_of_the_experts_takes_seventy_percent_of_the_uses() {
        for (experts, choices) in [(512, 10), (1024, 16), (256, 8), (128, 4), (64, 2)] {
            let skew = Skew::new(experts, choices);
            assert!((skew.share() - SHARE).abs() < 0.01, "{experts}/{choices}: {}", skew.share());
            let counts = simulate(&skew, 3000);
            let favoured: u64 = counts[..favourites(counts.len())].iter().sum();
            let share = favoured as f64 / (3000.0 * f64::from(choices));
            assert!((0.6..=0.8).contains(&share), "{experts}/{choices}: {share}");
        }
    }

    #[test]
    fn every_expert_is_used_now_and_then() {
        for (experts, choices) in [(512, 10), (64, 2), (16, 4)] {
            let counts = simulate(&Skew::new(experts, choices), 20_000);
            let unused = counts.iter().filter(|&&count| count == 0).count();
            assert_eq!(unused, 0, "{experts}/{choices}");
        }
    }

    #[test]
    fn few_experts_with_many_choices_are_as_skewed_as_they_can_be() {
        for (experts, choices) in [(64, 6), (16, 4), (8, 2), (4, 4), (1, 1)] {
            let skew = Skew::new(experts, choices);
            let spreads = skew.spreads();
            assert!(
                spreads.iter().all(|spread| spread.is_finite() && *spread > 0.0),
                "{experts}/{choices}: {spreads:?}"
            );
            assert!(spreads.is_sorted_by(|a, b| a >= b));
        }
        assert!(Skew::new(64, 6).share() > 0.4);
    }

    #[test]
    fn the_tail_of_a_gaussian_is_known() {
        for (probability, known) in [(0.158_655, 1.0), (0.022_750, 2.0), (0.001_350, 3.0)] {
            assert!((deviations(probability) - known).abs() < 1e-3);
        }
    }
}
