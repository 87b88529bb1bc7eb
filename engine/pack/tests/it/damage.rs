//! Owns: damaged packs, and packs whose weights were swapped, touched or copied.

use std::fs;
use std::time::{Duration, SystemTime};

use ss_checkpoint::{Access, Checkpoint, OpenOptions, PackFile, PackKind};
use ss_pack::{Error, SystemDisk, pack, verify};

use crate::support::{Model, contents};

fn check(model: &Model) -> Result<Vec<ss_pack::Verified>, Error> {
    verify(&model.job(&SystemDisk), &mut |_, _| true)
}

fn opened(model: &Model, kind: PackKind) -> PackFile {
    let plan = model.originals().pack_plan(kind).unwrap();
    PackFile::open(&model.path(kind.file_name()), &plan, Access::Cached).unwrap()
}

#[test]
fn a_good_pack_is_verified_against_the_originals() {
    let model = Model::packed();
    let verified = check(&model).unwrap();
    assert_eq!(verified.len(), 2);
    assert!(verified.iter().all(|pack| pack.against_originals), "{verified:?}");
    let none = check(&Model::new()).unwrap_err();
    assert!(matches!(none, Error::NotPacked { .. }) && none.to_string().contains("`ss pack "), "{none}");
}

#[test]
fn a_flipped_bit_is_found_by_verify_with_layer_and_expert() {
    let model = Model::packed();
    let plan = model.originals().pack_plan(PackKind::Experts).unwrap();
    let data = opened(&model, PackKind::Experts).frame.data_at();
    let record = plan.find(6, 11).unwrap();
    model.flip("experts.pack", data + record.offset + 1000, 3);
    // A later one too: the first is told.
    model.flip("experts.pack", data + plan.find(7, 0).unwrap().offset, 0);
    let bad = check(&model).unwrap_err().to_string();
    assert!(bad.contains("experts.pack: expert 11 of layer 6 is not what was packed"), "{bad}");

    let options = OpenOptions { check_records: true, ..OpenOptions::default() };
    let checkpoint = Checkpoint::open_with(model.dir(), options).unwrap();
    let mut slot = vec![0; checkpoint.expert_layout().bytes as usize];
    let refused = checkpoint.read_expert(6, 11, &mut slot).unwrap_err().to_string();
    assert_eq!(refused, format!("{bad}"));
    assert!(checkpoint.read_expert(6, 10, &mut slot).is_ok());
}

#[test]
fn a_flipped_bit_in_an_n_gram_row_is_refused_when_it_is_read_and_found_by_verify() {
    let model = Model::packed();
    let data = opened(&model, PackKind::Ngram).frame.data_at();
    model.flip("ngram.pack", data + 128 * 700 + 5, 7);
    let refused = contents(&model.open().unwrap()).err().map(|error| error.to_string()).unwrap_or_default();
    assert!(refused.contains("ngram.pack: row 700 of n-gram table 0 is not what was packed"), "{refused}");
    let bad = check(&model).unwrap_err().to_string();
    assert!(bad.contains("ngram.pack: block 1 of n-gram table 0"), "{bad}");
}

#[test]
fn damage_before_the_records_makes_the_originals_be_read_with_a_warning() {
    let table = opened(&Model::packed(), PackKind::Experts).frame.entry_at(5);
    let damages: [(&str, u64); 2] = [("does not begin as one", 0), ("damaged table", table)];
    for (problem, offset) in damages {
        let model = Model::packed();
        model.flip("experts.pack", offset, 1);
        refused_with_a_warning(&model, problem);
    }
    // One copy of the header may go: the other is whole. Without both there is none.
    let model = Model::packed();
    let frame = opened(&model, PackKind::Experts).frame;
    let newest = opened(&model, PackKind::Experts).generation;
    model.flip("experts.pack", frame.slot_at(newest + 1) + 30, 1);
    assert_eq!(model.in_use(), ["experts.pack", "ngram.pack"]);
    model.flip("experts.pack", frame.slot_at(newest) + 30, 1);
    refused_with_a_warning(&model, "no header that is whole");

    let model = Model::packed();
    let length = fs::metadata(model.path("experts.pack")).unwrap().len();
    for (length, problem) in [(length - 1, "truncated"), (100, "too short")] {
        let pack = fs::OpenOptions::new().write(true).open(model.path("experts.pack")).unwrap();
        pack.set_len(length).unwrap();
        refused_with_a_warning(&model, problem);
    }
}

#[track_caller]
fn refused_with_a_warning(model: &Model, problem: &str) {
    let checkpoint = model.open().unwrap();
    let warnings = checkpoint.warnings().join("\n");
    assert!(warnings.contains("experts.pack ") && warnings.contains(problem), "{problem}: {warnings}");
    assert!(warnings.contains("the original weights are read, until `ss pack "), "{warnings}");
    assert_eq!(model.in_use(), ["ngram.pack"]);
    assert!(contents(&checkpoint).unwrap() == *Model::contents());
    assert!(check(model).is_err());
    // The way out that the warning names.
    pack(&model.job(&SystemDisk), &mut |_, _| true).unwrap();
    assert_eq!(model.in_use(), ["experts.pack", "ngram.pack"]);
    check(model).unwrap();
}

/// Swaps the codes of a layer's experts for others, and tells in which file.
fn swap_codes(model: &Model, layer: usize) -> String {
    let checkpoint = model.originals();
    let experts = checkpoint.experts(layer).unwrap();
    let all = (0..experts.experts).map(|expert| experts.pieces(expert).next().unwrap().range);
    let path = checkpoint.file(all.clone().next().unwrap().file).unwrap().path().to_owned();
    let mut bytes = fs::read(&path).unwrap();
    for range in all {
        bytes[range.offset as usize..][..range.bytes as usize].iter_mut().for_each(|byte| *byte ^= 0x11);
    }
    fs::write(&path, bytes).unwrap();
    path.file_name().unwrap().to_str().unwrap().to_owned()
}

#[test]
fn a_pack_of_swapped_weights_is_not_read_and_is_packed_again() {
    let model = Model::packed();
    let name = swap_codes(&model, 2);
    let warnings = model.open().unwrap().warnings().join("\n");
    assert!(
        warnings.contains(&format!("experts.pack was made from other weights than {name} holds now")),
        "{warnings}"
    );
    let changed = contents(&model.originals()).unwrap();
    assert!(contents(&model.open().unwrap()).unwrap() == changed && changed != *Model::contents());
    let differs = check(&model).unwrap_err().to_string();
    assert!(differs.contains("expert 0 of layer 2 is not what the weight files hold now"), "{differs}");

    let packed = pack(&model.job(&SystemDisk), &mut |_, _| true).unwrap();
    assert_eq!(packed[0].written, 144);
    assert!(model.in_use().contains(&"experts.pack") && contents(&model.open().unwrap()).unwrap() == changed);
}

#[test]
fn a_change_too_small_for_a_sample_is_found_when_the_model_is_packed_again() {
    let model = Model::packed();
    let checkpoint = model.originals();
    let codes = checkpoint.experts(2).unwrap().pieces(4).next().unwrap().range;
    let name = checkpoint.file(codes.file).unwrap().path().file_name().unwrap().to_str().unwrap().to_owned();
    model.flip(&name, codes.offset + 9, 2);
    let changed = contents(&model.originals()).unwrap();
    let packed = pack(&model.job(&SystemDisk), &mut |_, _| true).unwrap();
    assert_eq!(packed[0].written, 144);
    assert!(contents(&model.open().unwrap()).unwrap() == changed && changed != *Model::contents());
}

#[test]
fn the_copy_of_a_packed_model_is_read_from_its_packs() {
    let model = Model::packed();
    for file in fs::read_dir(model.dir()).unwrap() {
        let path = file.unwrap().path();
        let later = SystemTime::now() + Duration::from_secs(5);
        fs::OpenOptions::new().write(true).open(path).unwrap().set_modified(later).unwrap();
    }
    assert_eq!(model.in_use().len(), 2);
    assert_eq!(model.open().unwrap().warnings(), Model::new().open().unwrap().warnings());
    check(&model).unwrap();
    // Packing holds all of it against the originals once, and is not asked again.
    let packed = pack(&model.job(&SystemDisk), &mut |_, _| true).unwrap();
    assert!(packed.iter().all(|pack| pack.written == 0), "{packed:?}");
    for kind in PackKind::ALL {
        assert_eq!(opened(&model, kind).header.sources, model.originals().pack_sources(kind).unwrap());
    }
}

#[test]
fn the_pack_of_another_model_is_not_read() {
    let model = Model::packed();
    fs::copy(model.path("ngram.pack"), model.path("experts.pack")).unwrap();
    let warnings = model.open().unwrap().warnings().join("\n");
    assert!(warnings.contains("belongs to another model"), "{warnings}");
    assert_eq!(model.in_use(), ["ngram.pack"]);
}

#[test]
fn weights_that_change_during_packing_give_no_pack() {
    let model = Model::new();
    let mut touched = false;
    let changed = pack(&model.job(&SystemDisk), &mut |_, _| {
        if !touched {
            model.flip("model-00001.safetensors", 1_700_000, 0);
            touched = true;
        }
        true
    });
    assert!(matches!(changed, Err(Error::Changed { .. })), "{changed:?}");
    assert!(model.in_use().is_empty());
}

/// Gives a name of a pack to something that is no file.
fn occupy(model: &Model, name: &str, with: &str) {
    let _ = fs::remove_file(model.path(name));
    let made = std::process::Command::new(with).arg(model.path(name)).status();
    assert!(made.unwrap().success(), "{with}");
}

#[test]
fn what_is_no_file_is_no_pack_and_is_never_removed() {
    for (with, found) in [("mkdir", "a directory"), ("mkfifo", "neither a file nor a directory")] {
        let model = Model::packed();
        occupy(&model, "experts.pack", with);
        let warnings = model.open().unwrap().warnings().join("\n");
        assert!(warnings.contains(&format!("experts.pack is {found}, expected a file")), "{warnings}");
        assert!(warnings.contains("until you remove it and `ss pack "), "{warnings}");
        assert_eq!(model.in_use(), ["ngram.pack"]);
        for refused in [check(&model).err(), pack(&model.job(&SystemDisk), &mut |_, _| true).err()] {
            let refused = refused.unwrap().to_string();
            assert!(refused.contains(&format!("experts.pack is {found}, expected a pack; remove it")), "{refused}");
        }
        assert!(!fs::metadata(model.path("experts.pack")).unwrap().is_file());

        let model = Model::new();
        occupy(&model, "ngram.pack.part", with);
        let refused = pack(&model.job(&SystemDisk), &mut |_, _| true).unwrap_err().to_string();
        assert!(refused.contains(&format!("ngram.pack.part is {found}, expected a pack")), "{refused}");
        assert!(!model.path("experts.pack").exists(), "nothing is begun");
    }
}

#[test]
fn an_empty_pack_is_called_so_and_packed_again() {
    let model = Model::packed();
    fs::write(model.path("experts.pack"), "").unwrap();
    refused_with_a_warning(&model, "experts.pack is empty");
}
