//! Owns: the labels by which clients ask for thinking, and what the chat template is told (chat-template.md section 4).
//! Invariants: no label that the template does not know is ever passed on.

use std::str::FromStr;

use serde_json::{Map, Value, json};

/// How hard to think.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// Brief.
    Low,
    /// The model's own measure.
    Medium,
    /// Careful.
    Xhigh,
}

impl Effort {
    const fn label(self) -> &'static str {
        match self {
            Effort::Low => "low",
            Effort::Medium => "medium",
            Effort::Xhigh => "xhigh",
        }
    }
}

/// Whether the model thinks before it answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Thinking {
    /// It answers at once.
    #[default]
    Off,
    /// It thinks; without an effort, as hard as the template thinks best.
    On(Option<Effort>),
}

/// A label that means nothing here.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no thinking effort: use off, low, medium or xhigh (high and max mean xhigh)")]
pub struct UnknownEffort(String);

impl FromStr for Thinking {
    type Err = UnknownEffort;

    fn from_str(label: &str) -> Result<Self, UnknownEffort> {
        match label {
            "none" | "minimal" | "off" | "false" => Ok(Thinking::Off),
            "on" | "true" => Ok(Thinking::On(None)),
            "low" => Ok(Thinking::On(Some(Effort::Low))),
            "medium" => Ok(Thinking::On(Some(Effort::Medium))),
            "high" | "xhigh" | "max" => Ok(Thinking::On(Some(Effort::Xhigh))),
            other => Err(UnknownEffort(other.to_string())),
        }
    }
}

impl Thinking {
    /// Whether it is on.
    pub const fn is_on(self) -> bool {
        matches!(self, Thinking::On(_))
    }

    /// The template's variables: `enable_thinking`, `reasoning_effort`, `add_generation_prompt`.
    pub fn template_options(self) -> Map<String, Value> {
        let mut options = Map::new();
        options.insert("add_generation_prompt".into(), json!(true));
        match self {
            Thinking::Off => _ = options.insert("enable_thinking".into(), json!(false)),
            Thinking::On(effort) => {
                options.insert("enable_thinking".into(), json!(true));
                if let Some(effort) = effort {
                    options.insert("reasoning_effort".into(), json!(effort.label()));
                }
            }
        }
        options
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_label_of_the_table_maps_as_the_table_says() {
        for off in ["none", "minimal", "off"] {
            assert_eq!(off.parse(), Ok(Thinking::Off));
        }
        assert_eq!("low".parse(), Ok(Thinking::On(Some(Effort::Low))));
        assert_eq!("medium".parse(), Ok(Thinking::On(Some(Effort::Medium))));
        for hard in ["high", "xhigh", "max"] {
            assert_eq!(hard.parse(), Ok(Thinking::On(Some(Effort::Xhigh))));
        }
        assert!("banana".parse::<Thinking>().is_err());
    }

    #[test]
    fn thinking_without_a_level_leaves_the_effort_undefined() {
        assert_eq!(Thinking::On(None).template_options().get("reasoning_effort"), None);
        assert_eq!(Thinking::Off.template_options()["enable_thinking"], json!(false));
    }
}
