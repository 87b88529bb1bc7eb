//! Owns: made-up checkpoints as the loader and a whole model meet them.
//! Invariants: geometries are small enough that each test takes seconds.

mod files;
mod released;
mod runs;

use std::path::{Path, PathBuf};

use serde_json::Value;
use ss_checkpoint::Checkpoint;
use ss_synth::{Order, Plan, Source, WriteOptions, write};

/// Writes what is ordered.
fn make(order: &Order, dir: &Path, options: WriteOptions) -> ss_synth::Result<()> {
    write(&Plan::new(order)?, dir, options, &|| false, &mut |_, _| {})
}

/// A small checkpoint, written.
struct Made {
    folder: tempfile::TempDir,
}

impl Made {
    fn of(order: &Order) -> Self {
        let made = Made { folder: tempfile::tempdir().unwrap() };
        make(order, &made.dir(), WriteOptions::default()).unwrap();
        made
    }

    fn dir(&self) -> PathBuf {
        self.folder.path().join("model")
    }

    fn open(&self) -> Checkpoint {
        Checkpoint::open(&self.dir()).unwrap()
    }
}

/// A small geometry with other numbers in its text part.
fn changed(folder: &Path, change: impl FnOnce(&mut Value)) -> Source {
    let small = Made::of(&Order { layers: Some(1), ..Order::new(Source::NanoLike) });
    let mut config: Value = serde_json::from_slice(&std::fs::read(small.dir().join("config.json")).unwrap()).unwrap();
    change(&mut config["text_config"]);
    let path = folder.join("changed.json");
    std::fs::write(&path, config.to_string()).unwrap();
    Source::File(path)
}
