//! Owns: `ss pack`: packing a model directory, verifying and repairing its packs, giving back the space of the originals.
//! Refuses: a directory that is no model.
//! Invariants: standard output says what is there now; Ctrl-C keeps what is done.

use std::io::Write;
use std::time::Instant;

use anyhow::{Context, Result};
use ss_checkpoint::PackKind;
use ss_model::Cancel;
use ss_pack::{Damage, Error, Job, Packed, SystemDisk, Verified};

use crate::args::PackArgs;
use crate::exit::Exit;
use crate::interrupt::Interrupt;
use crate::progress::Progress;
use crate::{places, terminal};

const GIGABYTE: f64 = 1e9;

/// Packs a directory, or looks at its packs.
///
/// # Errors
/// When the directory holds no model, the disk is full or fails, or a pack is damaged.
pub fn pack(args: &PackArgs) -> Result<Exit> {
    let dir = places::model_dir(&args.dir)?;
    let kinds: &[PackKind] = if args.experts_only { &[PackKind::Experts] } else { &PackKind::ALL };
    let job = Job { kinds, ..Job::new(&dir, &SystemDisk) };
    let stop = Interrupt::install()?.arm();
    let ended = match args {
        PackArgs { verify: true, .. } => verify(&job, &stop),
        PackArgs { repair: true, .. } => repair(&job, &stop).and_then(|()| write(&job, &stop)),
        PackArgs { reclaim: true, .. } => write(&job, &stop).and_then(|()| reclaim(&job, &stop)),
        _ => write(&job, &stop),
    };
    match ended {
        Err(error) if matches!(error.downcast_ref(), Some(Error::Stopped { .. })) => {
            let goes_on = if args.verify { "" } else { "; the same command goes on from there" };
            terminal::note(format_args!("{error}{goes_on}"));
            Ok(Exit::Interrupted)
        }
        ended => ended.map(|()| Exit::Answered),
    }
}

fn write(job: &Job<'_>, stop: &Cancel) -> Result<()> {
    let (mut bar, started) = (Progress::packing(), Instant::now());
    let packed = ss_pack::pack(job, &mut |done, total| {
        bar.update(done, total);
        !stop.is_cancelled()
    })?;
    drop(bar);
    let seconds = started.elapsed().as_secs_f64();
    for pack in &packed {
        let Packed { path, bytes, records, written, .. } = pack;
        let size = format!("{records} records, {:.3} GB", *bytes as f64 / GIGABYTE);
        match written {
            0 => say(format_args!("{}: {size}, already packed", path.display()))?,
            _ => say(format_args!("{}: {size}, {written} written", path.display()))?,
        }
    }
    let bytes: f64 = packed.iter().filter(|pack| pack.written > 0).map(written_bytes).sum();
    if bytes > 0.0 {
        say(format_args!(
            "packed {:.3} GB in {seconds:.1} s, {:.2} GB/s",
            bytes / GIGABYTE,
            bytes / GIGABYTE / seconds
        ))?;
    }
    Ok(())
}

fn written_bytes(pack: &Packed) -> f64 {
    pack.bytes as f64 * pack.written as f64 / pack.records.max(1) as f64
}

fn verify(job: &Job<'_>, stop: &Cancel) -> Result<()> {
    let mut bar = Progress::verifying();
    let verified = ss_pack::verify(job, &mut |done, total| {
        bar.update(done, total);
        !stop.is_cancelled()
    })?;
    drop(bar);
    verified.iter().try_for_each(tell)
}

/// Takes back what is damaged, for [`write`] to pack it again.
fn repair(job: &Job<'_>, stop: &Cancel) -> Result<()> {
    let mut bar = Progress::verifying();
    let damages = ss_pack::repair(job, &mut |done, total| {
        bar.update(done, total);
        !stop.is_cancelled()
    })?;
    drop(bar);
    damages.iter().try_for_each(|Damage { path, record }| {
        say(format_args!("{}: {record} was damaged; it is packed again from there on", path.display()))
    })
}

fn tell(pack: &Verified) -> Result<()> {
    let against = if pack.against_originals { "checksums and originals" } else { "checksums" };
    let path = pack.path.display();
    say(format_args!("{path}: {} records, {:.3} GB, as {against} say", pack.records, pack.bytes as f64 / GIGABYTE))
}

fn reclaim(job: &Job<'_>, stop: &Cancel) -> Result<()> {
    let mut bar = Progress::verifying();
    let freed = ss_pack::reclaim(job, &mut |done, total| {
        bar.update(done, total);
        !stop.is_cancelled()
    })?;
    drop(bar);
    freed.verified.iter().try_for_each(tell)?;
    say(format_args!("gave back {:.3} GB inside {} weight files", freed.bytes as f64 / GIGABYTE, freed.files))
}

fn say(text: std::fmt::Arguments<'_>) -> Result<()> {
    writeln!(std::io::stdout(), "{text}").context("standard output cannot be written")
}
