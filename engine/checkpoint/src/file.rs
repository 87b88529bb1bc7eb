//! Owns: files read at given places, by any number of threads at once.
//! Refuses: folders, pipes and devices; a read that cannot be filled whole.
//! Invariants: a read never moves a shared cursor; every error carries the path; the page cache is bypassed only where the
//! system lets us, and a file system that refuses is read through the cache instead.

use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::config::open_file;
use crate::direct::Direct;
use crate::error::{Error, Result};

/// One of a checkpoint's files, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId(pub(crate) usize);

impl FileId {
    /// Its place in `Checkpoint::files`.
    pub fn index(self) -> usize {
        self.0
    }
}

/// Bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileRange {
    /// Which file.
    pub file: FileId,
    /// First byte, from the start of the file; not aligned to anything.
    pub offset: u64,
    /// How many.
    pub bytes: u64,
}

impl FileRange {
    /// `bytes` bytes that begin `skip` bytes into this range, if they lie inside.
    pub(crate) fn part(self, skip: u64, bytes: u64) -> Option<FileRange> {
        let inside = skip.checked_add(bytes).is_some_and(|end| end <= self.bytes);
        inside.then_some(FileRange { offset: self.offset + skip, bytes, ..self })
    }
}

/// How the files should be read, as asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IoMode {
    /// Past the page cache when the experts would flood it.
    #[default]
    Auto,
    /// Through the page cache.
    Cached,
    /// Past the page cache.
    Direct,
}

/// How the files are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Through the page cache.
    Cached,
    /// Past it: O_DIRECT on Linux, F_NOCACHE without read-ahead on Apple systems.
    Direct,
}

impl IoMode {
    /// Decides. Experts that take up to half of the machine's memory stay in the page cache after their first use, which
    /// helps; more of them only push each other and everything else out.
    pub fn resolve(self, expert_bytes: u64, physical_memory: u64) -> Access {
        match self {
            IoMode::Cached => Access::Cached,
            IoMode::Direct => Access::Direct,
            IoMode::Auto if expert_bytes > physical_memory / 2 => Access::Direct,
            IoMode::Auto => Access::Cached,
        }
    }
}

impl FromStr for IoMode {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text {
            "auto" => Ok(IoMode::Auto),
            "cached" => Ok(IoMode::Cached),
            "direct" => Ok(IoMode::Direct),
            _ => Err("expected auto, cached or direct".into()),
        }
    }
}

impl fmt::Display for IoMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            IoMode::Auto => "auto",
            IoMode::Cached => "cached",
            IoMode::Direct => "direct",
        })
    }
}

/// An open file that is read at given offsets.
#[derive(Debug)]
pub struct PositionedFile {
    path: PathBuf,
    file: File,
    direct: Option<Direct>,
    bytes: u64,
    bytes_read: AtomicU64,
}

impl PositionedFile {
    /// Opens a regular file, links followed. [`Access::Direct`] is a wish: see [`PositionedFile::access`].
    pub fn open(path: &Path, access: Access) -> Result<Self> {
        let (file, bytes) = open_file(path)?;
        let mut opened =
            PositionedFile { path: path.to_owned(), file, direct: None, bytes, bytes_read: AtomicU64::new(0) };
        opened.set_access(access);
        Ok(opened)
    }

    /// Changes how later reads go.
    pub(crate) fn set_access(&mut self, access: Access) {
        self.direct = match access {
            Access::Direct => Direct::open(&self.path, &self.file),
            Access::Cached => None,
        };
    }

    /// The path it was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its length when it was opened.
    pub fn len(&self) -> u64 {
        self.bytes
    }

    /// Whether it was empty when it was opened.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// How reads really go: the file system may have refused to bypass the cache.
    pub fn access(&self) -> Access {
        match &self.direct {
            Some(direct) if direct.works() => Access::Direct,
            _ => Access::Cached,
        }
    }

    /// Bytes handed out so far.
    pub fn bytes_read(&self) -> u64 {
        self.bytes_read.load(Ordering::Relaxed)
    }

    /// Fills `into` from `offset` on. Errors: the system's own, with the path; [`Error::Short`] where the file ends.
    pub fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        let done = match self.direct.as_ref().and_then(|direct| direct.read_at(offset, into)) {
            Some(done) => done,
            None => read_exact_at(&self.file, offset, into),
        };
        match done {
            Ok(()) => {
                self.bytes_read.fetch_add(into.len() as u64, Ordering::Relaxed);
                Ok(())
            }
            Err(cause) if cause.kind() == io::ErrorKind::UnexpectedEof => Err(self.short(offset, into.len() as u64)),
            Err(cause) => Err(Error::io(&self.path, "read", cause)),
        }
    }

    fn short(&self, offset: u64, wanted: u64) -> Error {
        let now = self.file.metadata().map_or(self.bytes, |metadata| metadata.len());
        Error::Short { path: self.path.clone(), offset, wanted, found: now.saturating_sub(offset).min(wanted) }
    }
}

#[cfg(unix)]
fn read_exact_at(file: &File, offset: u64, into: &mut [u8]) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, into, offset)
}

#[cfg(windows)]
fn read_exact_at(file: &File, mut offset: u64, mut into: &mut [u8]) -> io::Result<()> {
    use std::os::windows::fs::FileExt;
    while !into.is_empty() {
        match file.seek_read(into, offset) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(got) => {
                into = into.get_mut(got..).unwrap_or_default();
                offset += got as u64;
            }
            Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
            Err(cause) => return Err(cause),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auto_bypasses_the_cache_only_when_experts_exceed_half_of_memory() {
        assert_eq!(IoMode::Auto.resolve(50, 100), Access::Cached);
        assert_eq!(IoMode::Auto.resolve(51, 100), Access::Direct);
        assert_eq!(IoMode::Cached.resolve(51, 100), Access::Cached);
        assert_eq!(IoMode::Direct.resolve(0, 100), Access::Direct);
    }

    #[test]
    fn direct_and_cached_reads_give_the_same_bytes_at_any_offset_and_length() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("bytes");
        let content: Vec<u8> = (0..700_001u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        std::fs::write(&path, &content).unwrap();
        for access in [Access::Cached, Access::Direct] {
            let file = PositionedFile::open(&path, access).unwrap();
            for (offset, bytes) in [(0, 1), (0, 700_001), (4095, 2), (4096, 4096), (1, 600_000), (700_000, 1), (5, 0)] {
                let mut into = vec![0; bytes];
                file.read_at(offset as u64, &mut into).unwrap();
                assert_eq!(into, content[offset..offset + bytes], "{access:?} {offset} {bytes}");
            }
            assert!(file.bytes_read() > 0);
        }
    }

    #[test]
    fn aligned_memory_gets_the_same_bytes_whatever_is_left_of_the_last_block() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("bytes");
        let content: Vec<u8> = (0..100_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        std::fs::write(&path, &content).unwrap();
        let file = PositionedFile::open(&path, Access::Direct).unwrap();
        let mut room = vec![0; 100_000 + 4096];
        let start = room.as_ptr().align_offset(4096);
        for (offset, bytes) in [(0, 4096), (4096, 8192), (8192, 4097), (0, 100_000), (98_304, 1_696), (4096, 5)] {
            let into = &mut room[start..][..bytes];
            into.fill(0);
            file.read_at(offset as u64, into).unwrap();
            assert_eq!(into, &content[offset..offset + bytes], "{offset} {bytes}");
        }
        let past = file.read_at(98_304, &mut room[start..][..4096]).unwrap_err();
        assert!(matches!(past, Error::Short { found: 1_696, .. }), "{past}");
    }

    #[test]
    fn a_read_past_the_end_names_the_file_and_what_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("bytes");
        std::fs::write(&path, vec![7; 5000]).unwrap();
        for access in [Access::Cached, Access::Direct] {
            let file = PositionedFile::open(&path, access).unwrap();
            for (offset, bytes, found) in [(4990, 20, 10), (5000, 1, 0), (1 << 40, 8, 0), (0, 8192, 5000)] {
                let error = file.read_at(offset, &mut vec![0; bytes]).unwrap_err();
                let text = error.to_string();
                assert!(matches!(error, Error::Short { found: f, .. } if f == found), "{access:?}: {text}");
                assert!(text.contains("bytes") && text.contains(&path.display().to_string()), "{text}");
            }
        }
    }

    #[test]
    fn a_file_that_shrinks_after_it_was_opened_is_a_short_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("bytes");
        std::fs::write(&path, vec![7; 9000]).unwrap();
        let file = PositionedFile::open(&path, Access::Cached).unwrap();
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(100).unwrap();
        let error = file.read_at(50, &mut [0; 100]).unwrap_err();
        assert!(matches!(error, Error::Short { found: 50, wanted: 100, .. }), "{error}");
    }
}
