//! Owns: the n-gram hash (architecture.md section 9.1): which rows of the table a token reads.
//! Refuses: nothing; its numbers are bounded by the geometry.
//! Invariants: integers only, exact; never a float on the way.

use crate::geometry::NgramGeometry;

const GAMMA: u64 = 0x9E37_79B9_7F4A_7C15;
/// Distance between the seeds of two PLE layers.
const LAYER_STRIDE: u64 = 10_007;

/// The constants of one PLE layer's hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NgramTables {
    /// One odd multiplier for each place of an n-gram, nearest id first.
    pub multipliers: Vec<u64>,
    /// Rows of each head's table: primes.
    pub sizes: Vec<u64>,
    /// First row of each head's table.
    pub offsets: Vec<u64>,
    /// Rows of all tables with padding.
    pub rows: u64,
    heads_per_order: usize,
    boundary: u32,
}

impl NgramTables {
    /// The tables of the `ple_index`-th injection in a model of `vocab` ids.
    pub fn new(geometry: &NgramGeometry, vocab: u32, ple_index: usize) -> NgramTables {
        let mut primes = primes(geometry.vocab_base).skip(ple_index * geometry.heads() as usize);
        Self::from_primes(geometry, vocab, ple_index, &mut primes)
    }

    /// The tables of all `injections`; each goes on in the row of primes where the one before it stopped.
    pub fn all(geometry: &NgramGeometry, vocab: u32, injections: usize) -> Vec<NgramTables> {
        let mut primes = primes(geometry.vocab_base);
        (0..injections).map(|index| Self::from_primes(geometry, vocab, index, &mut primes)).collect()
    }

    fn from_primes(
        geometry: &NgramGeometry,
        vocab: u32,
        ple_index: usize,
        primes: &mut impl Iterator<Item = u64>,
    ) -> NgramTables {
        let sizes: Vec<u64> = primes.take(geometry.heads() as usize).collect();
        let offsets = sizes.iter().scan(0, |end, &size| {
            let offset = *end;
            *end += size;
            Some(offset)
        });
        NgramTables {
            multipliers: multipliers(geometry, vocab, ple_index),
            offsets: offsets.collect(),
            rows: sizes.iter().sum::<u64>().next_multiple_of(geometry.divisible_by),
            sizes,
            heads_per_order: geometry.heads_per_order as usize,
            boundary: geometry.boundary,
        }
    }

    /// Hash heads: rows that one token reads.
    pub fn heads(&self) -> usize {
        self.sizes.len()
    }

    /// The rows that `id` reads when `context` came before it (oldest first, any length; what is missing counts as the
    /// boundary id). Fills `out`, one row a head.
    pub fn rows(&self, context: &[u32], id: u32, out: &mut [u64]) {
        let mut before = context.iter().rev();
        let mut bounded = false;
        let mut mixed = 0;
        let mut heads = self.sizes.iter().zip(&self.offsets).zip(out);
        for (place, multiplier) in self.multipliers.iter().enumerate() {
            let member = if place == 0 {
                id
            } else {
                // A boundary hides itself and everything before it: both hash as the boundary id.
                let previous = before.next().copied().unwrap_or(self.boundary);
                bounded |= previous == self.boundary;
                if bounded { self.boundary } else { previous }
            };
            mixed ^= u64::from(member).wrapping_mul(*multiplier);
            if place > 0 {
                for ((size, offset), row) in heads.by_ref().take(self.heads_per_order) {
                    *row = mixed % size + offset;
                }
            }
        }
    }
}

fn splitmix64(value: u64) -> u64 {
    let v = value.wrapping_add(GAMMA);
    let v = (v ^ (v >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let v = (v ^ (v >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    v ^ (v >> 31)
}

/// Odd numbers small enough that multiplier times id stays below 2^63.
fn multipliers(geometry: &NgramGeometry, vocab: u32, ple_index: usize) -> Vec<u64> {
    let half = (i64::MAX as u64 / u64::from(vocab.max(1)) / 2).max(1);
    let start = geometry.seed.wrapping_add(LAYER_STRIDE.wrapping_mul(ple_index as u64));
    let draw = |place: u32| splitmix64(start.wrapping_add(GAMMA.wrapping_mul(u64::from(place) + 1)));
    (0..geometry.order).map(|place| 2 * (draw(place) % half) + 1).collect()
}

/// The primes from `base` on.
fn primes(base: u64) -> impl Iterator<Item = u64> {
    (base..).filter(|&n| is_prime(n))
}

/// Whether `n` is prime: trial division by small primes, then Miller-Rabin to the bases that decide every u64.
fn is_prime(n: u64) -> bool {
    const BASES: [u64; 12] = [2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37];
    if n < 2 {
        return false;
    }
    for base in BASES {
        if n.is_multiple_of(base) {
            return n == base;
        }
    }
    let twos = (n - 1).trailing_zeros();
    let odd = (n - 1) >> twos;
    BASES.iter().all(|&base| {
        let mut power = power_mod(base, odd, n);
        if power == 1 || power == n - 1 {
            return true;
        }
        (1..twos).any(|_| {
            power = multiply_mod(power, power, n);
            power == n - 1
        })
    })
}

fn multiply_mod(a: u64, b: u64, n: u64) -> u64 {
    (u128::from(a) * u128::from(b) % u128::from(n)) as u64
}

fn power_mod(mut base: u64, mut exponent: u64, n: u64) -> u64 {
    let mut out = 1;
    while exponent > 0 {
        if exponent & 1 == 1 {
            out = multiply_mod(out, base, n);
        }
        base = multiply_mod(base, base, n);
        exponent >>= 1;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const VOCAB: u32 = 248_320;
    const END: u32 = 248_044;

    fn released() -> NgramTables {
        let geometry = NgramGeometry {
            order: 3,
            heads_per_order: 8,
            vocab_base: 20_000_000,
            divisible_by: 128,
            shards: 128,
            seed: 1234,
            boundary: END,
        };
        NgramTables::new(&geometry, VOCAB, 0)
    }

    fn rows(tables: &NgramTables, ids: &[u32], place: usize) -> Vec<u64> {
        let mut out = vec![0; tables.heads()];
        tables.rows(&ids[..place], ids[place], &mut out);
        out
    }

    #[test]
    fn the_released_constants_are_recomputed() {
        let tables = released();
        assert_eq!(tables.multipliers, [23_703_573_157_769, 20_109_073_645_365, 8_052_911_324_071]);
        let tail = [3, 23, 33, 47, 59, 63, 69, 77, 81, 93, 107, 147, 153, 159, 161, 171];
        assert_eq!(tables.sizes, tail.map(|t| 20_000_000 + t));
        assert_eq!(tables.rows, 128 * 2_500_012);
        assert_eq!(tables.offsets[15] + tables.sizes[15], 320_001_446);
    }

    #[test]
    fn the_published_test_vectors_come_out() {
        let tables = released();
        let ids = [9707, 11, 1879];
        let vectors: [[u64; 16]; 3] = [
            [
                16410909, 39682429, 55103279, 60931720, 87006904, 116506179, 131512017, 152932897, 169641436,
                182022480, 209277433, 237891023, 256841529, 277007269, 290665954, 300984276,
            ],
            [
                18158303, 36390029, 45652312, 70783524, 98191154, 114024957, 127804916, 159566246, 175132467,
                192583600, 217919476, 237199054, 259336807, 261799367, 289359313, 307699687,
            ],
            [
                6380558, 26411572, 56460672, 78566983, 94693008, 106742196, 124822692, 148942556, 164226950, 190352573,
                210933682, 238908951, 242182004, 265475238, 299910982, 312121804,
            ],
        ];
        for (place, vector) in vectors.iter().enumerate() {
            assert_eq!(rows(&tables, &ids, place), vector);
        }
    }

    #[test]
    fn a_boundary_inside_hides_what_came_before_it_but_sees_it_itself() {
        let tables = released();
        let ids = [100, END, 200, 300];
        let two = [
            15114226, 39594710, 55572462, 70127295, 80775559, 118455748, 125723378, 143475569, 177805529, 191773675,
            200937106, 235341796, 255204161, 276293028, 290261926, 302150093,
        ];
        let three = [
            6129193, 20484628, 57667260, 77728366, 86357215, 109234597, 123551585, 149309416, 160807097, 181150422,
            210033058, 220469929, 244412116, 268713397, 296893783, 318393237,
        ];
        assert_eq!(rows(&tables, &ids, 2), two);
        assert_eq!(rows(&tables, &ids, 3), three);
        assert_ne!(rows(&tables, &ids, 1), rows(&tables, &[END], 0), "the boundary itself still sees its predecessor");
        assert_eq!(rows(&tables, &[END, 5], 1), rows(&tables, &[5], 0), "nothing before a segment's start");
    }

    #[test]
    fn primality_agrees_with_trial_division() {
        let slow = |n: u64| n > 1 && (2..n).take_while(|d| d * d <= n).all(|d| !n.is_multiple_of(d));
        for n in (0..2000).chain(20_000_000..20_000_400).chain(4_294_967_000..4_294_967_300) {
            assert_eq!(is_prime(n), slow(n), "{n}");
        }
        // The strongest pseudoprimes to few bases.
        for composite in [3_215_031_751, 3_474_749_660_383, 341_550_071_728_321] {
            assert!(!is_prime(composite));
        }
        assert!(is_prime(18_446_744_073_709_551_557));
    }

    #[test]
    fn a_second_injection_takes_the_next_primes_and_another_seed() {
        let geometry = NgramGeometry {
            order: 2,
            heads_per_order: 3,
            vocab_base: 10,
            divisible_by: 4,
            shards: 2,
            seed: 7,
            boundary: 0,
        };
        let (first, second) = (NgramTables::new(&geometry, 50, 0), NgramTables::new(&geometry, 50, 1));
        assert_eq!(NgramTables::all(&geometry, 50, 2), [first.clone(), second.clone()]);
        assert_eq!((first.sizes, second.sizes), (vec![11, 13, 17], vec![19, 23, 29]));
        assert_eq!((first.rows, second.rows), (44, 72));
        assert_ne!(first.multipliers, second.multipliers);
    }
}
