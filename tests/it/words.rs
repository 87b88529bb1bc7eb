//! Tokenizer and template of the golden sets give the golden texts.

use serde_json::{Map, Value, json};
use ss_tests::golden::goldens;
use ss_text::{AddedTokens, SpecialTokens, Template, Tokenizer};

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

#[test]
fn round_trips_and_the_rendered_chat() {
    for golden in goldens() {
        let text = golden.text();
        let tokenizer = Tokenizer::open(&golden.model()).unwrap();
        for case in text["encode"].as_array().unwrap() {
            let encoded = tokenizer.encode(case["text"].as_str().unwrap(), AddedTokens::Recognise).unwrap();
            assert_eq!(encoded, ids(&case["ids"]), "{}", case["text"]);
            assert_eq!(tokenizer.decode(&encoded, SpecialTokens::Keep), case["decoded"].as_str().unwrap());
        }
        let template = Template::open(&golden.model(), tokenizer.added_edges()).unwrap();
        let options = Map::from_iter([("add_generation_prompt".to_string(), json!(true))]);
        let chat = &text["chat"];
        let prompt = template.render(chat["messages"].as_array().unwrap(), &[], &options).unwrap();
        assert_eq!(prompt.text(), chat["rendered"].as_str().unwrap());
        assert_eq!(tokenizer.encode_prompt(&prompt).unwrap(), ids(&chat["ids"]));
    }
}
