//! Owns: the file in which a driver's compiled kernels are kept, in `$SS_HOME/cache`.
//! Refuses: to matter; without it, or with a damaged one, kernels are compiled anew.
//! Invariants: one file a device, for one version of this program; those of other versions go when it is written.

use std::path::PathBuf;

use crate::{keep, places, terminal};

/// The file of a device.
pub struct CacheFile {
    folder: PathBuf,
    /// What the names of all its files begin with.
    device: String,
}

impl CacheFile {
    /// The file of the device of this name; none where there is no place for it.
    pub fn open(device: &str) -> Option<Self> {
        places::home().map(|home| CacheFile { folder: home.join("cache"), device: format!("{device}-") })
    }

    fn path(&self) -> PathBuf {
        let version = crate::VERSION.replace(|c: char| !c.is_ascii_alphanumeric() && c != '.', "");
        self.folder.join(format!("{}{version}", self.device))
    }

    /// What it holds.
    pub fn read(&self) -> Option<Vec<u8>> {
        keep::read(&self.path())
    }

    /// Replaces what it holds, if that is something else.
    pub fn write(&self, data: &[u8]) {
        let path = self.path();
        if self.read().as_deref() == Some(data) {
            return;
        }
        if let Err(error) = keep::write(&path, data) {
            terminal::note(format_args!("note: compiled kernels cannot be kept in `{}` ({error})", path.display()));
        }
        let files = std::fs::read_dir(&self.folder).into_iter().flatten().flatten().map(|entry| entry.path());
        for old in files.filter(|file| *file != path && self.is_ours(file)) {
            // What cannot be removed is only in the way.
            let _ = std::fs::remove_file(old);
        }
    }

    fn is_ours(&self, file: &std::path::Path) -> bool {
        file.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(&self.device))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_replaces_those_of_other_versions_and_leaves_other_devices_alone() {
        let place = tempfile::tempdir().unwrap();
        let file = CacheFile { folder: place.path().join("cache"), device: "card_1-".into() };
        assert_eq!(file.read(), None);
        file.write(b"one");
        for other in ["card_1-0.0", "card_10-0.0", "other"] {
            std::fs::write(file.folder.join(other), "x").unwrap();
        }
        file.write(b"two");
        assert_eq!(file.read().as_deref(), Some(&b"two"[..]));
        let left = |name: &str| file.folder.join(name).exists();
        assert!(!left("card_1-0.0") && left("card_10-0.0") && left("other"));
    }
}
