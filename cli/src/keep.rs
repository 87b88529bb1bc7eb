//! Owns: small files that the program keeps for itself in `$SS_HOME`.
//! Refuses: to fail a run for them, or to wait for one; what is no file of a sensible size, or cannot be read, counts as
//! absent.
//! Invariants: a file is replaced whole or not at all.

use std::io::Write;
use std::path::Path;

use tempfile::NamedTempFile;

/// More than any of these files holds: a pipeline cache is some tens of megabytes.
const MOST_BYTES: u64 = 256 << 20;

/// What a file holds, if it can be read.
pub fn read(path: &Path) -> Option<Vec<u8>> {
    // A pipe or a device would keep the reader waiting, or never end.
    let sensible = std::fs::metadata(path).is_ok_and(|file| file.is_file() && file.len() <= MOST_BYTES);
    if sensible { std::fs::read(path).ok() } else { None }
}

/// Replaces a file.
///
/// # Errors
/// When the folder cannot be made or written.
pub fn write(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)?;
    let mut file = NamedTempFile::new_in(folder)?;
    file.write_all(bytes)?;
    file.persist(path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_made_with_its_folder_and_replaced_leaving_nothing_beside_it() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("a/b");
        for bytes in [&b"one"[..], b"two"] {
            write(&path, bytes).unwrap();
            assert_eq!(read(&path).as_deref(), Some(bytes));
        }
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        assert_eq!(read(&place.path().join("missing")), None);
        assert!(write(&path.join("c"), b"x").is_err(), "a file is no folder");
    }

    #[test]
    fn what_is_no_file_or_too_large_is_absent() {
        let place = tempfile::tempdir().unwrap();
        assert_eq!(read(place.path()), None);
        #[cfg(unix)]
        assert_eq!(read(Path::new("/dev/zero")), None);
        let huge = place.path().join("huge");
        std::fs::File::create(&huge).unwrap().set_len(MOST_BYTES + 1).unwrap();
        assert_eq!(read(&huge), None);
    }
}
