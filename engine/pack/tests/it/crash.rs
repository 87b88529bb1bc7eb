//! Owns: the promise that a crash at any moment costs work and nothing else.

use ss_checkpoint::{Access, PackFile, PackKind};
use ss_pack::{Error, Job, pack, reclaim};

use crate::support::{Dying, Keeps, Model, contents};

/// Table and records of a pack, without what its header says about times.
fn records(model: &Model, kind: PackKind) -> Vec<u8> {
    let plan = model.originals().pack_plan(kind).unwrap();
    let path = model.path(kind.file_name());
    let pack = PackFile::open(&path, &plan, Access::Cached).unwrap();
    pack.table().unwrap();
    std::fs::read(path).unwrap().split_off(pack.frame.entry_at(0) as usize)
}

/// Packs on a disk that dies after so many operations, then goes on on one that lives. Returns whether it died.
fn crash(kind: PackKind, operations: u64, keeps: Keeps, expected: &[u8]) -> bool {
    let model = Model::new();
    let disk = Dying::after(operations);
    let kinds = [kind];
    let died = pack(&Job { kinds: &kinds, ..model.job(&disk) }, &mut |_, _| true).is_err();
    disk.crash(keeps);
    // Whatever is there by now, the model reads as ever.
    let checkpoint = model.open().unwrap();
    assert!(contents(&checkpoint).unwrap() == *Model::contents(), "{kind:?}: {operations} operations, {keeps:?}");
    assert_eq!(checkpoint.warnings(), model.originals().warnings());
    pack(&Job { kinds: &kinds, ..model.job(&Dying::never()) }, &mut |_, _| true).unwrap();
    assert!(records(&model, kind) == expected, "{kind:?}: gone on from {operations} operations, {keeps:?}");
    died
}

#[test]
fn a_crash_at_every_operation_is_gone_on_from_to_the_same_pack() {
    let whole = Model::packed();
    for kind in PackKind::ALL {
        let expected = records(&whole, kind);
        let mut operations = 0;
        while crash(kind, operations, Keeps::EveryOther, &expected) {
            let other = if operations.is_multiple_of(2) { Keeps::Nothing } else { Keeps::Everything };
            crash(kind, operations, other, &expected);
            operations += 1;
        }
        assert!(operations > 12, "{kind:?}: {operations} operations are all there are");
    }
}

#[test]
fn a_crash_while_space_is_given_back_leaves_a_model_that_reads_as_before() {
    if let Err(error) = reclaim(&Model::packed().job(&Dying::never()), &mut |_, _| true) {
        // Where files cannot have holes there is nothing to crash in, and that is what it must say.
        assert!(matches!(error, Error::NoHoles { .. }), "{error}");
        return;
    }
    let mut operations = 0;
    loop {
        let model = Model::packed();
        let disk = Dying::after(operations);
        let died = reclaim(&model.job(&disk), &mut |_, _| true).is_err();
        disk.crash(Keeps::Nothing);
        assert!(contents(&model.open().unwrap()).unwrap() == *Model::contents(), "after {operations} operations");
        reclaim(&model.job(&Dying::never()), &mut |_, _| true).unwrap();
        assert!(
            contents(&model.open().unwrap()).unwrap() == *Model::contents(),
            "after {operations} operations and again"
        );
        if !died {
            break;
        }
        // The many holes are alike.
        operations += if operations < 12 { 1 } else { 17 };
    }
    assert!(operations > 12);
}
