//! Owns: a bounded memory of row records, by row number.
//! Refuses: files, and what a record means.
//! Invariants: a record comes out as it went in; the memory in use, index included, stays within the budget.

use std::collections::HashMap;

use crate::{Clock, Eviction};

/// Rows of which memory is allocated at a time.
const PAGE_ROWS: usize = 1024;
/// What a row costs beside its record: an entry of the index when it has just grown (2 * 8/7 * 17 bytes), its number
/// in a vector that has just grown, and the clock's mark.
const INDEX_BYTES: u64 = 56;

/// Records of rows, up to a number of bytes.
pub(crate) struct RowCache {
    row_bytes: usize,
    capacity: usize,
    index: HashMap<u64, u32>,
    /// Which row lies in each place.
    owners: Vec<u64>,
    pages: Vec<Vec<u8>>,
    clock: Clock,
}

impl RowCache {
    /// A memory of `budget` bytes for records of `row_bytes` bytes; 0 keeps nothing.
    pub fn new(row_bytes: usize, budget: u64) -> Self {
        let capacity = budget / (row_bytes as u64 + INDEX_BYTES);
        let capacity = u32::try_from(capacity).unwrap_or(u32::MAX) as usize;
        RowCache {
            row_bytes,
            capacity,
            index: HashMap::new(),
            owners: Vec::new(),
            pages: Vec::new(),
            clock: Clock::new(capacity),
        }
    }

    /// Whether a row's record is here.
    pub fn holds(&self, row: u64) -> bool {
        self.index.contains_key(&row)
    }

    /// The record of a row, if it is here.
    pub fn get(&mut self, row: u64) -> Option<&[u8]> {
        let place = *self.index.get(&row)?;
        self.clock.touch(place);
        let start = place as usize % PAGE_ROWS * self.row_bytes;
        self.pages.get(place as usize / PAGE_ROWS)?.get(start..start + self.row_bytes)
    }

    /// Keeps a record that is not here yet, and returns whether another had to go.
    pub fn insert(&mut self, row: u64, record: &[u8]) -> bool {
        if self.capacity == 0 || record.len() != self.row_bytes || self.index.contains_key(&row) {
            return false;
        }
        let evicts = self.owners.len() == self.capacity;
        let place = match evicts {
            true => self.clock.victim(&|_| true).unwrap_or(0) as usize,
            false => self.grow(),
        };
        if evicts {
            self.index.remove(&self.owners[place]);
        }
        self.owners[place] = row;
        self.index.insert(row, place as u32);
        let start = place % PAGE_ROWS * self.row_bytes;
        self.pages[place / PAGE_ROWS][start..start + self.row_bytes].copy_from_slice(record);
        evicts
    }

    /// One more place.
    fn grow(&mut self) -> usize {
        let place = self.owners.len();
        if place.is_multiple_of(PAGE_ROWS) {
            let rows = PAGE_ROWS.min(self.capacity - place);
            self.pages.push(vec![0; rows * self.row_bytes]);
        }
        self.owners.push(0);
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: usize = 10;
    const COST: u64 = ROW as u64 + INDEX_BYTES;

    fn record(row: u64) -> [u8; ROW] {
        std::array::from_fn(|i| (row as u8).wrapping_mul(31).wrapping_add(i as u8))
    }

    #[test]
    fn a_record_comes_out_as_it_went_in_until_it_is_given_up() {
        let mut cache = RowCache::new(ROW, 3000 * COST);
        let mut evictions = 0;
        for row in 0..5000u64 {
            assert_eq!(cache.get(row * 7), None);
            evictions += u32::from(cache.insert(row * 7, &record(row)));
            assert_eq!(cache.get(row * 7), Some(&record(row)[..]));
        }
        assert_eq!(evictions, 2000);
        let kept = (0..5000u64).filter(|row| match cache.get(row * 7) {
            Some(found) => found == record(*row),
            None => false,
        });
        assert_eq!(kept.count(), 3000, "as many as fit, none of them changed");
    }

    #[test]
    fn a_row_that_is_used_outlives_others() {
        let mut cache = RowCache::new(ROW, 4 * COST);
        (0..4).for_each(|row| _ = cache.insert(row, &record(row)));
        cache.insert(4, &record(4));
        for row in 5..50 {
            assert!(cache.get(2).is_some(), "row {row}");
            cache.insert(row, &record(row));
        }
    }

    #[test]
    fn memory_grows_with_use_and_ends_at_the_budget() {
        for budget in [0, COST - 1, 100 * COST, 2500 * COST] {
            let mut cache = RowCache::new(ROW, budget);
            assert!(cache.pages.is_empty());
            (0..4000).for_each(|row| _ = cache.insert(row, &record(row)));
            let held = cache.pages.iter().map(Vec::capacity).sum::<usize>()
                + (cache.index.capacity() * 8 / 7).next_power_of_two() * 17
                + cache.owners.capacity() * 8
                + cache.capacity;
            assert!(budget < COST || held as u64 <= budget, "{held} of {budget}");
            assert_eq!(cache.index.len() as u64, (budget / COST).min(4000));
        }
    }
}
