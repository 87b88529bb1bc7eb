//! Owns: which values the settings take, at the command line and in the chat alike (server.md section 6).
//! Refuses: what is no number, not finite or out of range, by saying what was expected.

use std::ops::RangeInclusive;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use ss_backend::Arithmetic;
use ss_checkpoint::IoMode;
use ss_server::Thinking;
use ss_stream::DiskPace;
use ss_synth::{NgramRows, Source};

/// How far presence and frequency penalties go.
const PENALTY: RangeInclusive<f32> = -2.0..=2.0;
/// How far the repetition penalty goes.
const REPETITION: RangeInclusive<f32> = 0.5..=2.0;
/// How far the bias of a token goes.
const BIAS: RangeInclusive<f32> = -100.0..=100.0;

/// How far above the last choice a forecast may be asked to be.
const MARGIN: RangeInclusive<f32> = -100.0..=100.0;

/// Shortest time that is one: a nanosecond.
const LEAST_US: f64 = 1e-3;
/// Longest time of a layer or a read: a second.
const MOST_US: f64 = 1e6;

/// A margin of forecasts.
///
/// # Errors
/// What was expected.
pub fn margin(text: &str) -> Result<f32, String> {
    number(text, MARGIN, "a number from -100 to 100")
}

/// An arithmetic profile.
pub fn profile() -> impl TypedValueParser<Value = Arithmetic> {
    PossibleValuesParser::new(["exact", "fast"]).try_map(|name| name.parse::<Arithmetic>())
}

/// How expert files are read.
pub fn io() -> impl TypedValueParser<Value = IoMode> {
    PossibleValuesParser::new(["auto", "cached", "direct"]).try_map(|name| name.parse::<IoMode>())
}

/// Whose geometry a made-up checkpoint has.
///
/// # Errors
/// What was expected.
pub fn geometry(text: &str) -> Result<Source, String> {
    match text {
        "" => Err("expected released, nano-like or a config.json".into()),
        "released" => Ok(Source::Released),
        "nano-like" => Ok(Source::NanoLike),
        path => Ok(Source::File(path.into())),
    }
}

/// How n-gram rows are written.
pub fn ngrams() -> impl TypedValueParser<Value = NgramRows> {
    PossibleValuesParser::new(["sparse", "full"])
        .map(|name| if name == "full" { NgramRows::Full } else { NgramRows::Sparse })
}

/// How hard to think.
pub fn effort() -> impl TypedValueParser<Value = Thinking> {
    let values = [
        PossibleValue::new("off").aliases(["none", "minimal", "false"]),
        PossibleValue::new("low"),
        PossibleValue::new("medium"),
        PossibleValue::new("xhigh").aliases(["high", "max"]),
        PossibleValue::new("on").alias("true").hide(true),
    ];
    PossibleValuesParser::new(values).try_map(|name| name.parse::<Thinking>())
}

fn number(text: &str, range: RangeInclusive<f32>, expected: &str) -> Result<f32, String> {
    match text.trim().parse() {
        Ok(value) if range.contains(&value) => Ok(value),
        _ => Err(format!("expected {expected}")),
    }
}

/// How fast a disk is.
///
/// # Errors
/// What was expected.
pub fn gbps(text: &str) -> Result<f64, String> {
    let value = text.trim().parse::<f64>().ok().filter(|&value| DiskPace::new(Some(value), 0.0).is_ok());
    value.ok_or_else(|| "expected a number from 0.001 to 1000".into())
}

/// How long something takes that takes a while.
///
/// # Errors
/// What was expected.
pub fn microseconds(text: &str) -> Result<f64, String> {
    latency(text)
        .ok()
        .filter(|value| *value >= LEAST_US)
        .ok_or_else(|| "expected a number from 0.001 to 1000000".into())
}

/// How long something takes, or nothing.
///
/// # Errors
/// What was expected.
pub fn latency(text: &str) -> Result<f64, String> {
    let value = text.trim().parse::<f64>().ok().filter(|value| (0.0..=MOST_US).contains(value));
    value.ok_or_else(|| "expected a number from 0 to 1000000".into())
}

/// A temperature.
///
/// # Errors
/// What was expected.
pub fn temperature(text: &str) -> Result<f32, String> {
    number(text, 0.0..=f32::MAX, "a number from 0, which is greedy")
}

/// A share of the whole that is not nothing.
///
/// # Errors
/// What was expected.
pub fn top_p(text: &str) -> Result<f32, String> {
    number(text, f32::MIN_POSITIVE..=1.0, "a number above 0, up to 1")
}

/// A share of the whole.
///
/// # Errors
/// What was expected.
pub fn min_p(text: &str) -> Result<f32, String> {
    number(text, 0.0..=1.0, "a number from 0 to 1")
}

/// A presence or frequency penalty.
///
/// # Errors
/// What was expected.
pub fn penalty(text: &str) -> Result<f32, String> {
    number(text, PENALTY, "a number from -2 to 2")
}

/// A repetition penalty.
///
/// # Errors
/// What was expected.
pub fn repetition(text: &str) -> Result<f32, String> {
    number(text, REPETITION, "a number from 0.5 to 2, where 1 is off")
}

/// A whole number that is not negative.
///
/// # Errors
/// What was expected.
pub fn whole(text: &str) -> Result<u64, String> {
    text.trim().parse().map_err(|_| format!("expected a whole number from 0 to {}", u64::MAX))
}

/// A number of tokens to choose from.
///
/// # Errors
/// What was expected.
pub fn top_k(text: &str) -> Result<u32, String> {
    text.trim().parse().map_err(|_| "expected a whole number from 0, which is off".to_string())
}

/// A limit of tokens.
///
/// # Errors
/// What was expected.
pub fn max_tokens(text: &str) -> Result<u32, String> {
    match text.trim().parse() {
        Ok(limit) if limit > 0 => Ok(limit),
        _ => Err(format!("expected a whole number from 1 to {}; leave it out for no limit", u32::MAX)),
    }
}

/// A token id and what is added to its logit.
///
/// # Errors
/// What was expected.
pub fn logit_bias(text: &str) -> Result<(u32, f32), String> {
    let expected = "expected ID=BIAS with a token id and a number from -100 to 100, such as 42=-5";
    let (id, bias) = text.split_once('=').ok_or(expected)?;
    Ok((id.trim().parse().map_err(|_| expected)?, number(bias, BIAS, "").map_err(|_| expected)?))
}

/// The origin of a page, as browsers write it.
pub fn origin(text: &str) -> Result<String, String> {
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    match rest {
        Some(host) if !host.is_empty() && !host.contains(['/', ' ', '*']) => Ok(text.to_ascii_lowercase()),
        _ => {
            Err("an origin is http:// or https://, a host, and a port if it has one, as in https://chat.example".into())
        }
    }
}

/// A key that clients can send in a header.
pub fn key(text: &str) -> Result<String, String> {
    let key = text.trim();
    match key.is_empty() || key.chars().any(char::is_control) {
        true => Err("a key is a line of text that is not empty".into()),
        false => Ok(key.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_a_finite_number_is_none() {
        for parse in [temperature, top_p, min_p, penalty, repetition] {
            for wrong in ["nan", "-nan", "inf", "-inf", "infinity", "1e39", "1e300", "", " ", "hot", "1,5"] {
                assert!(parse(wrong).is_err(), "{wrong}");
            }
            assert_eq!(parse(" 0.5 "), Ok(0.5));
        }
    }

    #[test]
    fn every_range_takes_its_ends_and_nothing_beyond() {
        assert!(temperature("0").is_ok() && temperature("3e38").is_ok() && temperature("-0.1").is_err());
        assert!(top_p("1").is_ok() && top_p("0").is_err() && top_p("1.1").is_err());
        assert!(min_p("0").is_ok() && min_p("1").is_ok() && min_p("-0.1").is_err() && min_p("1.1").is_err());
        assert!(penalty("-2").is_ok() && penalty("2").is_ok() && penalty("2.1").is_err());
        assert!(repetition("0.5").is_ok() && repetition("2").is_ok() && repetition("0").is_err());
        assert!(max_tokens("1").is_ok() && max_tokens("0").is_err() && max_tokens("4294967296").is_err());
        assert!(top_k("0").is_ok() && top_k("-1").is_err());
        assert_eq!(whole("18446744073709551615"), Ok(u64::MAX));
        assert!(whole("-1").is_err() && whole("1.5").is_err());
    }

    #[test]
    fn times_are_a_second_at_most_and_only_latencies_may_be_none() {
        assert_eq!((microseconds("1e6"), latency("0"), microseconds("0.001")), (Ok(1e6), Ok(0.0), Ok(1e-3)));
        for wrong in ["-1", "nan", "inf", "1000001", "", "fast"] {
            assert!(microseconds(wrong).is_err() && latency(wrong).is_err(), "{wrong}");
        }
        assert!(microseconds("0").is_err());
    }

    #[test]
    fn a_bias_is_an_id_and_a_number_in_range() {
        assert_eq!(logit_bias("42=-5"), Ok((42, -5.0)));
        for wrong in ["42", "x=1", "42=inf", "-1=2", "42=NaN", "=", "42=101", "4294967296=1"] {
            assert!(logit_bias(wrong).is_err(), "{wrong}");
        }
    }
}
