//! Owns: the tests that a long read is divided where somebody waits for it, and gives the same bytes.

use std::sync::{Mutex, PoisonError};

use ss_checkpoint::FileRange;

use super::support::{Outcome, dev};
use crate::lanes::Read;
use crate::{Lane, LaneCounts, Lanes, RecordSource};

/// A file whose bytes follow from their places, and the ranges that were read from it.
#[derive(Default)]
struct Endless(Mutex<Vec<FileRange>>);

fn byte(place: u64) -> u8 {
    (place.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

impl RecordSource for Endless {
    fn read(&self, range: FileRange, into: &mut [u8]) -> ss_checkpoint::Result<()> {
        assert_eq!(into.len() as u64, range.bytes);
        into.iter_mut().zip(range.offset..).for_each(|(into, place)| *into = byte(place));
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(range);
        Ok(())
    }
}

#[test]
fn a_long_read_is_divided_at_even_places_for_a_demand_and_left_whole_in_bulk() -> Outcome {
    let some = dev().experts(0).and_then(|files| files.pieces(0).next()).ok_or("no experts")?.range;
    let lanes = Lanes::new(LaneCounts::new(4, 4)?);
    let even = 512 << 10;
    for (offset, bytes, parts) in [(0, 2_764_800, 6), (123_457, 2_764_800, 6), (even - 1, 2, 2), (even, even, 1)] {
        for (lane, parts) in [(Lane::Demand, parts), (Lane::Bulk, 1)] {
            let file = Endless::default();
            let mut into = vec![0; bytes as usize];
            let read = Read { range: FileRange { offset, bytes, ..some }, into: &mut into };
            assert_eq!(lanes.read(lane, &file, vec![read])?, bytes);
            assert!(into.iter().zip(offset..).all(|(&found, place)| found == byte(place)), "{offset} {bytes} {lane:?}");
            let mut ranges = file.0.into_inner().unwrap_or_else(PoisonError::into_inner);
            ranges.sort_unstable_by_key(|range| range.offset);
            assert_eq!(ranges.len(), parts, "{offset} {bytes} {lane:?}");
            assert!(ranges.iter().skip(1).all(|range| range.offset % even == 0), "{ranges:?}");
        }
    }
    Ok(())
}
