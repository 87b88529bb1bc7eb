//! Owns: sums of products in a fixed order.
//! Invariants: lane `i` adds the terms `i`, `i + LANES`, ... in that order, then the lanes are added as a tree; a sum
//! depends on its own terms alone.

use crate::simd::Arith;

/// Lanes of a long sum: two registers of AVX2, four of NEON.
pub const LANES: usize = 16;

/// One number a lane.
pub type Lanes = [f32; LANES];

/// `acc += a * b`, lane by lane.
#[inline(always)]
pub fn add_product<A: Arith>(acc: &mut Lanes, a: &Lanes, b: &Lanes) {
    for i in 0..LANES {
        acc[i] = A::fma(a[i], b[i], acc[i]);
    }
}

/// The sum of all lanes, as a tree.
#[inline(always)]
pub fn sum_lanes(acc: Lanes) -> f32 {
    let (mut eight, mut four) = ([0.0; 8], [0.0; 4]);
    for i in 0..8 {
        eight[i] = acc[i] + acc[i + 8];
    }
    for i in 0..4 {
        four[i] = eight[i] + eight[i + 4];
    }
    (four[0] + four[2]) + (four[1] + four[3])
}

/// The last numbers of a row that do not fill the lanes, zeros after them.
#[inline(always)]
pub fn padded(tail: &[f32]) -> Lanes {
    let mut lanes = [0.0; LANES];
    for (lane, &value) in lanes.iter_mut().zip(tail) {
        *lane = value;
    }
    lanes
}

/// `sum a[i] * b[i]` over the shorter of both.
#[inline(always)]
pub fn dot<A: Arith>(a: &[f32], b: &[f32]) -> f32 {
    let n = a.len().min(b.len());
    let (a, b) = (&a[..n], &b[..n]);
    if !A::LANES {
        let mut sum = 0.0;
        for (&a, &b) in a.iter().zip(b) {
            sum = A::fma(a, b, sum);
        }
        return sum;
    }
    let (a, a_tail) = a.as_chunks::<LANES>();
    let (b, b_tail) = b.as_chunks::<LANES>();
    let mut acc = [0.0; LANES];
    for (a, b) in a.iter().zip(b) {
        add_product::<A>(&mut acc, a, b);
    }
    if !a_tail.is_empty() {
        add_product::<A>(&mut acc, &padded(a_tail), &padded(b_tail));
    }
    sum_lanes(acc)
}

/// `sum x[i]`.
#[inline(always)]
pub fn sum<A: Arith>(x: &[f32]) -> f32 {
    if !A::LANES {
        return x.iter().sum();
    }
    let (blocks, tail) = x.as_chunks::<LANES>();
    let mut acc = [0.0; LANES];
    for block in blocks.iter().chain([&padded(tail)]) {
        for i in 0..LANES {
            acc[i] += block[i];
        }
    }
    sum_lanes(acc)
}

/// Dot products of `W` rows with `X` rows of the same length, at once: each has the bits of [`dot`].
#[inline(always)]
pub fn dots<A: Arith, const W: usize, const X: usize>(w: [&[f32]; W], x: [&[f32]; X]) -> [[f32; W]; X] {
    let n = w[0].len();
    let blocks = n / LANES;
    let mut wide = [whole_lanes(w[0], blocks); W];
    for j in 1..W {
        wide[j] = whole_lanes(w[j], blocks);
    }
    let mut tall = [whole_lanes(x[0], blocks); X];
    for i in 1..X {
        tall[i] = whole_lanes(x[i], blocks);
    }
    let mut acc = [[[0.0; LANES]; W]; X];
    for b in 0..blocks {
        for i in 0..X {
            for j in 0..W {
                add_product::<A>(&mut acc[i][j], &wide[j][b], &tall[i][b]);
            }
        }
    }
    if !n.is_multiple_of(LANES) {
        for i in 0..X {
            for j in 0..W {
                let (w, x) = (padded(&w[j][blocks * LANES..]), padded(&x[i][blocks * LANES..n]));
                add_product::<A>(&mut acc[i][j], &w, &x);
            }
        }
    }
    let mut sums = [[0.0; W]; X];
    for i in 0..X {
        for j in 0..W {
            sums[i][j] = sum_lanes(acc[i][j]);
        }
    }
    sums
}

#[inline(always)]
fn whole_lanes(x: &[f32], blocks: usize) -> &[Lanes] {
    &x.as_chunks::<LANES>().0[..blocks]
}
