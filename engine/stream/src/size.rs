//! Owns: what `--slots` and `--experts-per-layer` mean in slots (engine.md sections 5.1 and 9).
//! Refuses: pools of fewer than 3k slots, k being a token's experts; memory budgets, which are the planner's.
//! Invariants: a resolved pool holds at least 3k slots; the draft layer's experts are not counted in `all`.

use std::fmt;
use std::str::FromStr;

use ss_checkpoint::Geometry;

use crate::{Error, Result};

/// The smallest pool has room for so many tokens' experts of one layer.
const SMALLEST_TOKENS: u32 = 3;
/// Most slots above one layer's experts in the recommended floor: 64 for lookahead, 64 for demand.
const MOST_RESERVE: u32 = 128;
/// The floor's reserve is at most this part of all experts.
const RESERVE_PART: u32 = 8;

const SLOTS_FLAG: &str = "--slots";
const PER_LAYER_FLAG: &str = "--experts-per-layer";

/// How large a slot pool shall be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolSize {
    /// 3k slots for k experts a token.
    Smallest,
    /// The recommended floor: one layer's experts and a reserve.
    Floor,
    /// So many percent of all experts, 1 to 100.
    Percent(u32),
    /// Every expert of the main layers.
    All,
    /// So many slots.
    Slots(u32),
    /// So many slots times the number of layers.
    PerLayer(u32),
}

/// What a pool's size depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolGeometry {
    /// Main layers.
    pub layers: u32,
    /// Experts of a layer.
    pub experts: u32,
    /// Experts a token.
    pub choices: u32,
}

impl From<&Geometry> for PoolGeometry {
    fn from(geometry: &Geometry) -> Self {
        PoolGeometry { layers: geometry.layers.len() as u32, experts: geometry.experts, choices: geometry.choices }
    }
}

impl PoolGeometry {
    /// Experts of all main layers.
    pub fn all(self) -> u32 {
        self.layers.saturating_mul(self.experts)
    }

    /// The smallest pool that serves: 3k slots.
    pub fn smallest(self) -> u32 {
        SMALLEST_TOKENS.saturating_mul(self.choices)
    }

    /// `min(all, E + R)`, `R = min(128, all / 8)`; never below the smallest.
    pub fn floor(self) -> u32 {
        let reserve = MOST_RESERVE.min(self.all() / RESERVE_PART);
        self.all().min(self.experts.saturating_add(reserve)).max(self.smallest())
    }
}

impl PoolSize {
    /// Parses the value of `--experts-per-layer`: a number of experts, or `all`.
    ///
    /// # Errors
    /// [`Error::NotASize`] for anything else.
    pub fn per_layer(text: &str) -> Result<Self> {
        match (text, text.parse()) {
            ("all", _) => Ok(PoolSize::All),
            (_, Ok(experts)) if experts > 0 => Ok(PoolSize::PerLayer(experts)),
            _ => Err(Error::NotASize {
                flag: PER_LAYER_FLAG,
                text: text.to_owned(),
                expected: "a number of experts from 1, or all",
            }),
        }
    }

    /// The number of slots. Words and percentages never give fewer than the smallest pool.
    ///
    /// # Errors
    /// [`Error::TooFewSlots`] for a number below 3k, [`Error::TooManySlots`] for one above every expert that there is, the
    /// draft layer's included, [`Error::TooManyPerLayer`] above a layer's experts.
    pub fn resolve(self, pool: PoolGeometry) -> Result<u32> {
        let (all, least) = (pool.all(), pool.smallest());
        match self {
            PoolSize::Smallest => Ok(least),
            PoolSize::Floor => Ok(pool.floor()),
            PoolSize::Percent(percent) => {
                let slots = u64::from(all) * u64::from(percent.min(100)) / 100;
                Ok(u32::try_from(slots).unwrap_or(all).max(least))
            }
            PoolSize::All => Ok(all.max(least)),
            PoolSize::Slots(asked) => {
                let most = all.saturating_add(pool.experts).max(least);
                match asked > most {
                    true => Err(Error::TooManySlots { asked, all }),
                    false => enough(SLOTS_FLAG, asked, asked, pool),
                }
            }
            PoolSize::PerLayer(asked) if asked > pool.experts => {
                Err(Error::TooManyPerLayer { asked, experts: pool.experts })
            }
            PoolSize::PerLayer(asked) => enough(PER_LAYER_FLAG, asked, asked.saturating_mul(pool.layers), pool),
        }
    }
}

/// `slots`, if they hold three tokens' experts.
fn enough(flag: &'static str, asked: u32, slots: u32, pool: PoolGeometry) -> Result<u32> {
    let least = pool.smallest();
    if slots < least {
        return Err(Error::TooFewSlots { flag, asked, slots, least, choices: pool.choices });
    }
    Ok(slots)
}

impl FromStr for PoolSize {
    type Err = Error;

    /// Parses the value of `--slots`: `smallest`, `floor`, `all`, a percentage such as `25%`, or a number of slots.
    fn from_str(text: &str) -> Result<Self> {
        let wrong = || Error::NotASize {
            flag: SLOTS_FLAG,
            text: text.to_owned(),
            expected: "smallest, floor, all, a percentage from 1% to 100%, or a number of slots",
        };
        match text {
            "smallest" => return Ok(PoolSize::Smallest),
            "floor" => return Ok(PoolSize::Floor),
            "all" => return Ok(PoolSize::All),
            _ => (),
        }
        match text.strip_suffix('%') {
            Some(percent) => match percent.parse() {
                Ok(percent @ 1..=100) => Ok(PoolSize::Percent(percent)),
                _ => Err(wrong()),
            },
            None => text.parse().map(PoolSize::Slots).map_err(|_| wrong()),
        }
    }
}

impl fmt::Display for PoolSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PoolSize::Smallest => write!(f, "smallest"),
            PoolSize::Floor => write!(f, "floor"),
            PoolSize::Percent(percent) => write!(f, "{percent}%"),
            PoolSize::All => write!(f, "all"),
            PoolSize::Slots(slots) => write!(f, "{slots}"),
            PoolSize::PerLayer(experts) => write!(f, "{experts} a layer"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RELEASED: PoolGeometry = PoolGeometry { layers: 48, experts: 512, choices: 10 };
    const NANO: PoolGeometry = PoolGeometry { layers: 8, experts: 64, choices: 6 };

    fn slots(text: &str, pool: PoolGeometry) -> u32 {
        text.parse::<PoolSize>().and_then(|size| size.resolve(pool)).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn words_and_percentages_give_the_published_pools() {
        assert_eq!(slots("smallest", RELEASED), 30);
        assert_eq!(slots("floor", RELEASED), 640);
        assert_eq!(slots("25%", RELEASED), 6_144);
        assert_eq!(slots("all", RELEASED), 24_576);
        assert_eq!(slots("smallest", NANO), 18);
        assert_eq!(slots("floor", NANO), 128);
        assert_eq!(slots("50%", NANO), 256);
        assert_eq!(slots("100%", NANO), slots("all", NANO));
    }

    #[test]
    fn no_word_and_no_percentage_goes_below_the_smallest_pool() {
        assert_eq!(slots("1%", NANO), 18);
        let tiny = PoolGeometry { layers: 1, experts: 4, choices: 3 };
        for text in ["smallest", "floor", "50%", "all"] {
            assert_eq!(slots(text, tiny), 9, "{text}");
        }
    }

    #[test]
    fn a_number_is_taken_as_it_is_between_the_smallest_pool_and_every_expert() {
        assert_eq!(slots("18", NANO), 18);
        assert_eq!(slots("300", NANO), 300);
        assert_eq!(slots("576", NANO), 576);
        // The draft layer's experts included; one more would lie idle.
        for asked in [577, u32::MAX] {
            assert!(matches!(PoolSize::Slots(asked).resolve(NANO), Err(Error::TooManySlots { all: 512, .. })));
        }
    }

    #[test]
    fn a_number_below_three_tokens_experts_is_refused_in_one_sentence() {
        let refused = PoolSize::Slots(17).resolve(NANO).map_err(|e| e.to_string());
        assert_eq!(
            refused,
            Err("`--slots 17` makes a pool of 17 slots, but this model needs at least 18 (3 times its 6 experts a token); \
                 try `--slots smallest`"
                .to_owned())
        );
    }

    #[test]
    fn experts_a_layer_are_counted_for_every_layer() {
        let per_layer = |text: &str, pool| PoolSize::per_layer(text)?.resolve(pool);
        assert_eq!(per_layer("64", RELEASED).ok(), Some(3_072));
        assert_eq!(per_layer("all", NANO).ok(), Some(512));
        assert!(matches!(per_layer("65", NANO), Err(Error::TooManyPerLayer { asked: 65, experts: 64 })));
        assert!(matches!(per_layer("2", NANO), Err(Error::TooFewSlots { slots: 16, least: 18, .. })));
        assert!(matches!(per_layer("0", NANO), Err(Error::NotASize { flag: "--experts-per-layer", .. })));
        assert!(matches!(per_layer("half", NANO), Err(Error::NotASize { .. })));
    }

    #[test]
    fn anything_else_is_refused_with_what_is_expected() {
        for text in ["", "0%", "101%", "25.5%", "-1", "most", "%", "4294967296", "smallest "] {
            let refused = text.parse::<PoolSize>();
            assert!(matches!(refused, Err(Error::NotASize { flag: "--slots", .. })), "{text:?} gave {refused:?}");
        }
    }

    #[test]
    fn a_size_prints_as_it_is_typed() {
        for text in ["smallest", "floor", "25%", "all", "77"] {
            assert_eq!(text.parse::<PoolSize>().map(|size| size.to_string()).ok().as_deref(), Some(text));
        }
    }
}
