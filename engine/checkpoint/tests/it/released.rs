//! Owns: the imitation of the released checkpoint against the figures published about the real one.
//! Refuses: file systems without holes, where it would take 104 GB.
//! Invariants: the figures are written out here again, so that a change of the code's constants shows.

#![cfg(unix)]

use std::fs;

use ss_checkpoint::{Access, Checkpoint, OpenOptions, PositionedFile, Report, imitation};

#[test]
fn the_imitation_meets_every_published_total_without_its_data_being_read() {
    let dir = tempfile::tempdir().unwrap();
    imitation::write_released(dir.path()).unwrap();
    assert_eq!(fs::metadata(dir.path().join("model.safetensors.index.json")).unwrap().len(), 317_973);
    assert!(
        dir.path().join("model-00011.safetensors").exists() && !dir.path().join("model-00012.safetensors").exists()
    );

    let checkpoint = Checkpoint::open(dir.path()).unwrap();
    let report = Report::of(&checkpoint);
    let totals = report.totals;
    assert_eq!(totals.tensors, 3_215);
    assert_eq!(totals.resident, 2_924_005_400);
    assert_eq!(totals.experts, 67_947_724_800);
    assert_eq!(totals.ngram, 32_000_153_600);
    assert_eq!(totals.vision, 897_862_112);
    assert_eq!(totals.total, 103_769_745_912);
    assert_eq!(report.record_bytes, 2_764_800);
    assert_eq!(report.released_totals_met, Some(true));
    assert_eq!(report.warnings, [] as [&str; 0]);
    assert!(report.to_string().contains("released totals: met"));

    let read: u64 = checkpoint.files().iter().map(PositionedFile::bytes_read).sum();
    assert!(read < 4 << 20, "{read} bytes were read to open it");
}

#[test]
fn one_tensor_of_another_size_is_not_the_released_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    let config = imitation::released_config();
    let mut tensors = imitation::main_tensors(&config).unwrap();
    // A router in F32 is a valid checkpoint, of the same geometry, with 2.6 MB more.
    let router = tensors.iter_mut().find(|tensor| tensor.name.ends_with("layers.7.mlp.gate.weight")).unwrap();
    router.dtype = ss_checkpoint::Dtype::F32;
    imitation::write_checkpoint(dir.path(), &config, &[&tensors]).unwrap();
    let report = Report::of(&Checkpoint::open(dir.path()).unwrap());
    assert_eq!(report.released_totals_met, Some(false));
    assert!(report.to_string().contains("published: 2,924,005,400"));
}

#[test]
fn the_mtp_layer_has_its_published_size() {
    let tensors = imitation::mtp_tensors(&imitation::released_config()).unwrap();
    assert_eq!(tensors.iter().map(imitation::Tensor::bytes).sum::<u64>(), 1_470_946_816);
}

#[test]
fn its_experts_bypass_the_cache_of_a_machine_with_less_than_twice_their_size() {
    let dir = tempfile::tempdir().unwrap();
    imitation::write_released(dir.path()).unwrap();
    let open = |gigabytes: u64| {
        let options = OpenOptions { physical_memory: gigabytes * 1_000_000_000, ..OpenOptions::default() };
        Checkpoint::open_with(dir.path(), options).unwrap()
    };
    assert_eq!(open(192).access(), Access::Cached);
    // Whether a file system allows it is its own affair; that reads are right either way is not.
    let checkpoint = open(16);
    let mut row = [1; 100];
    let place = checkpoint.ngram_row(0, 320_001_535).unwrap();
    let mut rest = row.as_mut_slice();
    for range in place.ranges() {
        let (now, later) = rest.split_at_mut(range.bytes as usize);
        checkpoint.read(range, now).unwrap();
        rest = later;
    }
    assert!(rest.is_empty() && row == [0; 100]);
    assert!(checkpoint.ngram_row(0, 320_001_536).is_err());
}
