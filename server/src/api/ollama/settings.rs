//! Owns: the fields that `/api/chat` and `/api/generate` share: options, thinking, format, how long the model stays.
//! Refuses: options by any other name, and values of options that would change the reply and are not supported.
//! Invariants: a number that is out of a setting's range turns it off, and the request succeeds.

use serde_json::Value;

use crate::Thinking;
use crate::api::common::{self, Object, number, sampling, text, texts};
use crate::refusal::Refusal;
use crate::request::{Format, Generation};
use crate::shape::{ANY_REAL, ANY_WHOLE, Field, Fields, Kind, TEXT_OR_TEXTS};

const OPTIONS_TABLE: Fields = Fields::strict(
    "OllamaOptions",
    &[
        common::TEMPERATURE,
        common::TOP_P,
        common::TOP_K,
        common::MIN_P,
        common::PRESENCE,
        common::FREQUENCY,
        Field::new("repeat_penalty", ANY_REAL, "Divides the logits of tokens seen before; 1, and 0 and below, is off."),
        Field::new("num_predict", ANY_WHOLE, "Most tokens of the reply; 0 and below is until its end."),
        common::SEED,
        Field::new("stop", TEXT_OR_TEXTS, "Strings that end the answer; they are left out of it."),
        Field::new("num_ctx", Kind::Whole(1, i128::MAX), "Most tokens of prompt and reply, up to the model's window."),
        Field::inert("mirostat", Kind::Only("0")),
        Field::inert("typical_p", Kind::Only("1")),
        Field::inert("tfs_z", Kind::Only("1")),
        Field::inert("num_thread", ANY_WHOLE),
        Field::inert("num_gpu", ANY_WHOLE),
        Field::inert("main_gpu", ANY_WHOLE),
        Field::inert("num_batch", ANY_WHOLE),
        Field::inert("num_keep", ANY_WHOLE),
        Field::inert("repeat_last_n", ANY_WHOLE),
        Field::inert("use_mmap", Kind::Flag),
        Field::inert("use_mlock", Kind::Flag),
        Field::inert("low_vram", Kind::Flag),
        Field::inert("numa", Kind::Flag),
        Field::inert("f16_kv", Kind::Flag),
        Field::inert("penalize_newline", Kind::Flag),
    ],
);

/// `model`.
pub const MODEL: Field = Field::new("model", Kind::Text, "The model's name; left out, it is the one that there is.");
/// `stream`.
pub const STREAM: Field =
    Field::new("stream", Kind::Flag, "Whether the reply comes in pieces, a JSON object a line; left out, it does.");
/// `options`.
pub const OPTIONS: Field = Field::new("options", Kind::Object(&OPTIONS_TABLE), "How tokens are drawn, and how many.");
/// `think`.
pub const THINK: Field = Field::new(
    "think",
    Kind::Either(&[Kind::Flag, Kind::Choice(&["low", "medium", "high", "max"])]),
    "Whether the model thinks first, and how hard.",
);
/// `format`.
pub const FORMAT: Field = Field::new(
    "format",
    Kind::Either(&[Kind::Choice(&["", "json"]), Kind::Map]),
    "What the answer must be: `json`, or a JSON Schema; it is enforced.",
);
/// `keep_alive`.
pub const KEEP_ALIVE: Field = Field::new(
    "keep_alive",
    Kind::Either(&[ANY_REAL, Kind::Text]),
    "Seconds, or a duration such as `5m`; the model stays whatever it says.",
);

/// Whether the reply is streamed.
pub fn streams(fields: &Object) -> bool {
    fields.get("stream").and_then(Value::as_bool).unwrap_or(true)
}

/// Whether the model thinks first.
///
/// # Errors
/// When the level is none; its table has checked that already.
pub fn thinking(fields: &Object) -> Result<Thinking, Refusal> {
    match fields.get("think") {
        Some(Value::Bool(true)) => Ok(Thinking::On(None)),
        Some(Value::String(level)) => {
            level.parse().map_err(|error: crate::thinking::UnknownEffort| Refusal::field("think", error.to_string()))
        }
        _ => Ok(Thinking::Off),
    }
}

/// Adds what the shared fields ask for.
///
/// # Errors
/// When the window that is asked for is larger than the model's.
pub fn apply(generation: &mut Generation, fields: &Object, window: u32) -> Result<(), Refusal> {
    generation.thinking = thinking(fields)?;
    generation.format = match fields.get("format") {
        Some(Value::String(word)) if word == "json" => Format::Json,
        Some(schema @ Value::Object(_)) => Format::Schema(schema.clone()),
        _ => Format::Text,
    };
    let Some(options) = fields.get("options").and_then(Value::as_object) else { return Ok(()) };
    generation.sampling = sampling(options, "repeat_penalty");
    generation.max_tokens =
        number(options, "num_predict").filter(|most| *most > 0).map(|most| u32::try_from(most).unwrap_or(u32::MAX));
    generation.stops = texts(options, "stop");
    generation.window = common::window(options, "options.num_ctx", window)?;
    Ok(())
}

/// Seconds that the model is to stay; none where nothing is said.
///
/// # Errors
/// When a text is no duration.
pub fn keep_alive(fields: &Object) -> Result<Option<f64>, Refusal> {
    match text(fields, "keep_alive") {
        None => Ok(common::float(fields, "keep_alive").map(f64::from)),
        Some(words) => duration(words).map(Some).ok_or_else(|| {
            let words: String = words.chars().take(40).collect();
            Refusal::field(
                "keep_alive",
                format!("`keep_alive` must be a number of seconds or a duration such as \"5m\"; found \"{words}\""),
            )
        }),
    }
}

/// Seconds of a duration as Go writes it, as in `1h15m30.5s`; a bare number counts seconds.
fn duration(words: &str) -> Option<f64> {
    let (sign, mut rest) = match words.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, words.strip_prefix('+').unwrap_or(words)),
    };
    if rest.is_empty() {
        return None;
    }
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let number: f64 = rest[..digits].parse().ok()?;
        let unit = rest[digits..].find(|c: char| c.is_ascii_digit() || c == '.').map_or(rest.len(), |at| digits + at);
        let bare = digits == words.trim_start_matches(['-', '+']).len();
        seconds += number * of_unit(&rest[digits..unit]).or(bare.then_some(1.0))?;
        rest = &rest[unit..];
    }
    Some(sign * seconds)
}

/// Seconds of a unit.
fn of_unit(unit: &str) -> Option<f64> {
    match unit {
        "ns" => Some(1e-9),
        "us" | "µs" | "μs" => Some(1e-6),
        "ms" => Some(1e-3),
        "s" => Some(1.0),
        "m" => Some(60.0),
        "h" => Some(3600.0),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Input;
    use serde_json::json;

    const TABLE: Fields = Fields::strict("Test", &[OPTIONS, THINK, FORMAT, KEEP_ALIVE, STREAM]);

    fn asked(body: Value) -> Result<Generation, Refusal> {
        let fields = TABLE.check(body)?;
        let mut generation = Generation::new(Input::Text("x".into()));
        apply(&mut generation, &fields, 4096)?;
        Ok(generation)
    }

    fn refused(options: Value) -> String {
        asked(json!({ "options": options })).unwrap_err().message
    }

    #[test]
    fn a_reply_limit_of_zero_and_below_is_none() {
        let limit = |most: Value| asked(json!({ "options": { "num_predict": most } })).unwrap().max_tokens;
        assert_eq!(limit(json!(-1)), None);
        assert_eq!(limit(json!(0)), None);
        assert_eq!(limit(json!(7.0)), Some(7));
        assert_eq!(limit(json!(u64::MAX)), Some(u32::MAX));
    }

    #[test]
    fn options_are_strict_by_name_and_value() {
        assert!(refused(json!({ "num_ctxx": 1 })).contains("`options.num_ctxx`"));
        for (name, value) in [("mirostat", json!(1)), ("typical_p", json!(0.5)), ("tfs_z", json!(2))] {
            assert!(refused(json!({ name: value })).contains(&format!("`options.{name}`")));
        }
        for (name, value) in [("num_thread", json!("4")), ("use_mmap", json!(1)), ("num_gpu", json!(1.5))] {
            assert!(refused(json!({ name: value })).contains(&format!("`options.{name}`")));
        }
        assert!(refused(json!({ "presence_penalty": 2.5 })).contains("from -2 to 2"));
        assert!(refused(json!({ "num_ctx": 4097 })).contains("4096"));
        assert!(refused(json!({ "num_ctx": 0 })).contains("`options.num_ctx`"));
    }

    #[test]
    fn knobs_that_change_nothing_are_taken() {
        let knobs = json!({
            "mirostat": 0, "typical_p": 1, "tfs_z": 1.0, "num_thread": 4, "num_gpu": -1, "main_gpu": 0, "num_batch": 512,
            "num_keep": 4, "repeat_last_n": -1, "use_mmap": true, "use_mlock": false, "low_vram": false, "numa": false,
            "f16_kv": true, "penalize_newline": false, "seed": null,
        });
        assert_eq!(asked(json!({ "options": knobs })).unwrap(), asked(json!({})).unwrap());
    }

    #[test]
    fn thinking_is_a_flag_or_a_level() {
        let thinking = |think: Value| asked(json!({ "think": think })).map(|generation| generation.thinking);
        assert_eq!(thinking(json!(false)), Ok(Thinking::Off));
        assert_eq!(thinking(json!(null)), Ok(Thinking::Off));
        assert_eq!(thinking(json!(true)), Ok(Thinking::On(None)));
        assert_eq!(thinking(json!("max")), "xhigh".parse().map_err(|_| Refusal::inference("")));
        assert!(thinking(json!("banana")).unwrap_err().message.contains("`think`"));
        assert!(thinking(json!(1)).is_err());
    }

    #[test]
    fn a_format_is_json_or_a_schema() {
        let format = |format: Value| asked(json!({ "format": format })).map(|generation| generation.format);
        assert_eq!(format(json!(null)), Ok(Format::Text));
        assert_eq!(format(json!("")), Ok(Format::Text));
        assert_eq!(format(json!("json")), Ok(Format::Json));
        let schema = json!({ "type": "object", "properties": { "a": { "default": null } } });
        assert_eq!(format(schema.clone()), Ok(Format::Schema(schema)));
        assert!(format(json!("xml")).is_err());
        assert!(format(json!(5)).is_err());
    }

    #[test]
    fn the_model_is_kept_for_a_number_or_a_duration() {
        let kept = |value: Value| keep_alive(&TABLE.check(json!({ "keep_alive": value })).unwrap());
        for (said, seconds) in
            [("5m", 300.0), ("1h15m30s", 4530.0), ("-1", -1.0), ("0", 0.0), ("0s", 0.0), ("1.5s", 1.5)]
        {
            assert_eq!(kept(json!(said)), Ok(Some(seconds)), "{said}");
        }
        assert_eq!(kept(json!(-1)), Ok(Some(-1.0)));
        assert_eq!(kept(json!(null)), Ok(None));
        for wrong in ["", "-", "banana", "5x", "m", "1h2", "1.2.3s", "5 m"] {
            assert!(kept(json!(wrong)).unwrap_err().message.contains("`keep_alive`"), "{wrong}");
        }
        assert!(TABLE.check(json!({ "keep_alive": true })).is_err());
    }
}
