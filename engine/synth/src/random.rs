//! Owns: random words by place: the n-th word of a stream is had without those before it.
//! Invariants: a stream follows from the seed and a name; a word from the stream and its number.

/// Distance between the states of neighbouring words (the golden ratio, as in SplitMix64).
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;
/// FNV-1a.
const NAME_START: u64 = 0xCBF2_9CE4_8422_2325;
const NAME_PRIME: u64 = 0x0000_0100_0000_01B3;

/// A stream of random words.
#[derive(Clone, Copy, Debug)]
pub struct Stream(u64);

impl Stream {
    /// The stream of a name.
    pub fn new(seed: u64, name: &str) -> Self {
        let hash = name.bytes().fold(NAME_START, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(NAME_PRIME));
        Stream(mix(mix(seed.wrapping_add(STEP)) ^ hash))
    }

    /// The word of a number.
    #[inline]
    pub fn word(self, number: u64) -> u64 {
        mix(self.0.wrapping_add(STEP.wrapping_mul(number)))
    }

    /// A permutation of so many places.
    pub fn permutation(self, places: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..places).collect();
        for last in (1..places).rev() {
            // The remainder's bias is one in 2^54 for a thousand places.
            order.swap(last, (self.word(last as u64) % (last as u64 + 1)) as usize);
        }
        order
    }
}

/// The finaliser of SplitMix64: each bit of the result depends on every bit of the state.
#[inline]
fn mix(state: u64) -> u64 {
    let v = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let v = (v ^ (v >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    v ^ (v >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_differ_by_seed_and_name_and_words_by_number() {
        let words: Vec<u64> = [(1, "a"), (2, "a"), (1, "b")]
            .map(|(seed, name)| Stream::new(seed, name))
            .iter()
            .map(|s| s.word(0))
            .collect();
        assert!(words[0] != words[1] && words[0] != words[2] && words[1] != words[2]);
        assert_eq!(Stream::new(1, "a").word(7), Stream::new(1, "a").word(7));
        assert_ne!(Stream::new(1, "a").word(7), Stream::new(1, "a").word(8));
    }

    #[test]
    fn half_of_the_bits_are_set() {
        let stream = Stream::new(3, "bits");
        let set: u32 = (0..10_000).map(|number| stream.word(number).count_ones()).sum();
        assert!((f64::from(set) / 640_000.0 - 0.5).abs() < 0.003, "{set}");
    }

    #[test]
    fn a_permutation_has_every_place_once() {
        let mut order = Stream::new(1, "p").permutation(100);
        assert!(order.iter().enumerate().any(|(place, &to)| place != to));
        order.sort_unstable();
        assert_eq!(order, (0..100).collect::<Vec<_>>());
    }
}
