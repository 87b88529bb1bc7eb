//! Owns: cases of the rules on logits and of the list of the largest.
//! Invariants: a row that is flagged as unranked is ranked here, as its reader would; no case but that of nothing but
//! ties may be flagged.

use ss_backend::op::{self, LogitRules, TOP, TOP_HEAD, TOP_SEEN, TOP_UNRANKED};
use ss_backend::{Backend, Buffer, Form, NONE, Result};

use super::rig::{Mode, Random, UNROUNDED_MODES, download, pieces, rows_of, upload, zeros};
use super::{Case, Outcome};

/// Rows of data: two operations at least.
const ROWS: u32 = 11;

/// Logits lie between this and its negative, but for those of a case of their own.
const SPREAD: f32 = 12.0;

/// Added to what is all but forbidden. A power of two, so that what comes of it has the same bits on every device,
/// whether it rounds a product before it adds to it or not.
const FORBIDDING: f32 = -((1u128 << 100) as f32);

/// Numbers from here on are compared by their bits: beside them all others would be too small to be seen.
const HUGE: f32 = 1e20;

/// What no request asks for.
const NO_RULES: LogitRules = LogitRules::none(u32::MAX);

/// All cases of this family.
pub(super) fn cases(random: &mut Random) -> Vec<Box<dyn Case>> {
    let cases = [
        Top::new(random, "every rule", 4099).penalized().biased(random).masked(|id| id % 5 != 3).vocabulary(4090),
        Top::new(random, "not finite", 1500).penalized().vocabulary(1400).spoiled(),
        Top::new(random, "hundreds of ties", 4099).quantized(),
        Top::new(random, "nothing but ties", 4099).level(),
        Top::new(random, "no rules", 7),
        Top::new(random, "every rule", 300).penalized().biased(random).masked(|id| id % 2 == 0),
        Top::new(random, "penalties", 1024).penalized(),
        Top::new(random, "none allowed", 300).masked(|_| false),
        Top::new(random, "one allowed", 4099).masked(|id| id == 4098),
        Top::new(random, "300 allowed", 4099).masked(|id| id % 13 == 4 && id < 3900),
        Top::new(random, "every rule", 40_000).penalized().biased(random).masked(|id| id % 7 != 1),
        Top::new(random, "likely ids side by side", 40_000).clustered(),
    ];
    cases.into_iter().map(|case| Box::new(case) as Box<dyn Case>).collect()
}

/// Rows of logits, the rules on them and what the reply held before.
struct Top {
    name: &'static str,
    vocab: u32,
    logits: Vec<f32>,
    /// What each row was fed; some ids again and again.
    ids: Vec<u32>,
    rules: LogitRules,
    counts: Vec<u32>,
    bias: Vec<f32>,
    mask: Vec<u32>,
    /// Whether so many ids may be equal that a device lists none.
    level: bool,
}

impl Top {
    fn new(random: &mut Random, name: &'static str, vocab: u32) -> Self {
        let count = |id: u32| match id % 6 {
            0 => TOP_SEEN,
            1 => TOP_SEEN | (1 + id % 4),
            _ => 0,
        };
        Top {
            name,
            vocab,
            logits: random.numbers(ROWS * vocab, SPREAD),
            ids: (0..ROWS).map(|row| if row % 2 == 0 { vocab / 2 } else { random.below(vocab) }).collect(),
            rules: NO_RULES,
            counts: (0..vocab).map(count).collect(),
            bias: vec![0.0; vocab as usize],
            mask: vec![0; vocab.div_ceil(u32::BITS) as usize],
            level: false,
        }
    }

    fn penalized(mut self) -> Self {
        let repetition = 1.25;
        let rules = LogitRules { counted: 1, presence: 0.75, frequency: -0.4, repetition, ..self.rules };
        self.rules = LogitRules { repetition_inverse: 1.0 / repetition, ..rules };
        self
    }

    /// Some ids are all but forbidden.
    fn biased(mut self, random: &mut Random) -> Self {
        self.rules.biased = 1;
        for bias in self.bias.iter_mut().step_by(3) {
            *bias = if random.below(9) == 0 { FORBIDDING } else { random.unit() };
        }
        self
    }

    fn masked(mut self, allows: impl Fn(u32) -> bool) -> Self {
        self.rules.masked = 1;
        for (word, first) in self.mask.iter_mut().zip((0..).step_by(u32::BITS as usize)) {
            *word = (0..u32::BITS).map(|bit| u32::from(allows(first + bit)) << bit).sum();
        }
        self
    }

    fn vocabulary(mut self, vocabulary: u32) -> Self {
        self.rules.vocabulary = vocabulary;
        self
    }

    /// Every fifth logit is one of the largest; both zeros are among the logits.
    fn quantized(mut self) -> Self {
        self.logits.iter_mut().for_each(|logit| *logit = (*logit / 5.0).round());
        self
    }

    fn level(mut self) -> Self {
        self.logits.fill(1.5);
        self.level = true;
        self
    }

    /// The largest lie in a range of the ids, as those of common words do.
    fn clustered(mut self) -> Self {
        for row in self.logits.chunks_exact_mut(self.vocab as usize) {
            row.iter_mut().take(1200).for_each(|logit| *logit += 2.0 * SPREAD);
        }
        self
    }

    /// Rows with a NaN, with infinities, with nothing else, and with a NaN that is padding.
    fn spoiled(mut self) -> Self {
        let mut rows = self.logits.chunks_exact_mut(self.vocab as usize);
        let spoilt: [&[(usize, f32)]; 5] = [
            &[(3, f32::NAN), (700, -f32::NAN)],
            &[(2, f32::INFINITY), (1300, f32::INFINITY)],
            &[(0, f32::NEG_INFINITY)],
            &[(1450, f32::NAN)],
            &[],
        ];
        for (row, places) in rows.by_ref().zip(spoilt) {
            for &(id, bad) in places {
                row.iter_mut().skip(id).take(1).for_each(|logit| *logit = bad);
            }
        }
        rows.by_ref().take(1).for_each(|row| row.fill(f32::NAN));
        rows.take(1).for_each(|row| row.fill(f32::NEG_INFINITY));
        self
    }

    /// What the reply holds once the first `rows` generated rows were fed.
    fn counts_after(&self, mode: Mode, rows: u32) -> Vec<u32> {
        let mut counts = self.counts.clone();
        let fed = if mode.form == Form::Generated { rows as usize } else { 0 };
        for &id in self.ids.iter().take(fed) {
            counts.iter_mut().skip(id as usize).take(1).for_each(|count| *count = (*count | TOP_SEEN) + 1);
        }
        counts
    }
}

impl Case for Top {
    fn operation(&self) -> &'static str {
        "Top"
    }

    fn shape(&self) -> String {
        format!("{} ids, {}", self.vocab, self.name)
    }

    fn rows(&self) -> u32 {
        ROWS
    }

    fn most(&self) -> u32 {
        op::Head::MAX_ROWS
    }

    fn modes(&self) -> &'static [Mode] {
        &UNROUNDED_MODES
    }

    fn dispatches(&self) -> Option<u64> {
        Some(2)
    }

    fn run(&self, on: &dyn Backend, mode: Mode, split: &[u32]) -> Result<Outcome> {
        let mut outcome = Outcome::default();
        let rules = upload(on, &[self.rules])?;
        let (bias, mask) = (upload(on, &self.bias)?, upload(on, &self.mask)?);
        pieces(split, |first, rows| {
            let top = op::Top {
                rows: mode.rows(rows),
                vocab: self.vocab,
                logits: upload(on, rows_of(&self.logits, first, rows, self.vocab))?,
                ids: upload(on, self.ids.get(first as usize..(first + rows) as usize).unwrap_or_default())?,
                rules: rules.clone(),
                counts: upload(on, &self.counts_after(mode, first))?,
                bias: bias.clone(),
                mask: mask.clone(),
                adjusted: zeros(on, rows * self.vocab)?,
                out: zeros(on, rows * op::Top::WORDS)?,
            };
            mode.submit(on, |recorder| recorder.top(top.clone()))?;
            self.tell(&mut outcome, on, &top.adjusted, &top.out)
        })?;
        Ok(outcome)
    }
}

impl Top {
    /// Appends what an operation made.
    fn tell(&self, outcome: &mut Outcome, on: &dyn Backend, adjusted: &Buffer, out: &Buffer) -> Result<()> {
        let adjusted: Vec<f32> = download(on, adjusted)?;
        let out: Vec<u32> = download(on, out)?;
        for (adjusted, out) in adjusted.chunks_exact(self.vocab as usize).zip(out.chunks_exact(op::Top::WORDS as usize))
        {
            let (head, list) = out.split_at(TOP_HEAD as usize);
            let (mut head, mut list) = (head.to_vec(), list.to_vec());
            if let ([count, flags, ..], true) = (&mut head[..], self.level) {
                // What a reader does with such a row.
                if *flags & TOP_UNRANKED != 0 && *count == 0 {
                    *flags ^= TOP_UNRANKED;
                    list = ranked(adjusted);
                    *count = TOP.min(self.vocab);
                }
            }
            let pairs = || list.chunks_exact(2).filter_map(|pair| pair.first_chunk().copied());
            outcome.ids("count, flags", head.iter().copied().take(2).collect());
            outcome.ids("listed", pairs().map(|[_, id]| id).collect());
            let sum = head.get(2).map(|&bits| f32::from_bits(bits));
            compared(outcome, ["adjusted", "adjusted, special"], adjusted.iter().copied());
            compared(outcome, ["values", "values, special"], pairs().map(|[bits, _]: [u32; 2]| f32::from_bits(bits)));
            compared(outcome, ["log-sum-exp", "log-sum-exp, special"], sum.into_iter());
        }
        Ok(())
    }
}

/// Appends numbers: those that are finite and not huge under the first name, the bits of others under the second.
fn compared(outcome: &mut Outcome, [plain, special]: [&'static str; 2], numbers: impl Iterator<Item = f32>) {
    let (mut near, mut far) = (Vec::new(), Vec::new());
    for number in numbers {
        let ordinary = number.abs() < HUGE;
        // One NaN is as good as another.
        let bits = if number.is_nan() { NONE } else { number.to_bits() };
        near.push(if ordinary { number } else { 0.0 });
        far.push(if ordinary { 0 } else { bits });
    }
    outcome.numbers(plain, near);
    outcome.ids(special, far);
}

/// The list of a row of finite numbers.
fn ranked(adjusted: &[f32]) -> Vec<u32> {
    let mut ids: Vec<(u32, f32)> = (0..).zip(adjusted.iter().copied()).collect();
    ids.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    ids.iter().take(TOP as usize).flat_map(|(id, value)| [value.to_bits(), *id]).collect()
}
