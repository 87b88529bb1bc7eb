//! Owns: what a device must show of every operation before it is trusted (engine.md 3.6): parity with a twin, row
//! invariance, repeatability.
//! Refuses: devices of its own; it is handed a device and its twin as [`Backend`]s, and knows nothing else of them.
//! Invariants: a case is the same on every device; a NaN or an infinity fails every comparison.

mod gdn;
mod hyper;
mod moe;
mod ple;
mod qsa;
pub mod rig;
mod suite;
mod top;

use std::fmt;

use ss_backend::{Backend, Error, Form, Result};

#[cfg(all(test, feature = "msl"))]
pub(crate) use moe::experts;
use rig::{MODES, Mode, PRODUCT_MODES, Random};
pub use suite::{Plan, Row, operations, run};

/// Values that an operation made, rows one after the other.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// Numbers, equal within a tolerance.
    Numbers(Vec<f32>),
    /// Ids and choices, equal or not.
    Ids(Vec<u32>),
}

/// What an operation made of all rows of a case: named outputs, and states as they are after the last row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Every value by name.
    pub values: Vec<(&'static str, Values)>,
}

impl Outcome {
    /// Appends numbers to the output of this name.
    pub fn numbers(&mut self, name: &'static str, more: Vec<f32>) {
        match self.named(name) {
            Some(Values::Numbers(numbers)) => numbers.extend(more),
            _ => self.values.push((name, Values::Numbers(more))),
        }
    }

    /// Appends ids to the output of this name.
    pub fn ids(&mut self, name: &'static str, more: Vec<u32>) {
        match self.named(name) {
            Some(Values::Ids(ids)) => ids.extend(more),
            _ => self.values.push((name, Values::Ids(more))),
        }
    }

    fn named(&mut self, name: &str) -> Option<&mut Values> {
        self.values.iter_mut().find(|(other, _)| *other == name).map(|(_, values)| values)
    }
}

/// An operation on fixed random data.
pub trait Case: Send + Sync {
    /// Name of the operation.
    fn operation(&self) -> &'static str;

    /// Shapes and formats, for a table.
    fn shape(&self) -> String;

    /// Rows of data.
    fn rows(&self) -> u32;

    /// Most rows of one operation, where it has a limit of its own.
    fn most(&self) -> u32 {
        u32::MAX
    }

    /// The profiles and forms in which its arithmetic differs.
    fn modes(&self) -> &'static [Mode] {
        &PRODUCT_MODES
    }

    /// Largest error of an output over its largest number: four times the noise of F32.
    fn tolerance(&self) -> f64 {
        4e-6
    }

    /// The tolerance in a mode; what is stored as BF16 may lie a step away from its twin.
    fn tolerance_in(&self, mode: Mode) -> f64 {
        mode.bar(self.tolerance())
    }

    /// Dispatches of one generated row, where section 4 of engine.md sets a limit.
    fn dispatches(&self) -> Option<u64> {
        None
    }

    /// Runs all rows, in operations of `split` rows each, states carried on.
    ///
    /// # Errors
    /// What the backend refuses.
    fn run(&self, on: &dyn Backend, mode: Mode, split: &[u32]) -> Result<Outcome>;
}

/// Every case.
pub fn cases() -> Vec<Box<dyn Case>> {
    let mut cases = hyper::cases(&mut Random(20_261_129));
    cases.extend(gdn::cases(&mut Random(6)));
    cases.extend(ple::cases(&mut Random(9)));
    cases.extend(qsa::cases(&mut Random(7)));
    cases.extend(moe::cases(&mut Random(8)));
    cases.extend(top::cases(&mut Random(10)));
    cases
}

/// What a check says.
pub type Verdict<T> = std::result::Result<T, Failure>;

/// Where a device fell short.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The device refused the operation.
    #[error(transparent)]
    Backend(#[from] Error),
    /// A number is too far from its twin's, or is none.
    #[error(
        "`{name}`[{index}] is {have} where the twin has {want}: an error of {error:.1e}, at most {bar:.1e} is allowed"
    )]
    Far {
        /// Name of the output.
        name: &'static str,
        /// Place.
        index: usize,
        /// On the device.
        have: f32,
        /// On the twin.
        want: f32,
        /// Over the largest number of the output.
        error: f64,
        /// What is allowed.
        bar: f64,
    },
    /// An id, or the bits of a number, is another.
    #[error("`{name}`[{index}] is {have} instead of {want} {when}")]
    Other {
        /// Name of the output.
        name: &'static str,
        /// Place.
        index: usize,
        /// What was found.
        have: String,
        /// What was expected.
        want: String,
        /// When it was found.
        when: String,
    },
    /// The device made other outputs.
    #[error("the outputs have other names or sizes {0}")]
    Outputs(String),
}

/// All rows of a case, as many at once as it and its form take.
pub fn whole(case: &dyn Case, mode: Mode) -> Vec<u32> {
    let most = if mode.form == Form::Generated { case.most().min(rig::MOST_GENERATED) } else { case.most() };
    by(case.rows(), most)
}

/// `rows` rows by `size` and the rest.
fn by(rows: u32, size: u32) -> Vec<u32> {
    (0..rows).step_by(size.min(rows).max(1) as usize).map(|first| size.min(rows - first)).collect()
}

/// The splits in which every row must keep its bits: alone, among 2 to 8, and in ragged tiles at odd offsets.
pub fn splits(case: &dyn Case, mode: Mode) -> Vec<Vec<u32>> {
    let rows = case.rows();
    let mut splits: Vec<_> = [1, 2, 3, 5, 7, 8].iter().map(|&size| by(rows, size)).collect();
    if mode.form == Form::Prompt && case.most() >= rows {
        splits.push([1, 11, 2, 19, 4, 33].iter().cycle().scan(rows, |left, &size| take(left, size)).collect());
        splits.push(by(rows, rows));
    }
    splits.retain(|split| split.iter().all(|&size| size <= case.most()));
    splits
}

fn take(left: &mut u32, size: u32) -> Option<u32> {
    let size = size.min(*left);
    *left -= size;
    (size > 0).then_some(size)
}

/// The largest error of a case against its twin.
///
/// # Errors
/// Where it is larger than the case allows.
pub fn parity(case: &dyn Case, device: &dyn Backend, twin: &dyn Backend, mode: Mode) -> Verdict<f64> {
    let split = whole(case, mode);
    let (have, want) = (case.run(device, mode, &split)?, case.run(twin, mode, &split)?);
    let mut worst = 0.0f64;
    for_each_pair(&have, &want, "on the twin", |name, have, want| {
        match (have, want) {
            (Values::Numbers(have), Values::Numbers(want)) => {
                worst = worst.max(closeness(name, have, want, case.tolerance_in(mode))?);
            }
            _ => same(name, have, want, "on the twin")?,
        }
        Ok(())
    })?;
    Ok(worst)
}

/// Whether every row keeps its bits in every split.
///
/// # Errors
/// Naming the first split in which one does not.
pub fn invariance(case: &dyn Case, device: &dyn Backend, mode: Mode) -> Verdict<()> {
    invariance_in(case, device, mode, &splits(case, mode))
}

/// The same in given splits.
pub(crate) fn invariance_in(case: &dyn Case, device: &dyn Backend, mode: Mode, splits: &[Vec<u32>]) -> Verdict<()> {
    let want = case.run(device, mode, &whole(case, mode))?;
    for split in splits {
        let have = case.run(device, mode, split)?;
        let when = format!("in operations of {split:?} rows");
        for_each_pair(&have, &want, &when, |name, have, want| same(name, have, want, &when))?;
    }
    Ok(())
}

/// Whether `runs` runs of a few rows give the same bits.
///
/// # Errors
/// Naming the first run that does not.
pub fn repeatability(case: &dyn Case, device: &dyn Backend, mode: Mode, runs: u32) -> Verdict<()> {
    let split: Vec<u32> = whole(case, mode).into_iter().take(1).collect();
    let want = case.run(device, mode, &split)?;
    for run in 1..runs {
        let have = case.run(device, mode, &split)?;
        let when = format!("in run {run}");
        for_each_pair(&have, &want, &when, |name, have, want| same(name, have, want, &when))?;
    }
    Ok(())
}

/// Dispatches of one generated row.
///
/// # Errors
/// What the device refuses.
pub fn dispatches(case: &dyn Case, device: &dyn Backend) -> Result<u64> {
    let before = device.counters().dispatches;
    case.run(device, MODES[0], &[1])?;
    Ok(device.counters().dispatches - before)
}

fn for_each_pair(
    have: &Outcome,
    want: &Outcome,
    when: &str,
    mut check: impl FnMut(&'static str, &Values, &Values) -> Verdict<()>,
) -> Verdict<()> {
    let names = |outcome: &Outcome| outcome.values.iter().map(|(name, _)| *name).collect::<Vec<_>>();
    if names(have) != names(want) {
        return Err(Failure::Outputs(when.to_owned()));
    }
    for ((name, have), (_, want)) in have.values.iter().zip(&want.values) {
        let lengths = match (have, want) {
            (Values::Numbers(have), Values::Numbers(want)) => have.len() == want.len(),
            (Values::Ids(have), Values::Ids(want)) => have.len() == want.len(),
            _ => false,
        };
        if !lengths {
            return Err(Failure::Outputs(when.to_owned()));
        }
        check(name, have, want)?;
    }
    Ok(())
}

/// Whether a number is neither infinite nor NaN, by its bits: fast math may take a comparison away.
fn is_finite(number: f32) -> bool {
    const EXPONENT: u32 = 0x7f80_0000;
    number.to_bits() & EXPONENT != EXPONENT
}

/// The largest error over the largest expected number.
fn closeness(name: &'static str, have: &[f32], want: &[f32], bar: f64) -> Verdict<f64> {
    let largest = want.iter().fold(f64::MIN_POSITIVE, |largest, &want| largest.max(f64::from(want).abs()));
    let mut worst = 0.0f64;
    for (index, (&have, &want)) in have.iter().zip(want).enumerate() {
        let finite = is_finite(have) && is_finite(want);
        let error = if finite { (f64::from(have) - f64::from(want)).abs() / largest } else { f64::INFINITY };
        if error > bar {
            return Err(Failure::Far { name, index, have, want, error, bar });
        }
        worst = worst.max(error);
    }
    Ok(worst)
}

/// The same ids, or numbers of the same bits, all finite.
fn same(name: &'static str, have: &Values, want: &Values, when: &str) -> Verdict<()> {
    let differs = |index: usize, have: &dyn fmt::Debug, want: &dyn fmt::Debug| Failure::Other {
        name,
        index,
        have: format!("{have:?}"),
        want: format!("{want:?}"),
        when: when.to_owned(),
    };
    match (have, want) {
        (Values::Numbers(have), Values::Numbers(want)) => {
            for (index, (have, want)) in have.iter().zip(want).enumerate() {
                if have.to_bits() != want.to_bits() || !is_finite(*have) {
                    return Err(differs(index, have, want));
                }
            }
        }
        (Values::Ids(have), Values::Ids(want)) => {
            if let Some(index) = (0..have.len()).find(|&index| have[index] != want[index]) {
                return Err(differs(index, &have[index], &want[index]));
            }
        }
        _ => return Err(Failure::Outputs(when.to_owned())),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_a_number_is_never_close() {
        for bad in [f32::NAN, f32::INFINITY, -f32::NAN] {
            assert!(closeness("x", &[1.0, bad], &[1.0, 2.0], f64::MAX).is_err());
            assert!(closeness("x", &[1.0, 2.0], &[1.0, bad], f64::MAX).is_err());
            let numbers = Values::Numbers(vec![bad]);
            assert!(same("x", &numbers, &numbers, "").is_err());
        }
    }

    #[test]
    fn a_distance_past_the_bar_is_told_with_its_place() {
        let far = closeness("x", &[1.0, 2.5], &[1.0, 2.0], 0.1).unwrap_err().to_string();
        assert!(far.contains("`x`[1] is 2.5") && far.contains("2.5e-1"), "{far}");
    }
}
