//! Tool calls: what strict tools allow is read back as arguments that their schemas allow.

use jsonschema::Validator;
use serde_json::{Value, json};
use ss_grammar::{Compiled, Error, Grammar, Options, ToolRule};
use ss_text::{Ending, Reply, ReplyOptions, ReplyParser, ToolSchemas};

use crate::walk::{Dice, Vocabulary};

fn rule(name: &str, parameters: Value) -> ToolRule {
    ToolRule { name: name.to_owned(), parameters, strict: true }
}

fn object(properties: Value, required: Value) -> Value {
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

fn weather() -> ToolRule {
    let properties = json!({"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1, "maximum": 14},
        "unit": {"enum": ["C", "F"]}});
    rule("get_weather", object(properties, json!(["city"])))
}

fn tools(tools: Vec<ToolRule>, required: bool) -> Grammar {
    Grammar::Tools { tools, required, at_most_one: false, named: None }
}

fn compile(grammar: &Grammar) -> Compiled {
    Vocabulary::nano().compile(grammar).unwrap_or_else(|error| panic!("{error}"))
}

/// A call as the template writes it.
fn call(name: &str, arguments: &[(&str, &str)]) -> String {
    let mut text = format!("<tool_call>\n<function={name}>\n");
    arguments.iter().for_each(|(key, value)| text += &format!("<parameter={key}>\n{value}\n</parameter>\n"));
    text + "</function>\n</tool_call>"
}

#[test]
fn a_required_call_is_a_complete_one() {
    let (vocabulary, held) = (Vocabulary::nano(), compile(&tools(vec![weather()], true)));
    let paris = call("get_weather", &[("city", "Paris"), ("days", "3"), ("unit", "C")]);
    let rome = call("get_weather", &[("city", "Rome\nItaly")]);
    for good in [paris.clone(), rome.clone(), format!("{paris}\n{rome}")] {
        assert!(vocabulary.allows(held.fork(), &good), "{good}");
    }
    for bad in [
        String::new(),
        "Hello".to_owned(),
        paris.replace("</tool_call>", ""),
        format!("{paris} and more"),
        format!("Let me see. {paris}"),
        call("get_time", &[]),
        call("get_weather", &[]),
        call("get_weather", &[("days", "3")]),
        call("get_weather", &[("city", "Paris"), ("days", "15")]),
        call("get_weather", &[("city", "Paris"), ("unit", "K")]),
        call("get_weather", &[("city", "Paris"), ("other", "1")]),
        call("get_weather", &[("city", "Paris"), ("city", "Rome")]),
        call("get_weather", &[("city", "a</function>b")]),
        call("get_weather", &[("city", "a<parameter=b>")]),
    ] {
        assert!(!vocabulary.allows(held.fork(), &bad), "{bad}");
    }
}

#[test]
fn one_call_or_one_tool_can_be_asked_for() {
    let vocabulary = Vocabulary::nano();
    let two = vec![weather(), rule("stop", Value::Null)];
    let (paris, stop) = (call("get_weather", &[("city", "Paris")]), call("stop", &[]));
    let one = Grammar::Tools { tools: two.clone(), required: true, at_most_one: true, named: None };
    assert!(vocabulary.allows(compile(&one), &paris));
    assert!(vocabulary.allows(compile(&one), &stop));
    assert!(!vocabulary.allows(compile(&one), &format!("{paris}\n{stop}")));
    let named =
        Grammar::Tools { tools: two.clone(), required: false, at_most_one: false, named: Some("stop".to_owned()) };
    assert!(vocabulary.allows(compile(&named), &stop));
    assert!(!vocabulary.allows(compile(&named), &paris));
    assert!(!vocabulary.allows(compile(&named), "no"));
    let nobody = Grammar::Tools { tools: two, required: true, at_most_one: false, named: Some("none".to_owned()) };
    assert!(matches!(vocabulary.compile(&nobody), Err(Error::Tool { .. })));
}

#[test]
fn prose_is_free_until_a_call_begins() {
    for vocabulary in [Vocabulary::nano(), Vocabulary::tiny()] {
        let held = vocabulary.compile(&tools(vec![weather()], false)).unwrap();
        let paris = call("get_weather", &[("city", "Paris")]);
        for good in ["", "No call.", "a < b <tool", &paris, &format!("I look.\n\n{paris}\n{paris} Done.")] {
            assert!(vocabulary.allows(held.fork(), good), "{good}");
        }
        for bad in [
            paris.replace("get_weather", "get_time"),
            format!("I look. {}", call("get_weather", &[])),
            format!("{paris} {}", call("get_weather", &[("city", "x"), ("days", "x")])),
            "a <tool_call>".to_owned(),
            "a <tool_call> is a tag".to_owned(),
        ] {
            assert!(!vocabulary.allows(held.fork(), &bad), "{bad}");
        }
        let once = Grammar::Tools { tools: vec![weather()], required: false, at_most_one: true, named: None };
        let once = vocabulary.compile(&once).unwrap();
        assert!(vocabulary.allows(once.fork(), &format!("I look. {paris}")));
        assert!(!vocabulary.allows(once.fork(), &format!("I look. {paris} Done.")));
    }
}

#[test]
fn calls_follow_the_reasoning() {
    let vocabulary = Vocabulary::nano();
    let thinking = Options { thinking: true };
    let paris = call("get_weather", &[("city", "Paris")]);
    let required = vocabulary.grammars.compile(&tools(vec![weather()], true), &thinking).unwrap();
    assert!(vocabulary.allows(required.fork(), &format!("Hm <tool_call>.\n</think>\n\n{paris}")));
    assert!(!vocabulary.allows(required.fork(), &paris));
    assert!(!vocabulary.allows(required.fork(), &format!("Hm.</think>\n\nWell, {paris}")));
    let free = vocabulary.grammars.compile(&tools(vec![weather()], false), &thinking).unwrap();
    for good in ["Hm.", "Hm.</think>\n\nYes.", &format!("<tool_call>x</think>\n\nWell, {paris}")] {
        assert!(vocabulary.allows(free.fork(), good), "{good}");
    }
    assert!(!vocabulary.allows(free.fork(), "Hm.</think><tool_call>x"));
}

#[test]
fn a_loose_tool_may_be_called_with_anything() {
    let vocabulary = Vocabulary::nano();
    let loose = ToolRule { name: "f".to_owned(), parameters: json!({"not": {}}), strict: false };
    let held = compile(&tools(vec![loose], true));
    for good in [call("f", &[]), call("f", &[("a", "1"), ("b c", "x\n{\"y\":\n</z>")])] {
        assert!(vocabulary.allows(held.fork(), &good), "{good}");
    }
    for bad in [call("g", &[]), call("f", &[("a\nb", "")]), call("f", &[("a", "</function>")])] {
        assert!(!vocabulary.allows(held.fork(), &bad), "{bad}");
    }
}

#[test]
fn an_answer_or_calls() {
    let vocabulary = Vocabulary::nano();
    let schema = json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": false});
    let grammar = Grammar::JsonOrTools { schema, tools: vec![weather()], at_most_one: false };
    let held = compile(&grammar);
    let paris = call("get_weather", &[("city", "Paris")]);
    for good in ["{\"a\": \"b\"}", &paris, &format!("{paris}\n{paris}")] {
        assert!(vocabulary.allows(held.fork(), good), "{good}");
    }
    for bad in ["x", &format!("{{\"a\": \"b\"}}\n{paris}"), "{\"a\": \"<tool_call>\"}"] {
        assert!(!vocabulary.allows(held.fork(), bad), "{bad}");
    }
}

#[test]
fn what_a_call_cannot_carry_is_refused() {
    let refused =
        |rule: ToolRule| Vocabulary::nano().compile(&tools(vec![rule], true)).err().map(|error| error.to_string());
    let with = |schema: Value| rule("f", object(json!({"a": schema}), json!(["a"])));
    for (rule, part) in [
        (rule("a>b", Value::Null), "function name"),
        (rule("f", object(json!({"a\nb": {}}), json!([]))), "parameter name"),
        (rule("f", object(json!({}), json!(["a"]))), "does not declare"),
        (rule("f", json!({"type": "object", "anyOf": []})), "anyOf"),
        (rule("f", json!({"type": "object", "minProperties": 1})), "minProperties"),
        (rule("f", json!([])), "schema of an object"),
        (with(json!({"type": "null"})), "no value that a call can carry"),
        (with(json!({"const": 1.5})), "no value that a call can carry"),
        (with(json!({"type": ["integer", "string"], "minimum": 5})), "minimum"),
        (with(json!({"type": "string", "pattern": "a\\b"})), "pattern"),
        (with(json!({"type": "array", "uniqueItems": true})), "uniqueItems"),
        (with(json!({"type": "string", "enum": ["</parameter>"]})), "no value"),
    ] {
        let error = refused(rule.clone()).unwrap_or_else(|| panic!("{rule:?} was taken"));
        assert!(error.contains(part), "{rule:?}: {error}");
    }
}

/// A schema of a parameter, and what refers to what in it.
fn random_parameter(dice: &mut Dice) -> Value {
    dice.of(&[
        json!({"type": "string"}),
        json!({"type": ["string", "null"], "maxLength": 20}),
        json!({"type": "string", "pattern": "^[a-z]{1,5}$|x"}),
        json!({"type": "string", "format": "date"}),
        json!({"type": "string", "enum": ["007", "null", "{\"a\":1}", "a b", ""]}),
        json!({"type": "integer", "minimum": -3, "maximum": 1000}),
        json!({"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        json!({"type": "number", "minimum": 0, "maximum": 1}),
        json!({"type": ["boolean", "null"]}),
        json!({"type": "array", "items": {"type": "string"}, "maxItems": 3}),
        json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"$ref": "#/$defs/color"}}}),
        json!({"$ref": "#/$defs/color"}),
        json!({"anyOf": [{"$ref": "#/$defs/point"}, {"type": "null"}]}),
        json!({"enum": ["1", "true", "[", "x", 2, false, null, 1.5]}),
        json!({"anyOf": [{"type": "integer"}, {"type": "string"}, {"type": "array", "items": {"type": "boolean"}}]}),
        json!({"const": "only"}),
        json!({}),
        json!(true),
    ])
}

/// Draws calls of random strict tools, and holds the arguments that the reply's reader reports against the tools' schemas.
#[test]
fn what_is_allowed_is_read_back_as_what_the_schema_allows() {
    let vocabulary = Vocabulary::nano();
    let mut dice = Dice(3);
    let (mut calls, mut given_up) = (0, 0);
    for round in 0..60 {
        let mut properties = serde_json::Map::new();
        for key in ["a", "b/c", "d e"] {
            properties.insert(key.to_owned(), random_parameter(&mut dice));
        }
        let required: Vec<&str> = ["a", "b/c", "d e"].into_iter().filter(|_| dice.below(2) == 0).collect();
        let mut parameters = object(Value::Object(properties), json!(required));
        parameters["$defs"] = json!({"color": {"enum": ["red", "green"]},
            "point": {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"], "additionalProperties": false}});
        let validator: Validator = jsonschema::options().should_validate_formats(true).build(&parameters).unwrap();
        let rules = vec![rule("f", parameters.clone()), rule("g", Value::Null)];
        let held = compile(&tools(rules, true));
        let declared = [json!({"name": "f", "parameters": parameters}), json!({"name": "g"})];
        for _ in 0..3 {
            let Some(text) = vocabulary.draw(held.fork(), &mut dice, 60) else {
                given_up += 1;
                continue;
            };
            let reply = read(&declared, &text);
            assert_eq!(reply.error, None, "{text}");
            assert_eq!(reply.text, "", "{text}");
            assert!(!reply.calls.is_empty(), "{text}");
            for call in reply.calls {
                assert!(call.complete);
                let arguments: Value = serde_json::from_str(&call.arguments).unwrap();
                if call.name == "f" {
                    let said = validator.iter_errors(&arguments).map(|error| error.to_string()).collect::<Vec<_>>();
                    assert!(said.is_empty(), "round {round}: {said:?}\n{text}\n{arguments}\n{parameters}");
                }
                calls += 1;
            }
        }
    }
    assert!(calls > 200 && given_up < 50, "{calls} calls, {given_up} given up");
}

fn read(declared: &[Value], text: &str) -> Reply {
    let options = ReplyOptions { thinking: false, tools: Some(ToolSchemas::new(declared)), ..ReplyOptions::default() };
    let mut parser = ReplyParser::new(options).unwrap();
    let mut reply = Reply::default();
    let mut events = parser.push(text);
    events.extend(parser.finish(Ending::Natural));
    events.into_iter().for_each(|event| reply.add(event));
    reply
}
