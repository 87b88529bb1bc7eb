//! Owns: the tests that what a model reads while it runs is the same from packs, in fewer reads, and that a damaged pack
//! is refused by the readers.

use std::sync::Arc;

use ss_checkpoint::{Checkpoint, OpenOptions, PackKind};
use ss_pack::{Job, SystemDisk, pack};

use super::support::{Bench, Outcome, Random, Setup, dev, dev_copy, patch};
use crate::{Error, Lane, LaneCounts, Lanes, Mutation, NgramOptions, NgramRows, Store, StoreOptions};

fn packed() -> Result<tempfile::TempDir, Box<dyn std::error::Error>> {
    let copy = dev_copy()?;
    pack(&Job::new(copy.path(), &SystemDisk), &mut |_, _| true)?;
    Ok(copy)
}

fn rows_of(checkpoint: &Arc<Checkpoint>) -> crate::Result<NgramRows> {
    let lanes = Lanes::new(LaneCounts::new(4, 4)?);
    NgramRows::new(
        checkpoint.clone(),
        0,
        NgramOptions { cache_bytes: 10_000, lanes, source: None, mutation: Mutation::None },
    )
}

#[test]
fn slots_hold_the_originals_records_when_they_come_from_a_pack() -> Outcome {
    let copy = packed()?;
    let mut bench = Bench::new(&Arc::new(Checkpoint::open(copy.path())?), Setup::default())?;
    // What slots are held against is a model that nobody packed.
    bench.checkpoint = dev();
    let mut random = Random(9);
    for _ in 0..100 {
        let experts = random.distinct(4, 16);
        assert!(bench.acquire(random.below(9) as u32, &experts)?, "a record differs");
        bench.cache.release();
    }
    assert_eq!(bench.wrong_residents(), []);
    Ok(())
}

#[test]
fn rows_from_a_pack_are_the_originals_rows_in_a_third_of_the_reads() -> Outcome {
    let copy = packed()?;
    let packed = Arc::new(Checkpoint::open(copy.path())?);
    let (mut plain, mut rows) = (rows_of(&dev())?, rows_of(&packed)?);
    let end = dev().ngram_tables(0).map_or(0, |tables| tables.rows);
    let mut random = Random(3);
    for count in [8, 8, 300, 8, 2000, 8] {
        let wanted: Vec<u64> = (0..count).map(|_| random.below(end)).collect();
        let mut expected = vec![0.0; count * rows.width()];
        let mut found = vec![f32::NAN; count * rows.width()];
        plain.fetch(&wanted, Lane::Bulk, &mut expected)?;
        rows.fetch(&wanted, Lane::Bulk, &mut found)?;
        assert!(expected == found, "{count} rows differ");
    }
    // Far from one another, so that none share a read.
    let far: Vec<u64> = (0..4).map(|i| i * (end / 4) + 1).collect();
    let reads = |rows: &mut NgramRows| -> crate::Result<u64> {
        let before = rows.counters().reads;
        rows.fetch(&far, Lane::Demand, &mut vec![0.0; far.len() * rows.width()])?;
        Ok(rows.counters().reads - before)
    };
    let (mut plain, mut rows) = (rows_of(&dev())?, rows_of(&packed)?);
    assert_eq!((reads(&mut plain)?, reads(&mut rows)?), (12, 4));
    Ok(())
}

#[test]
fn a_damaged_pack_fails_the_request_and_names_itself() -> Outcome {
    let copy = packed()?;
    let path = copy.path().join("ngram.pack");
    let checkpoint = Arc::new(Checkpoint::open(copy.path())?);
    let row = checkpoint.ngram_pieces(0, 900)?.next().ok_or("no row")?;
    patch(&path, row.offset + 3, &[0xee])?;
    let mut rows = rows_of(&checkpoint)?;
    let mut out = vec![0.0; rows.width()];
    let refused = rows.fetch(&[900], Lane::Demand, &mut out).err().map(|error| error.to_string()).unwrap_or_default();
    assert!(refused.contains("ngram.pack: row 900 of n-gram table 0 is not what was packed"), "{refused}");
    rows.fetch(&[901], Lane::Demand, &mut out)?;

    // A code is only a code: it takes a checksum to notice.
    let options = OpenOptions { check_records: true, ..OpenOptions::default() };
    let checkpoint = Arc::new(Checkpoint::open_with(copy.path(), options)?);
    let record = checkpoint.experts(2).and_then(|files| files.pieces(7).next()).ok_or("no record")?;
    let mut bench = Bench::new(&checkpoint, Setup::default())?;
    assert!(bench.acquire(2, &[7])?);
    let (mut bench, mut code) = (Bench::new(&checkpoint, Setup::default())?, [0]);
    checkpoint.read(ss_checkpoint::FileRange { bytes: 1, ..record.range }, &mut code)?;
    patch(&copy.path().join(PackKind::Experts.file_name()), record.range.offset, &[!code[0]])?;
    let refused = bench.acquire(2, &[7]).err().map(|error| error.to_string()).unwrap_or_default();
    assert!(refused.contains("experts.pack: expert 7 of layer 2 is not what was packed"), "{refused}");
    assert!(bench.acquire(2, &[6])?);
    Ok(())
}

#[test]
fn a_number_that_is_none_in_a_pack_is_refused_without_checksums() -> Outcome {
    let copy = packed()?;
    let checkpoint = Arc::new(Checkpoint::open(copy.path())?);
    let record = checkpoint.experts(1).and_then(|files| files.pieces(2).next()).ok_or("no record")?;
    let scales = checkpoint.expert_layout().gate.scales.offset;
    patch(&copy.path().join("experts.pack"), record.range.offset + scales, &super::support::NAN)?;
    let device = super::support::Device::new();
    let mut store = Store::open(device, checkpoint, StoreOptions::new(12))?;
    let refused = store.experts.acquire(1, &[2], Lane::Bulk);
    let Err(Error::Checkpoint(error)) = refused else { return Err("it was taken".into()) };
    assert!(error.to_string().contains("experts.pack: tensor ") && error.to_string().contains("expert 2"), "{error}");
    Ok(())
}
