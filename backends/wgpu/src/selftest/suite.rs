//! Owns: every check over every case, as a table of operations.
//! Refuses: to go on with a device that is lost or full; what it cannot compute is a failure of the operation.
//! Invariants: a quick run makes the same checks of the same cases as a whole one, only fewer of them.

use ss_backend::{Backend, Error, Form, Result};

use super::rig::Mode;
use super::{Case, Failure, Verdict, cases, dispatches, invariance_in, parity, repeatability, splits};

/// Runs that must give the same bits (engine.md 3.6).
const RUNS: u32 = 20;
/// The same in a quick run.
const QUICK_RUNS: u32 = 3;

/// What is checked.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// One case of each operation in one profile, in fewer splits and runs.
    pub quick: bool,
    /// Only operations with this in their name, upper and lower case alike.
    pub operation: Option<String>,
}

/// What came of an operation.
#[derive(Clone, Debug)]
pub struct Row {
    /// Name of the operation, or of those that are checked together.
    pub operation: &'static str,
    /// Cases, each in every profile and form that differs.
    pub cases: usize,
    /// The largest error over its largest number, of the case that came nearest to its bar.
    pub error: f64,
    /// What that case may have.
    pub bar: f64,
    /// Whether no row's bits depended on the rows beside it.
    pub invariant: bool,
    /// Whether every run gave the same bits.
    pub repeatable: bool,
    /// Dispatches of one generated row, and how many there may be.
    pub dispatches: Option<(u64, u64)>,
    /// What went wrong, each with its case.
    pub failures: Vec<String>,
}

impl Row {
    fn new(operation: &'static str) -> Self {
        Row {
            operation,
            cases: 0,
            error: 0.0,
            bar: 0.0,
            invariant: true,
            repeatable: true,
            dispatches: None,
            failures: Vec::new(),
        }
    }

    /// Whether nothing went wrong.
    pub fn passed(&self) -> bool {
        self.failures.is_empty()
    }

    /// Puts a failure on record; a device that cannot go on ends the run.
    fn fail(&mut self, case: &dyn Case, mode: Mode, failure: Failure) -> Result<()> {
        if let Failure::Backend(error @ (Error::Lost { .. } | Error::OutOfMemory { .. })) = failure {
            return Err(error);
        }
        self.failures.push(format!("{}, {mode}: {failure}", case.shape()));
        Ok(())
    }
}

/// Names of all operations, in the order of the table.
pub fn operations() -> Vec<&'static str> {
    let mut names = Vec::new();
    for case in cases() {
        if !names.contains(&case.operation()) {
            names.push(case.operation());
        }
    }
    names
}

/// Checks a device against its twin; `told` hears how many checks of how many are done.
///
/// # Errors
/// [`Error::Lost`] and [`Error::OutOfMemory`]; everything else is in the rows.
pub fn run(
    plan: &Plan,
    device: &dyn Backend,
    twin: &dyn Backend,
    told: &mut dyn FnMut(usize, usize),
) -> Result<Vec<Row>> {
    let cases = plan.cases();
    let (mut done, total) = (0, cases.iter().map(|case| plan.modes(&**case).len()).sum());
    let mut rows: Vec<Row> = Vec::new();
    for case in cases {
        let index = rows.iter().position(|row| row.operation == case.operation()).unwrap_or_else(|| {
            rows.push(Row::new(case.operation()));
            rows.len() - 1
        });
        let Some(row) = rows.get_mut(index) else { continue };
        row.cases += 1;
        for mode in plan.modes(&*case) {
            plan.check(row, &*case, mode, device, twin)?;
            done += 1;
            told(done, total);
        }
        plan.count(row, &*case, device)?;
    }
    Ok(rows)
}

impl Plan {
    fn cases(&self) -> Vec<Box<dyn Case>> {
        let wanted = self.operation.as_ref().map(|name| name.to_lowercase());
        let mut seen = Vec::new();
        let mut cases = cases();
        cases.retain(|case| {
            let named = wanted.as_ref().is_none_or(|name| case.operation().to_lowercase().contains(name));
            let again = seen.contains(&case.operation());
            seen.push(case.operation());
            named && !(self.quick && again)
        });
        cases
    }

    /// A quick run takes each form once, in the profile that rounds most.
    fn modes(&self, case: &dyn Case) -> Vec<Mode> {
        let last = |form: Form| case.modes().iter().rfind(|mode| mode.form == form).copied();
        match self.quick {
            true => [Form::Generated, Form::Prompt].into_iter().filter_map(last).collect(),
            false => case.modes().to_vec(),
        }
    }

    fn check(
        &self,
        row: &mut Row,
        case: &dyn Case,
        mode: Mode,
        device: &dyn Backend,
        twin: &dyn Backend,
    ) -> Result<()> {
        match parity(case, device, twin, mode) {
            Ok(error) => {
                let bar = case.tolerance_in(mode);
                if row.bar == 0.0 || error * row.bar > row.error * bar {
                    (row.error, row.bar) = (error, bar);
                }
            }
            Err(failure) => {
                if let Failure::Far { error, bar, .. } = failure {
                    (row.error, row.bar) = (error, bar);
                }
                row.fail(case, mode, failure)?;
            }
        }
        if let Err(failure) = self.invariance(case, device, mode) {
            row.invariant = false;
            row.fail(case, mode, failure)?;
        }
        let runs = if self.quick { QUICK_RUNS } else { RUNS };
        if let Err(failure) = repeatability(case, device, mode, runs) {
            row.repeatable = false;
            row.fail(case, mode, failure)?;
        }
        Ok(())
    }

    fn invariance(&self, case: &dyn Case, device: &dyn Backend, mode: Mode) -> Verdict<()> {
        let mut splits = splits(case, mode);
        if self.quick {
            // The most ragged of them.
            splits = splits.into_iter().max_by_key(|split| distinct(split)).into_iter().collect();
        }
        invariance_in(case, device, mode, &splits)
    }

    fn count(&self, row: &mut Row, case: &dyn Case, device: &dyn Backend) -> Result<()> {
        let Some(most) = case.dispatches() else { return Ok(()) };
        match dispatches(case, device) {
            Ok(taken) => {
                let worst = row.dispatches.map_or(0, |(taken, _)| taken).max(taken);
                row.dispatches = Some((worst, most));
                if taken > most {
                    row.failures.push(format!("{}: {taken} dispatches, at most {most} are allowed", case.shape()));
                }
                Ok(())
            }
            Err(error @ (Error::Lost { .. } | Error::OutOfMemory { .. })) => Err(error),
            // The checks before have told of it.
            Err(_) => Ok(()),
        }
    }
}

/// How many sizes a split has.
fn distinct(split: &[u32]) -> usize {
    let mut sizes = split.to_vec();
    sizes.sort_unstable();
    sizes.dedup();
    sizes.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ss_reference::{Options, Reference};

    fn rows(quick: bool, operation: Option<&str>) -> (Vec<Row>, Vec<(usize, usize)>) {
        let backend = |simd| Reference::new(Options { threads: 1, simd, ..Options::default() }).unwrap();
        let plan = Plan { quick, operation: operation.map(str::to_owned) };
        let mut told = Vec::new();
        let rows = run(&plan, &backend(true), &backend(false), &mut |done, total| told.push((done, total))).unwrap();
        (rows, told)
    }

    #[test]
    fn a_quick_run_checks_one_case_of_every_operation_in_both_forms() {
        let (rows, told) = rows(true, None);
        assert_eq!(rows.iter().map(|row| row.operation).collect::<Vec<_>>(), operations());
        for row in &rows {
            assert!(row.cases == 1 && row.passed() && row.invariant && row.repeatable, "{row:?}");
        }
        let last = told.len();
        assert!(last > rows.len() && told[0] == (1, last) && told[last - 1] == (last, last), "{told:?}");
    }

    #[test]
    fn operations_are_picked_by_a_part_of_their_name() {
        let (rows, _) = rows(false, Some("cOMb"));
        let [row] = &rows[..] else { panic!("{rows:?}") };
        assert!(row.operation == "Combine" && row.cases > 1 && row.passed(), "{row:?}");
        assert!(row.error > 0.0 && row.error < row.bar, "{row:?}");
    }
}
