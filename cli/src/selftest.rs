//! Owns: `ss selftest`: every operation of a device against its twin, as a table.
//! Invariants: anything that fails ends the program with the code of a failed device.

use std::fmt::Write as _;
use std::io::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use ss_backend::DeviceFacts;
use ss_wgpu::selftest::{Plan, Row, operations, run};

use crate::args::{BackendChoice, SelftestArgs};
use crate::device::{Device, Timing};
use crate::devices::facts_json;
use crate::exit::Exit;
use crate::interrupt::Interrupt;
use crate::progress::Progress;
use crate::trust;
use crate::verdicts::{Tested, Verdict, Verdicts};

/// Failures told below the table; `--json` has them all.
const MOST_FAILURES: usize = 20;

/// Runs the test and prints its table.
///
/// # Errors
/// When there is no such device, or it is lost on the way.
pub fn selftest(args: &SelftestArgs) -> Result<Exit> {
    let plan = plan(args)?;
    let mut flags = args.device.clone();
    // The processor is tested where somebody asks for it: a machine without an adapter has nothing to prove.
    if flags.backend == BackendChoice::Auto {
        flags.backend = BackendChoice::Wgpu;
    }
    Interrupt::install()?;
    let device = Device::open(&flags, Timing::Off)?;
    let twin = device.twin()?;
    let (started, mut bar) = (Instant::now(), Progress::testing());
    let rows = run(&plan, &*device.backend, &twin, &mut |done, total| bar.update(done as u64, total as u64))?;
    drop(bar);
    let report = Report {
        facts: device.backend.facts(),
        matrix_units: device.uses_matrix_units(),
        plan: &plan,
        rows: &rows,
        took: started.elapsed(),
    };
    if device.is_adapter() && plan.operation.is_none() {
        let (tested, failure) = (Tested::of(report.facts, device.way()), trust::failure(&rows));
        trust::keep(&mut Verdicts::open(), Verdict { tested, whole: !plan.quick, failure });
    }
    device.keep();
    let text = if args.json { format!("{:#}\n", report.json()) } else { report.text() };
    std::io::stdout().write_all(text.as_bytes()).context("standard output cannot be written")?;
    Ok(if report.passed() { Exit::Answered } else { Exit::Device })
}

fn plan(args: &SelftestArgs) -> Result<Plan> {
    let plan = Plan { quick: args.quick, operation: args.operation.clone() };
    if let Some(name) = &plan.operation {
        let (names, wanted) = (operations(), name.to_lowercase());
        ensure!(
            names.iter().any(|name| name.to_lowercase().contains(&wanted)),
            "`--operation`: there is no operation `{name}`; there are {}",
            names.join(", ")
        );
    }
    Ok(plan)
}

/// What came of a test.
struct Report<'a> {
    facts: &'a DeviceFacts,
    matrix_units: bool,
    plan: &'a Plan,
    rows: &'a [Row],
    took: Duration,
}

impl Report<'_> {
    fn passed(&self) -> bool {
        self.rows.iter().all(Row::passed)
    }

    fn text(&self) -> String {
        let width = self.rows.iter().map(|row| row.operation.len()).max().unwrap_or_default();
        let mut text = String::new();
        let units = if self.matrix_units { ", prompts with matrix units" } else { "" };
        let _ = writeln!(text, "{}, driver {}{units}", self.facts.device, driver(self.facts));
        let _ = writeln!(
            text,
            "\n{:<width$}  cases  worst error / allowed  rows alike  runs alike  dispatches  verdict",
            "operation"
        );
        for row in self.rows {
            let _ = writeln!(
                text,
                "{:<width$}  {:>5}  {:>11.1e} / {:<7.1e}  {:>10}  {:>10}  {:>10}  {}",
                row.operation,
                row.cases,
                row.error,
                row.bar,
                yes(row.invariant),
                yes(row.repeatable),
                dispatches(row),
                if row.passed() { "passed" } else { "FAILED" },
            );
        }
        text.push('\n');
        let failures: Vec<String> = self
            .rows
            .iter()
            .flat_map(|row| row.failures.iter().map(|what| format!("{}: {what}", row.operation)))
            .collect();
        for failure in failures.iter().take(MOST_FAILURES) {
            let _ = writeln!(text, "{failure}");
        }
        if failures.len() > MOST_FAILURES {
            let _ = writeln!(text, "... and {} more", failures.len() - MOST_FAILURES);
        }
        let failed = self.rows.iter().filter(|row| !row.passed()).count();
        let verdict = match failed {
            0 => format!(
                "{} operations passed{}",
                self.rows.len(),
                if self.plan.quick { " in their quick form" } else { "" }
            ),
            failed => format!("{failed} of {} operations failed", self.rows.len()),
        };
        let _ = writeln!(text, "{verdict} in {:.1} s", self.took.as_secs_f64());
        text
    }

    fn json(&self) -> Value {
        let rows: Vec<Value> = self
            .rows
            .iter()
            .map(|row| {
                json!({
                    "operation": row.operation,
                    "cases": row.cases,
                    "worst_error": row.error,
                    "allowed_error": row.bar,
                    "row_invariant": row.invariant,
                    "repeatable": row.repeatable,
                    "dispatches": row.dispatches.map(|(taken, _)| taken),
                    "allowed_dispatches": row.dispatches.map(|(_, most)| most),
                    "passed": row.passed(),
                    "failures": row.failures,
                })
            })
            .collect();
        json!({
            "device": facts_json(self.facts),
            "matrix_units": self.matrix_units,
            "quick": self.plan.quick,
            "operations": rows,
            "passed": self.passed(),
            "seconds": self.took.as_secs_f64(),
            "version": crate::VERSION,
        })
    }
}

/// The driver's name and version; the reference backend has none.
fn driver(facts: &DeviceFacts) -> &str {
    if facts.driver.is_empty() { "none" } else { &facts.driver }
}

fn yes(is: bool) -> &'static str {
    if is { "yes" } else { "NO" }
}

fn dispatches(row: &Row) -> String {
    row.dispatches.map_or_else(|| "-".to_string(), |(taken, most)| format!("{taken} of {most}"))
}
