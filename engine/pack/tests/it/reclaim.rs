//! Owns: the promise that originals go only after their packs were verified, and that a model without them is read from
//! its packs or refused.

use std::fs;

use ss_checkpoint::{Access, Checkpoint, OpenOptions, PackFile, PackKind, Reclaimed};
use ss_pack::{Error, Freed, Job, SystemDisk, pack, reclaim, verify};

use crate::support::{Model, Poor, contents};

/// Gives the space back, or sees to it that a system that cannot says so and leaves everything.
fn reclaimed(model: &Model) -> Option<Freed> {
    match reclaim(&model.job(&SystemDisk), &mut |_, _| true) {
        Ok(freed) => Some(freed),
        Err(error) => {
            left_alone(model, &error);
            None
        }
    }
}

#[track_caller]
fn left_alone(model: &Model, error: &Error) {
    let text = error.to_string();
    assert!(matches!(error, Error::NoHoles { .. }), "{text}");
    assert!(text.contains("cannot be given back here") && text.contains("left as they are"), "{text}");
    assert!(!model.path(Reclaimed::FILE).exists() && !model.path("reclaim.probe").exists());
    assert!(contents(&model.originals()).unwrap() == *Model::contents());
}

#[test]
fn the_space_comes_back_and_the_model_reads_from_its_packs_alone() {
    let model = Model::packed();
    let Some(freed) = reclaimed(&model) else { return };
    assert!(freed.bytes > 2_000_000 && freed.verified.len() == 2, "{freed:?}");
    assert!(freed.verified.iter().all(|pack| pack.against_originals));
    let checkpoint = model.open().unwrap();
    assert_eq!(checkpoint.warnings(), Model::new().open().unwrap().warnings());
    assert!(checkpoint.packs().all(|pack| pack.reclaimed) && checkpoint.packs().count() == 2);
    assert!(contents(&checkpoint).unwrap() == *Model::contents());
    let first = checkpoint.read_f32("model.layers.0.input_layernorm.weight");
    assert_eq!(first.is_ok(), Model::new().originals().read_f32("model.layers.0.input_layernorm.weight").is_ok());
    for base in ["lm_head", "model.embed_tokens", "model.layers.3.mlp.gate"] {
        let kept = checkpoint.read_linear(base).unwrap();
        assert!(kept == Model::new().originals().read_linear(base).unwrap(), "{base} was changed");
    }
    let verified = verify(&model.job(&SystemDisk), &mut |_, _| true).unwrap();
    assert!(verified.iter().all(|pack| !pack.against_originals), "{verified:?}");
    let again = pack(&model.job(&SystemDisk), &mut |_, _| true).unwrap();
    assert!(again.iter().all(|pack| pack.written == 0), "{again:?}");

    // Whoever asks for the originals is told that they are gone.
    let options = OpenOptions { packs: false, ..OpenOptions::default() };
    let checkpoint = Checkpoint::open_with(model.dir(), options).unwrap();
    let warnings = checkpoint.warnings().join("\n");
    assert!(warnings.contains("the experts are read from their pack, as the originals are gone"), "{warnings}");
    assert!(contents(&checkpoint).unwrap() == *Model::contents());
}

#[test]
fn without_its_packs_a_reclaimed_model_is_refused() {
    for name in ["experts.pack", "ngram.pack"] {
        let model = Model::packed();
        if reclaimed(&model).is_none() {
            continue;
        }
        model.flip(name, 3, 0);
        for options in [OpenOptions::default(), OpenOptions { packs: false, ..OpenOptions::default() }] {
            let refused = Checkpoint::open_with(model.dir(), options).unwrap_err().to_string();
            assert!(refused.contains(name) && refused.contains("fetch the model again"), "{refused}");
        }
        fs::remove_file(model.path(name)).unwrap();
        let refused = model.open().unwrap_err().to_string();
        assert!(refused.contains(&format!("{name} is missing, and nothing else holds")), "{refused}");
        assert!(pack(&model.job(&SystemDisk), &mut |_, _| true).is_err());
    }
}

#[test]
fn a_reclaimed_pack_is_never_removed_even_where_what_says_so_is_lost() {
    let model = Model::packed();
    if reclaimed(&model).is_none() {
        return;
    }
    fs::remove_file(model.path(Reclaimed::FILE)).unwrap();
    assert!(contents(&model.open().unwrap()).unwrap() == *Model::contents(), "the pack says it too");
    let _ = pack(&model.job(&SystemDisk), &mut |_, _| true);
    assert!(contents(&model.open().unwrap()).unwrap() == *Model::contents());
}

#[test]
fn a_pack_that_is_lost_with_what_says_so_never_becomes_zeros() {
    for (lost, left) in [("ngram.pack", "experts.pack"), ("experts.pack", "ngram.pack")] {
        let model = Model::packed();
        if reclaimed(&model).is_none() {
            return;
        }
        fs::remove_file(model.path(Reclaimed::FILE)).unwrap();
        fs::remove_file(model.path(lost)).unwrap();
        let refused = model.open().unwrap_err().to_string();
        assert!(refused.contains(&format!("{lost} is missing, and {left} says")), "{refused}");
        assert!(pack(&model.job(&SystemDisk), &mut |_, _| true).is_err());
    }
}

#[test]
fn a_record_that_nothing_else_holds_is_looked_at_when_it_is_first_used() {
    let model = Model::packed();
    let plan = model.originals().pack_plan(PackKind::Experts).unwrap();
    let file = PackFile::open(&model.path("experts.pack"), &plan, Access::Cached).unwrap();
    let damage = |expert| {
        model.flip("experts.pack", file.frame.data_at() + plan.find(6, expert).unwrap().offset + 1000, 3);
    };
    let read = |checkpoint: &Checkpoint, expert| {
        let mut slot = vec![0; checkpoint.expert_layout().bytes as usize];
        checkpoint.read_expert(6, expert, &mut slot)
    };
    let packed = model.open().unwrap();
    if reclaimed(&model).is_none() {
        return;
    }
    let (alone, options) = (model.open().unwrap(), OpenOptions { check_records: true, ..OpenOptions::default() });
    let always = Checkpoint::open_with(model.dir(), options).unwrap();
    for checkpoint in [&alone, &always] {
        read(checkpoint, 10).unwrap();
    }
    damage(10);
    damage(11);
    assert!(read(&packed, 11).is_ok(), "an original was there when it was opened: verifying is for that");
    let refused = read(&alone, 11).unwrap_err().to_string();
    assert!(
        refused.contains("expert 11 of layer 6 is not what was packed") && refused.contains("nothing else holds it")
    );
    assert!(read(&alone, 11).is_err(), "it never becomes good");
    assert!(read(&alone, 10).is_ok(), "it was good once");
    assert!(read(&always, 10).is_err());
}

#[test]
fn a_model_that_lost_everything_that_tells_of_its_rows_is_refused() {
    let model = Model::packed();
    if reclaimed(&model).is_none() {
        return;
    }
    model.open().unwrap().check_ngram_filled(0).unwrap();
    for lost in ["experts.pack", "ngram.pack", Reclaimed::FILE] {
        fs::remove_file(model.path(lost)).unwrap();
    }
    let checkpoint = model.open().unwrap();
    let refused = checkpoint.check_ngram_filled(0).unwrap_err().to_string();
    assert!(refused.contains("shard_0.scales holds nothing but zeros") && refused.contains("`ss pack --reclaim`"));
    let job = Job { kinds: &[PackKind::Ngram], ..model.job(&SystemDisk) };
    let refused = pack(&job, &mut |_, _| true).unwrap_err().to_string();
    assert!(refused.contains("holds nothing but zeros"), "{refused}");
    Model::new().originals().check_ngram_filled(0).unwrap();
}

#[test]
fn two_at_once_do_not_give_back_the_same_space() {
    let model = Model::packed();
    let held = fs::File::open(model.path("ngram.pack")).unwrap();
    held.lock().unwrap();
    let busy = reclaim(&model.job(&SystemDisk), &mut |_, _| true).unwrap_err();
    assert!(matches!(busy, Error::Busy { .. }), "{busy}");
    assert!(!model.path(Reclaimed::FILE).exists());
}

#[test]
fn nothing_goes_before_every_pack_was_verified() {
    let model = Model::new();
    let none = reclaim(&model.job(&SystemDisk), &mut |_, _| true).unwrap_err();
    assert!(matches!(none, Error::NotPacked { .. }), "{none}");

    let model = Model::packed();
    let end = fs::metadata(model.path("ngram.pack")).unwrap().len();
    model.flip("ngram.pack", end - 60_000, 4);
    let bad = reclaim(&model.job(&SystemDisk), &mut |_, _| true).unwrap_err().to_string();
    assert!(bad.contains("is not what was packed"), "{bad}");
    let stopped = reclaim(&Model::packed().job(&SystemDisk), &mut |_, _| false).unwrap_err();
    assert!(matches!(stopped, Error::Stopped { .. }), "{stopped}");
    assert!(!model.path(Reclaimed::FILE).exists());
    assert!(contents(&model.originals()).unwrap() == *Model::contents());
}

#[test]
fn only_what_is_packed_goes() {
    let model = Model::new();
    let job = Job { kinds: &[PackKind::Experts], ..model.job(&SystemDisk) };
    pack(&job, &mut |_, _| true).unwrap();
    if reclaimed(&model).is_none() {
        return;
    }
    assert!(contents(&model.open().unwrap()).unwrap() == *Model::contents());
    assert_eq!(model.in_use(), ["experts.pack"]);
    // The rest can follow.
    pack(&model.job(&SystemDisk), &mut |_, _| true).unwrap();
    reclaimed(&model);
    assert!(contents(&model.open().unwrap()).unwrap() == *Model::contents());
    assert_eq!(model.in_use(), ["experts.pack", "ngram.pack"]);
}

#[test]
fn the_pack_that_keeps_its_originals_is_still_read() {
    let model = Model::packed();
    let job = Job { kinds: &[PackKind::Experts], ..model.job(&SystemDisk) };
    if let Err(error) = reclaim(&job, &mut |_, _| true) {
        return left_alone(&model, &error);
    }
    let gone: Vec<_> = model.open().unwrap().packs().map(|pack| (pack.name, pack.reclaimed)).collect();
    assert_eq!(gone, [("experts.pack", true), ("ngram.pack", false)]);
    let verified = verify(&model.job(&SystemDisk), &mut |_, _| true).unwrap();
    assert_eq!(verified.iter().map(|pack| pack.against_originals).collect::<Vec<_>>(), [false, true]);
    fs::remove_file(model.path("ngram.pack")).unwrap();
    assert!(contents(&model.open().unwrap()).unwrap() == *Model::contents());
}

#[test]
fn where_files_cannot_have_holes_nothing_changes() {
    let model = Model::packed();
    let error = reclaim(&model.job(&Poor { free: 0 }), &mut |_, _| true).unwrap_err();
    left_alone(&model, &error);
}

#[test]
fn weights_that_have_another_name_are_left_alone() {
    let elsewhere = tempfile::tempdir().unwrap();
    let model = Model::packed();
    let shard = model.path("model-00002.safetensors");
    fs::copy(&shard, elsewhere.path().join("blob")).unwrap();
    let modified = fs::metadata(&shard).unwrap().modified().unwrap();
    fs::File::open(elsewhere.path().join("blob")).unwrap().set_modified(modified).unwrap();
    fs::remove_file(&shard).unwrap();
    std::os::unix::fs::symlink(elsewhere.path().join("blob"), &shard).unwrap();
    let linked = reclaim(&model.job(&SystemDisk), &mut |_, _| true).unwrap_err();
    assert!(matches!(linked, Error::Linked { .. }), "{linked}");
    assert!(contents(&model.originals()).unwrap() == *Model::contents());
}
