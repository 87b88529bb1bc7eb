//! Owns: the bytes of a tensor, any stretch of them.
//! Refuses: stretches that begin inside a word; the writer cuts at words.
//! Invariants: a stretch's bytes do not depend on where other stretches begin and end.

use half::bf16;

use crate::random::Stream;
use crate::recipe::Fill;

/// Bytes of a random word.
const WORD: u64 = 8;
/// BF16 numbers drawn from the nibbles of a word.
const DRAWS: u64 = 16;
/// A stretch begins at a multiple of so many bytes: what one word makes at most.
pub(crate) const UNIT: u64 = 2 * DRAWS;
/// BF16 numbers made of a word, sixteen bits each.
const LANES: u64 = 4;
/// A sixteen-bit number is so far from the middle of its range at most.
const HALF_RANGE: f32 = 32_768.0;

impl Fill {
    /// Whether there is nothing to write.
    pub(crate) fn is_hole(&self) -> bool {
        matches!(self, Fill::Hole)
    }

    /// The bytes from `first` on; `first` is a multiple of [`UNIT`].
    pub(crate) fn write(&self, first: u64, into: &mut [u8]) {
        match self {
            Fill::Hole => into.fill(0),
            Fill::Bytes(bytes) => {
                let from = bytes.get(first as usize..).unwrap_or_default();
                into.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
            }
            Fill::Codes(stream) => codes(*stream, first, into),
            Fill::Drawn { stream, table } => drawn(*stream, table, first, into),
            Fill::Even { stream, centre, reach } => even(*stream, first, into, |_| (*centre, *reach)),
            Fill::Rows { stream, cols, reaches } => even(*stream, first, into, |number| {
                (0.0, reaches.get((number / cols) as usize).copied().unwrap_or_default())
            }),
        }
    }
}

fn codes(stream: Stream, first: u64, into: &mut [u8]) {
    let number = first / WORD;
    let (words, rest) = into.as_chunks_mut::<8>();
    let tail = number + words.len() as u64;
    words.iter_mut().zip(number..).for_each(|(word, number)| *word = stream.word(number).to_le_bytes());
    rest.iter_mut().zip(stream.word(tail).to_le_bytes()).for_each(|(to, from)| *to = from);
}

fn drawn(stream: Stream, table: &[u16; 16], first: u64, into: &mut [u8]) {
    let numbers = into.as_chunks_mut::<2>().0;
    for (group, number) in numbers.chunks_mut(DRAWS as usize).zip(first / (2 * DRAWS)..) {
        let mut word = stream.word(number);
        for to in group {
            *to = table[(word & 15) as usize].to_le_bytes();
            word >>= 4;
        }
    }
}

/// `size` gives centre and reach of the numbers of a word, by the place of its first.
fn even(stream: Stream, first: u64, into: &mut [u8], size: impl Fn(u64) -> (f32, f32)) {
    let numbers = into.as_chunks_mut::<2>().0;
    for (group, number) in numbers.chunks_mut(LANES as usize).zip(first / (2 * LANES)..) {
        let (mut word, (centre, reach)) = (stream.word(number), size(number * LANES));
        for to in group {
            let part = (f32::from(word as u16) + 0.5 - HALF_RANGE) / HALF_RANGE;
            *to = bf16::from_f32(centre + reach * part).to_le_bytes();
            word >>= 16;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fills() -> Vec<Fill> {
        let stream = Stream::new(1, "x");
        vec![
            Fill::Codes(stream),
            Fill::Drawn { stream, table: Box::new(std::array::from_fn(|i| 1000 * i as u16)) },
            Fill::Even { stream, centre: 1.0, reach: 0.5 },
            Fill::Rows { stream, cols: 32, reaches: (0..40).map(|row| row as f32).collect() },
            Fill::Bytes((0..2500).map(|i| i as u8).collect()),
        ]
    }

    #[test]
    fn a_stretch_is_the_same_alone_and_inside_a_longer_one() {
        for fill in fills() {
            let mut whole = vec![0; 2400 + 14];
            fill.write(0, &mut whole);
            for (from, to) in [(0, 32), (32, 96), (960, 2400), (2400, 2414)] {
                let mut part = vec![0; to - from];
                fill.write(from as u64, &mut part);
                assert_eq!(part, whole[from..to], "{fill:?}");
            }
        }
    }

    #[test]
    fn even_numbers_fill_their_range_and_no_more() {
        let mut bytes = vec![0; 80_000];
        Fill::Even { stream: Stream::new(2, "y"), centre: 1.0, reach: 0.5 }.write(0, &mut bytes);
        let numbers: Vec<f32> = bytes.as_chunks::<2>().0.iter().map(|b| bf16::from_le_bytes(*b).to_f32()).collect();
        let mean = numbers.iter().sum::<f32>() / numbers.len() as f32;
        assert!((mean - 1.0).abs() < 0.01, "{mean}");
        assert!(numbers.iter().all(|n| (0.5..=1.5).contains(n)));
        assert!(numbers.iter().any(|n| *n < 0.51) && numbers.iter().any(|n| *n > 1.49));
    }
}
