//! Owns: `ss bench`: how fast a model reads prompts and writes replies at given sizes of its slot pool.
//! Refuses: text; ids come from a seed.
//! Invariants: every test runs once uncounted, on a GPU for a second, so that kernels are built and the pool is filled. How far
//! decode runs ahead follows the hit rate, so that the first tokens of a short test may still come in more submissions.

mod figures;
mod measure;

use std::io::Write;

use anyhow::{Context, Result};
use ss_stream::PoolSize;

use crate::args::BenchArgs;
use crate::device::Timing;
use crate::exit::Exit;
use crate::interrupt::Interrupt;
use crate::setup::{Source, name};
use crate::terminal;

use figures::{Figures, Head};
use measure::Plan;

/// Runs the tests and prints a row for each as it ends.
///
/// # Errors
/// When the model cannot be loaded, a test finds no room, or the device fails.
pub fn bench(args: &BenchArgs) -> Result<Exit> {
    Interrupt::install()?;
    let timing = match (args.profile_kernels, args.profile) {
        (true, _) => Timing::Kernels,
        (false, true) => Timing::On,
        (false, false) => Timing::Off,
    };
    let mut source = Source::open_with(&args.load, args.prefill_pass, timing)?.measured(args)?;
    let slots = sizes(args, &source)?;
    let plan = Plan::new(args, source.checkpoint.geometry().max_positions)?;
    plan.notes.iter().for_each(|note| terminal::note(format_args!("note: {note}")));
    source.device.prove()?;
    let head = Head {
        model: name(&source.dir),
        facts: source.device.backend.facts().clone(),
        arithmetic: args.load.arithmetic,
        all_slots: source.pool().all(),
        prefill_pass: args.prefill_pass,
        read_group: source.read_group,
        repetitions: args.repetitions,
        profile: args.profile || args.profile_kernels,
    };
    let say = |text: String| {
        if args.json {
            terminal::note(text);
            return Ok(());
        }
        writeln!(std::io::stdout(), "{text}").context("standard output cannot be written")
    };
    say(head.text())?;
    let (mut figures, mut untimed) = (Figures::new(head), false);
    for slots in slots {
        // One pool at a time: two may not fit.
        let mut model = source.load(slots)?;
        for test in &plan.tests {
            let measured = test.measure(&mut model, args)?;
            untimed |= measured.kernels.is_empty();
            say(figures.add(slots, *test, measured))?;
        }
    }
    if args.profile_kernels && untimed {
        let device = &source.device.backend.facts().device;
        terminal::note(format_args!(
            "note: {device} does not tell how long each kernel takes, so that none are listed"
        ));
    }
    source.device.keep();
    if args.json {
        let json = format!("{:#}\n", figures.json()?);
        std::io::stdout().write_all(json.as_bytes()).context("standard output cannot be written")?;
    }
    Ok(Exit::Answered)
}

/// Slots of each pool, all of them checked before the first is made.
fn sizes(args: &BenchArgs, source: &Source) -> Result<Vec<u32>> {
    if args.slots.is_empty() {
        let all = source.slots(Some(PoolSize::All));
        return Ok(vec![all.or_else(|_| source.slots(None))?]);
    }
    args.slots.iter().map(|&size| source.slots(Some(size))).collect()
}
