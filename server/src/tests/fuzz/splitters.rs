//! Owns: replies cut at random: the splitters of thoughts, calls and stop strings read them the same however they are cut.

use serde_json::json;
use ss_text::{Ending, Reply, ReplyOptions, ReplyParser, ToolSchemas};

use super::random::{Random, pieces, reply, run};

/// The reply of these pieces; where a stop string or a call ends it, nothing more may come.
fn read(options: &ReplyOptions, pieces: &[String], ending: Ending) -> Reply {
    let (mut parser, mut reply) = (ReplyParser::new(options.clone()).unwrap(), Reply::default());
    for piece in pieces {
        let over = parser.is_over();
        let events = parser.push(piece);
        assert!(!over || events.is_empty(), "{events:?} after the end");
        events.into_iter().for_each(|event| reply.add(event));
    }
    parser.finish(ending).into_iter().for_each(|event| reply.add(event));
    assert!(parser.push("more").is_empty() && parser.finish(ending).is_empty());
    reply
}

#[test]
fn a_reply_is_read_the_same_however_it_is_cut() {
    let say = json!({ "function": { "name": "say", "parameters": { "type": "object", "properties": {
        "text": { "type": "string" }, "n": { "type": "integer" } } } } });
    run("splitters", 1000, |case| {
        let mut random = Random(case);
        let options = ReplyOptions {
            thinking: random.one_in(2),
            tools: random.one_in(2).then(|| ToolSchemas::new(std::slice::from_ref(&say))),
            stops: if random.one_in(3) { vec!["END".to_owned(), "\n\n\n".to_owned()] } else { Vec::new() },
            one_call: random.one_in(4),
        };
        let text = reply(&mut random);
        let ending = if random.one_in(3) { Ending::Cut } else { Ending::Natural };
        let whole = read(&options, std::slice::from_ref(&text), ending);
        let cut = read(&options, &pieces(&mut random, &text), ending);
        assert_eq!(cut, whole, "{text:?}");
        for call in whole.calls.iter().filter(|call| call.complete) {
            let arguments: Result<serde_json::Map<_, _>, _> = serde_json::from_str(&call.arguments);
            assert!(arguments.is_ok(), "{}", call.arguments);
        }
        if !options.thinking && options.tools.is_none() && options.stops.is_empty() {
            assert_eq!(whole.text, text);
        }
    });
}
