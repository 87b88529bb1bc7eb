//! Owns: where the pieces of an expert record lie in the files (engine.md section 5.2).
//! Refuses: nothing; it is made from checked tensors.
//! Invariants: pieces come in [`RecordLayout`] order, and each has exactly the bytes of its span; a packed record is one
//! piece, its bytes laid out as in a slot.

use ss_backend::{Part, RecordLayout, Span};

use crate::file::FileRange;
use crate::linear::LinearInfo;

/// A run of bytes in a file, and its place in the slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Where it lies.
    pub range: FileRange,
    /// Where it goes.
    pub span: Span,
}

/// The same piece of every expert: one tensor, or a fixed part of each of its slices.
#[derive(Clone, Copy, Debug)]
struct Strided {
    first: Piece,
    stride: u64,
}

/// The routed experts of one layer.
#[derive(Clone, Debug)]
pub struct ExpertFiles {
    /// How a record lies in a slot.
    pub layout: RecordLayout,
    /// Experts in the layer.
    pub experts: u32,
    pieces: Vec<Strided>,
    packed: Option<Strided>,
}

/// One projection of all experts: tensors `[experts, rows, cols]`, of which `matrix` describes one expert's share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stack {
    /// The share of expert 0.
    pub first: LinearInfo,
    /// Bytes from one expert's codes to the next's; more than the codes where the tensor is fused with another.
    pub code_stride: u64,
}

impl ExpertFiles {
    pub(crate) fn new(experts: u32, [gate, up, down]: [Stack; 3]) -> ExpertFiles {
        let layout = RecordLayout::new(gate.first.matrix, up.first.matrix, down.first.matrix);
        let parts = [(gate, layout.gate), (up, layout.up), (down, layout.down)];
        let pieces = parts.into_iter().flat_map(|(stack, part)| strided(stack, part)).collect();
        ExpertFiles { layout, experts, pieces, packed: None }
    }

    /// The pieces of an expert's record in slot order: one of a pack, else nine, or three of dense weights. Nothing if
    /// there is no such expert.
    pub fn pieces(&self, expert: u32) -> impl Iterator<Item = Piece> + '_ {
        let pieces = self.packed.as_ref().map_or(&self.pieces[..], std::slice::from_ref);
        of_expert(pieces, expert, self.experts)
    }

    /// The pieces outside of a pack.
    pub(crate) fn originals(&self, expert: u32) -> impl Iterator<Item = Piece> + '_ {
        of_expert(&self.pieces, expert, self.experts)
    }

    /// Whether records come from a pack.
    pub fn is_packed(&self) -> bool {
        self.packed.is_some()
    }

    /// Reads records from a pack from now on; `first` is that of expert 0.
    pub(crate) fn read_packed(&mut self, first: FileRange, stride: u64) {
        let span = Span { offset: 0, bytes: first.bytes };
        self.packed = Some(Strided { first: Piece { range: first, span }, stride });
    }
}

fn of_expert(pieces: &[Strided], expert: u32, experts: u32) -> impl Iterator<Item = Piece> + '_ {
    let exists = expert < experts;
    pieces.iter().filter(move |_| exists).map(move |strided| {
        let Piece { range, span } = strided.first;
        Piece { range: FileRange { offset: range.offset + u64::from(expert) * strided.stride, ..range }, span }
    })
}

fn strided(stack: Stack, part: Part) -> impl Iterator<Item = Strided> {
    let LinearInfo { codes, scales, biases, .. } = stack.first;
    let affine = |range: Option<FileRange>, span| {
        range.map(|range| Strided { first: Piece { range, span }, stride: range.bytes })
    };
    let codes = Strided { first: Piece { range: codes, span: part.codes }, stride: stack.code_stride };
    [Some(codes), affine(scales, part.scales), affine(biases, part.biases)].into_iter().flatten()
}
