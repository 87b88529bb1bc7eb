//! Owns: packed records: a file beside the weights that holds what is streamed as aligned records (engine.md 5.2).
//! Refuses: writing; `ss pack` does that.
//! Invariants: a pack is read only when it is whole and belongs to the files beside it.

mod header;
mod open;
mod plan;
mod reclaimed;
mod row;
mod source;

pub use header::{Frame, PackHeader};
pub(crate) use open::{OpenPack, Packs, without};
pub use open::{PackFile, PackInfo, damaged};
pub use plan::{PackKind, PackPlan, PackRecord, Section, checksum};
pub use reclaimed::Reclaimed;
pub use row::RowForm;
pub use source::Source;

use std::path::Path;

use crate::error::Error;

/// Records begin on a multiple of so many bytes: the page of Apple systems, and above every disk's block.
pub const ALIGN: u64 = 16 << 10;

/// The error of a pack that cannot be used, as a sentence that begins with its path.
pub(crate) fn unusable(path: &Path, problem: impl Into<String>) -> Error {
    Error::Pack { path: path.to_owned(), problem: problem.into() }
}
