//! Owns: what a JSON body may hold: kinds of values, tables of fields, and the check of a body against them (server.md sections
//! 1.5 and 2). The API's description follows from the same tables (`schema`).
//! Refuses: unknown fields, wrong types and unsupported values, by name.
//! Invariants: after a check, a field that was `null` is gone, and every other has its kind; the check's time is linear in
//! the body; what the description says is what the check does.

use serde_json::{Map, Value};

use crate::refusal::Refusal;

/// A kind of value.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// Any value.
    Anything,
    /// A text.
    Text,
    /// One of these texts.
    Choice(&'static [&'static str]),
    /// `true` or `false`.
    Flag,
    /// A whole number in a range, ends included: `5` and `5.0`, not `"5"`.
    Whole(i128, i128),
    /// A number in a range, ends included, that is finite as 32 bits.
    Real(f64, f64),
    /// This value alone, written as JSON: another would change the reply and is not supported.
    Only(&'static str),
    /// A list.
    List(&'static Kind),
    /// An object with any fields.
    Map,
    /// An object whose names are ids of tokens, with a value of this kind for each.
    ByToken(&'static Kind),
    /// An object.
    Object(&'static Fields),
    /// An object of the table that its `type` names; without a type, of the first. A name that ends in `*` stands for all that
    /// begin like it.
    Tagged(&'static [(&'static str, &'static Fields)]),
    /// The first kind that fits in outline: text, list, object, number or flag.
    Either(&'static [Kind]),
}

/// Any 64-bit number with or without a sign.
pub const ANY_WHOLE: Kind = Kind::Whole(i64::MIN as i128, u64::MAX as i128);
/// Any number.
pub const ANY_REAL: Kind = Kind::Real(f64::MIN, f64::MAX);
/// Text or a list of texts.
pub const TEXT_OR_TEXTS: Kind = Kind::Either(&[Kind::Text, Kind::List(&Kind::Text)]);

/// What becomes of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It shapes the reply.
    Used,
    /// Its type is checked, and it changes nothing here.
    None,
}

/// A field of an object.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// Its kind.
    pub kind: Kind,
    /// What becomes of it.
    pub effect: Effect,
    /// Whether it must be there.
    pub required: bool,
    /// One sentence on it.
    pub about: &'static str,
}

impl Field {
    /// A field that may be left out.
    pub const fn new(name: &'static str, kind: Kind, about: &'static str) -> Self {
        Field { name, kind, effect: Effect::Used, required: false, about }
    }

    /// A field that must be there.
    pub const fn required(name: &'static str, kind: Kind, about: &'static str) -> Self {
        Field { name, kind, effect: Effect::Used, required: true, about }
    }

    /// A field that changes nothing.
    pub const fn inert(name: &'static str, kind: Kind) -> Self {
        Field { name, kind, effect: Effect::None, required: false, about: "Accepted; it changes nothing here." }
    }
}

/// What is done with fields that a table does not name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Others {
    /// They are refused by name.
    Refused,
    /// They are left out of account.
    Ignored,
}

/// The fields of an object.
#[derive(Clone, Copy, Debug)]
pub struct Fields {
    /// Its name in the API's description.
    pub name: &'static str,
    /// The fields.
    pub fields: &'static [Field],
    /// What is done with others.
    pub others: Others,
}

impl Fields {
    /// A table that refuses other fields.
    pub const fn strict(name: &'static str, fields: &'static [Field]) -> Self {
        Fields { name, fields, others: Others::Refused }
    }

    /// A table that leaves other fields out of account.
    pub const fn open(name: &'static str, fields: &'static [Field]) -> Self {
        Fields { name, fields, others: Others::Ignored }
    }

    /// Checks an object; gives it without the fields that were `null`.
    ///
    /// # Errors
    /// Names the first field that is wrong.
    pub fn check(&self, value: Value) -> Result<Map<String, Value>, Refusal> {
        self.check_telling(value).map(|(object, _)| object)
    }

    /// As [`Fields::check`], with the paths of fields that were left out of account, the first of them.
    ///
    /// # Errors
    /// As [`Fields::check`].
    pub fn check_telling(&self, value: Value) -> Result<(Map<String, Value>, Vec<String>), Refusal> {
        let Value::Object(mut object) = value else {
            return Err(Refusal::field("body", "the body must be a JSON object"));
        };
        let mut path = Path::default();
        self.check_object(&mut object, &mut path)?;
        Ok((object, path.ignored))
    }

    /// Names of fields that this table does not have, in the order sent.
    pub fn unknown<'v>(&self, object: &'v Map<String, Value>) -> Vec<&'v str> {
        object.keys().map(String::as_str).filter(|&name| self.find(name).is_none()).collect()
    }

    fn find(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name == name)
    }

    fn check_object(&self, object: &mut Map<String, Value>, path: &mut Path) -> Result<(), Refusal> {
        object.retain(|_, value| !value.is_null());
        for (name, value) in object.iter_mut() {
            match (self.find(name), self.others) {
                (Some(field), _) => path.within(name, |path| check(value, field.kind, path))?,
                (None, Others::Ignored) => path.ignore(name),
                (None, Others::Refused) => {
                    let path = path.with(name);
                    let near = self.nearest(name).map_or(String::new(), |near| format!("; did you mean `{near}`?"));
                    return Err(Refusal::field(&path, format!("`{path}` is no field of this request{near}")));
                }
            }
        }
        match self.fields.iter().find(|field| field.required && !object.contains_key(field.name)) {
            Some(field) => {
                let path = path.with(field.name);
                Err(Refusal::field(&path, format!("`{path}` is missing: it must be {}", field.kind.words())))
            }
            None => Ok(()),
        }
    }

    /// A field whose name is that one but for case, `-` and `_`, or begins like it.
    fn nearest(&self, name: &str) -> Option<&'static str> {
        let plain = |text: &str| text.chars().filter(|c| c.is_alphanumeric()).collect::<String>().to_lowercase();
        let wanted = plain(name);
        let near = |field: &&Field| {
            let own = plain(field.name);
            own == wanted || (wanted.len() > 3 && (own.starts_with(&wanted) || wanted.starts_with(&own)))
        };
        self.fields.iter().find(near).map(|field| field.name)
    }
}

/// Where in a body a value lies, and what was left out of account on the way there.
#[derive(Default)]
struct Path {
    text: String,
    ignored: Vec<String>,
}

/// Most fields left out of account that are told.
const MOST_IGNORED: usize = 16;

impl Path {
    fn with(&self, name: &str) -> String {
        // A name is a client's text: it is shown, but not at any length.
        let name: String = name.chars().take(64).filter(|c| !c.is_control()).collect();
        if self.text.is_empty() { name } else { format!("{}.{name}", self.text) }
    }

    fn ignore(&mut self, name: &str) {
        if self.ignored.len() < MOST_IGNORED {
            let path = self.with(name);
            self.ignored.push(path);
        }
    }

    fn within<T>(&mut self, name: &str, work: impl FnOnce(&mut Path) -> T) -> T {
        let length = self.text.len();
        self.text = self.with(name);
        let done = work(self);
        self.text.truncate(length);
        done
    }

    fn at<T>(&mut self, index: usize, work: impl FnOnce(&mut Path) -> T) -> T {
        let length = self.text.len();
        self.text += &format!("[{index}]");
        let done = work(self);
        self.text.truncate(length);
        done
    }
}

fn check(value: &mut Value, kind: Kind, path: &mut Path) -> Result<(), Refusal> {
    let fits = match kind {
        Kind::Anything => true,
        Kind::Text => value.is_string(),
        Kind::Choice(words) => value.as_str().is_some_and(|text| words.contains(&text)),
        Kind::Flag => value.is_boolean(),
        Kind::Whole(least, most) => whole(value).is_some_and(|number| (least..=most).contains(&number)),
        Kind::Real(least, most) => real(value).is_some_and(|number| (least..=most).contains(&number)),
        Kind::Only(json) => is_only(value, json),
        Kind::Map => value.is_object(),
        Kind::List(inner) => {
            let Value::Array(items) = value else { return Err(wrong(value, kind, path)) };
            for (index, item) in items.iter_mut().enumerate() {
                path.at(index, |path| check(item, *inner, path))?;
            }
            true
        }
        Kind::ByToken(inner) => {
            let Value::Object(object) = value else { return Err(wrong(value, kind, path)) };
            for (name, value) in object.iter_mut() {
                if token_id(name).is_none() {
                    let path = path.with(name);
                    return Err(Refusal::field(&path, format!("`{path}` must be a token's id")));
                }
                path.within(name, |path| check(value, *inner, path))?;
            }
            true
        }
        Kind::Object(fields) => {
            let Value::Object(object) = value else { return Err(wrong(value, kind, path)) };
            fields.check_object(object, path)?;
            true
        }
        Kind::Tagged(tables) => {
            let Value::Object(object) = value else { return Err(wrong(value, kind, path)) };
            tagged(tables, object, path)?.check_object(object, path)?;
            true
        }
        Kind::Either(kinds) => match kinds.iter().find(|kind| kind.is_like(value)) {
            Some(kind) => return check(value, *kind, path),
            None => false,
        },
    };
    if fits { Ok(()) } else { Err(wrong(value, kind, path)) }
}

/// The id that a name is: at most ten digits, and nothing else.
pub fn token_id(name: &str) -> Option<u32> {
    let plain = name.len() <= 10 && name.bytes().all(|byte| byte.is_ascii_digit());
    name.parse().ok().filter(|_| plain)
}

/// The table that an object's `type` names.
fn tagged(
    tables: &[(&str, &'static Fields)],
    object: &Map<String, Value>,
    path: &Path,
) -> Result<&'static Fields, Refusal> {
    let tag = object.get("type").filter(|tag| !tag.is_null());
    let names = |name: &str, tag: &str| match name.strip_suffix('*') {
        Some(begin) => tag.starts_with(begin),
        None => name == tag,
    };
    let found = match tag {
        None => tables.first(),
        Some(tag) => tag.as_str().and_then(|tag| tables.iter().find(|(name, _)| names(name, tag))),
    };
    found.map(|(_, fields)| *fields).ok_or_else(|| {
        let path = path.with("type");
        let known = tables.iter().map(|(name, _)| format!("\"{name}\"")).collect::<Vec<_>>().join(", ");
        let found = tag.map_or_else(String::new, shown);
        Refusal::field(&path, format!("`{path}` must be one of {known}; found {found}"))
    })
}

fn wrong(value: &Value, kind: Kind, path: &Path) -> Refusal {
    let (path, expected, found) = (&path.text, kind.words(), shown(value));
    Refusal::field(path, format!("`{path}` must be {expected}; found {found}"))
}

/// A value, short enough for a sentence.
fn shown(value: &Value) -> String {
    match value {
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
        Value::String(text) if text.chars().count() > 40 => {
            format!("the text \"{}...\"", text.chars().take(40).collect::<String>())
        }
        other => other.to_string(),
    }
}

/// A whole number, written with or without a point.
pub fn whole(value: &Value) -> Option<i128> {
    let number = value.as_number()?;
    if let Some(number) = number.as_i128() {
        return Some(number);
    }
    // Beyond 2^53 a float no longer tells which whole number was meant.
    number.as_f64().filter(|f| f.fract() == 0.0 && f.abs() <= 9_007_199_254_740_992.0).map(|f| f as i128)
}

/// A number that is finite as 32 bits.
pub fn real(value: &Value) -> Option<f64> {
    value.as_number()?.as_f64().filter(|number| (*number as f32).is_finite())
}

fn is_only(value: &Value, json: &str) -> bool {
    match serde_json::from_str::<Value>(json) {
        Ok(only) if only.is_number() => whole(value).is_some() && whole(value) == whole(&only),
        Ok(only) => *value == only,
        Err(_) => false,
    }
}

impl Kind {
    /// Whether a value has this kind's outline.
    fn is_like(self, value: &Value) -> bool {
        match self {
            Kind::Anything => true,
            Kind::Text | Kind::Choice(_) => value.is_string(),
            Kind::Flag => value.is_boolean(),
            Kind::Whole(..) | Kind::Real(..) => value.is_number(),
            Kind::Only(json) => is_only(value, json),
            Kind::Map | Kind::ByToken(_) | Kind::Object(_) | Kind::Tagged(_) => value.is_object(),
            Kind::List(_) => value.is_array(),
            Kind::Either(kinds) => kinds.iter().any(|kind| kind.is_like(value)),
        }
    }

    /// The kind in words, as in "must be ...".
    pub fn words(self) -> String {
        match self {
            Kind::Anything => "a value".to_owned(),
            Kind::Text => "a text".to_owned(),
            Kind::Choice(words) => {
                format!("one of {}", words.iter().map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(", "))
            }
            Kind::Flag => "true or false".to_owned(),
            Kind::Whole(least, most) => match (least > i128::from(i64::MIN), most < i128::from(u32::MAX)) {
                (true, true) => format!("a whole number from {least} to {most}"),
                (true, false) if least == 1 => "a positive whole number".to_owned(),
                (true, false) => format!("a whole number of at least {least}"),
                _ => "a whole number".to_owned(),
            },
            Kind::Real(least, most) if least > f64::MIN && most == f64::MAX => format!("a number of at least {least}"),
            Kind::Real(least, most) if least > f64::MIN || most < f64::MAX => {
                format!("a number from {least} to {most}")
            }
            Kind::Real(..) => "a number".to_owned(),
            Kind::Only(json) => format!("{json}, the only value supported"),
            Kind::List(inner) => format!("a list, each item {}", inner.words()),
            Kind::Map | Kind::Object(_) | Kind::Tagged(_) => "an object".to_owned(),
            Kind::ByToken(inner) => format!("an object of token ids, each with {}", inner.words()),
            Kind::Either(kinds) => kinds.iter().map(|kind| kind.words()).collect::<Vec<_>>().join(", or "),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const INNER: Fields = Fields::strict("Inner", &[Field::required("a", Kind::Text, "")]);
    const OUTER: Fields = Fields::strict(
        "Outer",
        &[
            Field::new("count", Kind::Whole(1, u32::MAX as i128), ""),
            Field::new("heat", ANY_REAL, ""),
            Field::new("n", Kind::Only("1"), ""),
            Field::new("stream", Kind::Flag, ""),
            Field::new("stop", TEXT_OR_TEXTS, ""),
            Field::new("items", Kind::List(&Kind::Object(&INNER)), ""),
        ],
    );

    fn refused(value: Value) -> String {
        OUTER.check(value).unwrap_err().message
    }

    #[test]
    fn a_null_is_a_field_that_is_not_set() {
        assert!(OUTER.check(json!({ "count": null, "stop": null })).unwrap().is_empty());
        assert_eq!(refused(json!({ "items": [{ "a": null }] })), "`items[0].a` is missing: it must be a text");
    }

    #[test]
    fn a_whole_number_may_be_written_with_a_point() {
        assert!(OUTER.check(json!({ "count": 5.0, "n": 1.0 })).is_ok());
        for wrong in [json!(5.5), json!("5"), json!(1e300), json!(true), json!(0), json!(-1)] {
            assert_eq!(
                refused(json!({ "count": wrong })),
                format!("`count` must be a positive whole number; found {wrong}")
            );
        }
    }

    #[test]
    fn a_number_is_finite_as_32_bits_and_no_flag() {
        for wrong in [json!(1e300), json!(true), json!("cold")] {
            assert_eq!(refused(json!({ "heat": wrong })), format!("`heat` must be a number; found {wrong}"));
        }
    }

    #[test]
    fn unknown_fields_and_values_are_named() {
        assert_eq!(refused(json!({ "foo": 1 })), "`foo` is no field of this request");
        assert_eq!(refused(json!({ "Stream": true })), "`Stream` is no field of this request; did you mean `stream`?");
        assert_eq!(refused(json!({ "n": 2 })), "`n` must be 1, the only value supported; found 2");
        assert_eq!(refused(json!({ "items": [{ "a": "x", "b": 1 }] })), "`items[0].b` is no field of this request");
        assert_eq!(refused(json!({ "stop": 5 })), "`stop` must be a text, or a list, each item a text; found 5");
        assert_eq!(refused(json!({ "stop": ["a", 5] })), "`stop[1]` must be a text; found 5");
    }

    #[test]
    fn a_type_tells_the_table() {
        const OTHER: Fields = Fields::open("Other", &[Field::required("type", Kind::Text, "")]);
        const TYPED: Fields = Fields::strict("Typed", &[Field::required("type", Kind::Text, "")]);
        const TABLE: Fields = Fields::strict(
            "Table",
            &[Field::new("item", Kind::Tagged(&[("a", &INNER), ("typed", &TYPED), ("other*", &OTHER)]), "")],
        );
        let item = |item: Value| TABLE.check(json!({ "item": item })).map_err(|refusal| refusal.message);
        assert!(item(json!({ "a": "without a type it is the first" })).is_ok());
        assert!(item(json!({ "type": "typed" })).is_ok());
        assert!(item(json!({ "type": "other_2", "more": 1 })).is_ok());
        assert_eq!(item(json!({ "type": "typed", "b": 1 })).unwrap_err(), "`item.b` is no field of this request");
        assert_eq!(
            item(json!({ "type": "typed2" })).unwrap_err(),
            "`item.type` must be one of \"a\", \"typed\", \"other*\"; found \"typed2\""
        );
        assert!(item(json!({ "type": 5 })).unwrap_err().ends_with("found 5"));
    }

    #[test]
    fn names_may_be_ids_of_tokens() {
        const BIASED: Fields =
            Fields::strict("Biased", &[Field::new("bias", Kind::ByToken(&Kind::Real(-1.0, 1.0)), "")]);
        let bias = |bias: Value| BIASED.check(json!({ "bias": bias })).map_err(|refusal| refusal.message);
        assert!(bias(json!({ "5": 0.5, "4294967295": -1 })).is_ok());
        for name in ["", "x", "+5", "-1", "4294967296", "00000000005"] {
            assert_eq!(bias(json!({ name: 0 })).unwrap_err(), format!("`bias.{name}` must be a token's id"));
        }
        assert_eq!(bias(json!({ "5": 2 })).unwrap_err(), "`bias.5` must be a number from -1 to 1; found 2");
    }

    #[test]
    fn what_is_left_out_of_account_is_told_by_its_path() {
        const LOOSE: Fields = Fields::open("Loose", &[Field::new("inner", Kind::List(&Kind::Object(&DEEP)), "")]);
        const DEEP: Fields = Fields::open("Deep", &[]);
        let (_, ignored) = LOOSE.check_telling(json!({ "a": 1, "b": null, "inner": [{}, { "c": 1 }] })).unwrap();
        assert_eq!(ignored, ["a", "inner[1].c"]);
    }
}
