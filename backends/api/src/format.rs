//! Owns: how a weight lies in memory, as stored in the checkpoint (checkpoint.md sections 2 and 3).
//! Refuses: bit widths other than 4 and 8, groups other than 32 and 64.
//! Invariants: a [`Matrix`] and its [`Format`] fix every byte count; nothing else in the program computes one.

/// How one number of a dense tensor, a scale or a bias is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scalar {
    /// The upper half of an F32.
    Bf16,
    /// IEEE half precision.
    F16,
    /// IEEE single precision.
    F32,
}

impl Scalar {
    /// Bytes of one number.
    pub const fn bytes(self) -> u64 {
        match self {
            Scalar::Bf16 | Scalar::F16 => 2,
            Scalar::F32 => 4,
        }
    }
}

/// How the numbers of a weight are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// One number after the other.
    Dense(Scalar),
    /// `W(o,c) = scale[o, c/group] * code(o,c) + bias[o, c/group]`; codes of `bits` bits packed into
    /// little-endian words, lowest code first (checkpoint.md section 3).
    Affine {
        /// 4 or 8.
        bits: u32,
        /// Inputs that share a scale and a bias: 32 or 64.
        group: u32,
        /// Type of scales and biases.
        scale: Scalar,
    },
}

impl Format {
    /// Whether the weight has scales and biases beside its codes.
    pub const fn is_affine(self) -> bool {
        matches!(self, Format::Affine { .. })
    }
}

/// The shape and format of a weight `[rows, cols]`: `rows` outputs, `cols` inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Matrix {
    /// Outputs.
    pub rows: u32,
    /// Inputs.
    pub cols: u32,
    /// How the numbers are stored.
    pub format: Format,
}

impl Matrix {
    /// Bytes of one row of codes (or of dense numbers).
    pub const fn code_row_bytes(self) -> u64 {
        match self.format {
            Format::Dense(scalar) => self.cols as u64 * scalar.bytes(),
            Format::Affine { bits, .. } => self.cols as u64 * bits as u64 / 8,
        }
    }

    /// Groups in a row: numbers in a row of scales, or 0 for a dense weight.
    pub const fn groups(self) -> u32 {
        match self.format {
            Format::Dense(_) => 0,
            Format::Affine { group, .. } => self.cols / group,
        }
    }

    /// Bytes of one row of scales (the same as one row of biases), or 0 for a dense weight.
    pub const fn scale_row_bytes(self) -> u64 {
        match self.format {
            Format::Dense(_) => 0,
            Format::Affine { scale, .. } => self.groups() as u64 * scale.bytes(),
        }
    }

    /// Bytes of all codes (or dense numbers).
    pub const fn code_bytes(self) -> u64 {
        self.rows as u64 * self.code_row_bytes()
    }

    /// Bytes of all scales (the same as of all biases), or 0 for a dense weight.
    pub const fn scale_bytes(self) -> u64 {
        self.rows as u64 * self.scale_row_bytes()
    }

    /// Bytes of the whole weight.
    pub const fn bytes(self) -> u64 {
        self.code_bytes() + 2 * self.scale_bytes()
    }
}

/// A range of bytes inside a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Span {
    /// First byte.
    pub offset: u64,
    /// Number of bytes; 0 when the piece does not exist.
    pub bytes: u64,
}

/// Where one projection of an expert lies inside a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Part {
    /// Shape and format.
    pub matrix: Matrix,
    /// Codes (or dense numbers).
    pub codes: Span,
    /// Scales; empty for a dense weight.
    pub scales: Span,
    /// Biases; empty for a dense weight.
    pub biases: Span,
}

/// Where the pieces of an expert record lie inside a slot: gate, up, down, each codes, scales, biases
/// (engine.md, "expert record"). Every piece begins on a multiple of [`RecordLayout::ALIGN`] bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RecordLayout {
    /// Gate projection `[inner, hidden]`.
    pub gate: Part,
    /// Up projection `[inner, hidden]`.
    pub up: Part,
    /// Down projection `[hidden, inner]`.
    pub down: Part,
    /// Bytes of a slot.
    pub bytes: u64,
}

impl RecordLayout {
    /// Kernels load 16 bytes at a time.
    pub const ALIGN: u64 = 16;

    /// Lays the three projections out one after the other.
    pub fn new(gate: Matrix, up: Matrix, down: Matrix) -> Self {
        let mut end = 0;
        let mut place = |bytes: u64| {
            let span = Span { offset: end, bytes };
            end = (end + bytes).next_multiple_of(Self::ALIGN);
            span
        };
        let mut part = |matrix: Matrix| Part {
            matrix,
            codes: place(matrix.code_bytes()),
            scales: place(matrix.scale_bytes()),
            biases: place(matrix.scale_bytes()),
        };
        let (gate, up, down) = (part(gate), part(up), part(down));
        RecordLayout { gate, up, down, bytes: end }
    }

    /// The pieces in slot order, empty ones left out.
    pub fn pieces(&self) -> impl Iterator<Item = Span> + '_ {
        [&self.gate, &self.up, &self.down]
            .into_iter()
            .flat_map(|p| [p.codes, p.scales, p.biases])
            .filter(|s| s.bytes > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_released_expert_record_has_its_published_size() {
        let format = Format::Affine { bits: 4, group: 64, scale: Scalar::Bf16 };
        let wide = Matrix { rows: 640, cols: 2560, format };
        let tall = Matrix { rows: 2560, cols: 640, format };
        let layout = RecordLayout::new(wide, wide, tall);
        assert_eq!(layout.bytes, 2_764_800);
        assert_eq!(layout.pieces().count(), 9);
    }

    #[test]
    fn pieces_are_aligned_and_do_not_overlap() {
        let format = Format::Affine { bits: 4, group: 32, scale: Scalar::Bf16 };
        let odd = Matrix { rows: 3, cols: 96, format };
        let layout = RecordLayout::new(odd, odd, Matrix { rows: 96, cols: 32, format: Format::Dense(Scalar::F16) });
        let mut end = 0;
        for piece in layout.pieces() {
            assert_eq!(piece.offset % RecordLayout::ALIGN, 0);
            assert!(piece.offset >= end);
            end = piece.offset + piece.bytes;
        }
        assert!(layout.bytes >= end);
    }
}
