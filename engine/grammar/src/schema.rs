//! Owns: what of JSON Schema can be enforced, and the form in which the grammar engine gets it.
//! Refuses: by its name, every keyword that restricts values and that the engine would not enforce; references out of the
//! document; schemas that no finite value satisfies; more than the sizes below.
//! Invariants: what comes out holds keywords that are enforced and nothing else; whatever it allows the schema given allows.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use crate::{Error, Result, formats, text};

/// Schemas within schemas.
const MAX_DEPTH: usize = 64;

/// Schemas in all.
const MAX_SCHEMAS: usize = 20_000;

/// Properties of one object, which the engine chains one after the other.
const MAX_PROPERTIES: usize = 1_000;

/// Values of all `enum`s together.
const MAX_VALUES: usize = 20_000;

/// Bytes of all texts that are spelt out: names, values of `enum` and `const`, patterns.
const MAX_TEXT: usize = 512 << 10;

/// Bytes of one of them: text that nothing else can stand for is worked through again with each of its tokens.
const MAX_LITERAL: usize = 4 << 10;

/// A text cannot be longer than this in any window: a longer `maxLength` allows all.
const UNREACHABLE_LENGTH: u64 = 1 << 26;

/// Longest text that `minLength` and `maxLength` may speak of, and most items.
const MAX_COUNT: u64 = 100_000;

/// Numbers up to this are exact in 64-bit floating point.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// Integers are written with at most 18 digits where the schema does not bound them.
const INTEGER_BOUND: f64 = 1e18;

/// Keywords, of any draft, that restrict values and are not enforced.
const UNENFORCED: [&str; 24] = [
    "not",
    "if",
    "then",
    "else",
    "contains",
    "minContains",
    "maxContains",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "unevaluatedItems",
    "unevaluatedProperties",
    "$dynamicRef",
    "$recursiveRef",
    "$dynamicAnchor",
    "$recursiveAnchor",
    "$anchor",
    "disallow",
    "extends",
    "divisibleBy",
    "formatMinimum",
    "formatMaximum",
    "x-guidance",
    "$vocabulary",
];

/// A schema in the form that the engine gets: its root, with every schema that is referred to under `$defs`.
#[derive(Clone, Debug)]
pub(crate) struct Normal {
    pub root: Value,
    pub defs: Vec<Value>,
}

impl Normal {
    /// As one document.
    pub fn document(&self) -> Value {
        let mut whole = match &self.root {
            Value::Object(keys) => keys.clone(),
            other => Map::from_iter([("allOf".to_owned(), json!([other]))]),
        };
        let defs = self.defs.iter().enumerate().map(|(number, def)| (number.to_string(), def.clone()));
        whole.insert("$defs".to_owned(), Value::Object(defs.collect()));
        Value::Object(whole)
    }

    /// The schema that a reference of this document names.
    pub fn target<'s>(&'s self, reference: &Value) -> Option<&'s Value> {
        self.defs.get(reference.as_str()?.strip_prefix("#/$defs/")?.parse::<usize>().ok()?)
    }
}

/// The part of `document` at the JSON pointer `at`, normalised.
///
/// # Errors
/// When something in it cannot be enforced.
pub(crate) fn normalise(document: &Value, at: &str) -> Result<Normal> {
    let mut work = Work { document, names: HashMap::new(), pending: Vec::new(), budget: Budget::default() };
    let root = document.pointer(at).ok_or_else(|| refuse("$ref", at, "it names nothing in the document"))?;
    let root = work.schema(root, at, 0)?;
    let mut defs: Vec<Value> = Vec::new();
    while let Some(pointer) = work.pending.get(defs.len()).cloned() {
        let target = document.pointer(&pointer).unwrap_or(&Value::Null);
        let schema = work.schema(target, &pointer, 0)?;
        defs.push(schema);
    }
    let mut normal = Normal { root, defs };
    normal.spread_one_of();
    match normal.is_finite() {
        true => Ok(normal),
        false => Err(Error::Unsatisfiable("every value would have to contain itself".to_owned())),
    }
}

/// What is being normalised.
struct Work<'d> {
    document: &'d Value,
    /// Numbers of the schemas that are referred to, by their pointers.
    names: HashMap<String, usize>,
    /// Those pointers, by number.
    pending: Vec<String>,
    budget: Budget,
}

/// What the parts of a schema may amount to.
#[derive(Default)]
struct Budget {
    schemas: usize,
    values: usize,
    text: usize,
    /// The digits of each `multipleOf`.
    multiples: Vec<u64>,
}

/// Where a keyword stands.
#[derive(Clone, Copy)]
struct Place<'p> {
    keyword: &'p str,
    at: &'p str,
    depth: usize,
}

impl Place<'_> {
    fn refuse(self, reason: impl Into<String>) -> Error {
        refuse(self.keyword, self.at, reason)
    }

    fn count(self, value: &Value) -> Result<u64> {
        let whole = value.as_u64().or_else(|| {
            value.as_f64().filter(|number| number.fract() == 0.0 && (0.0..EXACT).contains(number)).map(|n| n as u64)
        });
        whole.ok_or_else(|| self.refuse("it must be a whole number from 0 on"))
    }

    fn number(self, value: &Value) -> Result<f64> {
        let number = value.as_f64().ok_or_else(|| self.refuse("it must be a number"))?;
        let exact = number.abs() < EXACT && (number == 0.0 || number.abs() >= 1e-9);
        if exact { Ok(number) } else { Err(self.refuse("only numbers up to 2^53 can be compared exactly")) }
    }

    fn text(self, value: &Value) -> Result<&str> {
        value.as_str().ok_or_else(|| self.refuse("it must be text"))
    }

    fn list(self, value: &Value) -> Result<&Vec<Value>> {
        value.as_array().ok_or_else(|| self.refuse("it must be a list"))
    }

    fn object(self, value: &Value) -> Result<&Map<String, Value>> {
        value.as_object().ok_or_else(|| self.refuse("it must be an object"))
    }
}

fn refuse(keyword: &str, at: &str, reason: impl Into<String>) -> Error {
    let at = if at.is_empty() { "#".to_owned() } else { shorten(at) };
    Error::Keyword { keyword: shorten(keyword), at, reason: reason.into() }
}

/// A name as far as it fits a sentence.
pub(crate) fn shorten(text: &str) -> String {
    const MOST: usize = 120;
    if text.chars().count() <= MOST { text.to_owned() } else { text.chars().take(MOST).collect::<String>() + "..." }
}

fn too_large(what: &str, most: usize) -> Error {
    Error::TooLarge(format!("the schema is too large: it may have at most {most} {what}"))
}

/// A pointer's last step, escaped.
fn step(at: &str, key: &str) -> String {
    format!("{at}/{}", key.replace('~', "~0").replace('/', "~1"))
}

impl Work<'_> {
    fn schema(&mut self, schema: &Value, at: &str, depth: usize) -> Result<Value> {
        self.budget.schemas += 1;
        if self.budget.schemas > MAX_SCHEMAS {
            return Err(too_large("schemas", MAX_SCHEMAS));
        }
        if depth > MAX_DEPTH {
            return Err(too_large("levels", MAX_DEPTH));
        }
        let keys = match schema {
            Value::Bool(_) => return Ok(schema.clone()),
            Value::Object(keys) => keys,
            _ => return Err(refuse("schema", at, "it must be an object or a boolean")),
        };
        let mut out = Map::new();
        for (keyword, value) in keys.iter().filter(|(keyword, value)| !value.is_null() || *keyword == "const") {
            self.keyword(keys, value, Place { keyword, at, depth }, &mut out)?;
        }
        state_format(&mut out);
        bound(&mut out);
        check_properties(&out, at)?;
        Ok(Value::Object(out))
    }

    /// Takes one keyword over.
    fn keyword(
        &mut self,
        keys: &Map<String, Value>,
        value: &Value,
        place: Place<'_>,
        out: &mut Map<String, Value>,
    ) -> Result<()> {
        let Place { keyword, .. } = place;
        let kept = match keyword {
            "type" => types(value, place)?,
            "const" => {
                self.literal(value, place, 0)?;
                value.clone()
            }
            "enum" => self.values(value, place)?,
            "anyOf" | "oneOf" | "allOf" => self.branches(value, place)?,
            "$ref" => self.reference(value, place)?,
            "properties" | "patternProperties" => self.properties(value, place)?,
            "required" => self.names(value, place)?,
            "additionalProperties" => self.child(value, place, &[])?,
            "propertyNames" => return trivial_names(value, place),
            "items" | "prefixItems" | "additionalItems" => return self.items(keys, value, place, out),
            "uniqueItems" | "nullable" if value == &Value::Bool(false) => return Ok(()),
            "uniqueItems" => return Err(place.refuse("whether items differ is not checked while they are written")),
            "nullable" => return Err(place.refuse("say `\"type\": [..., \"null\"]`")),
            "minItems" | "maxItems" | "minLength" | "maxLength" | "minProperties" | "maxProperties" => {
                match length(value, place)? {
                    Some(count) => json!(count),
                    None => return Ok(()),
                }
            }
            "pattern" => {
                let pattern = self.spell(place.text(value)?)?;
                text::check_pattern(pattern).map_err(|reason| place.refuse(reason))?;
                json!(pattern)
            }
            "format" => return format(keys, value, place, out),
            "minimum" | "maximum" => {
                tighten(out, keyword, place.number(value)?);
                return Ok(());
            }
            "exclusiveMinimum" | "exclusiveMaximum" => match value {
                Value::Bool(false) => return Ok(()),
                Value::Bool(true) => return exclude(keys, place, out),
                _ => json!(place.number(value)?),
            },
            "multipleOf" => self.multiple(value, place)?,
            "$id" | "id" if !place.at.is_empty() && value.is_string() && keyword == "$id" => {
                return Err(place.refuse("references are resolved within one document"));
            }
            _ if UNENFORCED.contains(&keyword) => return Err(place.refuse("it is not supported")),
            // What restricts no value: titles, descriptions, defaults, other programs' hints.
            _ => return Ok(()),
        };
        out.insert(keyword.to_owned(), kept);
        Ok(())
    }

    /// A schema below a keyword.
    fn child(&mut self, value: &Value, place: Place<'_>, steps: &[&str]) -> Result<Value> {
        let at = steps.iter().fold(step(place.at, place.keyword), |at, key| step(&at, key));
        self.schema(value, &at, place.depth + 1)
    }

    fn branches(&mut self, value: &Value, place: Place<'_>) -> Result<Value> {
        let list = place.list(value)?;
        if list.is_empty() {
            return Err(place.refuse("it must not be empty"));
        }
        let branch = |(index, branch): (usize, &Value)| self.child(branch, place, &[&index.to_string()]);
        Ok(Value::Array(list.iter().enumerate().map(branch).collect::<Result<_>>()?))
    }

    fn reference(&mut self, value: &Value, place: Place<'_>) -> Result<Value> {
        let text = place.text(value)?;
        let pointer = text.strip_prefix('#').ok_or_else(|| place.refuse("it must begin with `#/`"))?;
        if !pointer.is_empty() && !pointer.starts_with('/') {
            return Err(place.refuse("it must begin with `#/`"));
        }
        let pointer = unescape(pointer).ok_or_else(|| place.refuse("it is not a JSON pointer"))?;
        if self.document.pointer(&pointer).is_none() {
            return Err(place.refuse(format!("there is no {:?} in the schema", shorten(text))));
        }
        let next = self.pending.len();
        let number = *self.names.entry(pointer.clone()).or_insert(next);
        if number == next {
            self.pending.push(pointer);
        }
        Ok(json!(format!("#/$defs/{number}")))
    }

    fn properties(&mut self, value: &Value, place: Place<'_>) -> Result<Value> {
        let map = place.object(value)?;
        if map.len() > MAX_PROPERTIES {
            return Err(too_large("properties in one object", MAX_PROPERTIES));
        }
        let mut out = Map::new();
        for (name, schema) in map {
            self.spell(name)?;
            if place.keyword == "patternProperties" {
                text::check_pattern(name).map_err(|reason| place.refuse(reason))?;
            }
            out.insert(name.clone(), self.child(schema, place, &[name])?);
        }
        Ok(Value::Object(out))
    }

    fn names(&mut self, value: &Value, place: Place<'_>) -> Result<Value> {
        // Draft 3 says it with a boolean beside the property.
        let list = place.list(value)?;
        if list.len() > MAX_PROPERTIES {
            return Err(too_large("required properties in one object", MAX_PROPERTIES));
        }
        for name in list {
            self.spell(place.text(name)?)?;
        }
        Ok(value.clone())
    }

    /// Lists of items were written as `items` before they were `prefixItems`; the rest was `additionalItems`.
    fn items(
        &mut self,
        keys: &Map<String, Value>,
        value: &Value,
        place: Place<'_>,
        out: &mut Map<String, Value>,
    ) -> Result<()> {
        let listed = keys.get("items").is_some_and(Value::is_array);
        let name = match place.keyword {
            "items" if listed => "prefixItems",
            "prefixItems" if listed => return Err(place.refuse("`items` is a list already")),
            "additionalItems" if listed => "items",
            "additionalItems" => return Ok(()),
            other => other,
        };
        let kept = if name == "prefixItems" { self.branches(value, place)? } else { self.child(value, place, &[])? };
        out.insert(name.to_owned(), kept);
        Ok(())
    }

    fn values(&mut self, value: &Value, place: Place<'_>) -> Result<Value> {
        let list = place.list(value)?;
        if list.is_empty() {
            return Err(place.refuse("it must not be empty"));
        }
        list.iter().try_for_each(|literal| self.literal(literal, place, 0))?;
        Ok(value.clone())
    }

    /// Checks a value that is spelt out.
    fn literal(&mut self, value: &Value, place: Place<'_>, depth: usize) -> Result<()> {
        self.budget.values += 1;
        if self.budget.values > MAX_VALUES {
            return Err(too_large("values in `enum` and `const`", MAX_VALUES));
        }
        if depth > MAX_DEPTH {
            return Err(too_large("levels", MAX_DEPTH));
        }
        match value {
            Value::Null | Value::Bool(_) => Ok(()),
            Value::Number(_) => place.number(value).map(|_| ()),
            Value::String(text) => self.spell(text).map(|_| ()),
            Value::Array(items) => items.iter().try_for_each(|item| self.literal(item, place, depth + 1)),
            Value::Object(fields) => fields.iter().try_for_each(|(name, field)| {
                self.spell(name)?;
                self.literal(field, place, depth + 1)
            }),
        }
    }

    /// Counts a text that is spelt out.
    fn spell<'t>(&mut self, text: &'t str) -> Result<&'t str> {
        self.budget.text += text.len();
        if text.len() > MAX_LITERAL {
            return Err(too_large("bytes in a name or a value", MAX_LITERAL));
        }
        if self.budget.text > MAX_TEXT { Err(too_large("bytes of names and values", MAX_TEXT)) } else { Ok(text) }
    }

    /// The engine multiplies these in 32 bits, brought to the same number of decimals.
    fn multiple(&mut self, value: &Value, place: Place<'_>) -> Result<Value> {
        let number = place.number(value)?;
        let scaled = (number * 1e6).round();
        if scaled <= 0.0 || (scaled / 1e6 - number).abs() > 1e-15 {
            return Err(place.refuse("it must lie above 0 and have at most six decimals"));
        }
        let (mut digits, mut decimals) = (scaled as u64, 6);
        while decimals > 0 && digits.is_multiple_of(10) {
            (digits, decimals) = (digits / 10, decimals - 1);
        }
        if !self.budget.multiples.contains(&digits) {
            self.budget.multiples.push(digits);
        }
        let product = self.budget.multiples.iter().try_fold(1u64, |product, &digits| product.checked_mul(digits));
        let most = if self.budget.multiples.len() == 1 { 60_000 } else { 4_000 };
        match product {
            Some(product) if product <= most => Ok(json!(number)),
            _ => Err(place.refuse("it has too many digits, or the schema has too many different ones")),
        }
    }
}

/// A fragment as a JSON pointer: percent signs decoded.
fn unescape(fragment: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = fragment.bytes();
    while let Some(byte) = rest.next() {
        let decoded = if byte == b'%' {
            let digits = [rest.next()?, rest.next()?];
            u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
        } else {
            byte
        };
        bytes.push(decoded);
    }
    String::from_utf8(bytes).ok()
}

fn types(value: &Value, place: Place<'_>) -> Result<Value> {
    const TYPES: [&str; 7] = ["null", "boolean", "integer", "number", "string", "array", "object"];
    let names = match value {
        Value::String(_) => std::slice::from_ref(value),
        _ => place.list(value)?.as_slice(),
    };
    let known = names.iter().all(|name| name.as_str().is_some_and(|name| TYPES.contains(&name)));
    let differ = names.iter().enumerate().all(|(index, name)| !names[..index].contains(name));
    match known && differ && !names.is_empty() {
        true => Ok(value.clone()),
        false => Err(place.refuse(format!("it must be one or several of {}", TYPES.join(", ")))),
    }
}

/// A length or count; none when it allows whatever fits a window.
fn length(value: &Value, place: Place<'_>) -> Result<Option<u64>> {
    let count = place.count(value)?;
    match count {
        _ if count <= MAX_COUNT => Ok(Some(count)),
        _ if count >= UNREACHABLE_LENGTH && place.keyword.starts_with("max") => Ok(None),
        _ => Err(place.refuse(format!("it must be at most {MAX_COUNT}"))),
    }
}

/// Names of properties are texts anyway.
fn trivial_names(value: &Value, place: Place<'_>) -> Result<()> {
    let trivial = match value {
        Value::Bool(allowed) => *allowed,
        Value::Object(keys) => keys.iter().all(|(key, value)| key == "type" && value == "string"),
        _ => false,
    };
    if trivial {
        Ok(())
    } else {
        Err(place.refuse("names of properties cannot be restricted; use `patternProperties`"))
    }
}

/// A `minimum` that was said to be exclusive by a boolean.
fn exclude(keys: &Map<String, Value>, place: Place<'_>, out: &mut Map<String, Value>) -> Result<()> {
    let bound = if place.keyword == "exclusiveMinimum" { "minimum" } else { "maximum" };
    let value = keys.get(bound).ok_or_else(|| place.refuse(format!("it must be a number, or `{bound}` beside it")))?;
    out.insert(place.keyword.to_owned(), json!(place.number(value)?));
    Ok(())
}

/// A format of texts is enforced, one of integers says their bounds, one of numbers says nothing.
fn format(keys: &Map<String, Value>, value: &Value, place: Place<'_>, out: &mut Map<String, Value>) -> Result<()> {
    let name = place.text(value)?;
    if let Some(pattern) = formats::pattern(name) {
        out.insert("format".to_owned(), json!(pattern));
        return Ok(());
    }
    let (integer, number) = (has_type(keys, "integer"), has_type(keys, "number"));
    let bounds = match name {
        "double" | "float" if number => return Ok(()),
        "int64" | "int" if integer && !number => (-INTEGER_BOUND, INTEGER_BOUND),
        "uint64" | "uint" if integer && !number => (0.0, INTEGER_BOUND),
        "int32" if integer && !number => (f64::from(i32::MIN), f64::from(i32::MAX)),
        "uint32" if integer && !number => (0.0, f64::from(u32::MAX)),
        "int16" if integer && !number => (f64::from(i16::MIN), f64::from(i16::MAX)),
        "uint16" if integer && !number => (0.0, f64::from(u16::MAX)),
        "int8" if integer && !number => (f64::from(i8::MIN), f64::from(i8::MAX)),
        "uint8" if integer && !number => (0.0, f64::from(u8::MAX)),
        _ => {
            let known = formats::NAMES.map(|format| format!("{format:?}")).join(", ");
            return Err(place.refuse(format!("{:?} is not supported, only {known} are", shorten(name))));
        }
    };
    tighten(out, "minimum", bounds.0);
    tighten(out, "maximum", bounds.1);
    Ok(())
}

/// Says a format as the pattern that it is.
fn state_format(out: &mut Map<String, Value>) {
    let Some(pattern) = out.remove("format") else { return };
    if !out.contains_key("pattern") {
        out.insert("pattern".to_owned(), pattern);
        return;
    }
    let all = out.entry("allOf").or_insert_with(|| json!([]));
    all.as_array_mut().into_iter().for_each(|all| all.push(json!({ "pattern": pattern })));
}

/// Whether a schema names a type.
fn has_type(keys: &Map<String, Value>, name: &str) -> bool {
    match keys.get("type") {
        Some(Value::String(only)) => only == name,
        Some(Value::Array(names)) => names.iter().any(|one| one == name),
        _ => false,
    }
}

/// Sets a bound, unless there is a nearer one.
fn tighten(out: &mut Map<String, Value>, keyword: &str, bound: f64) {
    let nearer = out.get(keyword).and_then(Value::as_f64).map_or(bound, |given| match keyword {
        "minimum" => given.max(bound),
        _ => given.min(bound),
    });
    out.insert(keyword.to_owned(), json!(nearer));
}

/// Bounds integers that have none on a side: a number that may go on for ever would.
fn bound(out: &mut Map<String, Value>) {
    if !has_type(out, "integer") || has_type(out, "number") {
        return;
    }
    for (near, far, bound) in
        [("minimum", "exclusiveMinimum", -INTEGER_BOUND), ("maximum", "exclusiveMaximum", INTEGER_BOUND)]
    {
        if !out.contains_key(near) && !out.contains_key(far) {
            out.insert(near.to_owned(), json!(bound));
        }
    }
}

/// The engine does not see that a name was written twice, so it cannot count names that it does not know.
fn check_properties(out: &Map<String, Value>, at: &str) -> Result<()> {
    let least = out.get("minProperties").and_then(Value::as_u64).unwrap_or(0);
    let required = out.get("required").and_then(Value::as_array).map_or(0, Vec::len) as u64;
    match least > required + 1 {
        true => Err(refuse("minProperties", at, "it may ask for one property more than are required")),
        false => Ok(()),
    }
}

impl Normal {
    /// The engine takes `oneOf` where it sees that no value fits two branches, and it does not look through references.
    fn spread_one_of(&mut self) {
        let defs = self.defs.clone();
        let known = Normal { root: Value::Null, defs };
        spread(&mut self.root, &known);
        self.defs.iter_mut().for_each(|def| spread(def, &known));
    }

    /// Whether some finite value satisfies the schema.
    fn is_finite(&self) -> bool {
        let mut finite = vec![false; self.defs.len()];
        loop {
            let now: Vec<bool> = self.defs.iter().map(|def| is_finite(def, &finite)).collect();
            if now == finite {
                return is_finite(&self.root, &finite);
            }
            finite = now;
        }
    }
}

/// Replaces references in the branches of `oneOf` by what they name.
fn spread(schema: &mut Value, known: &Normal) {
    let Value::Object(keys) = schema else { return };
    for (keyword, value) in keys.iter_mut() {
        match (keyword.as_str(), value) {
            ("oneOf", Value::Array(branches)) => branches.iter_mut().for_each(|branch| {
                if let Some(target) = branch.get("$ref").and_then(|reference| known.target(reference))
                    && branch.as_object().is_some_and(|keys| keys.len() == 1)
                {
                    *branch = target.clone();
                } else {
                    spread(branch, known);
                }
            }),
            ("anyOf" | "allOf" | "prefixItems", Value::Array(branches)) => {
                branches.iter_mut().for_each(|branch| spread(branch, known));
            }
            ("properties" | "patternProperties", Value::Object(map)) => {
                map.values_mut().for_each(|schema| spread(schema, known));
            }
            ("items" | "additionalProperties", schema) => spread(schema, known),
            _ => {}
        }
    }
}

/// Whether a finite value satisfies a schema, given which references do.
fn is_finite(schema: &Value, finite: &[bool]) -> bool {
    let Value::Object(keys) = schema else { return schema != &Value::Bool(false) };
    let all = |list: &Value| list.as_array().is_none_or(|list| list.iter().all(|branch| is_finite(branch, finite)));
    let any = |list: &Value| list.as_array().is_none_or(|list| list.iter().any(|branch| is_finite(branch, finite)));
    let target = |reference: &Value| {
        let number = reference.as_str().and_then(|text| text.rsplit('/').next()).and_then(|n| n.parse::<usize>().ok());
        number.and_then(|number| finite.get(number)).copied().unwrap_or(false)
    };
    // A property or an item must be there only in values of the one type that must have them.
    let only = |name: &str| keys.get("type") == Some(&json!(name));
    let required = || {
        let names = keys.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
        let properties = keys.get("properties");
        names.filter_map(|name| properties?.get(name)).all(|schema| is_finite(schema, finite))
    };
    let filled = || {
        let least = keys.get("minItems").and_then(Value::as_u64).unwrap_or(0) as usize;
        let listed = keys.get("prefixItems").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let rest = listed.len() >= least || keys.get("items").is_none_or(|items| is_finite(items, finite));
        rest && listed.iter().take(least).all(|item| is_finite(item, finite))
    };
    keys.get("allOf").is_none_or(all)
        && keys.get("anyOf").is_none_or(any)
        && keys.get("oneOf").is_none_or(any)
        && keys.get("$ref").is_none_or(target)
        && (!only("object") || required())
        && (!only("array") || filled())
}
