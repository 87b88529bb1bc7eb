//! Owns: reads that bypass the page cache.
//! Refuses: nothing; where the system will not do it, it says so and the caller reads through the cache.
//! Invariants: on Linux every request to the system is aligned in offset, length and memory; ranges that are not, and what
//! an aligned range has left at its end, go through one small aligned buffer a thread.

pub(crate) use imp::Direct;

#[cfg(target_os = "linux")]
mod imp {
    use std::cell::RefCell;
    use std::fs::{File, OpenOptions};
    use std::io;
    use std::os::unix::fs::{FileExt, OpenOptionsExt};
    use std::path::Path;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// What O_DIRECT asks of offset, length and memory: the largest logical block of disks in use.
    const BLOCK: usize = 4096;
    /// Bytes of the aligned buffer: enough for a disk's full speed when several threads read, and small beside their number.
    const BOUNCE: usize = 256 << 10;

    thread_local! {
        /// Room for `BOUNCE` aligned bytes.
        static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }

    /// The file opened a second time with O_DIRECT.
    #[derive(Debug)]
    pub(crate) struct Direct {
        file: File,
        refused: AtomicBool,
    }

    impl Direct {
        /// None where the file system has no direct reads.
        pub fn open(path: &Path, _cached: &File) -> Option<Self> {
            let file = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path).ok()?;
            Some(Direct { file, refused: AtomicBool::new(false) })
        }

        /// Whether direct reads have worked so far.
        pub fn works(&self) -> bool {
            !self.refused.load(Ordering::Relaxed)
        }

        /// None when the read has to go through the cache.
        pub fn read_at(&self, offset: u64, into: &mut [u8]) -> Option<io::Result<()>> {
            if !self.works() {
                return None;
            }
            let whole = aligned(offset, into).then(|| read_aligned(&self.file, offset, into));
            let done = match whole {
                // A disk cannot write into the memory of every device, though the processor can.
                Some(Err(cause)) if cause.raw_os_error() == Some(libc::EFAULT) => None,
                whole => whole,
            };
            let bounced = || BUFFER.with_borrow_mut(|buffer| read_bounced(&self.file, offset, into, buffer));
            match done.unwrap_or_else(bounced) {
                // Some file systems accept the flag and refuse the read, or want larger blocks.
                Err(cause) if cause.kind() == io::ErrorKind::InvalidInput => {
                    self.refused.store(true, Ordering::Relaxed);
                    None
                }
                done => Some(done),
            }
        }
    }

    /// Whether whole blocks of a range can be read to where they belong.
    fn aligned(offset: u64, into: &[u8]) -> bool {
        offset.is_multiple_of(BLOCK as u64) && into.len() >= BLOCK && into.as_ptr().addr().is_multiple_of(BLOCK)
    }

    fn read_aligned(file: &File, mut offset: u64, into: &mut [u8]) -> io::Result<()> {
        let (mut into, rest) = into.split_at_mut(into.len() / BLOCK * BLOCK);
        while !into.is_empty() {
            // A count that is no multiple of the block is the end of the file.
            let got = read_some(file, offset, into)? / BLOCK * BLOCK;
            if got == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            offset += got as u64;
            into = into.get_mut(got..).unwrap_or_default();
        }
        BUFFER.with_borrow_mut(|buffer| read_bounced(file, offset, rest, buffer))
    }

    fn read_bounced(file: &File, mut offset: u64, mut into: &mut [u8], buffer: &mut Vec<u8>) -> io::Result<()> {
        if buffer.is_empty() {
            buffer.resize(BOUNCE + BLOCK, 0);
        }
        let start = buffer.as_ptr().align_offset(BLOCK);
        let room = start.checked_add(BOUNCE).and_then(|end| buffer.get_mut(start..end));
        let room = room.ok_or(io::ErrorKind::InvalidInput)?;
        while !into.is_empty() {
            let skip = (offset % BLOCK as u64) as usize;
            let block = (skip + into.len()).next_multiple_of(BLOCK).min(BOUNCE);
            let Some(block) = room.get_mut(..block) else { return Err(io::ErrorKind::InvalidInput.into()) };
            let got = read_some(file, offset - skip as u64, block)?;
            let useful = block.get(skip..got).unwrap_or_default();
            let take = useful.len().min(into.len());
            if take == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let (now, later) = into.split_at_mut(take);
            now.copy_from_slice(&useful[..take]);
            offset += take as u64;
            into = later;
        }
        Ok(())
    }

    fn read_some(file: &File, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match file.read_at(into, offset) {
                Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
                done => return done,
            }
        }
    }
}

#[cfg(target_vendor = "apple")]
mod imp {
    use std::fs::File;
    use std::io;
    use std::os::fd::AsRawFd;
    use std::path::Path;

    /// A mark: the flags sit on the cached handle itself, which takes any offset and length.
    #[derive(Debug)]
    pub(crate) struct Direct;

    impl Direct {
        /// Turns caching and read-ahead off; None where the system refuses.
        pub fn open(_path: &Path, cached: &File) -> Option<Self> {
            let descriptor = cached.as_raw_fd();
            // SAFETY: `descriptor` belongs to `cached`, which outlives the calls; both commands take one integer.
            let refused = unsafe {
                libc::fcntl(descriptor, libc::F_NOCACHE, 1) < 0 || libc::fcntl(descriptor, libc::F_RDAHEAD, 0) < 0
            };
            (!refused).then_some(Direct)
        }

        /// Always: the flags were accepted.
        pub fn works(&self) -> bool {
            true
        }

        /// None: the ordinary read does it.
        pub fn read_at(&self, _offset: u64, _into: &mut [u8]) -> Option<io::Result<()>> {
            None
        }
    }
}

#[cfg(not(any(target_os = "linux", target_vendor = "apple")))]
mod imp {
    use std::fs::File;
    use std::io;
    use std::path::Path;

    /// Never made: these systems are read through the cache.
    #[derive(Debug)]
    pub(crate) enum Direct {}

    impl Direct {
        /// None.
        pub fn open(_path: &Path, _cached: &File) -> Option<Self> {
            None
        }

        /// Never called.
        pub fn works(&self) -> bool {
            match *self {}
        }

        /// Never called.
        pub fn read_at(&self, _offset: u64, _into: &mut [u8]) -> Option<io::Result<()>> {
            match *self {}
        }
    }
}
