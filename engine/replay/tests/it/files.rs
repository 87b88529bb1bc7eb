//! Owns: what a trace file holds comes back; what is no trace, or a damaged one, is refused in one clear sentence.

use std::path::PathBuf;

use ss_replay::{Shape, Token, TraceReader, TraceWriter};
use tempfile::TempDir;

use crate::{Random, token};

const SHAPE: Shape = Shape { layers: 3, experts: 16, choices: 4, record_bytes: 1 << 33 };
/// Bytes in front of the first token, and of a token.
const HEADER: usize = 32;
const TOKEN: usize = 12 + 12 * 6;

fn tokens(count: u32) -> Vec<Token> {
    let mut random = Random(3);
    let choices = |random: &mut Random| (0..SHAPE.layers).flat_map(|_| random.experts(SHAPE)).collect::<Vec<_>>();
    let made = |number: u32| Token { generated: number > 1, ..token(number, &choices(&mut random)) };
    (0..count).map(made).collect()
}

/// A trace of some tokens, the first two of them a prompt's.
fn written(count: u32) -> (TempDir, PathBuf) {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("trace");
    let mut writer = TraceWriter::create(&path, SHAPE).unwrap();
    tokens(count).iter().for_each(|token| writer.push(token).unwrap());
    writer.flush().unwrap();
    (place, path)
}

#[test]
fn what_was_written_comes_back() {
    let (_place, path) = written(20);
    assert_eq!(std::fs::metadata(&path).unwrap().len() as usize, HEADER + 20 * TOKEN);
    let mut reader = TraceReader::open(&path).unwrap();
    assert_eq!(reader.shape(), SHAPE);
    for token in tokens(20) {
        assert_eq!(reader.next_token().unwrap(), Some(token));
    }
    assert_eq!(reader.next_token().unwrap(), None);
    assert!(!reader.was_cut());
    let trace = TraceReader::open(&path).unwrap().read().unwrap();
    assert_eq!((trace.tokens(), trace.prompt_rows), (18, 2));
}

#[test]
fn a_thousand_tokens_of_the_released_model_stay_small() {
    let released = Shape { layers: 48, experts: 512, choices: 10, record_bytes: 0 };
    assert!(1000 * (12 + 6 * released.of_token()) < 10_000_000);
}

#[test]
fn a_file_cut_anywhere_is_read_up_to_its_last_whole_token() {
    let (_place, path) = written(4);
    let bytes = std::fs::read(&path).unwrap();
    for length in HEADER..bytes.len() {
        std::fs::write(&path, &bytes[..length]).unwrap();
        let (whole, rest) = ((length - HEADER) / TOKEN, (length - HEADER) % TOKEN);
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
        (refused(|bytes| put(bytes, 8, 2)), "its version is 2, this program reads 1".to_owned()),
        (refused(|bytes| put(bytes, 12, u32::MAX)), "4294967295 layers of 16 experts, 4 a token".to_owned()),
        (refused(|bytes| put(bytes, 16, 0)), "3 layers of 0 experts".to_owned()),
        (refused(|bytes| put(bytes, 20, 17)), "17 a token".to_owned()),
        (refused(|bytes| put(bytes, 28, 0)), "it speaks of experts of 0 bytes".to_owned()),
        (refused(|bytes| put(bytes, 28, u32::MAX)), "it speaks of experts of 18446744069414584320 bytes".to_owned()),
        (refused(|bytes| put(bytes, HEADER + 8, 2)), damaged("is of kind 2, expected 0 or 1")),
        (refused(|bytes| put(bytes, first_choice, 16)), damaged("chose expert 16 in layer 0, which has 16")),
        (refused(|bytes| put(bytes, first_choice + 8, 5 << 16 | 5)), damaged("chose expert 5 twice in layer 1")),
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
    let error = TraceWriter::create(place.path(), SHAPE).err().unwrap().to_string();
    assert!(error.contains("cannot be written: "), "{error}");
}
