//! Owns: which sampler settings a request gets: its own, else the model's `generation_config.json`, else the table of
//! server.md section 5.
//! Invariants: the seed is drawn here or named by the request, never inside the sampler.

use std::hash::{BuildHasher, Hasher, RandomState};

use serde_json::Value;
use ss_generate::SamplerSettings;

/// What a request says of sampling; `None` where it says nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SamplingRequest {
    /// 0 is greedy.
    pub temperature: Option<f32>,
    /// 0 is off.
    pub top_k: Option<u32>,
    /// In (0, 1].
    pub top_p: Option<f32>,
    /// In [0, 1], relative to the likeliest token.
    pub min_p: Option<f32>,
    /// Subtracted once from tokens already in the reply.
    pub presence_penalty: Option<f32>,
    /// Subtracted for each time a token is in the reply.
    pub frequency_penalty: Option<f32>,
    /// Divides or multiplies the logits of tokens seen in prompt or reply; 1 is off.
    pub repetition_penalty: Option<f32>,
    /// Added to the logits of these ids.
    pub logit_bias: Vec<(u32, f32)>,
    /// None: a fresh one.
    pub seed: Option<u64>,
}

/// Which column of the table a request falls in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// Plain chat.
    Chat,
    /// Tools were offered.
    Tools,
    /// Thinking, without tools.
    Thinking,
}

impl Column {
    /// The column of a request.
    pub const fn of(thinking: bool, tools: bool) -> Self {
        match (tools, thinking) {
            (true, _) => Column::Tools,
            (false, true) => Column::Thinking,
            (false, false) => Column::Chat,
        }
    }

    /// Temperature, top-p and presence penalty; top-k is 20 and min-p 0 in every column.
    const fn defaults(self) -> (f32, f32, f32) {
        match self {
            Column::Chat => (0.7, 0.8, 1.5),
            Column::Tools => (0.2, 0.9, 0.0),
            Column::Thinking => (1.0, 0.95, 1.5),
        }
    }
}

const DEFAULT_TOP_K: u32 = 20;

impl SamplingRequest {
    /// The settings of this request. `config` is the model's `generation_config.json`; `released` says whether the model
    /// is the one that the table was made for.
    pub fn resolve(&self, config: Option<&Value>, column: Column, released: bool) -> SamplerSettings {
        let of_model = |name: &str| config.and_then(|c| c.get(name)).and_then(Value::as_f64);
        let (temperature, top_p, presence) = column.defaults();
        let greedy = config.and_then(|c| c.get("do_sample")).and_then(Value::as_bool) == Some(false);
        let temperature = if greedy { 0.0 } else { of_model("temperature").map_or(temperature, |t| t as f32) };
        let presence = of_model("presence_penalty").map_or(if released { presence } else { 0.0 }, |p| p as f32);
        let number = |asked: Option<f32>, name: &str, default: f32| {
            asked.unwrap_or_else(|| of_model(name).map_or(default, |v| v as f32))
        };
        SamplerSettings {
            temperature: self.temperature.unwrap_or(temperature),
            top_k: self.top_k.unwrap_or_else(|| of_model("top_k").map_or(DEFAULT_TOP_K, |k| k as u32)),
            top_p: number(self.top_p, "top_p", top_p),
            min_p: number(self.min_p, "min_p", 0.0),
            presence_penalty: self.presence_penalty.unwrap_or(presence),
            frequency_penalty: number(self.frequency_penalty, "frequency_penalty", 0.0),
            repetition_penalty: number(self.repetition_penalty, "repetition_penalty", 1.0),
            logit_bias: self.logit_bias.clone(),
            seed: self.seed.unwrap_or_else(fresh_seed),
        }
        .sanitized()
    }
}

/// A seed that nobody has seen before.
pub fn fresh_seed() -> u64 {
    // The hasher of the standard library is keyed afresh from the system's randomness.
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_request_wins_over_the_model_and_the_model_over_the_table() {
        let config = json!({ "temperature": 0.5, "top_k": 7 });
        let asked = SamplingRequest { temperature: Some(0.1), ..Default::default() };
        let settings = asked.resolve(Some(&config), Column::Chat, true);
        assert_eq!((settings.temperature, settings.top_k, settings.top_p), (0.1, 7, 0.8));
    }

    #[test]
    fn another_model_than_the_released_one_gets_no_presence_penalty() {
        let plain = SamplingRequest::default();
        assert_eq!(plain.resolve(None, Column::Chat, true).presence_penalty, 1.5);
        assert_eq!(plain.resolve(None, Column::Chat, false).presence_penalty, 0.0);
        assert_eq!(plain.resolve(None, Column::Tools, true).temperature, 0.2);
    }

    #[test]
    fn a_model_that_does_not_sample_is_greedy_unless_asked() {
        let config = json!({ "do_sample": false, "temperature": 0.7 });
        assert_eq!(SamplingRequest::default().resolve(Some(&config), Column::Chat, false).temperature, 0.0);
    }

    #[test]
    fn fresh_seeds_differ() {
        assert_ne!(fresh_seed(), fresh_seed());
    }
}
