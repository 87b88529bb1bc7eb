//! Owns: the hot set on the disk: which experts a model used most, in `$SS_HOME/state` (engine.md 5.9).
//! Refuses: to fail a run; a file that is damaged, or another model's, counts as absent.
//! Invariants: one file a model; experts by layer, the most used first.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use ss_model::Model;
use ss_stream::{ExpertId, HotExpert};

use crate::{keep, places, terminal};

const VERSION: u32 = 1;

/// The file of a model.
pub struct HotFile {
    path: PathBuf,
    /// Its name for itself.
    model: String,
    layers: usize,
    experts: u32,
}

impl HotFile {
    /// The file of a model; none where there is no place for it.
    pub fn of(model: &Model) -> Option<Self> {
        let (home, fingerprint) = (places::home()?, model.fingerprint().ok()?);
        Some(HotFile {
            path: home.join("state/models").join(&fingerprint).join("hot.json"),
            model: fingerprint,
            layers: model.geometry().layers.len(),
            experts: model.geometry().experts,
        })
    }

    /// The experts that it names, most used first; none where it is absent or cannot be used, which is told those who look
    /// for it.
    pub fn read(&self, verbose: bool) -> Vec<HotExpert> {
        let Some(bytes) = keep::read(&self.path) else { return Vec::new() };
        self.parse(&bytes).unwrap_or_else(|error| {
            if verbose {
                terminal::aside(format_args!("note: `{}` is left aside: {error:#}", self.path.display()));
            }
            Vec::new()
        })
    }

    fn parse(&self, bytes: &[u8]) -> Result<Vec<HotExpert>> {
        let file: Value = serde_json::from_slice(bytes).context("it is not JSON")?;
        for (field, expected) in
            [("version", json!(VERSION)), ("model", json!(self.model)), ("experts", json!(self.experts))]
        {
            ensure!(file[field] == expected, "its `{field}` is {}, expected {expected}", file[field]);
        }
        let layers = file["layers"].as_array().filter(|layers| layers.len() == self.layers);
        let layers = layers.with_context(|| format!("its `layers` is no list of {}", self.layers))?;
        let mut hot = Vec::new();
        for (layer, records) in (0..).zip(layers) {
            let records: Option<Vec<_>> =
                records.as_array().map(|list| list.iter().map(pair).collect()).unwrap_or_default();
            let records = records.with_context(|| format!("its layer {layer} is no list of experts and uses"))?;
            for (expert, uses) in records {
                ensure!(expert < self.experts, "its layer {layer} names expert {expert} of {}", self.experts);
                hot.push(HotExpert { id: ExpertId { layer, expert }, uses });
            }
        }
        hot.sort_by(|a, b| b.uses.total_cmp(&a.uses).then(a.id.cmp(&b.id)));
        Ok(hot)
    }

    /// Replaces the file by what was used of late, which what it said before is part of.
    pub fn write(&self, hot: &[HotExpert]) {
        // A run that used nothing has nothing to say.
        if hot.is_empty() {
            return;
        }
        if let Err(error) = keep::write(&self.path, self.text(hot).as_bytes()) {
            terminal::note(format_args!(
                "note: the most used experts cannot be kept in `{}` ({error})",
                self.path.display()
            ));
        }
    }

    fn text(&self, hot: &[HotExpert]) -> String {
        let mut layers = vec![Vec::new(); self.layers];
        for HotExpert { id, uses } in hot {
            // The draft head's experts are few, and its layer is none of these.
            if let Some(layer) = layers.get_mut(id.layer as usize) {
                layer.push(json!([id.expert, uses]));
            }
        }
        json!({ "version": VERSION, "model": self.model, "experts": self.experts, "layers": layers }).to_string()
    }
}

/// An expert and its uses.
fn pair(value: &Value) -> Option<(u32, f32)> {
    let [expert, uses] = value.as_array()?.first_chunk::<2>()?;
    let uses = uses.as_f64().filter(|uses| *uses >= 0.0)? as f32;
    Some((u32::try_from(expert.as_u64()?).ok()?, uses))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(place: &std::path::Path) -> HotFile {
        HotFile { path: place.join("a/hot.json"), model: "0123abcd".into(), layers: 2, experts: 8 }
    }

    fn hot(layer: u32, expert: u32, uses: f32) -> HotExpert {
        HotExpert { id: ExpertId { layer, expert }, uses }
    }

    #[test]
    fn what_was_kept_comes_back_the_most_used_first() {
        let place = tempfile::tempdir().unwrap();
        let file = file(place.path());
        assert_eq!(file.read(true), []);
        file.write(&[]);
        assert!(!file.path.exists(), "nothing was used");
        file.write(&[hot(0, 3, 1.5), hot(1, 7, 9.25), hot(0, 2, 1.5), hot(2, 1, 4.0)]);
        assert_eq!(file.read(true), [hot(1, 7, 9.25), hot(0, 2, 1.5), hot(0, 3, 1.5)]);
    }

    #[test]
    fn what_is_damaged_or_another_model_s_is_left_aside() {
        let place = tempfile::tempdir().unwrap();
        let file = file(place.path());
        file.write(&[hot(0, 3, 1.5)]);
        let right = std::fs::read_to_string(&file.path).unwrap();
        let changed = |from: &str, to: &str| {
            assert!(right.contains(from), "{right}");
            right.replace(from, to)
        };
        for (text, part) in [
            (String::new(), "it is not JSON"),
            (right[..right.len() / 2].to_string(), "it is not JSON"),
            ("[]".into(), "its `version` is null, expected 1"),
            (changed("\"version\":1", "\"version\":2"), "its `version` is 2, expected 1"),
            (changed("0123abcd", "ffffffff"), "its `model` is \"ffffffff\", expected \"0123abcd\""),
            (changed("\"experts\":8", "\"experts\":9"), "its `experts` is 9, expected 8"),
            (changed("[[[3,1.5]],[]]", "[[[3,1.5]]]"), "its `layers` is no list of 2"),
            (changed("[3,1.5]", "[8,1.5]"), "its layer 0 names expert 8 of 8"),
            (changed("[3,1.5]", "[3,-1]"), "its layer 0 is no list of experts and uses"),
            (changed("[3,1.5]", "[3]"), "its layer 0 is no list of experts and uses"),
            (changed("[3,1.5]", "[4294967299,1]"), "its layer 0 is no list of experts and uses"),
            (changed("[[3,1.5]]", "7"), "its layer 0 is no list of experts and uses"),
        ] {
            std::fs::write(&file.path, &text).unwrap();
            assert_eq!(file.read(false), [], "{text}");
            let error = format!("{:#}", file.parse(text.as_bytes()).unwrap_err());
            assert!(error.starts_with(part), "{part}: {error}");
        }
    }
}
