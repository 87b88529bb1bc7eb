//! Owns: the tests that an n-gram row's numbers are those of the file, whatever the cache, the lanes and the neighbours.

use std::sync::Arc;

use half::bf16;
use ss_checkpoint::{Checkpoint, Format};

use super::support::{Disk, NAN, Outcome, Random, dev, dev_copy, patch, system_error};
use crate::{Error, Lane, LaneCounts, Lanes, Mutation, NgramOptions, NgramRows, ROW_CACHE_BYTES};

fn rows(checkpoint: &Arc<Checkpoint>, cache_bytes: u64, lanes: u16) -> crate::Result<NgramRows> {
    let lanes = Lanes::new(LaneCounts::new(lanes, lanes)?);
    let options = NgramOptions { cache_bytes, lanes, source: None, mutation: Mutation::None };
    NgramRows::new(checkpoint.clone(), 0, options)
}

fn fetch(rows: &mut NgramRows, wanted: &[u64]) -> crate::Result<Vec<f32>> {
    let mut out = vec![f32::NAN; wanted.len() * rows.width()];
    rows.fetch(wanted, Lane::Bulk, &mut out)?;
    Ok(out)
}

/// A row by the formula of checkpoint.md section 3, read on its own.
fn by_hand(checkpoint: &Checkpoint, row: u64) -> Result<Vec<f32>, Box<dyn std::error::Error>> {
    let info = checkpoint.ngram_row(0, row)?;
    let Format::Affine { bits: 4, group, .. } = info.matrix.format else { return Err("not a 4-bit table".into()) };
    let read = |range: ss_checkpoint::FileRange| {
        let mut bytes = vec![0; range.bytes as usize];
        checkpoint.read(range, &mut bytes).map(|()| bytes)
    };
    let codes = read(info.codes)?;
    let scales = read(info.scales.ok_or("no scales")?)?;
    let biases = read(info.biases.ok_or("no biases")?)?;
    let number = |bytes: &[u8], g: usize| bf16::from_le_bytes([bytes[2 * g], bytes[2 * g + 1]]).to_f32();
    let value = |c: usize| {
        let word = u32::from_le_bytes([0, 1, 2, 3].map(|i| codes[c / 8 * 4 + i]));
        let code = (word >> (4 * (c % 8))) & 15;
        number(&scales, c / group as usize) * code as f32 + number(&biases, c / group as usize)
    };
    Ok((0..info.matrix.cols as usize).map(value).collect())
}

fn table_rows(checkpoint: &Checkpoint) -> u64 {
    checkpoint.ngram_tables(0).map_or(0, |tables| tables.rows)
}

/// A few prompts and decode steps: random rows, some again and again, some side by side.
fn passes(checkpoint: &Checkpoint) -> Vec<Vec<u64>> {
    let (mut random, end) = (Random(5), table_rows(checkpoint));
    let mut pass = |rows: usize| -> Vec<u64> {
        let first = random.below(end - 40);
        let near = (0..rows / 4).map(|i| first + (i as u64 % 40));
        let mut pass: Vec<u64> = near.collect();
        pass.extend((pass.len()..rows).map(|_| random.below(end) * random.below(2)));
        pass
    };
    [400, 8, 8, 1000, 8, 1, 0, 8, 2000, 8].map(&mut pass).to_vec()
}

fn bits(numbers: &[f32]) -> Vec<u32> {
    numbers.iter().map(|number| number.to_bits()).collect()
}

#[test]
fn rows_are_those_of_the_file_whatever_the_cache_holds_and_however_many_lanes_read() -> Outcome {
    let checkpoint = dev();
    let all: Vec<Vec<f32>> =
        (0..table_rows(&checkpoint)).map(|row| by_hand(&checkpoint, row)).collect::<Result<_, _>>()?;
    for (cache_bytes, lanes) in [(0, 4), (1, 4), (2_000, 1), (20_000, 32), (ROW_CACHE_BYTES, 12)] {
        let mut rows = rows(&checkpoint, cache_bytes, lanes)?;
        for pass in passes(&checkpoint) {
            let found = fetch(&mut rows, &pass)?;
            let expected: Vec<f32> = pass.iter().flat_map(|&row| all[row as usize].clone()).collect();
            assert!(bits(&found) == bits(&expected), "cache of {cache_bytes} bytes, {lanes} lanes");
        }
        let counters = rows.counters();
        assert_eq!(counters.rows, counters.hits + counters.misses);
        assert!(counters.misses > 0 && counters.hits > 0, "{counters:?}");
        let small = (2_000..ROW_CACHE_BYTES).contains(&cache_bytes);
        assert_eq!(counters.evictions > 0, small, "cache of {cache_bytes} bytes: {counters:?}");
    }
    Ok(())
}

#[test]
fn a_row_that_is_kept_is_read_once() -> Outcome {
    let checkpoint = dev();
    let mut large = rows(&checkpoint, ROW_CACHE_BYTES, 4)?;
    fetch(&mut large, &[7, 900, 7])?;
    let (reads, bytes) = (large.counters().reads, large.counters().bytes_read);
    fetch(&mut large, &[900, 7])?;
    let counters = large.counters();
    assert_eq!((counters.rows, counters.hits, counters.misses), (5, 3, 2));
    assert_eq!((counters.reads, counters.bytes_read), (reads, bytes));
    let mut none = rows(&checkpoint, 0, 4)?;
    fetch(&mut none, &[7, 900, 7])?;
    fetch(&mut none, &[900, 7])?;
    assert_eq!((none.counters().misses, none.counters().hits), (4, 1));
    Ok(())
}

#[test]
fn neighbours_share_a_read_and_strangers_do_not() -> Outcome {
    let checkpoint = dev();
    let mut rows = rows(&checkpoint, 0, 4)?;
    let record = checkpoint.ngram_row(0, 0)?.matrix.bytes();
    fetch(&mut rows, &[12, 10, 13, 11])?;
    assert_eq!((rows.counters().reads, rows.counters().bytes_read), (3, 4 * record), "codes, scales and biases");
    let before = rows.counters();
    fetch(&mut rows, &[20, 22])?;
    let after = rows.counters();
    assert_eq!((after.reads - before.reads, after.bytes_read - before.bytes_read), (3, 3 * record), "with one between");
    fetch(&mut rows, &[100, 300, 500])?;
    assert_eq!(rows.counters().reads - after.reads, 9);
    assert_eq!(rows.counters().bytes_read - after.bytes_read, 3 * record);
    Ok(())
}

#[test]
fn what_is_read_is_at_most_twice_what_is_wanted() -> Outcome {
    let checkpoint = dev();
    let record = checkpoint.ngram_row(0, 0)?.matrix.bytes();
    let mut rows = rows(&checkpoint, 0, 4)?;
    for pass in passes(&checkpoint) {
        let before = rows.counters();
        fetch(&mut rows, &pass)?;
        let after = rows.counters();
        let (read, wanted) = (after.bytes_read - before.bytes_read, (after.misses - before.misses) * record);
        assert!(read >= wanted && read <= 2 * wanted, "{read} bytes for {wanted}");
    }
    Ok(())
}

#[test]
fn a_damaged_scale_or_bias_is_an_error_that_names_file_and_row() -> Outcome {
    for biases in [false, true] {
        let copy = dev_copy()?;
        let checkpoint = Arc::new(Checkpoint::open(copy.path())?);
        let info = checkpoint.ngram_row(0, 700)?;
        let range = if biases { info.biases } else { info.scales }.ok_or("not quantised")?;
        let path = checkpoint.file(range.file)?.path().to_owned();
        patch(&path, range.offset, &NAN)?;
        let mut rows = rows(&checkpoint, ROW_CACHE_BYTES, 4)?;
        for _ in 0..2 {
            let error = fetch(&mut rows, &[3, 700, 701]);
            let text = error.as_ref().map_err(Error::to_string).err().unwrap_or_default();
            assert!(text.contains(&path.display().to_string()) && text.contains("row 700"), "{error:?}");
        }
        assert_eq!(bits(&fetch(&mut rows, &[701])?), bits(&by_hand(&checkpoint, 701)?));
    }
    Ok(())
}

#[test]
fn a_disk_that_fails_fails_one_request_by_path_and_the_next_one_works() -> Outcome {
    let checkpoint = dev();
    let (on, mut count) = (checkpoint.clone(), 0);
    let disk = Disk::failing(&checkpoint, move |range| {
        count += 1;
        (count == 4).then(|| system_error(&on, range, 5))
    });
    let lanes = Lanes::new(LaneCounts::default());
    let options = NgramOptions { cache_bytes: 4_000, lanes, source: Some(disk), mutation: Mutation::None };
    let mut rows = NgramRows::new(checkpoint.clone(), 0, options)?;
    fetch(&mut rows, &[1])?;
    let failed = fetch(&mut rows, &[1, 500, 900]).map_err(|error| error.to_string()).err().unwrap_or_default();
    assert!(failed.contains(".safetensors") && failed.contains("cannot read"), "{failed}");
    for row in [500, 1, 900] {
        assert_eq!(bits(&fetch(&mut rows, &[row])?), bits(&by_hand(&checkpoint, row)?));
    }
    Ok(())
}

#[test]
fn what_does_not_exist_is_refused() -> Outcome {
    let checkpoint = dev();
    let mut rows = rows(&checkpoint, 0, 4)?;
    let end = table_rows(&checkpoint);
    assert!(fetch(&mut rows, &[end - 1]).is_ok());
    assert!(matches!(fetch(&mut rows, &[0, end]), Err(Error::Checkpoint(_))));
    assert!(matches!(fetch(&mut rows, &[u64::MAX]), Err(Error::Checkpoint(_))));
    assert!(matches!(rows.fetch(&[1, 2], Lane::Demand, &mut [0.0]), Err(Error::Fault(_))));
    let options = NgramOptions {
        cache_bytes: 0,
        lanes: Lanes::new(LaneCounts::default()),
        source: None,
        mutation: Mutation::None,
    };
    assert!(matches!(NgramRows::new(checkpoint, 1, options), Err(Error::Fault(_))));
    Ok(())
}

#[test]
fn a_cache_that_rounds_is_noticed() -> Outcome {
    let checkpoint = dev();
    let lanes = Lanes::new(LaneCounts::default());
    let options = NgramOptions { cache_bytes: ROW_CACHE_BYTES, lanes, source: None, mutation: Mutation::RoundedHits };
    let mut rows = NgramRows::new(checkpoint, 0, options)?;
    let wanted: Vec<u64> = (0..50).collect();
    let (missed, hit) = (fetch(&mut rows, &wanted)?, fetch(&mut rows, &wanted)?);
    assert_ne!(bits(&missed), bits(&hit));
    Ok(())
}
