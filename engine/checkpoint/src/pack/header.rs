//! Owns: the first bytes of a pack: a preamble, two copies of a header that are written by turns, a table of checksums.
//! Refuses: what was not written whole, other versions, sizes beyond any honest one.
//! Invariants: a header is replaced by writing the other copy, so that a crash at any moment leaves one that is whole.

use serde::{Deserialize, Serialize};

use super::{ALIGN, PackKind, PackPlan, Section, Source, checksum, unusable};
use crate::error::Result;
use crate::file::PositionedFile;

const MAGIC: [u8; 8] = *b"SSPACK\r\n";
/// Of the format. Files of another are packed anew.
const VERSION: u32 = 2;
/// Magic, version, bytes of a header copy.
const PREAMBLE: usize = 16;
/// Generation, length and checksum in front of a header.
const SLOT_HEAD: usize = 24;
/// Most bytes of a header copy: 512 shards and 512 sections take a tenth of it.
const MOST_SLOT: u64 = 4 << 20;
/// Bytes of an entry of the table.
const ENTRY: u64 = size_of::<u64>() as u64;

/// What a pack says about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackHeader {
    /// Which pack it is.
    pub kind: PackKind,
    /// Its records.
    pub sections: Vec<Section>,
    /// The files that they were packed from.
    pub sources: Vec<Source>,
    /// Records from the first on that are on the disk and were read back.
    pub done: u64,
    /// Checksum of the table of checksums, and so of all that was packed; there once all is done.
    pub content: Option<u64>,
    /// Whether the originals are gone.
    pub reclaimed: bool,
}

impl PackHeader {
    /// The header of a pack in which nothing is done.
    pub fn new(plan: &PackPlan, sources: Vec<Source>) -> PackHeader {
        let sections = plan.sections.clone();
        PackHeader { kind: plan.kind, sections, sources, done: 0, content: None, reclaimed: false }
    }

    /// The newer of the two copies that is whole, and its generation.
    pub fn read(file: &PositionedFile, frame: &Frame) -> Result<(PackHeader, u64)> {
        let mut newest: Option<(PackHeader, u64)> = None;
        for turn in 0..2 {
            let mut slot = vec![0; frame.slot_bytes as usize];
            file.read_at(frame.slot_at(turn), &mut slot)?;
            if let Some(found) = decode(&slot).filter(|found| newest.as_ref().is_none_or(|best| best.1 < found.1)) {
                newest = Some(found);
            }
        }
        newest.ok_or_else(|| unusable(file.path(), "has no header that is whole"))
    }

    /// The bytes of a copy, to be written at [`Frame::slot_at`] of the same generation; None if there is no room.
    pub fn encode(&self, frame: &Frame, generation: u64) -> Option<Vec<u8>> {
        let json = serde_json::to_vec(self).ok()?;
        let mut slot = Vec::with_capacity(SLOT_HEAD + json.len());
        slot.extend(generation.to_le_bytes());
        slot.extend((json.len() as u64).to_le_bytes());
        slot.extend(checksum(generation, &json).to_le_bytes());
        slot.extend(json);
        (slot.len() as u64 <= frame.slot_bytes).then_some(slot)
    }
}

fn decode(slot: &[u8]) -> Option<(PackHeader, u64)> {
    let (head, rest) = slot.split_at_checked(SLOT_HEAD)?;
    let [generation, length, sum] = *head.as_chunks().0 else { return None };
    let generation = u64::from_le_bytes(generation);
    let json = rest.get(..usize::try_from(u64::from_le_bytes(length)).ok()?)?;
    if checksum(generation, json) != u64::from_le_bytes(sum) {
        return None;
    }
    Some((serde_json::from_slice(json).ok()?, generation))
}

/// Where the parts of a pack lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    slot_bytes: u64,
    records: u64,
}

impl Frame {
    /// The frame of a new pack, with room for its header to grow; None where a header is beyond all sense.
    pub fn new(header: &PackHeader, plan: &PackPlan) -> Option<Frame> {
        let length = serde_json::to_vec(header).ok()?.len() as u64;
        let slot_bytes = (2 * length + SLOT_HEAD as u64).next_multiple_of(ALIGN);
        (slot_bytes <= MOST_SLOT).then_some(Frame { slot_bytes, records: plan.records() })
    }

    /// Reads the preamble of a pack that should hold so many records.
    pub fn read(file: &PositionedFile, records: u64) -> Result<Frame> {
        if file.is_empty() {
            return Err(unusable(file.path(), "is empty"));
        }
        if file.len() < ALIGN {
            return Err(unusable(file.path(), "is too short for a pack"));
        }
        let mut bytes = [0; PREAMBLE];
        file.read_at(0, &mut bytes)?;
        let [m0, m1, m2, m3, m4, m5, m6, m7, v0, v1, v2, v3, s0, s1, s2, s3] = bytes;
        if [m0, m1, m2, m3, m4, m5, m6, m7] != MAGIC {
            return Err(unusable(file.path(), "is no pack: it does not begin as one"));
        }
        let version = u32::from_le_bytes([v0, v1, v2, v3]);
        if version != VERSION {
            return Err(unusable(file.path(), format!("is a pack of version {version}, expected {VERSION}")));
        }
        let slot_bytes = u64::from(u32::from_le_bytes([s0, s1, s2, s3]));
        if slot_bytes == 0 || slot_bytes > MOST_SLOT || !slot_bytes.is_multiple_of(ALIGN) {
            return Err(unusable(file.path(), format!("has a header of {slot_bytes} bytes, which cannot be")));
        }
        Ok(Frame { slot_bytes, records })
    }

    /// The first bytes of the file.
    pub fn preamble(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend((self.slot_bytes as u32).to_le_bytes());
        bytes
    }

    /// Where the header copy of a generation lies.
    pub fn slot_at(&self, generation: u64) -> u64 {
        ALIGN + generation % 2 * self.slot_bytes
    }

    /// Where the checksum of a record lies.
    pub fn entry_at(&self, record: u64) -> u64 {
        ALIGN + 2 * self.slot_bytes + record * ENTRY
    }

    /// Where the first record lies.
    pub fn data_at(&self) -> u64 {
        self.entry_at(self.records).next_multiple_of(ALIGN)
    }

    /// Reads the checksums of all records; 0 marks one that was never written, as its originals are zeros.
    pub fn table(&self, file: &PositionedFile) -> Result<Vec<u64>> {
        let mut bytes = vec![0; (self.records * ENTRY) as usize];
        file.read_at(self.entry_at(0), &mut bytes)?;
        Ok(bytes.as_chunks().0.iter().map(|entry| u64::from_le_bytes(*entry)).collect())
    }

    /// The checksum of a table.
    pub fn content(table: &[u64]) -> u64 {
        let bytes: Vec<u8> = table.iter().flat_map(|entry| entry.to_le_bytes()).collect();
        checksum(table.len() as u64, &bytes)
    }
}
