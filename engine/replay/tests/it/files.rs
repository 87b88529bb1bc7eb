//! Owns: what a trace file holds comes back; what is no trace, or a damaged one, is refused in one clear sentence.

use std::path::PathBuf;

use ss_replay::{Expected, NO_EXPERT, Shape, Token, TracePlace, TraceReader, TraceWriter};
use tempfile::TempDir;

use crate::{Random, expected, token};

const SHAPE: Shape = Shape { layers: 3, experts: 16, choices: 4, record_bytes: 1 << 33 };
/// Bytes in front of the first token, of a prompt's token, and of a generated one.
const HEADER: usize = 32;
const TOKEN: usize = 12 + 12 * 6;
const GENERATED: usize = TOKEN + 12 * 6;

fn tokens(count: u32) -> Vec<Token> {
    let mut random = Random(3);
    let choices = |random: &mut Random| (0..SHAPE.layers).flat_map(|_| random.experts(SHAPE)).collect::<Vec<_>>();
    let made = |number: u32| {
        let (chosen, ahead) = (choices(&mut random), choices(&mut random));
        let expected = expected(SHAPE, &ahead[4..]).filter(|_| number > 1);
        Token { generated: number > 1, expected, ..token(number, &chosen) }
    };
    (0..count).map(made).collect()
}

/// A trace of some tokens, the first two of them a prompt's.
fn written(count: u32) -> (TempDir, PathBuf) {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("trace");
    let mut writer = TraceWriter::new(TracePlace::claim(&path).unwrap(), SHAPE);
    tokens(count).iter().for_each(|token| writer.push(token).unwrap());
    writer.flush().unwrap();
    (place, path)
}

#[test]
fn what_was_written_comes_back() {
    let (_place, path) = written(20);
    assert_eq!(std::fs::metadata(&path).unwrap().len() as usize, HEADER + 2 * TOKEN + 18 * GENERATED);
    let mut reader = TraceReader::open(&path).unwrap();
    assert_eq!(reader.shape(), SHAPE);
    for token in tokens(20) {
        assert_eq!(reader.next_token().unwrap(), Some(token));
    }
    assert_eq!(reader.next_token().unwrap(), None);
    assert!(!reader.was_cut());
    let trace = TraceReader::open(&path).unwrap().read().unwrap();
    assert_eq!((trace.tokens(), trace.prompt_rows), (18, 2));
    assert!(reader.require_forecasts().is_ok());
    let layers = &trace.passes[0].expected;
    assert_eq!(layers.iter().map(Vec::len).collect::<Vec<_>>(), [0, 4, 4]);
    assert_eq!(layers[2].iter().map(|candidate| candidate.margin).collect::<Vec<_>>(), [3.0, 2.0, 1.0, 0.0]);
}

#[test]
fn a_generated_token_without_forecasts_says_that_it_has_none() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("trace");
    let mut writer = TraceWriter::new(TracePlace::claim(&path).unwrap(), SHAPE);
    writer.push(&Token { expected: None, ..tokens(3)[2].clone() }).unwrap();
    writer.flush().unwrap();
    let read = TraceReader::open(&path).unwrap().next_token().unwrap().unwrap();
    let Expected { experts, margins } = read.expected.unwrap();
    assert_eq!((experts, margins), (vec![NO_EXPERT; 12], vec![0.0; 12]));
}

#[test]
fn a_file_of_version_1_is_read_and_says_that_it_has_no_forecasts() {
    let (_place, path) = written(5);
    let mut bytes = std::fs::read(&path).unwrap();
    put(&mut bytes, 8, 1);
    // Only generated tokens had something added.
    for number in (2..5).rev() {
        let end = HEADER + 2 * TOKEN + (number - 1) * GENERATED;
        bytes.drain(end - (GENERATED - TOKEN)..end);
    }
    std::fs::write(&path, bytes).unwrap();
    let mut reader = TraceReader::open(&path).unwrap();
    for token in tokens(5) {
        assert_eq!(reader.next_token().unwrap(), Some(Token { expected: None, ..token }));
    }
    assert_eq!(reader.next_token().unwrap(), None);
    assert!(!reader.was_cut());
    let error = reader.require_forecasts().unwrap_err().to_string();
    assert!(error.contains("is a trace of version 1, which holds no forecasts"), "{error}");
    assert!(error.contains("write it again with `ss run --trace-experts`"), "{error}");
}

#[test]
fn a_thousand_tokens_of_the_released_model_stay_small() {
    let released = Shape { layers: 48, experts: 512, choices: 10, record_bytes: 0 };
    assert!(1000 * (12 + 2 * 6 * released.of_token()) < 10_000_000);
}

#[test]
fn a_file_cut_anywhere_is_read_up_to_its_last_whole_token() {
    let (_place, path) = written(4);
    let bytes = std::fs::read(&path).unwrap();
    for length in HEADER..bytes.len() {
        std::fs::write(&path, &bytes[..length]).unwrap();
        let ends = [TOKEN, 2 * TOKEN, 2 * TOKEN + GENERATED].map(|end| HEADER + end);
        let whole = ends.iter().filter(|end| **end <= length).count();
        let rest = length - whole.checked_sub(1).map_or(HEADER, |last| ends[last]);
        let mut reader = TraceReader::open(&path).unwrap();
        let mut read = 0;
        while reader.next_token().unwrap().is_some() {
            read += 1;
        }
        assert_eq!((read, reader.was_cut()), (whole, rest > 0), "{length} bytes");
    }
}

/// What a changed file is refused with.
fn refused(change: impl FnOnce(&mut Vec<u8>)) -> String {
    let (_place, path) = written(4);
    let mut bytes = std::fs::read(&path).unwrap();
    change(&mut bytes);
    std::fs::write(&path, bytes).unwrap();
    let error = TraceReader::open(&path).and_then(|mut reader| reader.read()).unwrap_err().to_string();
    assert!(error.starts_with('`') && !error.contains('\n'), "{error}");
    assert!(error.contains("ss run --trace-experts"), "{error}");
    error
}

fn put(bytes: &mut [u8], at: usize, word: u32) {
    bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
}

#[test]
fn hostile_files_are_refused_in_one_sentence() {
    let first_choice = HEADER + 12;
    let damaged = |found: &str| format!("is damaged: its token 0 {found};");
    for (text, part) in [
        (refused(|bytes| bytes.clear()), "does not begin with `ss-trace`".to_owned()),
        (refused(|bytes| bytes.truncate(20)), "it ends after 20 bytes".to_owned()),
        (refused(|bytes| bytes[3] = b'x'), "does not begin with `ss-trace`".to_owned()),
        (refused(|bytes| put(bytes, 8, 3)), "its version is 3, this program reads 1 and 2".to_owned()),
        (refused(|bytes| put(bytes, 12, u32::MAX)), "4294967295 layers of 16 experts, 4 a token".to_owned()),
        (refused(|bytes| put(bytes, 16, 0)), "3 layers of 0 experts".to_owned()),
        (refused(|bytes| put(bytes, 20, 17)), "17 a token".to_owned()),
        (refused(|bytes| put(bytes, 28, 0)), "it speaks of experts of 0 bytes".to_owned()),
        (refused(|bytes| put(bytes, 28, u32::MAX)), "it speaks of experts of 18446744069414584320 bytes".to_owned()),
        (refused(|bytes| put(bytes, HEADER + 8, 2)), damaged("is of kind 2, expected 0 or 1")),
        (refused(|bytes| put(bytes, first_choice, 16)), damaged("chose expert 16 in layer 0, which has 16")),
        (refused(|bytes| put(bytes, first_choice + 8, 5 << 16 | 5)), damaged("chose expert 5 twice in layer 1")),
        (
            refused(|bytes| put(bytes, HEADER + 3 * TOKEN + 8, 7 << 16 | 16)),
            "is damaged: its token 2 was expected to choose expert 16 in layer 1, which has 16;".to_owned(),
        ),
        (refused(|bytes| bytes.truncate(HEADER + 2 * TOKEN)), "holds no token of a reply".to_owned()),
    ] {
        assert!(text.contains(&part), "{part}: {text}");
    }
}

#[test]
fn any_bytes_behind_a_header_end_well() {
    let (_place, path) = written(0);
    let header = std::fs::read(&path).unwrap();
    let mut random = Random(11);
    for _ in 0..200 {
        let mut bytes = header.clone();
        bytes.extend((0..random.below(4 * TOKEN as u64)).map(|_| random.below(256) as u8));
        std::fs::write(&path, bytes).unwrap();
        // Random experts are hardly ever all there are: it is refused, or holds nothing.
        assert!(TraceReader::open(&path).unwrap().read().is_err());
    }
}

#[test]
fn what_cannot_be_opened_or_written_is_named() {
    let place = tempfile::tempdir().unwrap();
    let missing = place.path().join("missing");
    let error = TraceReader::open(&missing).err().unwrap().to_string();
    assert!(error.starts_with(&format!("`{}` cannot be opened: ", missing.display())), "{error}");
    let error = TracePlace::claim(place.path()).err().unwrap().to_string();
    assert!(error.contains("is a directory, expected a file"), "{error}");
    let error = TracePlace::claim(&missing.join("trace")).err().unwrap().to_string();
    assert!(error.contains("cannot be written: "), "{error}");
}

#[test]
fn what_a_file_held_stays_until_a_token_is_written() {
    let (_place, path) = written(5);
    let before = std::fs::read(&path).unwrap();
    let mut writer = TraceWriter::new(TracePlace::claim(&path).unwrap(), SHAPE);
    writer.push(&tokens(3)[2]).unwrap();
    drop(writer);
    assert_eq!(std::fs::read(&path).unwrap(), before);
    let mut writer = TraceWriter::new(TracePlace::claim(&path).unwrap(), SHAPE);
    writer.push(&tokens(3)[2]).unwrap();
    writer.flush().unwrap();
    drop(writer);
    assert_eq!(std::fs::metadata(&path).unwrap().len() as usize, HEADER + GENERATED);
}

#[test]
fn a_place_where_nothing_was_written_is_empty_again() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("trace");
    drop(TraceWriter::new(TracePlace::claim(&path).unwrap(), SHAPE));
    assert!(!path.exists());
}

#[test]
fn what_is_no_trace_is_not_written_over() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("config.json");
    std::fs::write(&path, "{}").unwrap();
    let error = TracePlace::claim(&path).err().unwrap().to_string();
    assert!(error.ends_with(
        "holds something else than a trace, which is not written over; name another file, or remove it first"
    ));
    assert_eq!(std::fs::read(&path).unwrap(), b"{}");
}

#[test]
fn two_do_not_write_one_trace() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("trace");
    let first = TracePlace::claim(&path).unwrap();
    let error = TracePlace::claim(&path).err().unwrap().to_string();
    assert!(error.contains("is being written by another run"), "{error}");
    drop(first);
    TracePlace::claim(&path).unwrap();
}

#[test]
fn numbers_and_forecasts_that_no_router_leaves_are_damage() {
    let spoiled = |spoil: fn(&mut Token)| {
        let mut token = tokens(3)[2].clone();
        token.expected = Some(Expected::nothing(&SHAPE));
        spoil(&mut token);
        let place = tempfile::tempdir().unwrap();
        let mut writer = TraceWriter::new(TracePlace::claim(&place.path().join("trace")).unwrap(), SHAPE);
        writer.push(&token).map_err(|error| error.to_string())
    };
    assert!(spoiled(|_| {}).is_ok());
    assert!(spoiled(|token| token.margins[0] = f32::NAN).unwrap_err().contains("has a margin that is no number"));
    let forecast = |token: &mut Token| token.expected.as_mut().unwrap().margins[3] = f32::INFINITY;
    assert!(spoiled(forecast).unwrap_err().contains("has the margin of a forecast that is no number"));
    let twice = |token: &mut Token| token.expected.as_mut().unwrap().experts[4..6].fill(1);
    assert!(spoiled(twice).unwrap_err().contains("was expected to choose expert 1 twice in layer 1"));
}
