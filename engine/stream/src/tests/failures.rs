//! Owns: the tests that a failing disk or device, or a damaged file, fails one request by name and nothing after it.

use std::sync::atomic::Ordering;

use ss_checkpoint::{Checkpoint, FileRange};

use super::support::{Bench, Disk, NAN, Outcome, Random, Setup, dev, dev_copy, patch, system_error};
use crate::{Error, ExpertId};

const EIO: i32 = 5;
const ESTALE: i32 = 116;

/// Fails the reads that `which` picks out.
fn failing(code: i32, mut which: impl FnMut(FileRange) -> bool + Send + 'static) -> Outcome {
    let checkpoint = dev();
    let on = checkpoint.clone();
    let disk = Disk::failing(&checkpoint, move |range| which(range).then(|| system_error(&on, range, code)));
    let mut bench = Bench::new(&checkpoint, Setup { source: Some(disk), ..Setup::default() })?;
    let mut random = Random(11);
    let (mut failures, mut successes) = (0, 0);
    for step in 0..300 {
        let (layer, experts) = (random.below(9) as u32, random.distinct(4, 16));
        let held = bench.cache.table().unpinned();
        match bench.acquire(layer, &experts) {
            Ok(right) => {
                assert!(right, "step {step}: a wrong record was handed out");
                successes += 1;
            }
            Err(error) => {
                let text = error.to_string();
                assert!(text.contains(".safetensors") && text.contains("cannot read"), "{text}");
                assert_eq!(bench.cache.table().unpinned(), held, "a failed request holds slots");
                failures += 1;
            }
        }
        assert_eq!(bench.wrong_residents(), [], "step {step}");
        if step % 3 == 2 {
            bench.cache.release();
            assert_eq!(bench.cache.table().unpinned(), 12);
        }
    }
    assert!(failures > 10 && successes > 10, "{failures} failures, {successes} successes");
    assert!(bench.cache.counters().evictions > 0);
    Ok(())
}

#[test]
fn reads_that_fail_now_and_then_fail_their_request_and_leave_the_table_whole() -> Outcome {
    let mut count = 0;
    failing(EIO, move |_| {
        count += 1;
        count % 40 == 0
    })
}

#[test]
fn a_file_that_vanished_fails_what_it_held_and_nothing_else() -> Outcome {
    let gone = dev().experts(0).and_then(|files| files.pieces(0).next()).map(|piece| piece.range.file);
    failing(ESTALE, move |range| Some(range.file) == gone)
}

#[test]
fn a_file_that_shrank_gives_a_short_read_by_name_and_works_again_when_it_is_whole() -> Outcome {
    let copy = dev_copy()?;
    let checkpoint = std::sync::Arc::new(Checkpoint::open(copy.path())?);
    let mut bench = Bench::new(&checkpoint, Setup::default())?;
    let piece = checkpoint.experts(4).and_then(|files| files.pieces(15).last()).ok_or("no experts")?;
    let path = checkpoint.file(piece.range.file)?.path().to_owned();
    let whole = std::fs::read(&path)?;
    patch(&path, 0, &[])?;
    std::fs::OpenOptions::new().write(true).open(&path)?.set_len(piece.range.offset + 1)?;
    let text = bench.acquire(4, &[15]).map_err(|error| error.to_string()).err().unwrap_or_default();
    assert!(text.contains(&path.display().to_string()) && text.contains("ends early"), "{text}");
    std::fs::write(&path, whole)?;
    assert!(bench.acquire(4, &[15])?);
    Ok(())
}

#[test]
fn a_record_with_a_nan_is_never_resident_and_its_neighbours_are() -> Outcome {
    let copy = dev_copy()?;
    let checkpoint = std::sync::Arc::new(Checkpoint::open(copy.path())?);
    let scales = checkpoint.experts(2).and_then(|files| files.pieces(6).nth(1)).ok_or("no scales")?;
    let path = checkpoint.file(scales.range.file)?.path().to_owned();
    patch(&path, scales.range.offset + 4, &NAN)?;
    let mut bench = Bench::new(&checkpoint, Setup::default())?;
    let text = bench.acquire(2, &[5, 6, 7]).map_err(|error| error.to_string()).err().unwrap_or_default();
    assert!(text.contains(&path.display().to_string()) && text.contains("gate_proj.scales"), "{text}");
    assert_eq!(bench.cache.table().slot(ExpertId { layer: 2, expert: 6 }), None);
    assert_eq!(bench.cache.table().unpinned(), 12);
    assert!(bench.acquire(2, &[5, 7])?);
    Ok(())
}

#[test]
fn a_device_that_gives_no_slot_or_is_lost_leaves_the_table_whole() -> Outcome {
    let mut bench = Bench::new(&dev(), Setup::default())?;
    assert!(bench.acquire(0, &[1, 2])?);
    bench.device.refuse_open.store(1, Ordering::Relaxed);
    assert!(matches!(bench.acquire(0, &[2, 3]), Err(Error::Device(_))));
    bench.device.lose.store(true, Ordering::Relaxed);
    assert!(matches!(bench.acquire(0, &[2, 3, 4]), Err(Error::Device(ss_backend::Error::Lost { .. }))));
    assert_eq!(bench.cache.table().residents().count(), 2);
    assert_eq!(bench.cache.table().unpinned(), 10);
    assert!(bench.acquire(0, &[2, 3, 4])?);
    assert_eq!(bench.wrong_residents(), []);
    Ok(())
}
