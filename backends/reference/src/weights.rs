//! Owns: reading a weight as stored (checkpoint.md section 3), number by number for the plain twin and a register of
//! lanes at a time for the rest.
//! Invariants: `scale * code + bias` is computed in F32; expanded in registers or into memory, a weight has the same bits.

use std::marker::PhantomData;

use ss_backend::{Format, Matrix, Part, Scalar, Span};

use crate::dot::{LANES, Lanes};
use crate::math::{bf16_to_f32, f16_to_f32};
use crate::simd::Arith;

/// A weight in memory; the pieces have the sizes that the matrix says.
#[derive(Clone, Copy)]
pub struct Weight<'a> {
    /// Shape and format.
    pub matrix: Matrix,
    codes: &'a [u8],
    scales: &'a [u8],
    biases: &'a [u8],
}

impl<'a> Weight<'a> {
    /// A weight from its three pieces; scales and biases are empty for a dense one. The caller has checked that the
    /// format is [`supported`] and that the pieces are as long as the matrix says.
    pub fn new(matrix: Matrix, codes: &'a [u8], scales: &'a [u8], biases: &'a [u8]) -> Self {
        Weight { matrix, codes, scales, biases }
    }

    /// A projection of the expert whose record is `slot`, in a pool that has checked its layout.
    pub fn in_slot(part: &Part, slot: &'a [u8]) -> Self {
        let piece = |span: Span| &slot[span.offset as usize..(span.offset + span.bytes) as usize];
        Weight::new(part.matrix, piece(part.codes), piece(part.scales), piece(part.biases))
    }

    /// Outputs.
    pub fn rows(&self) -> usize {
        self.matrix.rows as usize
    }

    /// Inputs.
    pub fn cols(&self) -> usize {
        self.matrix.cols as usize
    }

    /// Whether the codecs take their inputs in paired order: 4-bit codes.
    pub fn paired(&self) -> bool {
        matches!(self.matrix.format, Format::Affine { bits: 4, .. })
    }

    /// One row of `out.len()` numbers in their own order, one after the other.
    pub fn expand_plain(&self, row: usize, out: &mut [f32]) {
        match self.matrix.format {
            Format::Dense(scalar) => {
                let row = slice(self.codes, row, self.matrix.code_row_bytes());
                out.iter_mut().enumerate().for_each(|(c, out)| *out = number(scalar, row, c));
            }
            Format::Affine { bits, group, scale } => {
                let codes = slice(self.codes, row, self.matrix.code_row_bytes());
                let scales = slice(self.scales, row, self.matrix.scale_row_bytes());
                let biases = slice(self.biases, row, self.matrix.scale_row_bytes());
                for (g, out) in out.chunks_mut(group as usize).enumerate() {
                    let (s, b) = (number(scale, scales, g), number(scale, biases, g));
                    let first = g * group as usize;
                    out.iter_mut().enumerate().for_each(|(i, out)| *out = s * code(bits, codes, first + i) + b);
                }
            }
        }
    }

    /// Hands the visitor the codec of this format.
    #[inline(always)]
    pub fn visit<A: Arith>(&self, visitor: impl Visitor) {
        match self.matrix.format {
            Format::Dense(Scalar::Bf16) => visitor.visit::<A, Dense<Bf16>, 1>(),
            Format::Dense(Scalar::F16) => visitor.visit::<A, Dense<F16>, 1>(),
            Format::Dense(Scalar::F32) => visitor.visit::<A, Dense<F32>, 1>(),
            Format::Affine { bits, group, scale: Scalar::Bf16 } => affine::<A, Bf16>(bits, group, visitor),
            Format::Affine { bits, group, scale: Scalar::F16 } => affine::<A, F16>(bits, group, visitor),
            Format::Affine { bits, group, scale: Scalar::F32 } => affine::<A, F32>(bits, group, visitor),
        }
    }
}

/// Whether a format is inside the envelope: 4 or 8 bits, groups of 32 or 64 that fill the rows.
pub fn supported(matrix: Matrix) -> bool {
    match matrix.format {
        Format::Dense(_) => true,
        Format::Affine { bits, group, .. } => {
            matches!(bits, 4 | 8) && matches!(group, 32 | 64) && matrix.cols.is_multiple_of(group)
        }
    }
}

#[inline(always)]
fn affine<A: Arith, N: Number>(bits: u32, group: u32, visitor: impl Visitor) {
    match (bits, group) {
        (4, 32) => visitor.visit::<A, Affine4<N>, 2>(),
        (4, _) => visitor.visit::<A, Affine4<N>, 4>(),
        (_, 32) => visitor.visit::<A, Affine8<N>, 2>(),
        _ => visitor.visit::<A, Affine8<N>, 4>(),
    }
}

#[inline(always)]
fn slice(bytes: &[u8], row: usize, row_bytes: u64) -> &[u8] {
    let row_bytes = row_bytes as usize;
    &bytes[row * row_bytes..(row + 1) * row_bytes]
}

fn number(scalar: Scalar, bytes: &[u8], i: usize) -> f32 {
    match scalar {
        Scalar::Bf16 => Bf16::value(Bf16::all(bytes)[i]),
        Scalar::F16 => F16::value(F16::all(bytes)[i]),
        Scalar::F32 => F32::value(F32::all(bytes)[i]),
    }
}

fn code(bits: u32, codes: &[u8], i: usize) -> f32 {
    let code = if bits == 4 { (codes[i / 2] >> (4 * (i % 2))) & 15 } else { codes[i] };
    f32::from(code)
}

/// How one number is stored.
pub trait Number {
    /// Its bytes.
    type Raw: Copy + 'static;
    /// All numbers of a run of bytes.
    fn all(bytes: &[u8]) -> &[Self::Raw];
    /// The number.
    fn value(raw: Self::Raw) -> f32;
}

/// The upper half of an F32.
pub struct Bf16;
/// IEEE half precision.
pub struct F16;
/// IEEE single precision.
pub struct F32;

impl Number for Bf16 {
    type Raw = [u8; 2];

    #[inline(always)]
    fn all(bytes: &[u8]) -> &[[u8; 2]] {
        bytes.as_chunks().0
    }

    #[inline(always)]
    fn value(raw: [u8; 2]) -> f32 {
        bf16_to_f32(u16::from_le_bytes(raw))
    }
}

impl Number for F16 {
    type Raw = [u8; 2];

    #[inline(always)]
    fn all(bytes: &[u8]) -> &[[u8; 2]] {
        bytes.as_chunks().0
    }

    #[inline(always)]
    fn value(raw: [u8; 2]) -> f32 {
        f16_to_f32(u16::from_le_bytes(raw))
    }
}

impl Number for F32 {
    type Raw = [u8; 4];

    #[inline(always)]
    fn all(bytes: &[u8]) -> &[[u8; 4]] {
        bytes.as_chunks().0
    }

    #[inline(always)]
    fn value(raw: [u8; 4]) -> f32 {
        f32::from_le_bytes(raw)
    }
}

/// A format, read `B` registers of lanes at a time: a group that shares its parameters.
pub trait Codec<const B: usize> {
    /// A view of one row.
    type Row<'a>: Copy;
    /// Scale and bias, if there are any.
    type Params: Copy;
    /// Row `row`, of which `groups` whole groups are read.
    fn row<'a>(weight: &Weight<'a>, row: usize, groups: usize) -> Self::Row<'a>;
    /// Scale and bias of a group.
    fn params(row: &Self::Row<'_>, group: usize) -> Self::Params;
    /// The numbers of register `block` of a group, in lane order.
    fn block<A: Arith>(row: &Self::Row<'_>, params: Self::Params, group: usize, block: usize) -> Lanes;
    /// The numbers after the last whole group, zeros after them.
    fn tail(row: &Self::Row<'_>) -> Lanes;
}

/// Something to do with a weight, whatever its format.
pub trait Visitor {
    /// Does it.
    fn visit<A: Arith, C: Codec<B>, const B: usize>(self);
}

/// Dense numbers.
pub struct Dense<N>(PhantomData<N>);

/// A row of dense numbers.
#[derive(Clone, Copy)]
pub struct DenseRow<'a, R: Copy> {
    blocks: &'a [[R; LANES]],
    tail: &'a [R],
}

impl<N: Number> Codec<1> for Dense<N> {
    type Row<'a> = DenseRow<'a, N::Raw>;
    type Params = ();

    #[inline(always)]
    fn row<'a>(weight: &Weight<'a>, row: usize, groups: usize) -> Self::Row<'a> {
        let (blocks, tail) = N::all(slice(weight.codes, row, weight.matrix.code_row_bytes())).as_chunks();
        DenseRow { blocks: &blocks[..groups], tail }
    }

    #[inline(always)]
    fn params(_row: &Self::Row<'_>, _group: usize) {}

    #[inline(always)]
    fn block<A: Arith>(row: &Self::Row<'_>, _params: (), group: usize, _block: usize) -> Lanes {
        let mut lanes = [0.0; LANES];
        for (lane, &raw) in lanes.iter_mut().zip(&row.blocks[group]) {
            *lane = N::value(raw);
        }
        lanes
    }

    #[inline(always)]
    fn tail(row: &Self::Row<'_>) -> Lanes {
        let mut lanes = [0.0; LANES];
        for (lane, &raw) in lanes.iter_mut().zip(row.tail) {
            *lane = N::value(raw);
        }
        lanes
    }
}

/// A row of affine codes; `K` holds the codes of a group.
#[derive(Clone, Copy)]
pub struct AffineRow<'a, K, R> {
    codes: &'a [K],
    scales: &'a [R],
    biases: &'a [R],
}

impl<'a, K, R> AffineRow<'a, K, R> {
    #[inline(always)]
    fn new<N: Number<Raw = R>>(weight: &Weight<'a>, row: usize, codes: &'a [K], groups: usize) -> Self {
        let scale_bytes = weight.matrix.scale_row_bytes();
        let scales = &N::all(slice(weight.scales, row, scale_bytes))[..groups];
        let biases = &N::all(slice(weight.biases, row, scale_bytes))[..groups];
        AffineRow { codes: &codes[..groups], scales, biases }
    }
}

/// Affine codes of 4 bits. Low halves of 8 bytes are the lanes 0..8, high halves the lanes 8..16, so inputs are in
/// *paired* order: of each 16, those at even places first.
pub struct Affine4<N>(PhantomData<N>);

impl<N: Number, const B: usize> Codec<B> for Affine4<N> {
    type Row<'a> = AffineRow<'a, [[u8; LANES / 2]; B], N::Raw>;
    type Params = (f32, f32);

    #[inline(always)]
    fn row<'a>(weight: &Weight<'a>, row: usize, groups: usize) -> Self::Row<'a> {
        let codes = slice(weight.codes, row, weight.matrix.code_row_bytes()).as_chunks().0.as_chunks().0;
        AffineRow::new::<N>(weight, row, codes, groups)
    }

    #[inline(always)]
    fn params(row: &Self::Row<'_>, group: usize) -> (f32, f32) {
        (N::value(row.scales[group]), N::value(row.biases[group]))
    }

    #[inline(always)]
    fn block<A: Arith>(row: &Self::Row<'_>, (scale, bias): (f32, f32), group: usize, block: usize) -> Lanes {
        let codes = &row.codes[group][block];
        let mut lanes = [0.0; LANES];
        for i in 0..LANES / 2 {
            lanes[i] = A::fma(f32::from(codes[i] & 15), scale, bias);
        }
        for i in 0..LANES / 2 {
            lanes[LANES / 2 + i] = A::fma(f32::from(codes[i] >> 4), scale, bias);
        }
        lanes
    }

    #[inline(always)]
    fn tail(_row: &Self::Row<'_>) -> Lanes {
        [0.0; LANES]
    }
}

/// Affine codes of 8 bits.
pub struct Affine8<N>(PhantomData<N>);

impl<N: Number, const B: usize> Codec<B> for Affine8<N> {
    type Row<'a> = AffineRow<'a, [[u8; LANES]; B], N::Raw>;
    type Params = (f32, f32);

    #[inline(always)]
    fn row<'a>(weight: &Weight<'a>, row: usize, groups: usize) -> Self::Row<'a> {
        let codes = slice(weight.codes, row, weight.matrix.code_row_bytes()).as_chunks().0.as_chunks().0;
        AffineRow::new::<N>(weight, row, codes, groups)
    }

    #[inline(always)]
    fn params(row: &Self::Row<'_>, group: usize) -> (f32, f32) {
        (N::value(row.scales[group]), N::value(row.biases[group]))
    }

    #[inline(always)]
    fn block<A: Arith>(row: &Self::Row<'_>, (scale, bias): (f32, f32), group: usize, block: usize) -> Lanes {
        let codes = &row.codes[group][block];
        let mut lanes = [0.0; LANES];
        for i in 0..LANES {
            lanes[i] = A::fma(f32::from(codes[i]), scale, bias);
        }
        lanes
    }

    #[inline(always)]
    fn tail(_row: &Self::Row<'_>) -> Lanes {
        [0.0; LANES]
    }
}
