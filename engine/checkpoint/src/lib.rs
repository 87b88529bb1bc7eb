//! Owns: a model directory in the layout of checkpoint.md: what its files hold, where every byte lies, how to read it.
//! Refuses: whatever `config.json` and the tensor headers do not agree on; each refusal is one sentence, before any weight is read.
//! Invariants: after [`Checkpoint::open`] every tensor the model needs exists, with a checked type and shape; weights are
//! reached by positioned reads only, and nothing is mapped or kept.

mod catalogue;
mod check;
mod checkpoint;
mod config;
mod direct;
mod error;
mod expect;
mod experts;
mod file;
mod geometry;
mod header;
pub mod imitation;
mod inspect;
mod linear;
mod mirror;
mod ngram;
mod norms;
mod pack;
mod quantization;
mod released;
mod sample;
mod sidecar;
mod values;

pub use catalogue::{Naming, TensorInfo};
pub use checkpoint::{Checkpoint, OpenOptions, SPARSE_NGRAMS};
pub use error::{Error, Result};
pub use experts::{ExpertFiles, Piece};
pub use file::{Access, FileId, FileRange, IoMode, PositionedFile};
pub use geometry::{GateKind, Geometry, LayerKind, NgramGeometry};
pub use header::{Dtype, HeaderTensor, parse_header};
pub use inspect::{FileLine, Group, GroupLine, Report};
pub use linear::{LinearData, LinearInfo};
pub use ngram::NgramTables;
pub use norms::NormConvention;
pub use pack::{
    Frame, PackFile, PackHeader, PackInfo, PackKind, PackPlan, PackRecord, Reclaimed, RowForm, Section, Source,
    checksum, damaged,
};
pub use released::{RELEASED, Totals};
pub use ss_backend::{Format, Matrix, Part, RecordLayout, Scalar, Span};
pub use values::{BadScale, Projection, Values, check_record};
