//! Owns: `ss inspect`: what a model directory holds, without reading its data.

use std::io::Write;

use anyhow::{Context, Result};
use ss_checkpoint::{Checkpoint, Report};

use crate::args::InspectArgs;
use crate::exit::Exit;
use crate::places;

/// Prints the report of a directory.
///
/// # Errors
/// When the directory holds no model, or a damaged one.
pub fn inspect(args: &InspectArgs) -> Result<Exit> {
    let report = Report::of(&Checkpoint::open(&places::model_dir(&args.dir)?)?);
    let text = if args.json { serde_json::to_string_pretty(&report)? + "\n" } else { report.to_string() };
    std::io::stdout().write_all(text.as_bytes()).context("standard output cannot be written")?;
    Ok(Exit::Answered)
}
