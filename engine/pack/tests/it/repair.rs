//! Owns: the promise that what verifying finds damaged is packed again, as long as there is something to pack it from.

use std::fs;

use ss_checkpoint::{Access, PackFile, PackKind};
use ss_pack::{Error, SystemDisk, pack, reclaim, repair, verify};

use crate::support::{Dying, Keeps, Model, contents};

fn go_on() -> impl FnMut(u64, u64) -> bool {
    |_, _| true
}

/// Where a record of a pack lies in its file, and its number.
fn place(model: &Model, kind: PackKind, of: u32, place: u64) -> (u64, u64) {
    let plan = model.originals().pack_plan(kind).unwrap();
    let pack = PackFile::open(&model.path(kind.file_name()), &plan, Access::Cached).unwrap();
    let record = plan.find(of, place).unwrap();
    (pack.frame.data_at() + record.offset, record.number)
}

#[track_caller]
fn is_whole(model: &Model) {
    verify(&model.job(&SystemDisk), &mut go_on()).unwrap();
    assert_eq!(model.in_use(), ["experts.pack", "ngram.pack"]);
}

#[test]
fn what_is_damaged_is_packed_again_and_what_lies_before_it_stays() {
    let model = Model::packed();
    let (expert, number) = place(&model, PackKind::Experts, 6, 11);
    let (rows, _) = place(&model, PackKind::Ngram, 0, 1);
    model.flip("experts.pack", expert + 1000, 3);
    model.flip("experts.pack", place(&model, PackKind::Experts, 7, 0).0, 0);
    model.flip("ngram.pack", rows + 5, 7);
    let bad = verify(&model.job(&SystemDisk), &mut go_on()).unwrap_err().to_string();
    assert!(bad.contains(&format!("run `ss pack --repair {}`", model.dir().display())), "{bad}");
    let untouched = pack(&model.job(&SystemDisk), &mut go_on()).unwrap();
    assert!(untouched.iter().all(|pack| pack.written == 0), "packing alone looks at no record");

    let damages = repair(&model.job(&SystemDisk), &mut go_on()).unwrap();
    let records: Vec<&str> = damages.iter().map(|damage| damage.record.as_str()).collect();
    assert_eq!(records, ["expert 11 of layer 6", "block 1 of n-gram table 0"]);
    // Until it is packed again nothing is read from it.
    assert!(model.in_use().is_empty() && contents(&model.open().unwrap()).unwrap() == *Model::contents());
    let packed = pack(&model.job(&SystemDisk), &mut go_on()).unwrap();
    assert_eq!(packed[0].written, packed[0].records - number);
    is_whole(&model);
    assert_eq!(repair(&model.job(&SystemDisk), &mut go_on()).unwrap(), []);
}

#[test]
fn something_in_a_hole_is_removed() {
    let model = Model::new();
    let blank = model.originals().ngram_run(0, 0, 600).unwrap();
    for range in blank.ranges() {
        let path = model.originals().file(range.file).unwrap().path().to_owned();
        let file = fs::OpenOptions::new().write(true).open(path).unwrap();
        ss_pack::Disk::write_at(&SystemDisk, &file, range.offset, &vec![0; range.bytes as usize]).unwrap();
    }
    pack(&model.job(&SystemDisk), &mut go_on()).unwrap();
    model.flip("ngram.pack", place(&model, PackKind::Ngram, 0, 0).0 + 3 * 128, 0);
    assert!(contents(&model.open().unwrap()).is_err());
    assert_eq!(repair(&model.job(&SystemDisk), &mut go_on()).unwrap().len(), 1);
    pack(&model.job(&SystemDisk), &mut go_on()).unwrap();
    is_whole(&model);
}

#[test]
fn originals_that_changed_unseen_are_packed_again_on_request() {
    let model = Model::packed();
    let checkpoint = model.originals();
    let codes = checkpoint.experts(2).unwrap().pieces(4).next().unwrap().range;
    let path = checkpoint.file(codes.file).unwrap().path().to_owned();
    let modified = fs::metadata(&path).unwrap().modified().unwrap();
    model.flip(path.file_name().unwrap().to_str().unwrap(), codes.offset, 2);
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_modified(modified).unwrap();
    let bad = verify(&model.job(&SystemDisk), &mut go_on()).unwrap_err().to_string();
    assert!(bad.contains("expert 4 of layer 2 is not what the weight files hold now"), "{bad}");
    assert!(bad.contains("run `ss pack --repair "), "{bad}");
    repair(&model.job(&SystemDisk), &mut go_on()).unwrap();
    pack(&model.job(&SystemDisk), &mut go_on()).unwrap();
    is_whole(&model);
}

#[test]
fn what_nothing_else_holds_is_left_as_it_is() {
    let model = Model::packed();
    let (expert, _) = place(&model, PackKind::Experts, 3, 5);
    if reclaim(&model.job(&SystemDisk), &mut go_on()).is_err() {
        return;
    }
    model.flip("experts.pack", expert + 77, 1);
    let before = fs::read(model.path("experts.pack")).unwrap();
    let refused = repair(&model.job(&SystemDisk), &mut go_on()).unwrap_err().to_string();
    assert!(refused.contains("expert 5 of layer 3") && refused.contains("fetch the model again"), "{refused}");
    assert!(fs::read(model.path("experts.pack")).unwrap() == before);
}

#[test]
fn a_crash_while_damage_is_taken_back_leaves_a_model_that_reads_as_before() {
    let mut died = 0;
    for operations in 0.. {
        let model = Model::packed();
        model.flip("experts.pack", place(&model, PackKind::Experts, 6, 11).0 + 1000, 3);
        let disk = Dying::after(operations);
        let repaired = repair(&model.job(&disk), &mut go_on());
        disk.crash(Keeps::Nothing);
        repair(&model.job(&SystemDisk), &mut go_on()).unwrap();
        pack(&model.job(&SystemDisk), &mut go_on()).unwrap();
        is_whole(&model);
        match repaired {
            Ok(_) => break,
            Err(_) => died += 1,
        }
    }
    assert!(died > 3, "{died}");
}

#[test]
fn there_must_be_a_pack_to_repair() {
    let none = repair(&Model::new().job(&SystemDisk), &mut go_on()).unwrap_err();
    assert!(matches!(none, Error::NotPacked { .. }), "{none}");
    let stopped = repair(&Model::packed().job(&SystemDisk), &mut |_, _| false).unwrap_err();
    assert!(matches!(stopped, Error::Stopped { .. }), "{stopped}");
}
