//! Owns: everything that this crate does to a disk, so that tests can have it fail anywhere.
//! Refuses: knowing what is written.
//! Invariants: what was written before a [`Disk::sync`] that returned is there after a crash.

use std::fs::File;
use std::io;
use std::path::Path;

/// A disk that packs are written to.
pub trait Disk: Sync {
    /// Writes all bytes from `offset` on.
    ///
    /// # Errors
    /// The system's own; `StorageFull` where there is no room.
    fn write_at(&self, file: &File, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Waits until what was written is on the disk.
    ///
    /// # Errors
    /// The system's own.
    fn sync(&self, file: &File) -> io::Result<()>;

    /// Gives a file another name, in place of a file that has it, for good.
    ///
    /// # Errors
    /// The system's own.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Gives the space of bytes back; they read as zeros from now on.
    ///
    /// # Errors
    /// `Unsupported`, or the system's own, where there is no such thing.
    fn punch(&self, file: &File, offset: u64, bytes: u64) -> io::Result<()>;

    /// Bytes that are free in a directory; None where nobody knows.
    ///
    /// # Errors
    /// The system's own.
    fn free(&self, dir: &Path) -> io::Result<Option<u64>>;
}

/// The disks of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemDisk;

impl Disk for SystemDisk {
    #[cfg(unix)]
    fn write_at(&self, file: &File, offset: u64, bytes: &[u8]) -> io::Result<()> {
        std::os::unix::fs::FileExt::write_all_at(file, bytes, offset)
    }

    #[cfg(windows)]
    fn write_at(&self, file: &File, mut offset: u64, mut bytes: &[u8]) -> io::Result<()> {
        use std::os::windows::fs::FileExt;
        while !bytes.is_empty() {
            let written = file.seek_write(bytes, offset)?;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            offset += written as u64;
            bytes = bytes.get(written..).unwrap_or_default();
        }
        Ok(())
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        file.sync_all()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)?;
        // A name is on the disk when its folder is; other systems see to it themselves.
        #[cfg(unix)]
        if let Some(folder) = to.parent() {
            File::open(folder)?.sync_all()?;
        }
        Ok(())
    }

    #[cfg(target_os = "linux")]
    fn punch(&self, file: &File, offset: u64, bytes: u64) -> io::Result<()> {
        use rustix::fs::{FallocateFlags, fallocate};
        Ok(fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, bytes)?)
    }

    #[cfg(not(target_os = "linux"))]
    fn punch(&self, _file: &File, _offset: u64, _bytes: u64) -> io::Result<()> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "this program can do it on Linux only"))
    }

    #[cfg(unix)]
    fn free(&self, dir: &Path) -> io::Result<Option<u64>> {
        let facts = rustix::fs::statvfs(dir)?;
        Ok(Some(facts.f_bavail.saturating_mul(facts.f_frsize)))
    }

    #[cfg(not(unix))]
    fn free(&self, _dir: &Path) -> io::Result<Option<u64>> {
        Ok(None)
    }
}

/// Bytes of a file that take room on its disk; its length where nobody knows.
pub(crate) fn allocated(path: &Path) -> io::Result<u64> {
    let metadata = std::fs::metadata(path)?;
    #[cfg(unix)]
    {
        /// What a block is to the system, whatever it is to the disk.
        const BLOCK: u64 = 512;
        Ok(std::os::unix::fs::MetadataExt::blocks(&metadata).saturating_mul(BLOCK))
    }
    #[cfg(not(unix))]
    Ok(metadata.len())
}
