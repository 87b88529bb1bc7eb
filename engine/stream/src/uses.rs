//! Owns: how often each expert was used of late, and the hot set that follows from it (engine.md 5.9).
//! Refuses: files; whoever keeps a hot set writes it down.
//! Invariants: a use counts less and less; counting costs an addition a choice.

use crate::ExpertId;

/// Passes through all layers after which a use counts half.
const HALF_LIFE: u32 = 1024;
/// Uses from which an expert is part of the hot set: once, not long ago.
const HOT: f32 = 0.5;

/// An expert and how often it was used of late.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HotExpert {
    /// The expert.
    pub id: ExpertId,
    /// Its uses, those of old counting less.
    pub uses: f32,
}

/// Uses of all experts.
#[derive(Clone, Debug)]
pub struct Uses {
    experts: u32,
    /// `[layers, experts]`.
    counts: Vec<f32>,
    /// Layers that asked since the counts were last halved.
    asked: u32,
    /// Layers that ask before they are.
    period: u32,
}

impl Uses {
    /// No uses of `layers` layers of `experts` experts.
    pub(crate) fn new(layers: u32, experts: u32) -> Self {
        let counts = vec![0.0; layers as usize * experts as usize];
        Uses { experts, counts, asked: 0, period: HALF_LIFE.saturating_mul(layers) }
    }

    /// Counts a layer's distinct experts.
    pub(crate) fn count(&mut self, layer: u32, experts: &[u32]) {
        for &expert in experts {
            self.add(HotExpert { id: ExpertId { layer, expert }, uses: 1.0 });
        }
        self.asked += 1;
        if self.asked >= self.period {
            self.asked = 0;
            self.counts.iter_mut().for_each(|count| *count /= 2.0);
        }
    }

    /// Adds uses from elsewhere; those of experts that do not exist, or that are no number, are left out.
    pub(crate) fn add(&mut self, hot: HotExpert) {
        let HotExpert { id, uses } = hot;
        let place = (id.expert < self.experts).then(|| id.layer as usize * self.experts as usize + id.expert as usize);
        let count = place.and_then(|place| self.counts.get_mut(place));
        // No run of this program counts more.
        if let Some(count) = count.filter(|_| uses >= 0.0) {
            *count = (*count + uses).min(2.0 * HALF_LIFE as f32);
        }
    }

    /// The experts that were used of late, most used first, equal ones by number.
    pub fn hottest(&self) -> Vec<HotExpert> {
        let layers = self.counts.chunks(self.experts.max(1) as usize);
        let mut hot: Vec<HotExpert> = (0..)
            .zip(layers)
            .flat_map(|(layer, counts)| {
                (0..).zip(counts).map(move |(expert, &uses)| HotExpert { id: ExpertId { layer, expert }, uses })
            })
            .filter(|hot| hot.uses >= HOT)
            .collect();
        hot.sort_by(|a, b| b.uses.total_cmp(&a.uses).then(a.id.cmp(&b.id)));
        hot
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hot(layer: u32, expert: u32, uses: f32) -> HotExpert {
        HotExpert { id: ExpertId { layer, expert }, uses }
    }

    #[test]
    fn experts_come_by_uses_then_by_number() {
        let mut uses = Uses::new(2, 8);
        for experts in [&[3, 5][..], &[5], &[5, 7]] {
            uses.count(1, experts);
        }
        uses.count(0, &[2]);
        assert_eq!(uses.hottest(), [hot(1, 5, 3.0), hot(0, 2, 1.0), hot(1, 3, 1.0), hot(1, 7, 1.0)]);
    }

    #[test]
    fn old_habits_fade_and_counts_stay_bounded() {
        let mut uses = Uses::new(1, 4);
        uses.add(hot(0, 3, 1e30));
        uses.count(0, &[1]);
        for _ in 0..20 * HALF_LIFE {
            uses.count(0, &[2]);
        }
        let left = uses.hottest();
        assert_eq!(left.iter().map(|hot| hot.id.expert).collect::<Vec<_>>(), [2]);
        assert!(left[0].uses <= 2.0 * HALF_LIFE as f32, "{left:?}");
    }

    #[test]
    fn uses_of_nobody_and_of_no_number_are_left_out() {
        let mut uses = Uses::new(1, 4);
        for strange in
            [hot(1, 0, 1.0), hot(0, 4, 1.0), hot(u32::MAX, u32::MAX, 1.0), hot(0, 1, f32::NAN), hot(0, 1, -1.0)]
        {
            uses.add(strange);
        }
        assert_eq!(uses.hottest(), []);
    }
}
