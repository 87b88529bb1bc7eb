//! Schemas, regular expressions and grammars: what they allow, and what is refused by its keyword.

use serde_json::{Value, json};
use ss_grammar::{Error, Grammar, Options};

use crate::walk::{Vocabulary, schema};

fn allows(schema_of: Value, text: &str) -> bool {
    let vocabulary = Vocabulary::nano();
    let held = vocabulary.compile(&schema(schema_of.clone())).unwrap_or_else(|error| panic!("{schema_of}: {error}"));
    vocabulary.allows(held, text)
}

#[test]
fn objects_hold_what_their_schema_says() {
    let person = json!({"type": "object", "properties": {
        "name": {"type": "string"}, "age": {"type": "integer", "minimum": 0, "maximum": 130}, "tags": {"type": "array",
        "items": {"enum": ["a", "b"]}, "maxItems": 2}
    }, "required": ["name", "age"], "additionalProperties": false});
    for good in [
        r#"{"name":"Ann","age":5}"#,
        r#"{"name": "Ann", "age": 5, "tags": ["a", "b"]}"#,
        "{\n  \"name\": \"Ann\",\n  \"age\": 130\n}",
        r#"{"name":"é\n\"日","age":0,"tags":[]}"#,
    ] {
        assert!(allows(person.clone(), good), "{good}");
    }
    for bad in [
        r#"{"name":"Ann"}"#,
        r#"{"name":"Ann","age":131}"#,
        r#"{"name":"Ann","age":-1}"#,
        r#"{"name":"Ann","age":5.5}"#,
        r#"{"name":"Ann","age":5,"other":1}"#,
        r#"{"name":"Ann","age":5,"tags":["c"]}"#,
        r#"{"name":"Ann","age":5,"tags":["a","a","a"]}"#,
        r#"{"name":"Ann","age":5} x"#,
        r#"{"name":"Ann","age":5"#,
        "",
    ] {
        assert!(!allows(person.clone(), bad), "{bad}");
    }
}

#[test]
fn white_space_cannot_go_on() {
    let free = json!({"type": "object"});
    assert!(allows(free.clone(), "{ \"a\": [1, 2] }"));
    assert!(!allows(free.clone(), "{  \"a\": 1}"), "two spaces");
    assert!(!allows(free.clone(), "{\n\n\"a\": 1}"), "an empty line");
    let deep = format!("{{\n{}\"a\": 1}}", " ".repeat(64));
    assert!(allows(free.clone(), &deep));
    let deeper = format!("{{\n{}\"a\": 1}}", " ".repeat(65));
    assert!(!allows(free.clone(), &deeper));
    assert!(!allows(free.clone(), " {}"));
    assert!(!allows(free, "\n{}"));
}

#[test]
fn any_object_is_an_object() {
    let vocabulary = Vocabulary::nano();
    let held = vocabulary.compile(&Grammar::JsonObject).unwrap();
    assert!(vocabulary.allows(held.fork(), r#"{"a":{"b":[null,true,1.5e3,"x"]}}"#));
    for bad in ["[]", "1", "{\"a\"}", "{a:1}", "{\"a\":01}"] {
        assert!(!vocabulary.allows(held.fork(), bad), "{bad}");
    }
}

#[test]
fn references_lead_where_they_point() {
    let list = json!({"$ref": "#/$defs/li~1st%20x", "$defs": {"li/st x": {"type": "object", "properties": {
        "value": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}
    }, "required": ["value", "next"], "additionalProperties": false}}});
    assert!(allows(list.clone(), r#"{"value":1,"next":{"value":2,"next":null}}"#));
    assert!(!allows(list, r#"{"value":1,"next":{"value":2}}"#));
}

#[test]
fn branches_that_exclude_each_other_are_told_through_references() {
    let pet = |kind: &str| json!({"type": "object", "properties": {"kind": {"const": kind}}, "required": ["kind"], "additionalProperties": false});
    let either = json!({"oneOf": [{"$ref": "#/$defs/cat"}, {"$ref": "#/$defs/dog"}],
        "discriminator": {"propertyName": "kind"}, "$defs": {"cat": pet("cat"), "dog": pet("dog")}});
    assert!(allows(either.clone(), r#"{"kind":"dog"}"#));
    assert!(!allows(either, r#"{"kind":"cow"}"#));
}

#[test]
fn formats_are_held() {
    let of = |format: &str| json!({"type": "string", "format": format});
    for (format, good, bad) in [
        ("date", "2024-02-29", "2023-02-29"),
        ("time", "23:59:59Z", "24:00:00Z"),
        ("date-time", "2024-12-31T01:02:03.5+01:00", "2024-12-31 01:02:03Z"),
        ("duration", "P1DT2H", "P"),
        ("email", "a.b@c-d.example", "a@b@c"),
        ("hostname", "a-b.c", "-a"),
        ("ipv4", "127.0.0.1", "127.0.0.256"),
        ("ipv6", "2001:db8::1", "1::2::3"),
        ("uuid", "123e4567-e89b-12d3-a456-426614174000", "123"),
        ("uri", "https://example.org:80/a?b=c#d", "example"),
    ] {
        assert!(allows(of(format), &json!(good).to_string()), "{format}: {good}");
        assert!(!allows(of(format), &json!(bad).to_string()), "{format}: {bad}");
    }
    assert!(!allows(json!({"type": "integer", "format": "uint8"}), "256"));
    assert!(allows(json!({"type": "integer", "format": "uint8"}), "255"));
}

/// The keyword by which a schema is refused.
fn refused(schema_of: Value) -> String {
    match Vocabulary::nano().compile(&schema(schema_of.clone())) {
        Err(Error::Keyword { keyword, .. }) => keyword,
        Err(other) => format!("{other}"),
        Ok(_) => panic!("{schema_of} was taken"),
    }
}

#[test]
fn what_cannot_be_enforced_is_refused_by_its_keyword() {
    for (keyword, schema) in [
        ("not", json!({"not": {"type": "string"}})),
        ("if", json!({"if": {"type": "string"}, "then": {"minLength": 1}})),
        ("contains", json!({"type": "array", "contains": {"const": 1}})),
        ("uniqueItems", json!({"type": "array", "uniqueItems": true})),
        ("dependentRequired", json!({"type": "object", "dependentRequired": {"a": ["b"]}})),
        ("dependencies", json!({"$schema": "http://json-schema.org/draft-07/schema#", "dependencies": {"a": ["b"]}})),
        ("unevaluatedProperties", json!({"type": "object", "unevaluatedProperties": false})),
        ("propertyNames", json!({"type": "object", "propertyNames": {"pattern": "^a"}})),
        ("nullable", json!({"type": "string", "nullable": true})),
        ("$dynamicRef", json!({"$dynamicRef": "#a"})),
        ("$ref", json!({"$ref": "https://example.org/schema"})),
        ("$ref", json!({"$ref": "#/$defs/none"})),
        ("$ref", json!({"$ref": 5})),
        ("format", json!({"type": "string", "format": "idn-email"})),
        ("format", json!({"type": "string", "format": "unknown"})),
        ("oneOf", json!({"oneOf": [{"type": "integer"}, {"type": "number"}]})),
        ("anyOf", json!({"anyOf": []})),
        ("type", json!({"type": "text"})),
        ("type", json!({"type": []})),
        ("enum", json!({"enum": []})),
        ("enum", json!({"enum": [9007199254740993u64]})),
        ("minimum", json!({"type": "number", "minimum": 1e300})),
        ("minLength", json!({"type": "string", "minLength": -1})),
        ("minLength", json!({"type": "string", "minLength": 1.5})),
        ("maxItems", json!({"type": "array", "maxItems": 1_000_000})),
        ("minProperties", json!({"type": "object", "minProperties": 2})),
        ("minProperties", json!({"type": "object", "properties": {"a": {}, "b": {}}, "minProperties": 1})),
        ("multipleOf", json!({"type": "number", "multipleOf": 0.0000001})),
        ("multipleOf", json!({"type": "integer", "multipleOf": 0})),
        ("pattern", json!({"type": "string", "pattern": "(?=a)b"})),
        ("pattern", json!({"type": "string", "pattern": "a\\bb"})),
        ("pattern", json!({"type": "string", "pattern": "(a"})),
        ("properties", json!({"type": "object", "properties": ["a"]})),
        ("required", json!({"type": "object", "required": "a"})),
        ("x-guidance", json!({"type": "object", "x-guidance": {"lenient": true}})),
        ("schema", json!(5)),
        ("schema", json!({"type": "object", "properties": {"a": "string"}})),
    ] {
        assert_eq!(refused(schema.clone()), keyword, "{schema}");
    }
}

#[test]
fn the_place_of_a_keyword_is_said() {
    let schema_of = json!({"properties": {"a/b": {"items": {"not": {}}}}});
    let error = Vocabulary::nano().compile(&schema(schema_of)).err().unwrap().to_string();
    assert_eq!(error, "the schema's `not` at `/properties/a~1b/items` cannot be enforced: it is not supported");
}

#[test]
fn what_nothing_satisfies_is_refused() {
    for schema in [
        json!(false),
        json!({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}),
        json!({"$ref": "#"}),
        json!({"type": "array", "items": {"$ref": "#"}, "minItems": 1}),
        json!({"type": "string", "minLength": 3, "maxLength": 2}),
        json!({"allOf": [{"type": "string"}, {"type": "integer"}]}),
        json!({"type": "integer", "minimum": 3, "maximum": 2}),
    ] {
        let error = refused(schema.clone());
        assert!(error.starts_with("no value satisfies the schema"), "{schema}: {error}");
    }
}

#[test]
fn what_restricts_nothing_is_taken() {
    for extra in [
        json!({"title": "t", "description": "d", "default": 1, "examples": [1], "$comment": "c", "deprecated": true}),
        json!({"x-order": 1, "nullable": false, "uniqueItems": false, "example": 5, "minimum": null}),
        json!({"$schema": "http://json-schema.org/draft-07/schema#", "$id": "https://example.org/a"}),
        json!({"propertyNames": {"type": "string"}, "maxLength": 4294967295u64}),
    ] {
        let mut schema = json!({"type": "string"});
        schema.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        assert!(allows(schema.clone(), "\"a\""), "{schema}");
        assert!(!allows(schema.clone(), "1"), "{schema}");
    }
}

#[test]
fn expressions_match_the_whole_reply() {
    let vocabulary = Vocabulary::nano();
    let of = |text: &str| vocabulary.compile(&Grammar::Regex(text.to_owned())).unwrap();
    assert!(vocabulary.allows(of("[a-c]+/d?"), "abc/"));
    assert!(!vocabulary.allows(of("[a-c]+/d?"), "abcd"));
    assert!(vocabulary.allows(of("a*"), ""));
    assert!(vocabulary.allows(of(""), ""));
    assert!(vocabulary.allows(of("(yes|no)\\."), "yes."));
    assert!(vocabulary.allows(of("^\\d{3}$"), "123"));
    for bad in ["(", "a(?=b)", "\\1"] {
        assert!(vocabulary.compile(&Grammar::Regex(bad.to_owned())).is_err(), "{bad}");
    }
}

#[test]
fn grammars_are_read() {
    let vocabulary = Vocabulary::nano();
    let sums = "start: term (\"+\" term)*\nterm: NUMBER | \"(\" start \")\"\nNUMBER: /[0-9]{1,4}/\n";
    let held = vocabulary.compile(&Grammar::Lark(sums.to_owned())).unwrap();
    assert!(vocabulary.allows(held.fork(), "1+(2+3)"));
    assert!(!vocabulary.allows(held.fork(), "1+(2+3"));
    for bad in ["", "start: unknown", "start: %json {\"x-guidance\": {\"lenient\": true}}"] {
        assert!(vocabulary.compile(&Grammar::Lark(bad.to_owned())).is_err(), "{bad}");
    }
}

#[test]
fn reasoning_is_free_and_what_follows_is_held() {
    let vocabulary = Vocabulary::nano();
    let thinking = Options { thinking: true };
    for grammar in [schema(json!({"type": "integer"})), Grammar::Regex("[0-9]+".to_owned())] {
        let held = vocabulary.grammars.compile(&grammar, &thinking).unwrap();
        for good in ["I think.\n</think>\n\n42", "</think>42", "<x </thin </think>\n7"] {
            assert!(vocabulary.allows(held.fork(), good), "{good}");
        }
        for bad in ["42", "I think.</think>x", "I think.</think>\n\n\n42", "a</think>"] {
            assert!(!vocabulary.allows(held.fork(), bad), "{bad}");
        }
        // The tag spelt out is the tag.
        let spelt = vocabulary.spelt("hm</think>\n\n42");
        assert_eq!(vocabulary.allows_ids(held.fork(), &spelt), Some(spelt.len()));
        let spelt = vocabulary.spelt("hm</think>x");
        assert_eq!(vocabulary.allows_ids(held.fork(), &spelt), Some(spelt.len() - 1));
    }
}
