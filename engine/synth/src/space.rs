//! Owns: how much room a disk has.
//! Refuses: nothing; where the system does not say, nobody is held up.

use std::path::Path;

/// Bytes that this process may still write on the disk of an existing path.
#[cfg(unix)]
pub(crate) fn free(path: &Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(path).ok()?;
    disk.f_bavail.checked_mul(disk.f_frsize)
}

/// Not asked on this system.
#[cfg(not(unix))]
pub(crate) fn free(_: &Path) -> Option<u64> {
    None
}

/// The nearest folder above a path that exists: where a new folder would be made.
pub(crate) fn existing(path: &Path) -> &Path {
    path.ancestors().find(|folder| folder.exists()).unwrap_or_else(|| Path::new("."))
}
