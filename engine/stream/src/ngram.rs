//! Owns: bringing n-gram rows as F32 numbers, through a bounded cache (engine.md section 6, architecture.md section 9).
//! Refuses: hashing ids into rows, which is `NgramTables`' business, and everything after the embedding.
//! Invariants: a row's numbers do not depend on the cache, on its neighbours, or on the lanes; a row that holds a NaN or
//! an infinity, or cannot be read, fails the request and leaves the cache as it was.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use half::bf16;
use ss_checkpoint::{Checkpoint, FileRange, Matrix};

use crate::decode::decode_row;
use crate::lanes::Read;
use crate::rows::RowCache;
use crate::{Error, Lane, Lanes, Mutation, NgramCounters, RecordSource, Result};

/// Default size of the row cache in bytes, all tables together (engine.md section 6).
pub const ROW_CACHE_BYTES: u64 = 64_000_000;
/// Pieces that are no further apart share a read: the disk reads the page between them anyway.
const MOST_GAP: u64 = 4096;
/// A read no longer than this leaves work for the other lanes.
const MOST_RUN: u64 = 256 << 10;

/// How an [`NgramRows`] is made.
#[derive(Clone)]
pub struct NgramOptions {
    /// Bytes of the row cache; 0 keeps nothing.
    pub cache_bytes: u64,
    /// Who reads.
    pub lanes: Lanes,
    /// Test support: where bytes come from, if not from the checkpoint.
    pub source: Option<Arc<dyn RecordSource>>,
    /// Test support: a deliberate fault.
    pub mutation: Mutation,
}

/// The rows of one n-gram table.
pub struct NgramRows {
    checkpoint: Arc<Checkpoint>,
    source: Arc<dyn RecordSource>,
    lanes: Lanes,
    /// Which table: its place among the layers that have one.
    table: usize,
    /// Shape and format of one row.
    row: Matrix,
    /// Bytes of a row as they are read: the row, and what a pack stores behind it.
    stored: usize,
    cache: RowCache,
    counters: NgramCounters,
    mutation: Mutation,
}

impl NgramRows {
    /// The rows of table `table`, its place among the layers that have one.
    ///
    /// # Errors
    /// [`Error::Fault`] when the model has no such table; the checkpoint's own where the table was never filled.
    pub fn new(checkpoint: Arc<Checkpoint>, table: usize, options: NgramOptions) -> Result<Self> {
        let shard = checkpoint.ngram_matrix(table);
        let shard = shard.ok_or_else(|| Error::Fault(format!("n-gram table {table}, which does not exist")))?;
        checkpoint.check_ngram_filled(table)?;
        let row = Matrix { rows: 1, ..shard };
        Ok(NgramRows {
            stored: checkpoint.ngram_stored_bytes(table).unwrap_or(row.bytes()) as usize,
            source: options.source.unwrap_or_else(|| checkpoint.clone()),
            checkpoint,
            lanes: options.lanes,
            table,
            row,
            cache: RowCache::new(row.bytes() as usize, options.cache_bytes),
            counters: NgramCounters::default(),
            mutation: options.mutation,
        })
    }

    /// Numbers of a row.
    pub fn width(&self) -> usize {
        self.row.cols as usize
    }

    /// Whether all of these rows can be had without reading.
    pub fn holds(&self, rows: &[u64]) -> bool {
        rows.iter().all(|&row| self.cache.holds(row))
    }

    /// What was done so far.
    pub fn counters(&self) -> NgramCounters {
        self.counters
    }

    /// Brings rows, numbered over all shards, in any order and with repetitions, into `out` `[rows, width]`. Every row
    /// that is not cached is read before this returns, all of them at once on the lanes.
    ///
    /// # Errors
    /// The error of a row that cannot be read, [`Error::DamagedRow`], or [`Error::Fault`] when `out` has another length;
    /// the contents of `out` are undefined then.
    pub fn fetch(&mut self, rows: &[u64], lane: Lane, out: &mut [f32]) -> Result<()> {
        let started = Instant::now();
        let fetched = self.fetch_all(rows, lane, out);
        self.counters.waited += started.elapsed();
        fetched
    }

    /// As [`NgramRows::fetch`], while nobody waits.
    ///
    /// # Errors
    /// As [`NgramRows::fetch`].
    pub fn fetch_early(&mut self, rows: &[u64], lane: Lane, out: &mut [f32]) -> Result<()> {
        self.fetch_all(rows, lane, out)
    }

    /// Counts rows of [`NgramRows::fetch_early`] that were there when they were asked for, and the time that others were
    /// waited for.
    pub fn came_early(&mut self, rows: u64, waited: Duration) {
        self.counters.early += rows;
        self.counters.waited += waited;
    }

    fn fetch_all(&mut self, rows: &[u64], lane: Lane, out: &mut [f32]) -> Result<()> {
        let width = self.width();
        if out.len() != rows.len() * width {
            return Err(Error::Fault(format!("{} rows of {width} numbers in room for {}", rows.len(), out.len())));
        }
        let mut missing = Vec::new();
        for ((place, &row), out) in rows.iter().enumerate().zip(out.chunks_exact_mut(width)) {
            if !self.serve_cached(row, out) {
                missing.push((row, place));
            }
        }
        missing.sort_unstable();
        let groups: Vec<&[(u64, usize)]> = missing.chunk_by(|a, b| a.0 == b.0).collect();
        let distinct: Vec<u64> = groups.iter().filter_map(|group| Some(group.first()?.0)).collect();
        self.counters.rows += rows.len() as u64;
        self.counters.hits += (rows.len() - distinct.len()) as u64;
        self.counters.misses += distinct.len() as u64;

        let records = self.read(&distinct, lane)?;
        let row_bytes = self.row.bytes() as usize;
        for (row, stored) in distinct.iter().zip(records.chunks_exact(self.stored)) {
            self.checkpoint.check_ngram_row(self.table, *row, stored)?;
        }
        let records = || records.chunks_exact(self.stored).map(|stored| &stored[..row_bytes]);
        for (group, record) in groups.iter().zip(records()) {
            for &(row, place) in *group {
                self.decode(row, record, &mut out[place * width..][..width])?;
            }
        }
        for (row, record) in distinct.iter().zip(records()) {
            self.counters.evictions += u64::from(self.cache.insert(*row, record));
        }
        Ok(())
    }

    /// Fills `out` if the row is cached, and says whether it is.
    fn serve_cached(&mut self, row: u64, out: &mut [f32]) -> bool {
        let Some(record) = self.cache.get(row) else { return false };
        // Records are checked before they are cached.
        let _finite = decode_row(self.row, record, out);
        if self.mutation == Mutation::RoundedHits {
            out.iter_mut().for_each(|number| *number = bf16::from_f32(*number).to_f32());
        }
        true
    }

    fn decode(&self, row: u64, record: &[u8], out: &mut [f32]) -> Result<()> {
        if decode_row(self.row, record, out) {
            return Ok(());
        }
        let scales = self.checkpoint.ngram_pieces(self.table, row)?.last();
        let file = scales.map(|range| self.checkpoint.file(range.file)).transpose()?;
        let path = file.map_or_else(|| self.checkpoint.dir(), |file| file.path()).to_owned();
        Err(Error::DamagedRow { path, row, table: self.table })
    }

    /// Reads the records of distinct rows, one after the other into the result.
    fn read(&mut self, rows: &[u64], lane: Lane) -> Result<Vec<u8>> {
        let mut pieces = self.pieces(rows)?;
        pieces.sort_unstable_by_key(|piece| (piece.range.file, piece.range.offset));
        let runs = runs(&pieces);
        let bytes: u64 = runs.iter().map(|run| run.range.bytes).sum();
        let mut scratch = vec![0; bytes as usize];
        self.counters.bytes_read += self.lanes.read(lane, &*self.source, carve(&mut scratch, &runs))?;
        self.counters.reads += runs.len() as u64;

        let mut records = vec![0; rows.len() * self.stored];
        let mut rest = &scratch[..];
        for run in runs {
            let (read, others) = rest.split_at(run.range.bytes as usize);
            rest = others;
            for piece in &pieces[run.pieces] {
                let from = (piece.range.offset - run.range.offset) as usize;
                let bytes = piece.range.bytes as usize;
                records[piece.at..][..bytes].copy_from_slice(&read[from..][..bytes]);
            }
        }
        Ok(records)
    }

    /// The pieces of rows, with their places in the records.
    fn pieces(&self, rows: &[u64]) -> Result<Vec<RowPiece>> {
        let mut pieces = Vec::new();
        let mut at = 0;
        for &row in rows {
            for range in self.checkpoint.ngram_pieces(self.table, row)? {
                pieces.push(RowPiece { range, at });
                at += range.bytes as usize;
            }
        }
        if at != rows.len() * self.stored {
            return Err(Error::Fault(format!("rows of n-gram table {} that differ in size", self.table)));
        }
        Ok(pieces)
    }
}

/// Codes, scales or biases of one row.
struct RowPiece {
    range: FileRange,
    /// First byte in the records.
    at: usize,
}

/// Pieces that share a read.
struct Run {
    range: FileRange,
    pieces: Range<usize>,
}

/// Groups pieces, sorted by place, into reads. A run holds no more bytes between its pieces than in them, so that memory
/// and traffic are at most twice what is wanted.
fn runs(pieces: &[RowPiece]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    let mut wanted = 0;
    for (i, RowPiece { range, .. }) in pieces.iter().enumerate() {
        let joined = runs.last_mut().and_then(|run| {
            let gap = range.offset.checked_sub(run.range.offset + run.range.bytes)?;
            let bytes = run.range.bytes + gap + range.bytes;
            let close = range.file == run.range.file && gap <= MOST_GAP && bytes <= MOST_RUN;
            (close && bytes <= 2 * (wanted + range.bytes)).then_some((run, bytes))
        });
        if let Some((run, bytes)) = joined {
            run.range.bytes = bytes;
            run.pieces.end = i + 1;
            wanted += range.bytes;
        } else {
            runs.push(Run { range: *range, pieces: i..i + 1 });
            wanted = range.bytes;
        }
    }
    runs
}

/// Cuts the scratch memory into one part for each run.
fn carve<'a>(mut scratch: &'a mut [u8], runs: &[Run]) -> Vec<Read<'a>> {
    let mut part = |run: &Run| {
        let (into, rest) = std::mem::take(&mut scratch).split_at_mut(run.range.bytes as usize);
        scratch = rest;
        Read { range: run.range, into }
    };
    runs.iter().map(&mut part).collect()
}
