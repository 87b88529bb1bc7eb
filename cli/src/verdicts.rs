//! Owns: what self-tests said of adapters, kept between runs in `state/selftest.json` (engine.md section 9).
//! Refuses: results of another driver or another version of this program.
//! Invariants: a damaged file says nothing of any adapter, a damaged entry nothing of its own; a quick test that passes
//! never takes the place of a whole one.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use ss_backend::DeviceFacts;

use crate::{keep, places};

/// Most results kept; the oldest go.
const MOST: usize = 64;

/// What was tested: another driver or version is another thing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tested {
    /// Name of the adapter.
    pub adapter: String,
    /// Its driver and version.
    pub driver: String,
    /// This program's version and commit.
    pub version: String,
    /// Whether prompts were read with matrix units.
    pub matrix_units: bool,
    /// Whether kernels in the device's own language ran.
    #[serde(default)]
    pub own_kernels: bool,
}

/// How an adapter computes, where there is more than one way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Way {
    /// With its matrix units.
    pub matrix_units: bool,
    /// With kernels in its own language.
    pub own_kernels: bool,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// What was tested.
    #[serde(flatten)]
    pub tested: Tested,
    /// Whether it was the whole test.
    pub whole: bool,
    /// The first failure, with its operation; none when it passed.
    pub failure: Option<String>,
}

/// The file.
pub struct Verdicts {
    path: Option<PathBuf>,
    list: Vec<Verdict>,
}

impl Tested {
    /// This adapter under this program, computing in one way.
    pub fn of(facts: &DeviceFacts, way: Way) -> Self {
        let Way { matrix_units, own_kernels } = way;
        let (adapter, driver) = (facts.device.clone(), facts.driver.clone());
        Tested { adapter, driver, version: crate::VERSION.to_string(), matrix_units, own_kernels }
    }
}

impl Verdicts {
    /// Those kept so far.
    pub fn open() -> Self {
        Self::at(places::home().map(|home| home.join("state/selftest.json")))
    }

    fn at(path: Option<PathBuf>) -> Self {
        let bytes = path.as_deref().and_then(keep::read).unwrap_or_default();
        let entries: Vec<serde_json::Value> = serde_json::from_slice(&bytes).unwrap_or_default();
        Verdicts { list: entries.into_iter().filter_map(|entry| serde_json::from_value(entry).ok()).collect(), path }
    }

    /// None, and none to be kept.
    #[cfg(test)]
    pub fn forgetful() -> Self {
        Self::at(None)
    }

    /// The verdict of this very adapter, driver and version.
    pub fn of(&self, tested: &Tested) -> Option<&Verdict> {
        self.list.iter().find(|verdict| verdict.tested == *tested)
    }

    /// Keeps a verdict in place of an earlier one, unless that one says more.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn keep(&mut self, verdict: Verdict) -> std::io::Result<()> {
        let says_less = !verdict.whole && verdict.failure.is_none();
        if says_less && self.of(&verdict.tested).is_some_and(|earlier| earlier.whole) {
            return Ok(());
        }
        self.list.retain(|other| other.tested != verdict.tested);
        self.list.push(verdict);
        self.list.drain(..self.list.len().saturating_sub(MOST));
        let Some(path) = &self.path else { return Ok(()) };
        keep::write(path, serde_json::to_string_pretty(&self.list)?.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(driver: &str, failure: Option<&str>) -> Verdict {
        let tested = Tested {
            adapter: "Card".into(),
            driver: driver.into(),
            version: "1".into(),
            matrix_units: false,
            own_kernels: false,
        };
        Verdict { tested, whole: false, failure: failure.map(str::to_string) }
    }

    #[test]
    fn a_verdict_holds_for_its_driver_and_version_alone_and_the_last_one_counts() {
        let place = tempfile::tempdir().unwrap();
        let path = Some(place.path().join("state/selftest.json"));
        let mut verdicts = Verdicts::at(path.clone());
        verdicts.keep(verdict("1.0", Some("Route: wrong"))).unwrap();
        verdicts.keep(verdict("1.0", None)).unwrap();
        let kept = Verdicts::at(path);
        assert_eq!(kept.of(&verdict("1.0", None).tested), Some(&verdict("1.0", None)));
        assert_eq!(kept.of(&verdict("2.0", None).tested), None);
        assert_eq!(kept.of(&Tested { version: "2".into(), ..verdict("1.0", None).tested }), None);
    }

    #[test]
    fn a_quick_pass_does_not_undo_a_whole_test() {
        let mut verdicts = Verdicts::at(None);
        for failure in [None, Some("Route: wrong")] {
            let whole = Verdict { whole: true, ..verdict("1.0", failure) };
            verdicts.keep(whole.clone()).unwrap();
            verdicts.keep(verdict("1.0", None)).unwrap();
            assert_eq!(verdicts.of(&whole.tested), Some(&whole));
        }
        verdicts.keep(verdict("1.0", Some("Head: wrong"))).unwrap();
        assert_eq!(verdicts.list, [verdict("1.0", Some("Head: wrong"))]);
    }

    #[test]
    fn a_damaged_entry_leaves_the_others() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("selftest.json");
        let kept = serde_json::json!([{"adapter": "Card", "whole": "?"}, verdict("1.0", Some("Route: wrong"))]);
        std::fs::write(&path, kept.to_string()).unwrap();
        assert_eq!(Verdicts::at(Some(path)).list, [verdict("1.0", Some("Route: wrong"))]);
    }

    #[test]
    fn a_damaged_file_says_nothing() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("selftest.json");
        for damage in ["", "{", "null", "[1]", r#"[{"adapter":"Card"}]"#, "\u{0}"] {
            std::fs::write(&path, damage).unwrap();
            let mut verdicts = Verdicts::at(Some(path.clone()));
            assert_eq!(verdicts.of(&verdict("1.0", None).tested), None, "{damage}");
            verdicts.keep(verdict("1.0", None)).unwrap();
            assert!(Verdicts::at(Some(path.clone())).of(&verdict("1.0", None).tested).is_some());
        }
    }

    #[test]
    fn the_file_does_not_grow_for_ever() {
        let mut verdicts = Verdicts::at(None);
        (0..2 * MOST).for_each(|i| verdicts.keep(verdict(&i.to_string(), None)).unwrap());
        assert_eq!(verdicts.list.len(), MOST);
        assert!(verdicts.of(&verdict("0", None).tested).is_none());
    }
}
