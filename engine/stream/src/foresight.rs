//! Owns: whether a record that a forecast expects is worth reading early: how often forecasts came true by their margin, how
//! long a record takes, and how long the disk rests before the layer chooses (engine.md section 5.6).
//! Refuses: reading, slots, and clocks: it is told how long things took.
//! Invariants: it learns from what was expected, read or not; what it says changes when bytes are read, never which.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::ExpertId;

/// Margins of forecasts are told apart by these: a forecast that is surer comes true more often.
const EDGES: [f32; 12] = [-0.5, -0.25, -0.125, -0.0625, 0.0, 0.125, 0.25, 0.5, 0.75, 1.0, 1.5, 2.5];
/// Share of forecasts that is taken to come true before there were any: about what the original measured.
const AT_FIRST: f32 = 0.7;
/// The same of those below the last choice that is expected.
const BELOW_AT_FIRST: f32 = 0.3;
/// What may be read in vain, in rests of the disk: more than one, since early reads begin while the last that somebody waits for
/// still sends. H200, 17.3 GB/s: 4.72 ms a token, 4.80 with one; with two, traces of doubtful forecasts lose 1 % on slow disks.
const RESTS: f32 = 1.5;
/// Forecasts of a margin that count, about.
const FORECASTS: f32 = 64.0;
/// Seconds of waiting from which a GPU is kept awake: an H200 that rests so long between layers takes 520 us for one, not 230.
/// Where reads are shorter, keeping it awake cost 1 to 8 %; where they take 1.6 ms it gains 10 % (`docs/measurements.md`).
const SLOWS_DOWN: f32 = 800e-6;
/// Reads and rests that count, about.
const TIMES: f32 = 32.0;

/// What was learned.
#[derive(Clone, Debug)]
pub struct Foresight {
    /// Share of forecasts that came true, by margin.
    came_true: [f32; EDGES.len() + 1],
    /// Experts without a slot that their layers are expected to choose, and the place of their margins.
    expected: BTreeMap<ExpertId, usize>,
    /// Seconds that a record takes which is waited for.
    record: Option<f32>,
    /// Seconds from the last such read to the next choice.
    rest: Option<f32>,
}

impl Default for Foresight {
    fn default() -> Self {
        let mut came_true = [AT_FIRST; EDGES.len() + 1];
        came_true[..place(0.0)].fill(BELOW_AT_FIRST);
        Foresight { came_true, expected: BTreeMap::new(), record: None, rest: None }
    }
}

impl Foresight {
    /// Takes in a forecast about an expert without a slot.
    pub fn expect(&mut self, id: ExpertId, margin: f32) {
        self.expected.insert(id, place(margin));
    }

    /// Takes in what a layer chose.
    pub fn chose(&mut self, layer: u32, chosen: &[u32]) {
        let first = |layer| ExpertId { layer, expert: 0 };
        let of_layer: Vec<ExpertId> = self.expected.range(first(layer)..first(layer + 1)).map(|(id, _)| *id).collect();
        for id in of_layer {
            let share = self.expected.remove(&id).and_then(|place| self.came_true.get_mut(place));
            if let Some(share) = share {
                *share += (f32::from(u8::from(chosen.contains(&id.expert))) - *share) / FORECASTS;
            }
        }
    }

    /// Takes in how long so many records took that somebody waited for.
    pub fn read(&mut self, records: u64, took: Duration) {
        if records > 0 {
            blend(&mut self.record, took.as_secs_f32() / records as f32);
        }
    }

    /// Whether so many records take so long that a GPU slows down meanwhile.
    pub fn are_long(&self, records: u64) -> bool {
        self.record.is_some_and(|record| record * records as f32 >= SLOWS_DOWN)
    }

    /// Takes in how long nobody waited for a record before the next choice.
    pub fn rested(&mut self, took: Duration) {
        blend(&mut self.rest, took.as_secs_f32());
    }

    /// Whether a read is worth its time that is asked for behind so many others which nobody waits for yet. What is read in vain,
    /// of as many records with such a chance as have a lane, must not take longer than [`RESTS`] of the disk: the others have not
    /// begun when the layer chooses, and then never do. Nor are more asked for than come in that time, for asking costs, too. What
    /// is not in vain was only read sooner, waited for or not.
    pub fn is_worth(&self, margin: f32, others: usize, lanes: usize) -> bool {
        let (Some(record), Some(rest)) = (self.record, self.rest) else { return true };
        let in_vain = self.came_true.get(place(margin)).map_or(1.0, |share| 1.0 - share);
        let comes = (others as f32 - lanes as f32) * record <= RESTS * rest;
        comes && (others + 1).min(lanes) as f32 * record * in_vain <= RESTS * rest
    }
}

fn place(margin: f32) -> usize {
    EDGES.iter().filter(|&&edge| margin >= edge).count()
}

fn blend(known: &mut Option<f32>, new: f32) {
    *known = Some(known.map_or(new, |known| known + (new - known) / TIMES));
}

#[cfg(test)]
mod tests {
    use super::*;

    const SURE: f32 = 3.0;
    const CLOSE: f32 = 0.07;
    const BELOW: f32 = -0.1;

    fn expert(layer: u32, expert: u32) -> ExpertId {
        ExpertId { layer, expert }
    }

    fn micros(micros: u64) -> Duration {
        Duration::from_micros(micros)
    }

    /// After many layers that chose what was expected with the margin SURE, and nothing of what was expected with CLOSE.
    fn learned(record: u64, rest: u64) -> Foresight {
        let mut foresight = Foresight::default();
        for layer in 0..500 {
            foresight.expect(expert(layer, 1), SURE);
            foresight.expect(expert(layer, 2), CLOSE);
            foresight.chose(layer, &[1, 7]);
            foresight.read(2, micros(2 * record));
            foresight.rested(micros(rest));
        }
        foresight
    }

    #[test]
    fn everything_is_worth_reading_while_nothing_is_known_and_while_the_disk_has_time() {
        assert!(Foresight::default().is_worth(CLOSE, 15, 16));
        let quick = learned(100, 2000);
        assert!(quick.is_worth(SURE, 15, 16) && quick.is_worth(CLOSE, 15, 16), "sixteen are over in 1.6 ms of 2");
    }

    #[test]
    fn what_is_read_in_vain_must_not_take_longer_than_the_disk_rests() {
        let slow = learned(1000, 400);
        assert!(slow.is_worth(SURE, 0, 2) && slow.is_worth(SURE, 15, 16), "nearly certain: it is wanted anyway");
        assert!(!slow.is_worth(CLOSE, 0, 2), "never chosen, and longer than the disk rests");
        let between = learned(1000, 1000);
        assert!(between.is_worth(CLOSE, 0, 2) && !between.is_worth(CLOSE, 1, 2), "two in vain take 2 ms of 1.5");
        assert!(between.is_worth(CLOSE, 1, 1), "what finds no lane is not read");
        assert!(between.is_worth(SURE, 3, 2) && !between.is_worth(SURE, 4, 2), "it would not come in time");
    }

    #[test]
    fn what_is_expected_below_the_last_choice_is_believed_less_until_it_came_true() {
        let mut foresight = Foresight::default();
        foresight.read(1, micros(1000));
        foresight.rested(micros(400));
        assert!(foresight.is_worth(0.0, 0, 2) && !foresight.is_worth(BELOW, 0, 2));
        for layer in 0..500 {
            foresight.expect(expert(layer, 1), BELOW);
            foresight.chose(layer, &[1]);
        }
        assert!(foresight.is_worth(BELOW, 0, 2));
    }

    #[test]
    fn reads_are_long_by_what_they_took() {
        let mut foresight = Foresight::default();
        assert!(!foresight.are_long(100), "nothing is known");
        foresight.read(2, micros(1000));
        assert!(!foresight.are_long(1) && foresight.are_long(2), "a record takes 500 us");
    }

    #[test]
    fn a_forecast_that_is_not_read_teaches_as_well_and_other_layers_do_not() {
        let mut foresight = learned(1000, 400);
        for layer in 0..500 {
            foresight.expect(expert(layer, 2), CLOSE);
            foresight.chose(layer + 1, &[2]);
            foresight.chose(layer, &[2]);
        }
        assert!(foresight.is_worth(CLOSE, 0, 2));
        assert!(foresight.expected.is_empty());
    }

    #[test]
    fn no_time_at_all_is_no_fault() {
        let mut foresight = Foresight::default();
        foresight.read(0, micros(5));
        foresight.read(1, micros(0));
        foresight.rested(micros(0));
        assert!(foresight.is_worth(SURE, 3, 2));
    }
}
