//! What grammars take at the released vocabulary, where it is at hand: printed, and held to a bound far above.

use std::time::{Duration, Instant};

use serde_json::json;
use ss_generate::Constraint;
use ss_grammar::{Grammar, Options, ToolRule};
use ss_text::AddedTokens;

use crate::walk::{Vocabulary, is_in, schema};

#[test]
fn what_a_mask_takes_at_the_released_vocabulary() {
    let Some(vocabulary) = Vocabulary::released() else {
        eprintln!("skipped: SS_TOKENIZER does not name a directory with the released tokenizer.json");
        return;
    };
    let started = Instant::now();
    vocabulary.grammars.warm().unwrap();
    println!("the tokens: {:?}", started.elapsed());
    let person = json!({"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"},
        "mail": {"type": "string", "format": "email"}, "tags": {"type": "array", "items": {"enum": ["a", "b"]}}}, "required": ["name", "age"],
        "additionalProperties": false});
    let text = "{\"name\": \"Ann Example, who lives at the end of the road\", \"age\": 42, \"mail\": \"ann@example.org\", \"tags\": [\"a\", \"b\"]}";
    let any = "{\"name\": [1, 2, {\"x\": \"a longer text of several words, to see what a text takes\"}], \"b\": null}";
    let tool = ToolRule {
        name: "write".to_owned(),
        parameters: json!({"properties": {"path": {"type": "string"},
        "content": {"type": "string"}, "list": {"type": "array", "items": {"type": "string"}}}, "required": ["path"]}),
        strict: true,
    };
    let call = "<tool_call>\n<function=write>\n<parameter=path>\n/tmp/a.txt\n</parameter>\n<parameter=content>\nfn main() {\n    println!(\"Hello, world\");\n}\n</parameter>\n<parameter=list>\n[\"a\", \"b c d\"]\n</parameter>\n</function>\n</tool_call>";
    let tools = |required| Grammar::Tools { tools: vec![tool.clone()], required, at_most_one: false, named: None };
    let thoughts = format!("I think about it for a while.\n</think>\n\n{text}");
    for (name, grammar, thinking, text) in [
        ("schema", schema(person.clone()), false, text),
        ("any object", Grammar::JsonObject, false, any),
        ("required call", tools(true), false, call),
        ("free call", tools(false), false, call),
        ("schema after thoughts", schema(person), true, thoughts.as_str()),
        (
            "expression",
            Grammar::Regex("[a-zA-Z ,.]{1,300}".to_owned()),
            false,
            "A text of letters, and of points. No more.",
        ),
    ] {
        let started = Instant::now();
        let mut held = vocabulary.grammars.compile(&grammar, &Options { thinking }).unwrap();
        let compiled = started.elapsed();
        let mut times = Vec::new();
        for id in vocabulary.words.tokenizer().encode(text, AddedTokens::Recognise).unwrap() {
            let started = Instant::now();
            assert!(is_in(held.mask().unwrap(), id), "{name}: {:?}", vocabulary.words.text_of(&[id]));
            times.push(started.elapsed());
            held.accept(id).unwrap();
        }
        assert!(vocabulary.may_end(&mut held), "{name}");
        times.sort_unstable();
        let (median, most) = (times[times.len() / 2], times[times.len() - 1]);
        let mean = times.iter().sum::<Duration>() / times.len() as u32;
        println!(
            "{name}: compiled in {compiled:?}; a mask {median:?} (median), {mean:?} (mean), {most:?} (most) of {}",
            times.len()
        );
        assert!(median < Duration::from_millis(50) && compiled < Duration::from_secs(5), "{name}");
    }
}
