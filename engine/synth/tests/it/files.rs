//! Owns: what lies in the directory, and what is refused.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use ss_checkpoint::{Checkpoint, LayerKind, NormConvention, SPARSE_NGRAMS};
use ss_synth::{Error, NgramRows, Order, Plan, Source, WriteOptions, write};

use crate::{Made, make};

fn small() -> Order {
    Order { draft_head: true, ..Order::new(Source::NanoLike) }
}

/// Every file of a directory.
fn contents(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let read = |entry: fs::DirEntry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap());
    fs::read_dir(dir).unwrap().map(|entry| read(entry.unwrap())).collect()
}

#[test]
fn the_loader_takes_it_as_it_takes_a_real_one() {
    let made = Made::of(&small());
    let checkpoint = made.open();
    assert_eq!(checkpoint.warnings(), [] as [&str; 0]);
    assert!(checkpoint.has_mtp());
    assert_eq!(checkpoint.norm_convention(), NormConvention::Folded);
    assert_eq!(checkpoint.geometry().count(LayerKind::Qsa), 2);
    let report = ss_checkpoint::Report::of(&checkpoint);
    assert_eq!(report.missing, ["vision_tower tensors (for images)"], "the small geometry has no vision tower");
}

#[test]
fn the_bytes_follow_from_the_seed_and_not_from_the_threads() {
    let folder = tempfile::tempdir().unwrap();
    let written = |name: &str, threads: usize, seed: u64| {
        let dir = folder.path().join(name);
        make(&Order { seed, ..small() }, &dir, WriteOptions { threads, free: None }).unwrap();
        contents(&dir)
    };
    let (one, three, other) = (written("one", 1, 5), written("three", 3, 5), written("other", 2, 6));
    assert!(one == three, "threads change nothing");
    assert!(one["model-00001.safetensors"] != other["model-00001.safetensors"], "the seed changes the weights");
    assert!(one["config.json"] == other["config.json"]);
}

#[test]
fn a_directory_with_something_in_it_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("mine");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("notes.txt"), "mine").unwrap();
    let refused = make(&small(), &dir, WriteOptions::default()).unwrap_err();
    assert!(matches!(refused, Error::Occupied { .. }));
    assert!(refused.to_string().contains("mine is not empty, expected a new or empty directory"), "{refused}");
    assert_eq!(contents(&dir).len(), 1);
    let refused = make(&small(), &dir.join("notes.txt"), WriteOptions::default()).unwrap_err();
    assert!(refused.to_string().contains("notes.txt is not a directory"), "{refused}");
}

#[test]
fn a_disk_without_room_is_refused_with_both_figures_and_nothing_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("new");
    let refused = make(&small(), &dir, WriteOptions { threads: 1, free: Some(1_000_000) }).unwrap_err();
    let Error::NoRoom { needed, free: 1_000_000, .. } = refused else { panic!("{refused}") };
    let text = refused.to_string();
    let said = format!("{:.3} GB would be written", needed as f64 * 1e-9);
    assert!(text.contains(&said) && text.contains("0.001 are free"), "{text}");
    assert!(!dir.exists());
    // The same disk with as much as is needed, which is what is there then.
    make(&small(), &dir, WriteOptions { threads: 1, free: Some(needed) }).unwrap();
    let all: usize = contents(&dir).values().map(Vec::len).sum();
    assert_eq!(all as u64 - Plan::new(&small()).unwrap().holes(), needed);
}

#[test]
fn rows_that_are_holes_are_said_to_be_and_are_no_damage() {
    let sparse = Made::of(&small());
    assert_eq!(sparse.open().config()[SPARSE_NGRAMS], true);
    sparse.open().check_ngram_filled(0).unwrap();
    let full = Made::of(&Order { ngrams: NgramRows::Full, ..small() });
    assert!(full.open().config().get(SPARSE_NGRAMS).is_none());
    full.open().check_ngram_filled(0).unwrap();
    // The geometry of a sparse model is no reason for another one to be sparse.
    let source = Source::File(sparse.dir());
    let copied = Made::of(&Order { source, ngrams: NgramRows::Full, ..small() });
    assert!(copied.open().config().get(SPARSE_NGRAMS).is_none());
    // Zeros that nobody speaks of are lost rows.
    let path = sparse.dir().join("config.json");
    let config = fs::read_to_string(&path).unwrap().replace(SPARSE_NGRAMS, "something_else");
    fs::write(&path, config).unwrap();
    let refused = sparse.open().check_ngram_filled(0).unwrap_err().to_string();
    assert!(refused.contains(".scales holds nothing but zeros"), "{refused}");
}

#[test]
fn who_is_killed_leaves_what_is_known_for_what_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("killed");
    let plan = Plan::new(&small()).unwrap();
    let seen = std::cell::RefCell::new(BTreeMap::new());
    write(&plan, &dir, WriteOptions::default(), &|| false, &mut |_, _| {
        if seen.borrow().is_empty() {
            seen.replace(contents(&dir));
        }
    })
    .unwrap();
    fs::remove_dir_all(&dir).unwrap();
    fs::create_dir(&dir).unwrap();
    seen.take().iter().for_each(|(name, bytes)| fs::write(dir.join(name), bytes).unwrap());
    let refused = make(&small(), &dir, WriteOptions::default()).unwrap_err().to_string();
    assert!(refused.contains("killed is what an `ss synth` that was cut short has left"), "{refused}");
    let refused = Checkpoint::open(&dir).unwrap_err().to_string();
    assert!(refused.contains("index.json is missing: what writes this model has not finished, or was cut short"));
}

#[test]
fn who_stops_it_half_way_finds_nothing_left() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("half");
    let plan = Plan::new(&small()).unwrap();
    let (mut told, seen) = (Vec::new(), std::cell::Cell::new(0));
    let stop = || seen.replace(seen.get() + 1) == 3;
    let stopped = write(&plan, &dir, WriteOptions { threads: 2, free: None }, &stop, &mut |done, total| {
        assert!(dir.join("model-00001.safetensors").exists() && Checkpoint::open(&dir).is_err(), "half a model opens");
        told.push((done, total));
    });
    assert!(matches!(stopped, Err(Error::Cancelled)));
    assert!(!told.is_empty() && told.iter().all(|&(done, total)| done < total && total == plan.bytes()));
    assert!(!dir.exists());
    // A directory that was there stays, empty.
    fs::create_dir(&dir).unwrap();
    let stopped = write(&plan, &dir, WriteOptions::default(), &|| true, &mut |_, _| {});
    assert!(matches!(stopped, Err(Error::Cancelled)));
    assert_eq!(contents(&dir).len(), 0);
}

#[test]
fn n_gram_rows_are_holes_unless_they_are_asked_for() {
    for (ngrams, zeros) in [(NgramRows::Sparse, true), (NgramRows::Full, false)] {
        let order = Order { ngrams, layers: Some(2), ngram_rows: Some(5000), ..Order::new(Source::NanoLike) };
        let plan = Plan::new(&order).unwrap();
        assert_eq!(plan.holes() > 0, zeros);
        let made = Made::of(&order);
        let checkpoint = made.open();
        for row in [0, 1234, 5000] {
            for range in checkpoint.ngram_row(0, row).unwrap().ranges() {
                let mut bytes = vec![1; range.bytes as usize];
                checkpoint.read(range, &mut bytes).unwrap();
                assert_eq!(bytes.iter().all(|byte| *byte == 0), zeros);
            }
        }
    }
}

#[test]
fn what_is_no_configuration_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let file = |text: &str| {
        let path = folder.path().join("given.json");
        fs::write(&path, text).unwrap();
        Plan::new(&Order { layers: Some(4), ..Order::new(Source::File(path)) }).err().unwrap().to_string()
    };
    for (text, part) in [
        ("[", "not JSON"),
        ("[]", "not an object"),
        ("{\"text_config\": 3}", "text_config is not an object"),
        ("{\"model_type\": \"llama\"}", "qwen4_exp"),
    ] {
        let said = file(text);
        assert!(said.contains("given.json") && said.contains(part), "{said}");
    }
    let missing = Plan::new(&Order::new(Source::File(folder.path().join("nowhere.json")))).err().unwrap();
    assert!(missing.to_string().contains("nowhere.json"), "{missing}");
    let many = Plan::new(&Order { layers: Some(1000), ..Order::new(Source::Released) }).err().unwrap();
    assert!(many.to_string().contains("num_hidden_layers"), "{many}");
}
