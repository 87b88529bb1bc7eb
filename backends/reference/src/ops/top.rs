//! Owns: what is done to logits before the largest are listed, and their list (engine.md 5.3).
//!
//! `l = (logit + bias) * factor - penalty`, -inf where the id may not be drawn; the [`TOP`] largest, descending, ties
//! by ascending id; `ln(sum e^l)`.
//!
//! Row rule: a row is adjusted and listed alone; the ids fed before it count as they would in operations of their own.

use ss_backend::op::{Head, LogitRules, TOP, TOP_HEAD, TOP_NOT_FINITE, TOP_SEEN, Top};
use ss_backend::{Form, NONE, Result};

use crate::math::{exp, ln, rank, ranked_index};
use crate::simd::{Arith, Kernel};
use crate::step::{Step, volume};

/// Adjusted logits and the list of each row. Every row is ranked, so that none is flagged as unranked.
pub fn top(step: &Step<'_>, op: &Top) -> Result<()> {
    let (rows, vocab) = (op.rows.count, op.vocab as usize);
    step.nonzero(&[("vocab", op.vocab)])?;
    if rows > Head::MAX_ROWS {
        let most = Head::MAX_ROWS;
        return Err(step.refuse(format_args!("`rows` is {rows}, at most {most} are allowed")));
    }
    let logits = step.read::<f32>(&op.logits, "logits", volume(&[rows, op.vocab]))?;
    let ids = step.read::<u32>(&op.ids, "ids", rows as usize)?;
    let rules = step.read::<u32>(&op.rules, "rules", LogitRules::WORDS as usize)?;
    let counts = step.read::<u32>(&op.counts, "counts", vocab)?;
    let bias = step.read::<f32>(&op.bias, "bias", vocab)?;
    let mask = step.read::<u32>(&op.mask, "mask", vocab.div_ceil(u32::BITS as usize))?;
    let mut adjusted = step.write::<f32>(&op.adjusted, "adjusted", volume(&[rows, op.vocab]))?;
    let mut out = step.write::<u32>(&op.out, "out", volume(&[rows, Top::WORDS]))?;

    let rules: LogitRules = bytemuck::pod_read_unaligned(bytemuck::cast_slice(&rules));
    let rows = logits.chunks_exact(vocab).zip(adjusted.chunks_exact_mut(vocab));
    for (row, ((logits, adjusted), out)) in rows.zip(out.chunks_exact_mut(Top::WORDS as usize)).enumerate() {
        let fed = if op.rows.form == Form::Generated { &ids[..=row] } else { &[] };
        Adjusting { rules, fed, counts: &counts, bias: &bias, mask: &mask }.run(logits, adjusted);
        let used = &logits[..vocab.min(rules.vocabulary as usize)];
        let flags = if used.iter().all(|logit| logit.is_finite()) { 0 } else { TOP_NOT_FINITE };
        list(step, adjusted, flags, out);
    }
    Ok(())
}

/// What acts on the logits of a row.
struct Adjusting<'a> {
    rules: LogitRules,
    /// Ids that the row and those before it were fed.
    fed: &'a [u32],
    counts: &'a [u32],
    bias: &'a [f32],
    mask: &'a [u32],
}

impl Adjusting<'_> {
    fn run(&self, logits: &[f32], adjusted: &mut [f32]) {
        for ((id, &logit), adjusted) in (0..).zip(logits).zip(adjusted) {
            *adjusted = if self.allows(id) { self.adjust(id, logit) } else { f32::NEG_INFINITY };
        }
    }

    fn allows(&self, id: u32) -> bool {
        let masked = self.rules.masked != 0;
        let bit = |words: &[u32]| words[(id / u32::BITS) as usize] >> (id % u32::BITS) & 1 == 1;
        id < self.rules.vocabulary && (!masked || bit(self.mask))
    }

    fn adjust(&self, id: u32, logit: f32) -> f32 {
        let rules = &self.rules;
        let biased = if rules.biased != 0 { logit + self.bias[id as usize] } else { logit };
        if rules.counted == 0 {
            return biased;
        }
        let (count, fed) = (self.counts[id as usize], self.fed.iter().filter(|&&fed| fed == id).count() as u32);
        let times = (count & !TOP_SEEN) + fed;
        let seen = count & TOP_SEEN != 0 || fed > 0;
        let factor = match (seen, biased > 0.0) {
            (false, _) => 1.0,
            (true, true) => rules.repetition_inverse,
            (true, false) => rules.repetition,
        };
        let penalty = if times > 0 { rules.frequency.mul_add(times as f32, rules.presence) } else { 0.0 };
        // A library call for each product where the processor has no fused one: few ids are seen.
        if seen || times > 0 { biased.mul_add(factor, -penalty) } else { biased }
    }
}

/// The list of a row.
fn list(step: &Step<'_>, adjusted: &[f32], flags: u32, out: &mut [u32]) {
    let drawable = adjusted.iter().zip(0..).filter(|&(&logit, _)| logit > f32::NEG_INFINITY);
    let mut ranks: Vec<u64> = drawable.map(|(&logit, id)| rank(logit, id)).collect();
    let descending = |a: &u64, b: &u64| b.cmp(a);
    if ranks.len() > TOP as usize {
        ranks.select_nth_unstable_by(TOP as usize - 1, descending);
        ranks.truncate(TOP as usize);
    }
    ranks.sort_unstable_by(descending);
    let largest = ranks.first().map_or(f32::NEG_INFINITY, |&rank| adjusted[ranked_index(rank) as usize]);
    let mut sum = largest;
    if largest.is_finite() {
        step.run(LogSumExp { adjusted, largest, sum: &mut sum });
    }
    let (head, places) = out.split_at_mut(TOP_HEAD as usize);
    head.copy_from_slice(&[ranks.len() as u32, flags, sum.to_bits(), 0]);
    let listed = ranks.iter().map(|&rank| {
        let id = ranked_index(rank);
        [adjusted[id as usize].to_bits(), id]
    });
    let nothing = std::iter::repeat([f32::NEG_INFINITY.to_bits(), NONE]);
    places.chunks_exact_mut(2).zip(listed.chain(nothing)).for_each(|(place, pair)| place.copy_from_slice(&pair));
}

/// `ln(sum e^l)` over the numbers of a row that are some, added in their order.
struct LogSumExp<'a> {
    adjusted: &'a [f32],
    /// The largest of them, finite.
    largest: f32,
    sum: &'a mut f32,
}

impl Kernel for LogSumExp<'_> {
    #[inline(always)]
    fn run<A: Arith>(self) {
        let LogSumExp { adjusted, largest, sum } = self;
        let mut total = 0.0;
        for &logit in adjusted {
            let term = exp::<A>(logit - largest);
            total += f64::from(if logit.is_nan() { 0.0 } else { term });
        }
        *sum = largest + ln::<A>(total as f32);
    }
}
