//! Owns: the tests that a copy of a model directory is told from anything that is none, by what differs.

use std::fs;
use std::path::{Path, PathBuf};

use ss_checkpoint::{Checkpoint, Error};
use tempfile::TempDir;

fn dev() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/goldens/dev/model")
}

fn copy() -> TempDir {
    let copy = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(dev()).unwrap() {
        let entry = entry.unwrap();
        fs::write(copy.path().join(entry.file_name()), fs::read(entry.path()).unwrap()).unwrap();
    }
    copy
}

/// What is said of a copy.
fn compared(copy: &Path) -> Result<(), String> {
    let checkpoint = Checkpoint::open(&dev()).unwrap();
    checkpoint.check_copy(&Checkpoint::open(copy).unwrap()).map_err(|error| {
        assert!(matches!(error, Error::NotACopy { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains(&copy.display().to_string()) && text.contains("`--mirror`"), "{text}");
        text
    })
}

/// The longest weight file of a directory.
fn weights(dir: &Path) -> PathBuf {
    let files = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let weights = files.filter(|path| path.extension().is_some_and(|ending| ending == "safetensors"));
    weights.max_by_key(|path| path.metadata().unwrap().len()).unwrap()
}

#[test]
fn a_copy_passes_and_the_directory_itself_does_not() {
    assert_eq!(compared(copy().path()), Ok(()));
    let text = compared(&dev()).unwrap_err();
    assert!(text.contains("both are one directory"), "{text}");
}

#[test]
fn what_differs_is_named() {
    let other = copy();
    let path = other.path().join("config.json");
    let config = fs::read_to_string(&path).unwrap();
    fs::write(&path, config.replacen('{', "{\"note\": 1,", 1)).unwrap();
    assert!(compared(other.path()).unwrap_err().contains("config.json"));

    let other = copy();
    fs::remove_file(other.path().join("mtp.safetensors")).unwrap();
    assert!(compared(other.path()).unwrap_err().contains("only one of them reads mtp.safetensors"));

    // Longer by bytes that no tensor owns would be refused when it is opened: the header grows instead.
    let other = copy();
    let path = weights(other.path());
    let mut bytes = fs::read(&path).unwrap();
    let header = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    bytes[..8].copy_from_slice(&(header + 8).to_le_bytes());
    bytes.splice(8 + header as usize..8 + header as usize, *b"        ");
    fs::write(&path, bytes).unwrap();
    assert!(compared(other.path()).unwrap_err().contains(" bytes there and "));

    let other = copy();
    let path = weights(other.path());
    let mut bytes = fs::read(&path).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&path, bytes).unwrap();
    let text = compared(other.path()).unwrap_err();
    assert!(text.contains("holds other bytes from byte"), "{text}");
}
