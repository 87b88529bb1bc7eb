//! Owns: the formats of texts that are enforced, as regular expressions.
//! Refuses: every other format, by its name.
//! Invariants: what an expression matches is of the format by its standard; lengths are bounded where the standard bounds them,
//! at times more narrowly.

/// The formats.
pub(crate) const NAMES: [&str; 10] =
    ["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"];

/// The expression of a format, anchored at both ends.
pub(crate) fn pattern(name: &str) -> Option<String> {
    let text = match name {
        "date-time" => format!("{}T{}", date(), time()),
        "time" => time(),
        "date" => date(),
        "duration" => duration(),
        "email" => format!("{LOCAL}{{1,20}}(?:\\.{LOCAL}{{1,20}}){{0,2}}@{}", host()),
        "hostname" => host(),
        "ipv4" => ipv4(),
        "ipv6" => ipv6(),
        "uuid" => "[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}".to_owned(),
        "uri" => uri(),
        _ => return None,
    };
    Some(format!("^(?:{text})$"))
}

/// Characters of the part of an address before its sign.
const LOCAL: &str = "[a-zA-Z0-9!#$%&'*+/=?^_`{|}~-]";

/// A name within a host's, at most 42 characters.
const LABEL: &str = "[a-zA-Z0-9]{1,20}(?:-[a-zA-Z0-9]{1,10}){0,2}";

fn host() -> String {
    format!("{LABEL}(?:\\.{LABEL}){{0,4}}")
}

/// Leap days in leap years alone, and no year 0, which some calendars lack.
fn date() -> String {
    let year = "(?:[0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)";
    let long = "(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])";
    let short = "(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)";
    let february = "02-(?:0[1-9]|1[0-9]|2[0-8])";
    let fourth = "(?:0[48]|[2468][048]|[13579][26])";
    format!("(?:{year}-(?:{long}|{short}|{february})|(?:[0-9]{{2}}{fourth}|{fourth}00)-02-29)")
}

fn time() -> String {
    let clock = "(?:[01][0-9]|2[0-3]):[0-5][0-9]";
    format!("{clock}:[0-5][0-9](?:\\.[0-9]{{1,9}})?(?:Z|[+-]{clock})")
}

fn duration() -> String {
    let n = "[0-9]{1,9}";
    let days = format!("(?:{n}Y(?:{n}M(?:{n}D)?)?|{n}M(?:{n}D)?|{n}D)");
    let hours = format!("T(?:{n}H(?:{n}M(?:{n}S)?)?|{n}M(?:{n}S)?|{n}S)");
    format!("P(?:{n}W|{days}(?:{hours})?|{hours})")
}

fn ipv4() -> String {
    let byte = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
    format!("(?:{byte}\\.){{3}}{byte}")
}

fn ipv6() -> String {
    let h = "[0-9a-fA-F]{1,4}";
    let mut forms = vec![format!("(?:{h}:){{7}}{h}"), format!("(?:{h}:){{1,7}}:"), format!(":(?::{h}){{1,7}}")];
    forms.extend((1..=6).map(|after| format!("(?:{h}:){{1,{}}}(?::{h}){{1,{after}}}", 7 - after)));
    forms.push("::".to_owned());
    forms.join("|")
}

fn uri() -> String {
    let scheme = "[a-zA-Z][a-zA-Z0-9+.-]{0,15}";
    let path = "(?:[a-zA-Z0-9._~!$&'()*+,;=:@-]|%[0-9a-fA-F]{2})";
    let tail = "(?:[a-zA-Z0-9._~!$&'()*+,;=:@/?-]|%[0-9a-fA-F]{2})*";
    let host = host();
    format!("{scheme}:(?://{host}(?::[0-9]{{1,4}})?(?:/{path}*)*|{path}+(?:/{path}*)*)(?:\\?{tail})?(?:#{tail})?")
}
