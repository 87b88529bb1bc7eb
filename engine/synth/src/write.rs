//! Owns: writing a plan: files, threads, the order in which things come to be.
//! Refuses: a directory with something in it, a disk without room.
//! Invariants: the index comes last, under its name only once it is whole: what a crash left does not open, and is known for
//! what it is. What fails or is stopped is removed.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;

use serde_json::Value;
use ss_checkpoint::imitation::UNFINISHED;

use crate::error::{Error, Result};
use crate::fill::UNIT;
use crate::plan::{Plan, WeightFile};
use crate::recipe::Fill;
use crate::space;
use crate::words::TEMPLATE;

/// Bytes of one write: they are made and copied while a core's cache holds them.
const PIECE: u64 = UNIT << 15;
const INDEX: &str = "model.safetensors.index.json";

/// How a plan is written.
#[derive(Clone, Copy, Debug, Default)]
pub struct WriteOptions {
    /// Threads; 0 takes one for each core.
    pub threads: usize,
    /// Bytes that the disk has; the system is asked if nobody says.
    pub free: Option<u64>,
}

/// Writes a checkpoint into a new or empty directory. `stop` is asked now and then; `progress` is told how many bytes of
/// weights of how many are written.
///
/// # Errors
/// When something is in the directory, the disk has no room or fails, or somebody asked to stop. Nothing is left then.
pub fn write(
    plan: &Plan,
    dir: &Path,
    options: WriteOptions,
    stop: &dyn Fn() -> bool,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<()> {
    let made = claim(dir)?;
    let texts = texts(plan);
    check_room(plan, &texts, dir, options.free)?;
    let mut leftover = Leftover { files: Vec::new(), dir: made.then(|| dir.to_owned()) };
    if made {
        fs::create_dir_all(dir).map_err(|cause| Error::io(dir, "create the folder", cause))?;
    }
    // While it is empty it says that the rest is not whole.
    leftover.text(dir, UNFINISHED, "")?;
    texts.iter().try_for_each(|(name, text)| leftover.text(dir, name, text))?;
    let files: Vec<Open> = plan.files.iter().map(|file| leftover.weights(dir, file)).collect::<Result<_>>()?;
    let work =
        Work { files: &files, pieces: pieces(&plan.files), next: AtomicUsize::new(0), ended: AtomicBool::new(false) };
    work.run(threads(options.threads), plan.bytes(), stop, progress)?;
    leftover.text(dir, UNFINISHED, &shown(&plan.index))?;
    let (from, to) = (dir.join(UNFINISHED), dir.join(INDEX));
    fs::rename(&from, &to).map_err(|cause| Error::io(&to, "write", cause))?;
    leftover.keep();
    Ok(())
}

/// The small files beside the weights, but for the index: names and texts.
fn texts(plan: &Plan) -> Vec<(&'static str, String)> {
    vec![
        ("config.json", shown(&plan.config)),
        ("tokenizer.json", shown(&plan.words.tokenizer())),
        ("tokenizer_config.json", shown(&plan.words.tokenizer_config())),
        ("generation_config.json", shown(&plan.words.generation_config())),
        ("chat_template.jinja", TEMPLATE.to_owned()),
    ]
}

fn shown(value: &Value) -> String {
    format!("{value:#}")
}

/// Whether the directory is to be made.
fn claim(dir: &Path) -> Result<bool> {
    let occupied = |found| Err(Error::Occupied { path: dir.to_owned(), found });
    match fs::symlink_metadata(dir) {
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(true),
        Err(cause) => return Err(Error::io(dir, "look at the folder", cause)),
        Ok(_) if !dir.is_dir() => return occupied("not a directory"),
        Ok(_) => {}
    }
    if dir.join(UNFINISHED).exists() {
        return occupied("what an `ss synth` that was cut short has left");
    }
    let mut entries = fs::read_dir(dir).map_err(|cause| Error::io(dir, "look into the folder", cause))?;
    if entries.next().is_some() { occupied("not empty") } else { Ok(false) }
}

fn check_room(plan: &Plan, texts: &[(&str, String)], dir: &Path, free: Option<u64>) -> Result<()> {
    let headers: u64 = plan.files.iter().map(|file| file.header.len() as u64).sum();
    let small: usize = texts.iter().map(|(_, text)| text.len()).sum::<usize>() + shown(&plan.index).len();
    let needed = plan.bytes() + headers + small as u64;
    match free.or_else(|| space::free(space::existing(dir))) {
        Some(free) if free < needed => Err(Error::NoRoom { path: dir.to_owned(), needed, free, holes: plan.holes() }),
        _ => Ok(()),
    }
}

fn threads(asked: usize) -> usize {
    if asked > 0 { asked } else { std::thread::available_parallelism().map_or(1, usize::from) }
}

/// Files that are removed unless they are kept.
struct Leftover {
    files: Vec<PathBuf>,
    dir: Option<PathBuf>,
}

impl Leftover {
    fn text(&mut self, dir: &Path, name: &str, text: &str) -> Result<()> {
        let path = dir.join(name);
        self.files.push(path.clone());
        fs::write(&path, text).map_err(|cause| Error::io(&path, "write", cause))
    }

    /// Makes a file of weights: its header, and holes.
    fn weights(&mut self, dir: &Path, file: &WeightFile) -> Result<Open> {
        let path = dir.join(&file.name);
        self.files.push(path.clone());
        let make = || {
            let made = File::create_new(&path)?;
            made.set_len(file.length())?;
            write_all_at(&made, &file.header, 0)?;
            Ok(made)
        };
        match make() {
            Ok(file) => Ok(Open { file, path }),
            Err(cause) => Err(Error::io(&path, "write", cause)),
        }
    }

    fn keep(mut self) {
        self.files.clear();
        self.dir = None;
    }
}

impl Drop for Leftover {
    fn drop(&mut self) {
        // What cannot be removed lacks its index and does not open.
        for file in self.files.drain(..) {
            let _ = fs::remove_file(file);
        }
        if let Some(dir) = self.dir.take() {
            let _ = fs::remove_dir(dir);
        }
    }
}

struct Open {
    file: File,
    path: PathBuf,
}

/// A stretch of a tensor.
struct Piece<'a> {
    /// Place of its file.
    file: usize,
    /// First byte in the file.
    offset: u64,
    /// First byte in the tensor.
    first: u64,
    bytes: u64,
    fill: &'a Fill,
}

/// All pieces, in turn from each file: a file system lets one thread write into a file at a time.
fn pieces(files: &[WeightFile]) -> Vec<Piece<'_>> {
    let mut rows: Vec<_> = files.iter().enumerate().map(|(place, file)| pieces_of(place, file).into_iter()).collect();
    let mut pieces = Vec::with_capacity(rows.iter().map(ExactSizeIterator::len).sum());
    while rows.iter().any(|row| row.len() > 0) {
        pieces.extend(rows.iter_mut().filter_map(Iterator::next));
    }
    pieces
}

fn pieces_of(place: usize, file: &WeightFile) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    for tensor in file.tensors.iter().filter(|tensor| !tensor.fill.is_hole()) {
        for first in (0..tensor.bytes).step_by(PIECE as usize) {
            let bytes = PIECE.min(tensor.bytes - first);
            pieces.push(Piece { file: place, offset: tensor.offset + first, first, bytes, fill: &tensor.fill });
        }
    }
    pieces
}

/// What the threads share.
struct Work<'a> {
    files: &'a [Open],
    pieces: Vec<Piece<'a>>,
    next: AtomicUsize,
    ended: AtomicBool,
}

impl Work<'_> {
    fn run(
        &self,
        threads: usize,
        total: u64,
        stop: &dyn Fn() -> bool,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<()> {
        std::thread::scope(|scope| {
            let (tell, told) = mpsc::channel();
            for _ in 0..threads {
                let tell = tell.clone();
                scope.spawn(move || self.write_pieces(&tell));
            }
            drop(tell);
            let (mut done, mut outcome) = (0, Ok(()));
            for written in told {
                match written {
                    Ok(bytes) => done += bytes,
                    Err(error) => outcome = outcome.and(Err(error)),
                }
                if outcome.is_ok() && done < total && stop() {
                    outcome = Err(Error::Cancelled);
                }
                if outcome.is_err() {
                    self.ended.store(true, Ordering::Relaxed);
                } else {
                    progress(done, total);
                }
            }
            outcome
        })
    }

    /// What one thread does.
    fn write_pieces(&self, tell: &mpsc::Sender<Result<u64>>) {
        let mut room = vec![0; PIECE as usize];
        while !self.ended.load(Ordering::Relaxed) {
            let Some(piece) = self.pieces.get(self.next.fetch_add(1, Ordering::Relaxed)) else { return };
            if tell.send(self.write_piece(piece, &mut room)).is_err() {
                return;
            }
        }
    }

    fn write_piece(&self, piece: &Piece, room: &mut [u8]) -> Result<u64> {
        if let (Some(open), Some(bytes)) = (self.files.get(piece.file), room.get_mut(..piece.bytes as usize)) {
            piece.fill.write(piece.first, bytes);
            write_all_at(&open.file, bytes, piece.offset).map_err(|cause| Error::io(&open.path, "write", cause))?;
        }
        Ok(piece.bytes)
    }
}

#[cfg(unix)]
fn write_all_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, bytes, offset)
}

#[cfg(windows)]
fn write_all_at(file: &File, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
    use std::os::windows::fs::FileExt;
    while !bytes.is_empty() {
        match file.seek_write(bytes, offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(put) => {
                bytes = bytes.get(put..).unwrap_or_default();
                offset += put as u64;
            }
            Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
            Err(cause) => return Err(cause),
        }
    }
    Ok(())
}
