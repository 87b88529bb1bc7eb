//! Owns: which records a pack of a model holds, in which order, how long, and where.
//! Refuses: nothing; it follows from checked tensors.
//! Invariants: records come in (layer, expert) or (table, row) order, each on a multiple of [`ALIGN`] bytes; the same
//! tensors give the same plan.

use serde::{Deserialize, Serialize};
use ss_backend::{Matrix, RecordLayout};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::{ALIGN, RowForm};
use crate::check::shown_format;

/// The checksum of bytes that have a number, so that whole bytes in a wrong place do not match: XXH3, never 0.
pub fn checksum(number: u64, bytes: &[u8]) -> u64 {
    xxh3_64_with_seed(bytes, number).max(1)
}

/// The two packs of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PackKind {
    /// Routed experts, a record each, laid out as in a slot.
    Experts,
    /// Rows of n-gram tables, interleaved.
    Ngram,
}

impl PackKind {
    /// Both.
    pub const ALL: [PackKind; 2] = [PackKind::Experts, PackKind::Ngram];

    /// The file's name in the model directory.
    pub fn file_name(self) -> &'static str {
        match self {
            PackKind::Experts => "experts.pack",
            PackKind::Ngram => "ngram.pack",
        }
    }

    /// The name of a file that is not finished.
    pub fn part_name(self) -> String {
        format!("{}.part", self.file_name())
    }

    /// What it holds, as people say.
    pub fn what(self) -> &'static str {
        match self {
            PackKind::Experts => "experts",
            PackKind::Ngram => "n-gram rows",
        }
    }
}

/// The records of one layer's experts, or of one n-gram table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Section {
    /// The layer, or the table's place among the layers that have one.
    pub of: u32,
    /// How many.
    pub records: u64,
    /// Bytes of each that its checksum covers.
    pub bytes: u64,
    /// Bytes from one to the next: a multiple of [`ALIGN`].
    pub stride: u64,
    /// Rows of the table; 0 for experts.
    pub rows: u64,
    /// Shapes and formats, so that a pack of another model is known as one.
    pub form: String,
}

impl Section {
    /// The experts of a layer.
    pub(crate) fn experts(layer: u32, experts: u32, layout: &RecordLayout) -> Section {
        let form = [layout.gate, layout.up, layout.down].map(|part| shown_matrix(part.matrix)).join("; ");
        let (bytes, stride) = (layout.bytes, layout.bytes.next_multiple_of(ALIGN));
        Section { of: layer, records: experts.into(), bytes, stride, rows: 0, form }
    }

    /// The rows of a table.
    pub(crate) fn rows(table: u32, rows: u64, row: Matrix) -> Section {
        let form = RowForm::of(row);
        let bytes = form.stride * form.per_record;
        let records = rows.div_ceil(form.per_record);
        Section { of: table, records, bytes, stride: bytes, rows, form: shown_matrix(Matrix { rows: 1, ..row }) }
    }
}

fn shown_matrix(matrix: Matrix) -> String {
    format!("{} x {} {}", matrix.rows, matrix.cols, shown_format(matrix.format))
}

/// One record of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackRecord {
    /// Its number over all sections, which its checksum begins with.
    pub number: u64,
    /// Its section's layer or table.
    pub of: u32,
    /// Its place in the section: the expert, or the block of rows.
    pub place: u64,
    /// Records of the section from this one on.
    pub left: u64,
    /// First byte, from the first record.
    pub offset: u64,
    /// Bytes that its checksum covers.
    pub bytes: u64,
    /// Bytes to the next record.
    pub stride: u64,
}

/// What a pack holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackPlan {
    /// Which pack.
    pub kind: PackKind,
    /// Its sections in order.
    pub sections: Vec<Section>,
}

impl PackPlan {
    /// Records of all sections.
    pub fn records(&self) -> u64 {
        self.sections.iter().map(|section| section.records).sum()
    }

    /// Bytes of all records with their padding.
    pub fn bytes(&self) -> u64 {
        self.sections.iter().map(|section| section.records * section.stride).sum()
    }

    /// A record by its number.
    pub fn record(&self, number: u64) -> Option<PackRecord> {
        let (mut first, mut offset) = (0, 0);
        for section in &self.sections {
            if let Some(place) = number.checked_sub(first).filter(|&place| place < section.records) {
                return Some(section.record(first, offset, place));
            }
            first += section.records;
            offset += section.records * section.stride;
        }
        None
    }

    /// The record at `place` in the section of a layer or table.
    pub fn find(&self, of: u32, place: u64) -> Option<PackRecord> {
        let (mut first, mut offset) = (0, 0);
        for section in &self.sections {
            if section.of == of {
                return (place < section.records).then(|| section.record(first, offset, place));
            }
            first += section.records;
            offset += section.records * section.stride;
        }
        None
    }

    /// What a record is called in a message: `expert 3 of layer 5`.
    pub fn name(&self, record: &PackRecord) -> String {
        let PackRecord { of, place, .. } = record;
        match self.kind {
            PackKind::Experts => format!("expert {place} of layer {of}"),
            PackKind::Ngram => format!("block {place} of n-gram table {of}"),
        }
    }
}

impl Section {
    fn record(&self, first: u64, offset: u64, place: u64) -> PackRecord {
        PackRecord {
            number: first + place,
            of: self.of,
            place,
            left: self.records - place,
            offset: offset + place * self.stride,
            bytes: self.bytes,
            stride: self.stride,
        }
    }
}
