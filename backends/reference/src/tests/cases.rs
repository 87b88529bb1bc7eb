//! Owns: what a case is, and the list of all of them.

use ss_backend::{Format, Scalar};

use super::rig::{Mode, Random};
use super::{gdn, hyper, moe, ple, qsa};
use crate::Reference;

/// What an operation made of some rows.
#[derive(Clone, Debug, Default)]
pub struct Outcome<T> {
    /// Named outputs, `[rows, width]` each.
    pub outputs: Vec<(&'static str, Vec<T>)>,
    /// State after the last row.
    pub state: Vec<T>,
}

/// An operation on fixed random data.
pub trait Case {
    fn name(&self) -> String;
    /// Rows of data.
    fn rows(&self) -> usize;
    /// Most rows of one operation.
    fn most(&self) -> usize {
        usize::MAX
    }
    /// Outputs that differ between the exact and the fast profile; all others have the same bits.
    fn rounded(&self) -> &[&str] {
        &[]
    }
    /// Runs all rows, in operations of `split` rows each, state carried on.
    fn run(&self, on: &Reference, mode: Mode, split: &[usize]) -> Outcome<f32>;
    /// The same by straightforward F64 code.
    fn oracle(&self, mode: Mode) -> Outcome<f64>;
}

pub const BF16: Format = Format::Dense(Scalar::Bf16);
pub const F16: Format = Format::Dense(Scalar::F16);
pub const F32: Format = Format::Dense(Scalar::F32);

pub const fn affine(bits: u32, group: u32, scale: Scalar) -> Format {
    Format::Affine { bits, group, scale }
}

pub const Q4: Format = affine(4, 64, Scalar::Bf16);
pub const Q4_32: Format = affine(4, 32, Scalar::F16);
pub const Q8: Format = affine(8, 32, Scalar::F32);
pub const Q8_64: Format = affine(8, 64, Scalar::Bf16);

/// Runs `f(first, count)` for each operation of a split.
pub fn pieces(split: &[usize], mut f: impl FnMut(usize, usize)) {
    let mut first = 0;
    for &count in split {
        f(first, count);
        first += count;
    }
}

/// Every operation, over odd shapes and all formats.
pub fn all() -> Vec<Box<dyn Case>> {
    let mut random = Random(20_261_129);
    let mut cases: Vec<Box<dyn Case>> = Vec::new();
    for (streams, hidden, lowrank, formats) in
        [(4, 128, 64, [Q4, Q4, BF16]), (2, 96, 32, [Q4_32, Q8, F32]), (3, 37, 5, [F32, F16, BF16])]
    {
        cases.push(Box::new(hyper::Read::new(&mut random, streams, hidden, lowrank, formats)));
        cases.push(Box::new(hyper::Fuse::new(&mut random, streams, hidden, formats[0], formats[1])));
        cases.push(Box::new(ple::Project::new(&mut random, streams, hidden, formats[0])));
        cases.push(Box::new(ple::Mix::new(&mut random, streams, hidden)));
        cases.push(Box::new(moe::Combine::new(&mut random, streams, hidden, formats[2])));
    }
    for (hidden, cols, format) in [(128, 192, Q4), (96, 96, Q4_32), (50, 64, Q8_64), (33, 29, F16)] {
        cases.push(Box::new(hyper::Write::new(&mut random, 4, hidden, cols, format)));
        cases.push(Box::new(hyper::Embed::new(&mut random, 3, cols, format)));
        cases.push(Box::new(hyper::Head::new(&mut random, hidden, cols, format)));
    }
    for (key_heads, value_heads, key_dim, value_dim, kernel) in [(2, 6, 64, 64, 4), (1, 2, 96, 32, 4), (2, 2, 19, 7, 3)]
    {
        cases.push(Box::new(gdn::Mix::new(&mut random, [key_heads, value_heads, key_dim, value_dim, kernel])));
    }
    for (hidden, formats) in [(128, [Q4, Q4, BF16]), (96, [Q8, Q4_32, F32]), (41, [BF16, F16, F32])] {
        cases.push(Box::new(gdn::Project::new(&mut random, hidden, formats)));
        cases.push(Box::new(qsa::Project::new(&mut random, hidden, formats)));
        cases.push(Box::new(moe::Route::new(&mut random, hidden, formats[2])));
    }
    for shape in [[6, 2, 64, 16, 4, 32, 4, 3], [3, 1, 40, 8, 2, 24, 3, 2], [2, 2, 16, 16, 1, 16, 1, 5]] {
        cases.push(Box::new(qsa::Attention::new(&mut random, shape)));
    }
    for (hidden, inner, formats) in
        [(128, 64, [Q4, Q4, Q4]), (96, 32, [Q4_32, Q8, F32]), (64, 50, [Q8_64, Q8_64, BF16]), (24, 10, [F16, F16, F16])]
    {
        cases.push(Box::new(moe::Experts::new(&mut random, hidden, inner, formats)));
    }
    cases
}
