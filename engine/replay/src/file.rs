//! Owns: the trace file. Little-endian: 8 bytes `ss-trace`, then u32 version, layers, experts, choices, and u64 bytes of
//! a record; then token after token: u32 pass, u32 position, u32 kind (0 a prompt's row, 1 generated), `[layers, choices]`
//! u16 experts, `[layers, choices]` F32 margins; for a generated one the same two once more, of what its layers were expected
//! to choose, 65535 for an expert where nothing was. Files of version 1, which are read, hold no forecasts.
//! Refuses: other files, other versions, choices that no model can have made, and to write over what is no trace.
//! Invariants: a file that ends in the middle of a token is read up to the token before; a generated token of the released
//! model takes 5,772 bytes, a prompt's 2,892.

use std::fs::{File, Metadata, TryLockError};
use std::io::{BufReader, Read, Write};
use std::path::{Path, PathBuf};

use crate::{Error, Expected, Result, Shape, Token, Trace};

const MAGIC: &[u8; 8] = b"ss-trace";
/// What is written.
const VERSION: u32 = 2;
/// What is read, too: without forecasts.
const PLAIN: u32 = 1;
/// Bytes of the header.
const HEADER: usize = 32;
/// Bytes of a token in front of its choices.
const HEAD: usize = 12;
/// Bytes of a choice and of a margin.
const CHOICE: usize = size_of::<u16>() + size_of::<f32>();

/// A file that a trace is to be written to. Until the first token is, what it held stays; where it held nothing and none was
/// written, it is removed again.
pub struct TracePlace {
    path: PathBuf,
    file: File,
    /// Whether it keeps what is written: a device, as `/dev/null`, does not.
    keeps: bool,
    /// Whether there is nothing in it.
    empty: bool,
}

impl TracePlace {
    /// Makes sure that a trace can be written there, and that nobody else does.
    ///
    /// # Errors
    /// When it cannot be opened, is no file, holds something else than a trace, or another run writes it.
    pub fn claim(path: &Path) -> Result<Self> {
        let there = std::fs::metadata(path).ok();
        let device = there.as_ref().is_some_and(is_device);
        if let Some(metadata) = there.filter(|_| !device) {
            must_be_file(path, &metadata)?;
        }
        let opened = File::options().read(!device).append(true).create(true).open(path);
        let mut place = TracePlace {
            path: path.to_owned(),
            file: opened.map_err(|cause| Error::io(path, "written", cause))?,
            keeps: !device,
            empty: false,
        };
        if !device {
            place.must_be_free()?;
        }
        Ok(place)
    }

    /// Refuses what another run writes and what is no trace.
    fn must_be_free(&mut self) -> Result<()> {
        // A file system without locks keeps nobody out.
        if let Err(TryLockError::WouldBlock) = self.file.try_lock() {
            return Err(Error::Busy { path: self.path.clone() });
        }
        let mut begin = [0; MAGIC.len()];
        let held = fill(&mut self.file, &mut begin).map_err(|cause| Error::io(&self.path, "read", cause))?;
        self.empty = held == 0;
        if self.empty || begin == *MAGIC { Ok(()) } else { Err(Error::InTheWay { path: self.path.clone() }) }
    }
}

impl Drop for TracePlace {
    fn drop(&mut self) {
        if self.empty {
            // It may be gone already.
            _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Writes a trace, token after token.
pub struct TraceWriter {
    place: TracePlace,
    /// What the system has not been handed yet.
    pending: Vec<u8>,
    shape: Shape,
    begun: bool,
}

impl TraceWriter {
    /// Writes to a place. Nothing is in it before [`TraceWriter::flush`].
    pub fn new(place: TracePlace, shape: Shape) -> Self {
        let Shape { layers, experts, choices, record_bytes } = shape;
        let mut header = MAGIC.to_vec();
        [VERSION, layers, experts, choices].iter().for_each(|word| header.extend(word.to_le_bytes()));
        header.extend(record_bytes.to_le_bytes());
        TraceWriter { place, pending: header, shape, begun: false }
    }

    /// Adds a token.
    ///
    /// # Errors
    /// When the disk is full or the token has another shape than the trace.
    pub fn push(&mut self, token: &Token) -> Result<()> {
        if let Some(found) = self.shape.fault_of(token) {
            return Err(Error::Damaged { path: self.place.path.clone(), token: token.position.into(), found });
        }
        let bytes = &mut self.pending;
        [token.pass, token.position, u32::from(token.generated)].iter().for_each(|w| bytes.extend(w.to_le_bytes()));
        put_choices(bytes, &token.choices, &token.margins);
        if token.generated {
            let nothing = Expected::nothing(&self.shape);
            let Expected { experts, margins } = token.expected.as_ref().unwrap_or(&nothing);
            put_choices(bytes, experts, margins);
        }
        Ok(())
    }

    /// Hands what was added to the system; the first time, what the file held before is gone.
    ///
    /// # Errors
    /// When the disk is full.
    pub fn flush(&mut self) -> Result<()> {
        let TracePlace { path, file, keeps, empty } = &mut self.place;
        let io = |cause| Error::io(path, "written", cause);
        if !self.begun {
            if *keeps {
                file.set_len(0).map_err(io)?;
            }
            (self.begun, *empty) = (true, false);
        }
        file.write_all(&self.pending).map_err(io)?;
        self.pending.clear();
        Ok(())
    }
}

/// Reads a trace, token after token.
pub struct TraceReader {
    path: PathBuf,
    from: BufReader<File>,
    shape: Shape,
    /// Whether generated tokens have forecasts.
    foretells: bool,
    /// Tokens read so far.
    tokens: u64,
    cut: bool,
}

impl TraceReader {
    /// Opens a file and reads its header.
    ///
    /// # Errors
    /// When it cannot be read or is no trace of this version.
    pub fn open(path: &Path) -> Result<Self> {
        must_be_file(path, &std::fs::metadata(path).map_err(|cause| Error::io(path, "opened", cause))?)?;
        let file = File::open(path).map_err(|cause| Error::io(path, "opened", cause))?;
        let mut from = BufReader::new(file);
        let mut header = [0; HEADER];
        let read = fill(&mut from, &mut header).map_err(|cause| Error::io(path, "read", cause))?;
        let foreign = |found: String| Error::Foreign { path: path.to_owned(), found };
        if !header.starts_with(MAGIC) {
            return Err(foreign(format!("it does not begin with `{}`", MAGIC.escape_ascii())));
        }
        if read < HEADER {
            return Err(foreign(format!("it ends after {read} bytes")));
        }
        let version = word(&header, 8);
        if version != VERSION && version != PLAIN {
            return Err(foreign(format!("its version is {version}, this program reads {PLAIN} and {VERSION}")));
        }
        let record_bytes = u64::from(word(&header, 24)) | u64::from(word(&header, 28)) << u32::BITS;
        let shape =
            Shape { layers: word(&header, 12), experts: word(&header, 16), choices: word(&header, 20), record_bytes };
        match shape.fault() {
            Some(found) => Err(foreign(found)),
            None => {
                let foretells = version == VERSION;
                Ok(TraceReader { path: path.to_owned(), from, shape, foretells, tokens: 0, cut: false })
            }
        }
    }

    /// Sizes of its model.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Refuses a file without forecasts.
    ///
    /// # Errors
    /// [`Error::NoForecasts`], for one of version 1.
    pub fn require_forecasts(&self) -> Result<()> {
        if self.foretells { Ok(()) } else { Err(Error::NoForecasts { path: self.path.clone() }) }
    }

    /// Whether the file ends in the middle of a token.
    pub fn was_cut(&self) -> bool {
        self.cut
    }

    /// The next token; none behind the last whole one.
    ///
    /// # Errors
    /// When the file cannot be read, or the token is none that the model can have left.
    pub fn next_token(&mut self) -> Result<Option<Token>> {
        let mut head = [0; HEAD];
        if !self.take(&mut head)? {
            return Ok(None);
        }
        let damaged = |found| Error::Damaged { path: self.path.clone(), token: self.tokens, found };
        let kind = word(&head, 8);
        if kind > 1 {
            return Err(damaged(format!("is of kind {kind}, expected 0 or 1")));
        }
        let generated = kind == 1;
        let all = CHOICE * self.shape.of_token();
        let mut bytes = vec![0; if generated && self.foretells { 2 * all } else { all }];
        if !self.take(&mut bytes)? {
            // Its head is there.
            self.cut = true;
            return Ok(None);
        }
        let (choices, margins) = choices_in(&bytes[..all]);
        let expected = bytes.get(all..).filter(|rest| !rest.is_empty()).map(choices_in);
        let expected = expected.map(|(experts, margins)| Expected { experts, margins });
        let token = Token { pass: word(&head, 0), position: word(&head, 4), generated, choices, margins, expected };
        if let Some(found) = self.shape.fault_of(&token) {
            return Err(Error::Damaged { path: self.path.clone(), token: self.tokens, found });
        }
        self.tokens += 1;
        Ok(Some(token))
    }

    /// Fills `into`, if so much is left; says whether it was.
    fn take(&mut self, into: &mut [u8]) -> Result<bool> {
        let read = fill(&mut self.from, into).map_err(|cause| Error::io(&self.path, "read", cause))?;
        self.cut = read > 0 && read < into.len();
        Ok(read == into.len())
    }

    /// Reads all that is left.
    ///
    /// # Errors
    /// As [`TraceReader::next_token`]; [`Error::Empty`] when no token was generated.
    pub fn read(&mut self) -> Result<Trace> {
        let mut trace = Trace::new(self.shape);
        while let Some(token) = self.next_token()? {
            trace.push(&token);
        }
        match trace.passes.is_empty() {
            true => Err(Error::Empty { path: self.path.clone() }),
            false => Ok(trace),
        }
    }
}

/// Refuses what is no file: a pipe would keep its reader or writer waiting, a device would never end.
fn must_be_file(path: &Path, metadata: &Metadata) -> Result<()> {
    let found = match metadata {
        file if file.is_file() => return Ok(()),
        directory if directory.is_dir() => "a directory",
        _ => "a pipe or a device",
    };
    Err(Error::NotAFile { path: path.to_owned(), found })
}

/// Whether it takes everything and waits for nobody.
#[cfg(unix)]
fn is_device(metadata: &Metadata) -> bool {
    std::os::unix::fs::FileTypeExt::is_char_device(&metadata.file_type())
}

#[cfg(not(unix))]
fn is_device(_: &Metadata) -> bool {
    false
}

/// Adds experts, then their margins.
fn put_choices(bytes: &mut Vec<u8>, experts: &[u16], margins: &[f32]) {
    experts.iter().for_each(|expert| bytes.extend(expert.to_le_bytes()));
    margins.iter().for_each(|margin| bytes.extend(margin.to_le_bytes()));
}

/// Experts and their margins, as many of these as of those.
fn choices_in(bytes: &[u8]) -> (Vec<u16>, Vec<f32>) {
    let (experts, margins) = bytes.split_at(bytes.len() / CHOICE * size_of::<u16>());
    let experts = experts.as_chunks().0.iter().map(|two| u16::from_le_bytes(*two)).collect();
    (experts, margins.as_chunks().0.iter().map(|four| f32::from_le_bytes(*four)).collect())
}

/// A word of a header.
fn word(bytes: &[u8], at: usize) -> u32 {
    let four = bytes.get(at..).and_then(|rest| rest.first_chunk::<4>());
    four.map_or(0, |four| u32::from_le_bytes(*four))
}

/// Reads until `into` is full or the file ends; gives the number of bytes.
fn fill(from: &mut impl Read, into: &mut [u8]) -> std::io::Result<usize> {
    let mut done = 0;
    while done < into.len() {
        match from.read(&mut into[done..]) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}
