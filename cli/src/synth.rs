//! Owns: `ss synth`: a checkpoint with made-up weights, and what came of writing it.
//! Invariants: a directory with something in it is never touched; Ctrl-C leaves nothing behind, a second one says what.

use std::io::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use ss_checkpoint::LayerKind;
use ss_synth::{Error, Order, Plan, WriteOptions, write};

use crate::args::SynthArgs;
use crate::exit::Exit;
use crate::interrupt::Interrupt;
use crate::progress::Progress;
use crate::report::bytes;
use crate::terminal;

/// Writes the checkpoint and says what it is.
///
/// # Errors
/// When the geometry is none that the engine supports, the directory is in use, or the disk is full or fails.
pub fn synth(args: &SynthArgs) -> Result<Exit> {
    let plan = Plan::new(&Order {
        source: args.geometry.clone(),
        layers: args.layers,
        ngrams: args.ngram,
        ngram_rows: args.ngram_rows,
        draft_head: args.draft_head,
        seed: args.seed,
    })?;
    let dir = args.dir.display();
    let stop = Interrupt::install_with(format!("stopped at once; {dir} is not whole: remove it"))?.arm();
    let options = WriteOptions { threads: args.threads.into(), free: None };
    let (started, mut bar) = (Instant::now(), Progress::writing());
    let outcome = write(&plan, &args.dir, options, &|| stop.is_cancelled(), &mut |done, total| bar.update(done, total));
    drop(bar);
    match outcome {
        Err(stopped @ Error::Cancelled) => {
            terminal::note(stopped);
            return Ok(Exit::Interrupted);
        }
        other => other?,
    }
    let report = Report { args, plan: &plan, took: started.elapsed() };
    let text = if args.json { format!("{:#}\n", report.json()) } else { report.text() };
    std::io::stdout().write_all(text.as_bytes()).context("standard output cannot be written")?;
    Ok(Exit::Answered)
}

/// What came of it.
struct Report<'a> {
    args: &'a SynthArgs,
    plan: &'a Plan,
    took: Duration,
}

impl Report<'_> {
    fn bytes_per_second(&self) -> u64 {
        (self.plan.bytes() as f64 / self.took.as_secs_f64().max(f64::MIN_POSITIVE)) as u64
    }

    fn text(&self) -> String {
        let (plan, geometry, dir) = (self.plan, self.plan.geometry(), self.args.dir.display());
        format!(
            "{dir}: {} layers ({} gated delta, {} sparse attention), {} experts, {} a token\n\
             {} written in {:.1} s, {}/s; {} left as holes\n\
             measure it with `ss bench --model {dir}`\n",
            geometry.layers.len(),
            geometry.count(LayerKind::Gdn),
            geometry.count(LayerKind::Qsa),
            geometry.experts,
            geometry.choices,
            bytes(plan.bytes()),
            self.took.as_secs_f64(),
            bytes(self.bytes_per_second()),
            bytes(plan.holes()),
        )
    }

    fn json(&self) -> Value {
        let geometry = self.plan.geometry();
        json!({
            "path": self.args.dir,
            "layers": geometry.layers.len(),
            "experts": geometry.experts,
            "choices": geometry.choices,
            "draft_head": self.args.draft_head,
            "seed": self.args.seed,
            "files": self.plan.files(),
            "bytes_written": self.plan.bytes(),
            "bytes_of_holes": self.plan.holes(),
            "seconds": self.took.as_secs_f64(),
            "bytes_per_second": self.bytes_per_second(),
            "version": crate::VERSION,
        })
    }
}
