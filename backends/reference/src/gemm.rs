//! Owns: products of a weight with rows.
//!
//! `out[r][o] = sum_c W(o, c) * x[r][c]`, summed as [`crate::dot`] says.
//!
//! Row rule: an output is one sum over its own row. One row is multiplied from registers, several share a weight row
//! that was expanded to memory; both add the same products to the same lanes, so the bits are the same.

use std::cell::OnceCell;

use crate::dot::{LANES, Lanes, add_product, dot, dots, padded, sum_lanes};
use crate::math::round_to_f16;
use crate::scratch::Lease;
use crate::simd::{Arith, Kernel};
use crate::step::Machine;
use crate::tuning::{FEATURE_TILE, FEW_ROWS, TALL, WIDE};
use crate::weights::{Codec, Visitor, Weight};

/// The inputs of one or more products: rows of the same width, packed once for each order and rounding that is asked for.
pub struct Input<'a> {
    machine: &'a Machine,
    rows: Vec<&'a [f32]>,
    packed: [OnceCell<Lease<'a>>; 3],
}

impl<'a> Input<'a> {
    /// Rows that lie anywhere.
    pub fn new(machine: &'a Machine, rows: Vec<&'a [f32]>) -> Self {
        Input { machine, rows, packed: Default::default() }
    }

    /// Rows that lie one after the other.
    pub fn contiguous(machine: &'a Machine, x: &'a [f32], width: usize) -> Self {
        Input::new(machine, x.chunks_exact(width).collect())
    }

    /// The rows in paired order or their own, rounded to F16 or not.
    fn packed(&self, paired: bool, round: bool) -> Vec<&[f32]> {
        if self.rows.is_empty() || !(paired || round) {
            return self.rows.clone();
        }
        let width = self.rows[0].len();
        let pack = || {
            let mut out = self.machine.scratch.take(self.rows.len() * width);
            self.machine.tier.run(Pack { rows: &self.rows, out: &mut out, paired, round });
            out
        };
        let which = usize::from(paired) + 2 * usize::from(round) - 1;
        self.packed[which].get_or_init(pack).chunks_exact(width).collect()
    }

    /// `outs[r] = weight x[r]`, on as many threads as pay; with `round`, of inputs and weights rounded to F16.
    pub fn multiply(&self, weight: &Weight<'_>, round: bool, mut outs: Vec<&mut [f32]>) {
        if outs.is_empty() {
            return;
        }
        let machine = self.machine;
        let xs = self.packed(machine.tier.lanes() && weight.paired(), round);
        let product = |first: usize, outs: &mut [&mut [f32]]| {
            let mut scratch = machine.scratch.take(FEATURE_TILE * weight.cols());
            machine.tier.run(Product { weight, round, first, xs: &xs, outs, scratch: &mut scratch });
        };
        let work = (weight.rows() * weight.cols() * xs.len()) as u64;
        let pieces = machine.threads.pieces(work);
        if pieces == 1 {
            return product(0, &mut outs);
        }
        let width = weight.rows().div_ceil(pieces).next_multiple_of(FEATURE_TILE);
        let mut columns = split_columns(outs, width);
        machine.threads.split(work, &mut columns, xs.len(), |first, columns| {
            columns.chunks_mut(xs.len()).enumerate().for_each(|(i, outs)| product((first + i) * width, outs));
        });
    }
}

/// Cuts every row into pieces of `width`, and puts the first pieces of all rows first.
fn split_columns(rows: Vec<&mut [f32]>, width: usize) -> Vec<&mut [f32]> {
    let longest = rows.iter().map(|row| row.len()).max().unwrap_or(0);
    let mut pieces: Vec<_> = rows.into_iter().map(|row| row.chunks_mut(width)).collect();
    (0..longest.div_ceil(width))
        .flat_map(|_| pieces.iter_mut().filter_map(Iterator::next).collect::<Vec<_>>())
        .collect()
}

struct Pack<'a> {
    rows: &'a [&'a [f32]],
    out: &'a mut [f32],
    paired: bool,
    round: bool,
}

impl Kernel for Pack<'_> {
    #[inline(always)]
    fn run<A: Arith>(self) {
        let Pack { rows, out, paired, round } = self;
        let width = rows[0].len();
        for (row, out) in rows.iter().zip(out.chunks_exact_mut(width)) {
            match paired {
                true => pair(row, out),
                false => out.copy_from_slice(row),
            }
            round_all(out, round);
        }
    }
}

/// Rounds numbers to F16, if so.
#[inline(always)]
fn round_all(numbers: &mut [f32], round: bool) {
    if round {
        for x in numbers {
            *x = round_to_f16(*x);
        }
    }
}

/// Of each 16 numbers those at even places first.
#[inline(always)]
fn pair(row: &[f32], out: &mut [f32]) {
    let (blocks, _) = row.as_chunks::<LANES>();
    let (outs, _) = out.as_chunks_mut::<LANES>();
    for (block, out) in blocks.iter().zip(outs) {
        for i in 0..LANES / 2 {
            out[i] = block[2 * i];
            out[LANES / 2 + i] = block[2 * i + 1];
        }
    }
}

/// Outputs `first..` of some rows.
struct Product<'a, 'o> {
    weight: &'a Weight<'a>,
    /// Whether its numbers are rounded to F16.
    round: bool,
    first: usize,
    xs: &'a [&'a [f32]],
    outs: &'a mut [&'o mut [f32]],
    /// Room for [`FEATURE_TILE`] expanded weight rows.
    scratch: &'a mut [f32],
}

impl Kernel for Product<'_, '_> {
    #[inline(always)]
    fn run<A: Arith>(self) {
        if !A::LANES {
            return self.plain::<A>();
        }
        let Product { weight, round, first, xs, outs, scratch } = self;
        if xs.len() <= FEW_ROWS && !round {
            return weight.visit::<A>(FewRows { weight, first, xs, outs });
        }
        let features = outs[0].len();
        for start in (0..features).step_by(FEATURE_TILE) {
            let tile = &mut scratch[..FEATURE_TILE.min(features - start) * weight.cols()];
            weight.visit::<A>(Expand { weight, first: first + start, out: &mut *tile });
            round_all(tile, round);
            multiply_tile::<A>(tile, weight.cols(), start, xs, outs);
        }
    }
}

impl Product<'_, '_> {
    #[inline(always)]
    fn plain<A: Arith>(self) {
        let row = &mut self.scratch[..self.weight.cols()];
        for i in 0..self.outs[0].len() {
            self.weight.expand_plain(self.first + i, row);
            round_all(row, self.round);
            for (x, out) in self.xs.iter().zip(&mut *self.outs) {
                out[i] = dot::<A>(row, x);
            }
        }
    }
}

/// One or two rows times weight rows that are expanded in registers.
struct FewRows<'a, 'o> {
    weight: &'a Weight<'a>,
    first: usize,
    xs: &'a [&'a [f32]],
    outs: &'a mut [&'o mut [f32]],
}

impl Visitor for FewRows<'_, '_> {
    #[inline(always)]
    fn visit<A: Arith, C: Codec<B>, const B: usize>(self) {
        let FewRows { weight, first, xs, outs } = self;
        let [a, b] = [xs[0], xs[xs.len() - 1]];
        match xs.len() {
            1 => few_rows::<A, C, B, 2, 1>(weight, first, [a], outs),
            _ => few_rows::<A, C, B, 2, FEW_ROWS>(weight, first, [a, b], outs),
        }
    }
}

/// `X` rows times all weight rows, `N` of these at once. They lie far apart: sums that are stored side by side would be
/// shuffled together by the compiler, at a loss.
#[inline(always)]
fn few_rows<A: Arith, C: Codec<B>, const B: usize, const N: usize, const X: usize>(
    weight: &Weight<'_>,
    first: usize,
    xs: [&[f32]; X],
    outs: &mut [&mut [f32]],
) {
    let features = outs[0].len();
    let apart = features / N;
    for i in 0..apart {
        let sums = expanded_dots::<A, C, B, N, X>(weight, first + i, apart, xs);
        for (out, sums) in outs.iter_mut().zip(sums) {
            for (n, sum) in sums.into_iter().enumerate() {
                out[i + n * apart] = sum;
            }
        }
    }
    for i in N * apart..features {
        let sums = expanded_dots::<A, C, B, 1, X>(weight, first + i, 0, xs);
        for (out, [sum]) in outs.iter_mut().zip(sums) {
            out[i] = sum;
        }
    }
}

/// `X` rows times the `N` weight rows `first`, `first + apart`, ...
#[inline(always)]
fn expanded_dots<A: Arith, C: Codec<B>, const B: usize, const N: usize, const X: usize>(
    weight: &Weight<'_>,
    first: usize,
    apart: usize,
    xs: [&[f32]; X],
) -> [[f32; N]; X] {
    let groups = xs[0].len() / LANES / B;
    let mut wide = [whole_groups::<B>(xs[0], groups); X];
    for i in 1..X {
        wide[i] = whole_groups::<B>(xs[i], groups);
    }
    let mut rows = [C::row(weight, first, groups); N];
    for (n, row) in rows.iter_mut().enumerate().skip(1) {
        *row = C::row(weight, first + n * apart, groups);
    }
    let mut acc = [[[0.0; LANES]; N]; X];
    for (g, _) in wide[0].iter().enumerate() {
        for n in 0..N {
            let params = C::params(&rows[n], g);
            for (b, _) in wide[0][g].iter().enumerate() {
                let block = C::block::<A>(&rows[n], params, g, b);
                for i in 0..X {
                    add_product::<A>(&mut acc[i][n], &block, &wide[i][g][b]);
                }
            }
        }
    }
    let done = groups * LANES * B;
    if done < xs[0].len() {
        for n in 0..N {
            let block = C::tail(&rows[n]);
            for i in 0..X {
                add_product::<A>(&mut acc[i][n], &block, &padded(&xs[i][done..]));
            }
        }
    }
    let mut sums = [[0.0; N]; X];
    for i in 0..X {
        for n in 0..N {
            sums[i][n] = sum_lanes(acc[i][n]);
        }
    }
    sums
}

#[inline(always)]
fn whole_groups<const B: usize>(x: &[f32], groups: usize) -> &[[Lanes; B]] {
    &x.as_chunks::<LANES>().0.as_chunks::<B>().0[..groups]
}

/// Expands weight rows to memory, in lane order.
struct Expand<'a> {
    weight: &'a Weight<'a>,
    first: usize,
    out: &'a mut [f32],
}

impl Visitor for Expand<'_> {
    #[inline(always)]
    fn visit<A: Arith, C: Codec<B>, const B: usize>(self) {
        let Expand { weight, first, out } = self;
        for (i, out) in out.chunks_exact_mut(weight.cols()).enumerate() {
            let (blocks, tail) = out.as_chunks_mut::<LANES>();
            let groups = blocks.as_chunks_mut::<B>().0;
            let row = C::row(weight, first + i, groups.len());
            for (g, group) in groups.iter_mut().enumerate() {
                let params = C::params(&row, g);
                for (b, block) in group.iter_mut().enumerate() {
                    *block = C::block::<A>(&row, params, g, b);
                }
            }
            let len = tail.len();
            tail.copy_from_slice(&C::tail(&row)[..len]);
        }
    }
}

#[inline(always)]
fn multiply_tile<A: Arith>(tile: &[f32], cols: usize, start: usize, xs: &[&[f32]], outs: &mut [&mut [f32]]) {
    let (blocks, rest) = xs.as_chunks::<TALL>();
    for (i, x) in blocks.iter().enumerate() {
        multiply_rows::<A, TALL>(tile, cols, start, *x, &mut outs[i * TALL..]);
    }
    for (i, &x) in rest.iter().enumerate() {
        multiply_rows::<A, 1>(tile, cols, start, [x], &mut outs[blocks.len() * TALL + i..]);
    }
}

#[inline(always)]
fn multiply_rows<A: Arith, const X: usize>(
    tile: &[f32],
    cols: usize,
    start: usize,
    x: [&[f32]; X],
    outs: &mut [&mut [f32]],
) {
    let rows = tile.len() / cols;
    let row = |j: usize| &tile[j * cols..(j + 1) * cols];
    for j in (0..rows - rows % WIDE).step_by(WIDE) {
        let sums = dots::<A, WIDE, X>([row(j), row(j + 1)], x);
        for (out, sums) in outs.iter_mut().zip(sums) {
            out[start + j] = sums[0];
            out[start + j + 1] = sums[1];
        }
    }
    for j in rows - rows % WIDE..rows {
        for (out, [sum]) in outs.iter_mut().zip(dots::<A, 1, X>([row(j)], x)) {
            out[start + j] = sum;
        }
    }
}
