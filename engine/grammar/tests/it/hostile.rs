//! Input that means harm: each gives an error, or a grammar that is quickly compiled and quickly kept to; never a panic.

use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use ss_generate::Constraint;
use ss_grammar::{Grammar, ToolRule};

use crate::walk::{Vocabulary, schema};

/// Far above what any of them takes, and far below what would be noticed as a hang on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// Compiles, and asks for a few masks.
fn survives(name: &str, grammar: &Grammar) {
    let vocabulary = Vocabulary::nano();
    let started = Instant::now();
    let outcome = match vocabulary.compile(grammar) {
        Err(error) => {
            let said = error.to_string();
            assert!(!said.contains("panic") && !said.contains('\n') && said.len() < 700, "{name}: {said}");
            said
        }
        Ok(mut held) => {
            let compiled = started.elapsed();
            let mut steps = 0;
            for _ in 0..40 {
                let Ok(Some(mask)) = held.mask().map(|mask| mask.map(<[u32]>::to_vec)) else { break };
                let stops = vocabulary.words.stop_ids();
                let open = (0..mask.len() as u32 * 32)
                    .find(|id| mask[(*id / 32) as usize] >> (*id % 32) & 1 == 1 && !stops.contains(id));
                let Some(id) = open else { break };
                if held.accept(id).is_err() {
                    break;
                }
                steps += 1;
            }
            format!("taken in {compiled:?}, {steps} steps")
        }
    };
    println!("{name}: {:?}, {}", started.elapsed(), outcome.chars().take(140).collect::<String>());
    assert!(started.elapsed() < PATIENCE, "{name} took {:?}", started.elapsed());
}

fn nested(depth: usize, wrap: impl Fn(Value) -> Value) -> Value {
    (0..depth).fold(json!({"type": "string"}), |inner, _| wrap(inner))
}

#[test]
fn deep_schemas() {
    for depth in [40, 60, 100, 1000] {
        survives(
            "properties",
            &schema(nested(depth, |inner| json!({"type": "object", "properties": {"a": inner}, "required": ["a"]}))),
        );
        survives("items", &schema(nested(depth, |inner| json!({"type": "array", "items": inner}))));
        survives("anyOf", &schema(nested(depth, |inner| json!({"anyOf": [inner, {"type": "null"}]}))));
        survives("allOf", &schema(nested(depth, |inner| json!({"allOf": [inner, {}]}))));
        survives("const", &schema(json!({"const": nested(depth, |inner| json!([inner]))})));
    }
}

#[test]
fn wide_schemas() {
    let names = |count: usize| (0..count).map(|number| (format!("property{number}"), json!({"type": "string"})));
    for count in [100, 1000, 20_000] {
        let optional =
            json!({"type": "object", "properties": Map::from_iter(names(count)), "additionalProperties": false});
        survives("optional properties", &schema(optional));
        let required: Vec<String> = names(count).map(|(name, _)| name).collect();
        survives(
            "required properties",
            &schema(json!({"type": "object", "properties": Map::from_iter(names(count)), "required": required})),
        );
        let values: Vec<Value> = (0..count).map(|number| json!(format!("value number {number}"))).collect();
        survives("enum", &schema(json!({"enum": values})));
        let branches: Vec<Value> = (0..count)
            .map(|number| json!({"type": "object", "properties": {"k": {"const": number}}, "required": ["k"]}))
            .collect();
        survives("anyOf", &schema(json!({"anyOf": branches})));
        survives("oneOf", &schema(json!({"oneOf": branches[..count.min(1000)]})));
    }
    survives("long value", &schema(json!({"const": "x".repeat(400 << 10)})));
    survives("too long value", &schema(json!({"const": "x".repeat(1 << 20)})));
    survives("a megabyte", &schema(json!({"type": "string", "description": "x".repeat(1 << 20)})));
}

#[test]
fn schemas_that_multiply() {
    let mut defs = Map::new();
    for level in 0..30 {
        let next = json!({"$ref": format!("#/$defs/d{}", level + 1)});
        defs.insert(format!("d{level}"), json!({"allOf": [next, next], "anyOf": [next, next]}));
    }
    defs.insert("d30".to_owned(), json!({"type": "string"}));
    survives("doubling", &schema(json!({"$ref": "#/$defs/d0", "$defs": defs})));
    let mut defs = Map::new();
    for level in 0..12 {
        let next = json!({"$ref": format!("#/$defs/d{}", level + 1)});
        defs.insert(format!("d{level}"), json!({"oneOf": [next, next, next]}));
    }
    defs.insert("d12".to_owned(), json!({"type": "string"}));
    survives("tripling", &schema(json!({"$ref": "#/$defs/d0", "$defs": defs})));
    let pairs: Vec<Value> = (0..12).map(|_| json!({"anyOf": [{"minLength": 1}, {"maxLength": 3}]})).collect();
    survives("products", &schema(json!({"type": "string", "allOf": pairs})));
    let pairs: Vec<Value> = (0..20).map(|n| json!({"anyOf": [{"properties": {(format!("a{n}")): {"type": "string"}}}, {"properties": {(format!("b{n}")): {"type": "null"}}}]})).collect();
    survives("products of objects", &schema(json!({"type": "object", "allOf": pairs})));
}

#[test]
fn circles() {
    for circle in [
        json!({"$ref": "#"}),
        json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}),
        json!({"anyOf": [{"$ref": "#"}, {"type": "string"}]}),
        json!({"anyOf": [{"$ref": "#"}, {"$ref": "#"}, {"type": "string"}]}),
        json!({"allOf": [{"$ref": "#"}, {"type": "string"}]}),
        json!({"oneOf": [{"$ref": "#"}, {"type": "string"}]}),
        json!({"type": "object", "additionalProperties": {"$ref": "#"}, "properties": {"a": {"$ref": "#/properties/a"}}}),
        json!({"$ref": "#/$defs/a", "$defs": {"a": {"type": "object", "properties": {"a": {"$ref": "#/$defs/a", "minProperties": 1}}}}}),
    ] {
        survives(&circle.to_string(), &schema(circle));
    }
}

#[test]
fn costly_expressions() {
    for expression in [
        "(a*)*b",
        "(a|a)*c",
        "(a{0,1000}){0,1000}",
        "((a{1000}){1000}){1000}",
        ".{0,100000}x.{100}",
        "(.*a){50}",
        "(x+x+)+y",
        "[ab]*a[ab]{30}",
        "(?i)(straße|ſ){200}",
        "\\p{L}{1000}",
        "(\\w+\\s?)*$",
        "a{4294967295}",
        "(?:a?){500}a{500}",
    ] {
        survives(expression, &Grammar::Regex(expression.to_owned()));
        survives(expression, &schema(json!({"type": "string", "pattern": expression})));
        let tool = ToolRule {
            name: "f".to_owned(),
            parameters: json!({"properties": {"a": {"type": "string", "pattern": expression}}}),
            strict: true,
        };
        survives(expression, &Grammar::Tools { tools: vec![tool], required: true, at_most_one: true, named: None });
    }
    survives("long", &Grammar::Regex("a|".repeat(100_000) + "b"));
    survives("nested", &Grammar::Regex("(".repeat(5000) + &")".repeat(5000)));
    survives("too long", &Grammar::Regex("a".repeat(1 << 20)));
}

#[test]
fn costly_grammars() {
    for grammar in [
        "start: start start | \"a\" | \"\"".to_owned(),
        "start: a\na: b\nb: a".to_owned(),
        "start: a a a a a a\na: \"x\"? \"x\"? \"x\"? \"x\"? \"x\"?".to_owned(),
        "start: ".to_owned() + &"(".repeat(10_000),
        "start: ".to_owned() + &"\"a\" | ".repeat(20_000) + "\"b\"",
        "start: A{1000000}\nA: /a/".to_owned(),
        "start: %json {\"type\": \"object\", \"properties\": {\"a\": {\"not\": {}}}}".to_owned(),
        "start: %json ".to_owned() + &"[".repeat(10_000),
        "start: <[999999999]>".to_owned(),
        "start: <|nothing|>".to_owned(),
        "\u{0}".to_owned(),
        "start: /é{1,3}/ \"\\u00e9\"".to_owned(),
    ] {
        survives(&grammar.chars().take(60).collect::<String>(), &Grammar::Lark(grammar));
    }
}

#[test]
fn multibyte_text_where_messages_are_cut() {
    let long = "é".repeat(200);
    survives("type", &schema(json!({"type": long})));
    survives("pattern", &schema(json!({"pattern": format!("({long}")})));
    survives("format", &schema(json!({"format": long})));
    survives("reference", &schema(json!({"$ref": format!("#/{long}")})));
    survives("keyword", &schema(json!({"properties": {(long.clone()): {"not": {}}}})));
    survives(
        "name",
        &Grammar::Tools {
            tools: vec![ToolRule { name: format!("<{long}"), parameters: json!({}), strict: true }],
            required: true,
            at_most_one: false,
            named: None,
        },
    );
}
