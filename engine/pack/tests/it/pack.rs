//! Owns: what a pack holds, what a run of the packer leaves, and full disks.

use std::fs;
use std::io;

use ss_checkpoint::{Access, PackFile, PackKind};
use ss_pack::{Error, Job, SystemDisk, pack};

use crate::support::{Dying, Model, Poor, contents};

#[test]
fn a_packed_model_reads_bit_for_bit_as_before_in_one_piece_a_record() {
    let model = Model::new();
    let packed = pack(&model.job(&SystemDisk), &mut |_, _| true).unwrap();
    let found: Vec<_> = packed.iter().map(|p| (p.kind, p.records, p.written)).collect();
    let rows = model.originals().ngram_tables(0).unwrap().rows;
    let blocks = rows.div_ceil(512);
    assert_eq!(found, [(PackKind::Experts, 9 * 16, 9 * 16), (PackKind::Ngram, blocks, blocks)]);

    let checkpoint = model.open().unwrap();
    assert_eq!(model.in_use(), ["experts.pack", "ngram.pack"]);
    assert!(contents(&checkpoint).unwrap() == *Model::contents(), "packed records differ from the originals");
    assert!(contents(&model.originals()).unwrap() == *Model::contents(), "the originals were changed");
    for layer in 0..9 {
        let files = checkpoint.experts(layer).unwrap();
        for expert in 0..16 {
            let pieces: Vec<_> = files.pieces(expert).collect();
            let [piece] = pieces[..] else { panic!("{} pieces", pieces.len()) };
            assert!(piece.range.offset.is_multiple_of(16 << 10), "{piece:?} is not aligned");
            assert_eq!((piece.span.offset, piece.span.bytes), (0, files.layout.bytes));
        }
    }
    let row: Vec<_> = checkpoint.ngram_pieces(0, 77).unwrap().collect();
    assert!(row.len() == 1 && row[0].offset.is_multiple_of(128) && row[0].bytes == 128, "{row:?}");
}

#[test]
fn a_second_run_writes_nothing_and_experts_can_be_packed_alone() {
    let model = Model::new();
    let job = Job { kinds: &[PackKind::Experts], ..model.job(&SystemDisk) };
    pack(&job, &mut |_, _| true).unwrap();
    assert_eq!(model.in_use(), ["experts.pack"]);
    assert!(contents(&model.open().unwrap()).unwrap() == *Model::contents());

    let before = fs::metadata(model.path("experts.pack")).unwrap().modified().unwrap();
    let written: Vec<_> =
        pack(&model.job(&SystemDisk), &mut |_, _| true).unwrap().iter().map(|p| p.written > 0).collect();
    assert_eq!(written, [false, true]);
    assert_eq!(fs::metadata(model.path("experts.pack")).unwrap().modified().unwrap(), before);
}

#[test]
fn progress_reaches_the_end_and_a_stop_is_gone_on_from() {
    let model = Model::new();
    let mut told = Vec::new();
    let stopped = pack(&model.job(&SystemDisk), &mut |done, total| {
        told.push((done, total));
        told.len() < 3
    });
    let Err(Error::Stopped { done, records: 144, .. }) = stopped else { panic!("{stopped:?}") };
    assert!(done > 0 && model.in_use().is_empty());

    told.clear();
    let packed = pack(&model.job(&SystemDisk), &mut |done, total| {
        told.push((done, total));
        true
    });
    assert_eq!(packed.unwrap()[0].written, 144 - done, "what was done is not done again");
    assert!(told.is_sorted() && told.last().is_some_and(|(done, total)| done == total), "{told:?}");
    assert!(contents(&model.open().unwrap()).unwrap() == *Model::contents());
}

#[test]
fn without_room_nothing_is_begun() {
    let model = Model::new();
    let refused = pack(&model.job(&Poor { free: 1_000_000 }), &mut |_, _| true).unwrap_err();
    let text = refused.to_string();
    assert!(matches!(refused, Error::NoRoom { free: 1_000_000, .. }), "{text}");
    assert!(text.contains("experts.pack needs ") && text.contains("make room"), "{text}");
    assert!(!model.path("experts.pack.part").exists() && model.in_use().is_empty());
}

#[test]
fn a_disk_that_fills_up_is_told_and_the_next_run_goes_on() {
    let model = Model::new();
    for room in [100_000, 1_300_000, 700_000] {
        let full = pack(&model.job(&Dying::with_room(room)), &mut |_, _| true).unwrap_err();
        let text = full.to_string();
        assert!(matches!(full, Error::Full { .. }), "{text}");
        assert!(text.contains("the disk is full after ") && text.contains("run `ss pack "), "{text}");
        assert!(contents(&model.open().unwrap()).unwrap() == *Model::contents());
    }
    let packed = pack(&model.job(&SystemDisk), &mut |_, _| true).unwrap();
    assert!(packed[0].written < packed[0].records, "records that were done were kept");
    assert!(contents(&model.open().unwrap()).unwrap() == *Model::contents());
    assert_eq!(model.in_use().len(), 2);
}

#[test]
fn zeros_in_a_table_stay_holes() {
    let model = Model::new();
    let blank = model.originals().ngram_run(0, 0, 600).unwrap();
    for range in blank.ranges() {
        let path = model.originals().file(range.file).unwrap().path().to_owned();
        let file = fs::OpenOptions::new().write(true).open(path).unwrap();
        ss_pack::Disk::write_at(&SystemDisk, &file, range.offset, &vec![0; range.bytes as usize]).unwrap();
    }
    assert_eq!(blank.matrix.rows, 600, "one block and a part of the next");
    let expected = contents(&model.originals()).unwrap();
    pack(&model.job(&SystemDisk), &mut |_, _| true).unwrap();
    let plan = model.originals().pack_plan(PackKind::Ngram).unwrap();
    let pack = PackFile::open(&model.path("ngram.pack"), &plan, Access::Cached).unwrap();
    assert_eq!(pack.table().unwrap().iter().take(2).map(|&sum| sum == 0).collect::<Vec<_>>(), [true, false]);
    assert!(contents(&model.open().unwrap()).unwrap() == expected);
    // Something that gets into the hole is noticed.
    model.flip("ngram.pack", pack.frame.data_at() + 3 * 128, 0);
    assert!(contents(&model.open().unwrap()).is_err());
}

#[test]
fn two_packers_at_once_do_not_meet() {
    let model = Model::new();
    let part = fs::OpenOptions::new().write(true).create(true).truncate(false).open(model.path("experts.pack.part"));
    let part = part.unwrap();
    part.lock().unwrap();
    let busy = pack(&model.job(&SystemDisk), &mut |_, _| true).unwrap_err();
    assert!(matches!(busy, Error::Busy { .. }), "{busy}");
    drop(part);
    assert!(pack(&model.job(&SystemDisk), &mut |_, _| true).is_ok());
}

#[test]
fn a_disk_that_lies_is_caught_before_the_record_counts() {
    let model = Model::new();
    let caught = pack(&model.job(&Dying::that_lies()), &mut |_, _| true).unwrap_err();
    assert!(matches!(caught, Error::NotKept { .. }), "{caught}");
    assert!(caught.to_string().contains("the disk did not keep expert "), "{caught}");
    assert!(model.in_use().is_empty());
}

#[test]
fn a_damaged_original_is_never_packed() {
    let model = Model::new();
    let checkpoint = model.originals();
    let scales = checkpoint.experts(3).unwrap().pieces(5).nth(1).unwrap().range;
    let path = checkpoint.file(scales.file).unwrap().path().to_owned();
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    ss_pack::Disk::write_at(&SystemDisk, &file, scales.offset, &0x7fc0u16.to_le_bytes()).unwrap();
    let refused = pack(&model.job(&SystemDisk), &mut |_, _| true).unwrap_err().to_string();
    assert!(refused.contains("found NaN at expert 5"), "{refused}");
    assert_eq!(fs::metadata(model.path("experts.pack")).unwrap_err().kind(), io::ErrorKind::NotFound);
}
