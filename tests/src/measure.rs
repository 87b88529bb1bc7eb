//! Owns: how far two tensors are apart, how far they may be, and the table that is printed.
//! Invariants: a bound is four times the references' own disagreement, never below 2e-6 (engine.md 3.4).

use std::collections::BTreeMap;

use serde_json::Value;

/// Largest and root-mean-square difference, relative to the largest and root-mean-square value.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Distance {
    /// `max |a - b| / max |b|`.
    pub max: f64,
    /// `rms(a - b) / rms(b)`.
    pub rms: f64,
}

impl Distance {
    /// Distance of `ours` to `theirs`; infinite when a number is not finite, the lengths differ, or there is nothing.
    pub fn of(ours: &[f32], theirs: &[f64]) -> Self {
        let broken = Distance { max: f64::INFINITY, rms: f64::INFINITY };
        if ours.is_empty()
            || ours.len() != theirs.len()
            || ours.iter().any(|v| !v.is_finite())
            || theirs.iter().any(|v| !v.is_finite())
        {
            return broken;
        }
        let (mut worst, mut largest, mut off, mut all) = (0f64, 0f64, 0f64, 0f64);
        for (&a, &b) in ours.iter().zip(theirs) {
            let d = f64::from(a) - b;
            worst = worst.max(d.abs());
            largest = largest.max(b.abs());
            off += d * d;
            all += b * b;
        }
        if worst == 0.0 {
            return Distance::default();
        }
        if largest == 0.0 { broken } else { Distance { max: worst / largest, rms: (off / all).sqrt() } }
    }

    fn worse(self, other: Self) -> Self {
        Distance { max: self.max.max(other.max), rms: self.rms.max(other.rms) }
    }
}

/// How far a component may be off.
#[derive(Clone, Copy, Debug)]
pub struct Bound {
    /// What the references differ by.
    pub references: Distance,
}

impl Bound {
    /// Allowed multiple of the references' disagreement.
    const FACTOR: f64 = 4.0;
    /// Disagreements below this are not told apart from rounding.
    const FLOOR: f64 = 2e-6;

    /// The bound of a component: the references' disagreement with each other, else the larger of theirs with the golden.
    pub fn of(agreement: &Value, component: &str) -> Self {
        let entry = &agreement[component];
        let pair = |column: &str| -> Option<Distance> {
            let numbers = entry[column].as_array()?;
            Some(Distance { max: numbers.first()?.as_f64()?, rms: numbers.get(1)?.as_f64()? })
        };
        let single = [pair("HF-REF"), pair("MV-REF")].into_iter().flatten().reduce(Distance::worse);
        let references =
            pair("HF-MV").or(single).unwrap_or_else(|| panic!("agreement.json has no component `{component}`"));
        Bound { references }
    }

    fn limit(self) -> Distance {
        let limit = |d: f64| (Self::FACTOR * d).max(Self::FLOOR);
        Distance { max: limit(self.references.max), rms: limit(self.references.rms) }
    }

    /// Whether a distance is inside.
    pub fn holds(self, distance: Distance) -> bool {
        let limit = self.limit();
        distance.max <= limit.max && distance.rms <= limit.rms
    }
}

/// Worst distances by component, to be printed and judged.
#[derive(Default)]
pub struct Table {
    rows: BTreeMap<String, (Distance, Bound, usize)>,
}

impl Table {
    /// Adds a measurement.
    pub fn add(&mut self, component: &str, bound: Bound, ours: &[f32], theirs: &[f64]) {
        let distance = Distance::of(ours, theirs);
        let row = self.rows.entry(component.to_string()).or_insert((Distance::default(), bound, 0));
        row.0 = row.0.worse(distance);
        row.2 += 1;
    }

    /// Prints the table and fails unless every component is inside its bound.
    ///
    /// # Panics
    /// When one is not, or when nothing was measured.
    pub fn judge(&self, title: &str) {
        println!(
            "\n{title}\n| component | tensors | ours, max / rms | references, max / rms | of bound |\n|---|---|---|---|---|"
        );
        for (name, (d, bound, count)) in &self.rows {
            let (r, limit) = (bound.references, bound.limit());
            let share = (d.max / limit.max).max(d.rms / limit.rms);
            println!(
                "| `{name}` | {count} | {:.1e} / {:.1e} | {:.1e} / {:.1e} | {:.0} % |",
                d.max,
                d.rms,
                r.max,
                r.rms,
                100.0 * share
            );
        }
        assert!(!self.rows.is_empty(), "{title}: nothing was measured");
        let outside: Vec<&String> =
            self.rows.iter().filter(|(_, (d, bound, _))| !bound.holds(*d)).map(|(name, _)| name).collect();
        assert!(outside.is_empty(), "{title}: outside four times the references' disagreement: {outside:?}");
    }
}
