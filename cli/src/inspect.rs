//! Owns: `ss inspect`: what a model directory holds, without reading its data.

use std::io::Write;

use anyhow::Result;
use ss_checkpoint::{Checkpoint, Report};

use crate::args::InspectArgs;
use crate::exit::Exit;

/// Prints the report of a directory.
///
/// # Errors
/// When the directory holds no model, or a damaged one.
pub fn inspect(args: &InspectArgs) -> Result<Exit> {
    let report = Report::of(&Checkpoint::open(&args.dir)?);
    let mut out = std::io::stdout().lock();
    if args.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?;
    } else {
        write!(out, "{report}")?;
    }
    Ok(Exit::Answered)
}
