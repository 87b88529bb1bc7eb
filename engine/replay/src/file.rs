//! Owns: the trace file. Little-endian: 8 bytes `ss-trace`, then u32 version, layers, experts, choices, and u64 bytes of
//! a record; then token after token: u32 pass, u32 position, u32 kind (0 a prompt's row, 1 generated), `[layers, choices]`
//! u16 experts, `[layers, choices]` F32 margins.
//! Refuses: other files, other versions, and choices that no model can have made.
//! Invariants: a file that ends in the middle of a token is read up to the token before; a token of the released model
//! takes 2,892 bytes.

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use crate::{Error, Result, Shape, Token, Trace};

const MAGIC: &[u8; 8] = b"ss-trace";
const VERSION: u32 = 1;
/// Bytes of the header.
const HEADER: usize = 32;
/// Bytes of a token in front of its choices.
const HEAD: usize = 12;
/// Bytes of a choice and of a margin.
const CHOICE: usize = size_of::<u16>() + size_of::<f32>();

/// Writes a trace, token after token.
pub struct TraceWriter {
    path: PathBuf,
    out: BufWriter<File>,
    shape: Shape,
}

impl TraceWriter {
    /// Makes or replaces a file. Nothing is in it before [`TraceWriter::flush`].
    ///
    /// # Errors
    /// When it cannot be opened for writing.
    pub fn create(path: &Path, shape: Shape) -> Result<Self> {
        let file = File::create(path).map_err(|cause| Error::io(path, "written", cause))?;
        let mut writer = TraceWriter { path: path.to_owned(), out: BufWriter::new(file), shape };
        let Shape { layers, experts, choices, record_bytes } = shape;
        let mut header = MAGIC.to_vec();
        [VERSION, layers, experts, choices].iter().for_each(|word| header.extend(word.to_le_bytes()));
        header.extend(record_bytes.to_le_bytes());
        writer.write(&header)?;
        Ok(writer)
    }

    /// Adds a token.
    ///
    /// # Errors
    /// When the disk is full or the token has another shape than the trace.
    pub fn push(&mut self, token: &Token) -> Result<()> {
        if let Some(found) = self.shape.fault_of(token) {
            return Err(Error::Damaged { path: self.path.clone(), token: token.position.into(), found });
        }
        let mut bytes = Vec::with_capacity(HEAD + CHOICE * token.choices.len());
        [token.pass, token.position, u32::from(token.generated)].iter().for_each(|w| bytes.extend(w.to_le_bytes()));
        token.choices.iter().for_each(|expert| bytes.extend(expert.to_le_bytes()));
        token.margins.iter().for_each(|margin| bytes.extend(margin.to_le_bytes()));
        self.write(&bytes)
    }

    /// Hands what was added to the system.
    ///
    /// # Errors
    /// When the disk is full.
    pub fn flush(&mut self) -> Result<()> {
        self.out.flush().map_err(|cause| Error::io(&self.path, "written", cause))
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.out.write_all(bytes).map_err(|cause| Error::io(&self.path, "written", cause))
    }
}

/// Reads a trace, token after token.
pub struct TraceReader {
    path: PathBuf,
    from: BufReader<File>,
    shape: Shape,
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
        let metadata = std::fs::metadata(path).map_err(|cause| Error::io(path, "opened", cause))?;
        // A pipe would keep the reader waiting, a device would never end.
        if !metadata.is_file() {
            let found = if metadata.is_dir() { "a directory" } else { "a pipe or a device" };
            return Err(Error::NotAFile { path: path.to_owned(), found });
        }
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
        if version != VERSION {
            return Err(foreign(format!("its version is {version}, this program reads {VERSION}")));
        }
        let record_bytes = u64::from(word(&header, 24)) | u64::from(word(&header, 28)) << u32::BITS;
        let shape =
            Shape { layers: word(&header, 12), experts: word(&header, 16), choices: word(&header, 20), record_bytes };
        match shape.fault() {
            Some(found) => Err(foreign(found)),
            None => Ok(TraceReader { path: path.to_owned(), from, shape, tokens: 0, cut: false }),
        }
    }

    /// Sizes of its model.
    pub fn shape(&self) -> Shape {
        self.shape
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
        let count = self.shape.of_token();
        let mut bytes = vec![0; HEAD + CHOICE * count];
        let read = fill(&mut self.from, &mut bytes).map_err(|cause| Error::io(&self.path, "read", cause))?;
        if read < bytes.len() {
            self.cut = read > 0;
            return Ok(None);
        }
        let (choices, margins) = bytes[HEAD..].split_at(size_of::<u16>() * count);
        let kind = word(&bytes, 8);
        let token = Token {
            pass: word(&bytes, 0),
            position: word(&bytes, 4),
            generated: kind == 1,
            choices: choices.as_chunks().0.iter().map(|two| u16::from_le_bytes(*two)).collect(),
            margins: margins.as_chunks().0.iter().map(|four| f32::from_le_bytes(*four)).collect(),
        };
        let fault =
            if kind > 1 { Some(format!("is of kind {kind}, expected 0 or 1")) } else { self.shape.fault_of(&token) };
        if let Some(found) = fault {
            return Err(Error::Damaged { path: self.path.clone(), token: self.tokens, found });
        }
        self.tokens += 1;
        Ok(Some(token))
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
