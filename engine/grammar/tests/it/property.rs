//! Random schemas: what the grammar allows the schema allows, by another program's judgement.

use serde_json::{Map, Value, json};

use crate::walk::{Dice, Vocabulary, schema};

fn random(dice: &mut Dice, depth: usize) -> Value {
    let plain = 9;
    let kinds = if depth == 0 { plain } else { 16 };
    match dice.below(kinds) {
        0 => dice.of(&[json!({"type": "null"}), json!({"type": "boolean"}), json!({"const": null})]),
        1 => integer(dice),
        2 => number(dice),
        3 => string(dice),
        4 => json!({"enum": (0..1 + dice.below(4)).map(|_| literal(dice, 1)).collect::<Vec<_>>()}),
        5 => json!({"const": literal(dice, 2)}),
        6 => json!({"type": "string", "format": dice.of(&["date", "uuid", "ipv4", "email", "date-time", "uri"])}),
        7 => json!({"type": dice.of(&[json!(["string", "null"]), json!(["integer", "boolean"]), json!("string")])}),
        8 => json!({"$ref": dice.of(&["#/$defs/node", "#/$defs/word"])}),
        9 | 10 => object(dice, depth - 1),
        11 => array(dice, depth - 1),
        12 => json!({"anyOf": (0..2).map(|_| random(dice, depth - 1)).collect::<Vec<_>>()}),
        13 => json!({"oneOf": [{"type": "string"}, integer(dice), {"type": "null"}]}),
        14 => json!({"allOf": [integer(dice), integer(dice)]}),
        _ => {
            json!({"allOf": [object(dice, depth - 1), {"type": "object", "properties": {"a": {}, "z": {"type": "null"}}}]})
        }
    }
}

fn integer(dice: &mut Dice) -> Value {
    let mut out = json!({"type": "integer"});
    let low = dice.below(2000) as i64 - 1000;
    match dice.below(5) {
        0 => out["minimum"] = json!(low),
        1 => out["exclusiveMaximum"] = json!(low),
        2 => (out["minimum"], out["maximum"]) = (json!(low), json!(low + 300)),
        3 => (out["minimum"], out["maximum"], out["multipleOf"]) = (json!(0), json!(500), json!(dice.of(&[2, 3, 7]))),
        _ => {}
    }
    out
}

fn number(dice: &mut Dice) -> Value {
    let low = f64::from(dice.below(2000) as u32) / 8.0 - 100.0;
    dice.of(&[
        json!({"type": "number", "minimum": low, "maximum": low + 2.5}),
        json!({"type": "number", "exclusiveMinimum": low, "exclusiveMaximum": low + 0.5}),
        json!({"type": "number", "minimum": 0, "maximum": 10, "multipleOf": 0.5}),
        json!({"type": "number", "exclusiveMinimum": 0}),
    ])
}

fn string(dice: &mut Dice) -> Value {
    dice.of(&[
        json!({"type": "string"}),
        json!({"type": "string", "minLength": 2, "maxLength": 4}),
        json!({"type": "string", "pattern": "^[A-Z][a-z]{0,3}-\\d+$"}),
        json!({"type": "string", "pattern": "ab|^c"}),
        json!({"type": "string", "pattern": "\\w\"", "maxLength": 9}),
    ])
}

fn literal(dice: &mut Dice, depth: usize) -> Value {
    let kinds = if depth == 0 { 6 } else { 8 };
    match dice.below(kinds) {
        0 => Value::Null,
        1 => json!(true),
        2 => json!(dice.below(100) as i64 - 50),
        3 => json!(f64::from(dice.below(100) as u32) / 4.0),
        4 => json!("é\"\\\n\u{7f}<"),
        5 => json!(""),
        6 => json!([literal(dice, depth - 1)]),
        _ => json!({"k\"": literal(dice, depth - 1)}),
    }
}

fn object(dice: &mut Dice, depth: usize) -> Value {
    let mut properties = Map::new();
    for name in ["a", "b\"c", "é"].into_iter().take(1 + dice.below(3)) {
        properties.insert(name.to_owned(), random(dice, depth));
    }
    let required: Vec<String> = properties.keys().filter(|_| dice.below(2) == 0).cloned().collect();
    let mut out = json!({"type": "object", "properties": properties, "required": required});
    match dice.below(4) {
        0 => out["additionalProperties"] = random(dice, 0),
        1 => out["patternProperties"] = json!({"^x_": {"type": "integer"}}),
        2 => {}
        _ => out["additionalProperties"] = json!(false),
    }
    out
}

fn array(dice: &mut Dice, depth: usize) -> Value {
    let item = random(dice, depth);
    match dice.below(4) {
        0 => json!({"type": "array", "items": item, "minItems": 1, "maxItems": 2}),
        1 => json!({"type": "array", "prefixItems": [item, {"type": "null"}], "items": false}),
        2 => {
            json!({"type": "array", "items": [item], "additionalItems": {"type": "boolean"}, "$schema": "http://json-schema.org/draft-07/schema#"})
        }
        _ => json!({"type": "array", "items": item}),
    }
}

/// The judge takes -0 for a fraction.
fn without_negative_zero(value: Value) -> Value {
    match value {
        Value::Number(number) if number.as_f64() == Some(0.0) => json!(0),
        Value::Array(items) => items.into_iter().map(without_negative_zero).collect(),
        Value::Object(fields) => fields.into_iter().map(|(key, field)| (key, without_negative_zero(field))).collect(),
        other => other,
    }
}

#[test]
fn what_a_grammar_allows_its_schema_allows() {
    let vocabulary = Vocabulary::nano();
    let mut dice = Dice(11);
    let (mut held, mut refused, mut drawn, mut endless) = (0, 0, 0, 0);
    for round in 0..250 {
        let mut whole = random(&mut dice, 3);
        if let Some(keys) = whole.as_object_mut() {
            keys.insert("$defs".to_owned(), json!({"word": {"type": "string", "maxLength": 5},
                "node": {"type": "object", "properties": {"n": {"type": "integer"}, "next": {"$ref": "#/$defs/node"}}, "required": ["n"],
                "additionalProperties": false}}));
        }
        // The judge reads lists of items in the old way where it is told to for the whole.
        let old = whole.to_string().contains("draft-07");
        let draft = if old { jsonschema::Draft::Draft7 } else { jsonschema::Draft::Draft202012 };
        if old && (whole.to_string().contains("prefixItems") || whole.to_string().contains("$ref")) {
            continue;
        }
        let judge = jsonschema::options().with_draft(draft).should_validate_formats(true).build(&whole).unwrap();
        let grammar = match vocabulary.compile(&schema(whole.clone())) {
            Ok(grammar) => grammar,
            Err(error) => {
                let said = error.to_string();
                assert!(
                    said.contains("no value satisfies") || said.contains("patternProperties") || said.contains("enum"),
                    "{said}: {whole}"
                );
                refused += 1;
                continue;
            }
        };
        held += 1;
        for _ in 0..3 {
            let Some(text) = vocabulary.draw(grammar.fork(), &mut dice, 40) else {
                endless += 1;
                continue;
            };
            let value: Value = match serde_json::from_str(&text) {
                Ok(value) => without_negative_zero(value),
                // A number that no bound holds may be larger than any machine's.
                Err(error) if error.to_string().contains("out of range") => continue,
                Err(error) => panic!("round {round}: {error}: {text}\n{whole}"),
            };
            let said: Vec<String> = judge.iter_errors(&value).map(|error| error.to_string()).collect();
            assert!(said.is_empty(), "round {round}: {said:?}\n{text}\n{whole}");
            drawn += 1;
        }
    }
    println!("{held} schemas held, {refused} refused, {drawn} texts drawn, {endless} given up");
    assert!(
        held > 150 && drawn > 400 && endless < 40,
        "{held} held, {refused} refused, {drawn} drawn, {endless} given up"
    );
}
