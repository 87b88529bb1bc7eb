//! Owns: what bodies of several APIs share once their table has checked them: numbers, texts, sampler settings.
//! Invariants: these are used on checked fields only; a value that is not there is none.

use serde_json::{Map, Value};

use crate::SamplingRequest;
use crate::refusal::Refusal;
use crate::shape::{ANY_REAL, ANY_WHOLE, Field, Kind, real, whole};

/// The checked fields of an object.
pub type Object = Map<String, Value>;

/// `temperature`.
pub const TEMPERATURE: Field = Field::new("temperature", ANY_REAL, "Below or at zero the likeliest token is taken.");
/// `top_p`.
pub const TOP_P: Field =
    Field::new("top_p", ANY_REAL, "Only the likeliest tokens of this mass; outside 0 to 1 is off.");
/// `top_k`.
pub const TOP_K: Field = Field::new("top_k", ANY_WHOLE, "Only so many of the likeliest tokens; 0 and below is off.");
/// `min_p`.
pub const MIN_P: Field = Field::new("min_p", ANY_REAL, "Only tokens at least this likely relative to the likeliest.");
/// `presence_penalty`.
pub const PRESENCE: Field = Field::new("presence_penalty", PENALTY, "Taken once from tokens that the reply holds.");
/// `frequency_penalty`.
pub const FREQUENCY: Field =
    Field::new("frequency_penalty", PENALTY, "Taken for each time that the reply holds a token.");
/// `seed`.
pub const SEED: Field = Field::new("seed", ANY_WHOLE, "The same seed gives the same reply; negative is a fresh one.");
/// Presence and frequency are penalised in this range.
const PENALTY: Kind = Kind::Real(-2.0, 2.0);

/// A text.
pub fn text<'f>(fields: &'f Object, name: &str) -> Option<&'f str> {
    fields.get(name).and_then(Value::as_str)
}

/// A flag; not set is false.
pub fn flag(fields: &Object, name: &str) -> bool {
    fields.get(name).and_then(Value::as_bool).unwrap_or(false)
}

/// A whole number.
pub fn number(fields: &Object, name: &str) -> Option<i128> {
    fields.get(name).and_then(whole)
}

/// A number.
pub fn float(fields: &Object, name: &str) -> Option<f32> {
    fields.get(name).and_then(real).map(|number| number as f32)
}

/// A number of tokens, as large as a `u32` at most.
pub fn tokens(fields: &Object, name: &str) -> Option<u32> {
    number(fields, name).map(|number| u32::try_from(number).unwrap_or(u32::MAX))
}

/// A text or a list of texts.
pub fn texts(fields: &Object, name: &str) -> Vec<String> {
    match fields.get(name) {
        Some(Value::String(text)) => vec![text.clone()],
        Some(Value::Array(items)) => items.iter().filter_map(|item| item.as_str().map(str::to_owned)).collect(),
        _ => Vec::new(),
    }
}

/// A list.
pub fn list<'f>(fields: &'f Object, name: &str) -> &'f [Value] {
    fields.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// A seed: negative is a fresh one.
pub fn seed(fields: &Object) -> Option<u64> {
    number(fields, "seed").and_then(|seed| u64::try_from(seed).ok())
}

/// The sampler settings that go by the same name in every API; `repetition` is this API's name of that penalty.
pub fn sampling(fields: &Object, repetition: &str) -> SamplingRequest {
    SamplingRequest {
        temperature: float(fields, "temperature"),
        // Below zero is off; so is more than there are tokens.
        top_k: number(fields, "top_k").map(|k| u32::try_from(k.max(0)).unwrap_or(0)),
        top_p: float(fields, "top_p"),
        min_p: float(fields, "min_p"),
        presence_penalty: float(fields, "presence_penalty"),
        frequency_penalty: float(fields, "frequency_penalty"),
        repetition_penalty: float(fields, repetition),
        logit_bias: Vec::new(),
        seed: seed(fields),
    }
}

/// A call's arguments, written as JSON text: an object; nothing is an empty one.
///
/// # Errors
/// When it is something else.
pub fn arguments(text: &str, path: &str) -> Result<Map<String, Value>, Refusal> {
    if text.trim().is_empty() {
        return Ok(Map::new());
    }
    match serde_json::from_str(text) {
        Ok(Value::Object(object)) => Ok(object),
        _ => Err(Refusal::field(
            path,
            format!("`{path}` must be a JSON object written as text, as in \"{{\\\"city\\\": \\\"Paris\\\"}}\""),
        )),
    }
}

/// The refusal of a picture: this server has no vision tower.
pub fn no_pictures(path: &str) -> Refusal {
    Refusal::field(path, format!("`{path}` is a picture: this server's model reads text only"))
}

/// A smaller window that a request asks for.
///
/// # Errors
/// When it is more than the model has.
pub fn window(options: &Object, path: &str, most: u32) -> Result<Option<u32>, Refusal> {
    let Some(asked) = number(options, "num_ctx") else { return Ok(None) };
    match u32::try_from(asked) {
        Ok(asked) if asked <= most => Ok(Some(asked)),
        _ => Err(Refusal::field(path, format!("`{path}` is {asked}: this server's window is {most} tokens"))),
    }
}
