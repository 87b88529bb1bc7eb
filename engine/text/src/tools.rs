//! Owns: finding tool calls in an answer while it is written (chat-template.md section 5.2 to 5.4).
//! Refuses: repeated parameters, undeclared functions, and calls left open at a normal stop: errors of the turn.
//! Invariants: a call's pieces joined are its final JSON; a call ends only at `</tool_call>`; each byte is looked at a
//! fixed number of times, however long an argument is.

use std::collections::HashSet;

use serde_json::Value;

use crate::reply::{Ending, Event};
use crate::search::Search;
use crate::values::{ToolSchemas, ValueKind};

const CALL: &str = "<tool_call>";
const CALL_END: &str = "</tool_call>";
const FUNCTION: &str = "<function=";
const FUNCTION_END: &str = "</function>";
const PARAMETER: &str = "<parameter=";
const PARAMETER_END: &str = "</parameter>";

/// Why a reply with tool calls cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TurnError {
    /// One call gives a parameter twice.
    #[error("the model gave parameter {parameter:?} of function {function:?} twice in one call")]
    RepeatedParameter {
        /// The function called.
        function: String,
        /// The parameter's name.
        parameter: String,
    },
    /// A call was begun, and the reply went on or ended without closing it.
    #[error("the model began a call of function {function:?} and did not close it")]
    Unclosed {
        /// The function called, as far as its name was written.
        function: String,
    },
    /// The function called is none of the tools.
    #[error("the model called function {function:?}, which is not among the tools")]
    Undeclared {
        /// The function called.
        function: String,
    },
}

/// The tags that can follow inside a call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tag {
    Call,
    CallEnd,
    Function,
    FunctionEnd,
    Parameter,
    ParameterEnd,
}

/// Tags looked for between parameters and after the function.
const CALL_TAGS: [(Tag, &str); 5] = [
    (Tag::Parameter, PARAMETER),
    (Tag::FunctionEnd, FUNCTION_END),
    (Tag::CallEnd, CALL_END),
    (Tag::Call, CALL),
    (Tag::Function, FUNCTION),
];

/// Tags that end a value: the text of a value may hold the others.
const VALUE_TAGS: [(Tag, &str); 4] = [
    (Tag::ParameterEnd, PARAMETER_END),
    (Tag::Parameter, PARAMETER),
    (Tag::FunctionEnd, FUNCTION_END),
    (Tag::CallEnd, CALL_END),
];

/// An answer being parted into text and calls.
pub struct ToolSplitter {
    schemas: ToolSchemas,
    place: Place,
    /// Calls begun so far.
    calls: usize,
    /// White space after a call: dropped before another call and at the end, given out before text.
    gap: Option<String>,
}

/// Where in the grammar the text read so far ends.
enum Place {
    Text(Search),
    /// After `<tool_call>`: what followed, and how much of it is white space.
    Opening {
        seen: String,
        blank: usize,
    },
    /// After `<function=`.
    Name {
        name: String,
    },
    /// Inside a function, outside its parameters; `done` once the function was closed.
    Function {
        call: OpenCall,
        search: Search,
        done: bool,
    },
    /// After `<parameter=`.
    Key {
        call: OpenCall,
        key: String,
    },
    Value {
        call: OpenCall,
        value: OpenValue,
        search: Search,
    },
    /// After an error of the turn: nothing more is read.
    Failed,
}

/// A call being written.
struct OpenCall {
    index: usize,
    name: String,
    keys: HashSet<String>,
    /// The JSON given out so far.
    json: String,
}

/// A value being written.
struct OpenValue {
    kind: ValueKind,
    /// Text of a value that is typed once it is complete.
    text: String,
    /// Whether the newline after the opening tag may still come.
    fresh: bool,
    /// A newline that is dropped if the value ends after it.
    newline: bool,
}

impl ToolSplitter {
    /// An answer at its start, with the functions that the conversation offers.
    pub fn new(schemas: ToolSchemas) -> Self {
        ToolSplitter { schemas, place: Place::text(), calls: 0, gap: None }
    }

    /// Reads a piece and adds what it brings to `events`: text, pieces of calls, at last an error of the turn.
    pub fn push(&mut self, piece: &str, events: &mut Vec<Event>) {
        let mut rest = piece;
        while !rest.is_empty() {
            let place = std::mem::replace(&mut self.place, Place::Failed);
            let (place, read) = match place {
                Place::Text(search) => self.read_text(search, rest, events),
                Place::Opening { seen, blank } => self.read_opening(seen, blank, rest, events),
                Place::Name { name } => self.read_name(name, rest, events),
                Place::Function { call, search, done } => self.read_function(call, search, done, rest, events),
                Place::Key { call, key } => self.read_key(call, key, rest, events),
                Place::Value { call, value, search } => self.read_value(call, value, search, rest, events),
                Place::Failed => return,
            };
            self.place = place;
            rest = rest.get(read..).unwrap_or_default();
        }
    }

    /// The end of the answer: text that was held back, or the error that a call was left open at a natural end.
    pub fn finish(&mut self, ending: Ending, events: &mut Vec<Event>) {
        let function = match std::mem::replace(&mut self.place, Place::Failed) {
            Place::Text(mut search) => return self.give_text(&search.drain(), events),
            Place::Opening { seen, .. } => return self.give_text(&(CALL.to_owned() + &seen), events),
            Place::Name { name } => name,
            Place::Function { call, .. } | Place::Key { call, .. } | Place::Value { call, .. } => call.name,
            Place::Failed => return,
        };
        if ending == Ending::Natural {
            events.push(Event::Failed(TurnError::Unclosed { function }));
        }
    }

    fn read_text(&mut self, mut search: Search, rest: &str, events: &mut Vec<Event>) -> (Place, usize) {
        let step = search.push(rest);
        self.give_text(&step.before, events);
        match step.found {
            Some((_, end)) => (Place::Opening { seen: String::new(), blank: 0 }, end),
            None => (Place::Text(search), rest.len()),
        }
    }

    /// A block begins only with `<function=`; an empty pair is dropped; anything else was text.
    fn read_opening(
        &mut self,
        mut seen: String,
        mut blank: usize,
        rest: &str,
        events: &mut Vec<Event>,
    ) -> (Place, usize) {
        for (at, c) in rest.char_indices() {
            seen.push(c);
            if blank + c.len_utf8() == seen.len() && c.is_whitespace() {
                blank = seen.len();
                continue;
            }
            let (tag, read) = (&seen[blank..], at + c.len_utf8());
            if tag == FUNCTION {
                return (Place::Name { name: String::new() }, read);
            }
            if tag == CALL_END {
                return (Place::text(), read);
            }
            if !FUNCTION.starts_with(tag) && !CALL_END.starts_with(tag) {
                self.give_text(CALL, events);
                self.give_text(&seen[..blank], events);
                let mut search = Search::new([CALL]);
                self.give_text(&search.push(tag).before, events);
                return (Place::Text(search), read);
            }
        }
        (Place::Opening { seen, blank }, rest.len())
    }

    fn read_name(&mut self, mut name: String, rest: &str, events: &mut Vec<Event>) -> (Place, usize) {
        let Some(end) = rest.find('>') else {
            name.push_str(rest);
            return (Place::Name { name }, rest.len());
        };
        name.push_str(&rest[..end]);
        let name = name.trim().to_owned();
        if !self.schemas.declares(&name) {
            events.push(Event::Failed(TurnError::Undeclared { function: name }));
            return (Place::Failed, rest.len());
        }
        let index = self.calls;
        self.calls += 1;
        self.gap = None;
        events.push(Event::CallStart { index, name: name.clone() });
        let call = OpenCall { index, name, keys: HashSet::new(), json: String::new() };
        (Place::function(call), end + 1)
    }

    fn read_function(
        &mut self,
        call: OpenCall,
        mut search: Search,
        done: bool,
        rest: &str,
        events: &mut Vec<Event>,
    ) -> (Place, usize) {
        let Some((tag, end)) = search.push(rest).found else {
            return (Place::Function { call, search, done }, rest.len());
        };
        let place = match CALL_TAGS[tag].0 {
            Tag::CallEnd => self.end_call(call, events),
            Tag::Parameter if !done => Place::Key { call, key: String::new() },
            Tag::FunctionEnd => Place::Function { call, search, done: true },
            _ => {
                events.push(Event::Failed(TurnError::Unclosed { function: call.name }));
                Place::Failed
            }
        };
        (place, end)
    }

    fn read_key(&mut self, mut call: OpenCall, mut key: String, rest: &str, events: &mut Vec<Event>) -> (Place, usize) {
        let Some(end) = rest.find('>') else {
            key.push_str(rest);
            return (Place::Key { call, key }, rest.len());
        };
        key.push_str(&rest[..end]);
        let key = key.trim().to_owned();
        if !call.keys.insert(key.clone()) {
            events.push(Event::Failed(TurnError::RepeatedParameter { function: call.name, parameter: key }));
            return (Place::Failed, rest.len());
        }
        let kind = self.schemas.kind(&call.name, &key);
        let value = OpenValue::begin(&mut call, &key, kind, events);
        (Place::Value { call, value, search: Search::new(VALUE_TAGS.map(|(_, text)| text)) }, end + 1)
    }

    fn read_value(
        &mut self,
        mut call: OpenCall,
        mut value: OpenValue,
        mut search: Search,
        rest: &str,
        events: &mut Vec<Event>,
    ) -> (Place, usize) {
        let step = search.push(rest);
        value.add(&step.before, &mut call, events);
        let Some((tag, end)) = step.found else {
            return (Place::Value { call, value, search }, rest.len());
        };
        value.end(&mut call, events);
        let place = match VALUE_TAGS[tag].0 {
            Tag::CallEnd => self.end_call(call, events),
            Tag::Parameter => Place::Key { call, key: String::new() },
            tag => Place::Function { call, search: Place::call_search(), done: tag == Tag::FunctionEnd },
        };
        (place, end)
    }

    fn end_call(&mut self, mut call: OpenCall, events: &mut Vec<Event>) -> Place {
        call.give(if call.json.is_empty() { "{}" } else { "}" }, events);
        self.gap = Some(String::new());
        events.push(Event::CallEnd { index: call.index, name: call.name, arguments: call.json });
        Place::text()
    }

    fn give_text(&mut self, text: &str, events: &mut Vec<Event>) {
        let text = match &mut self.gap {
            None => text.to_owned(),
            Some(gap) => {
                gap.push_str(text);
                if gap.trim_end().is_empty() {
                    return;
                }
                self.gap.take().unwrap_or_default()
            }
        };
        if !text.is_empty() {
            events.push(Event::Text(text));
        }
    }
}

impl Place {
    fn text() -> Self {
        Place::Text(Search::new([CALL]))
    }

    fn function(call: OpenCall) -> Self {
        Place::Function { call, search: Self::call_search(), done: false }
    }

    fn call_search() -> Search {
        Search::new(CALL_TAGS.map(|(_, text)| text))
    }
}

impl OpenCall {
    /// Gives out the next piece of the arguments.
    fn give(&mut self, json: &str, events: &mut Vec<Event>) {
        if !json.is_empty() {
            self.json.push_str(json);
            events.push(Event::CallArguments { index: self.index, json: json.to_owned() });
        }
    }
}

impl OpenValue {
    fn begin(call: &mut OpenCall, key: &str, kind: ValueKind, events: &mut Vec<Event>) -> Self {
        let open = if call.json.is_empty() { '{' } else { ',' };
        let quote = if kind == ValueKind::Text { "\"" } else { "" };
        call.give(&format!("{open}{}:{quote}", Value::from(key)), events);
        OpenValue { kind, text: String::new(), fresh: true, newline: false }
    }

    /// Adds written text: one newline after the opening tag and one before the closing tag are no part of the value.
    fn add(&mut self, text: &str, call: &mut OpenCall, events: &mut Vec<Event>) {
        let mut text = text;
        if self.fresh && !text.is_empty() {
            self.fresh = false;
            text = text.strip_prefix('\n').unwrap_or(text);
        }
        if text.is_empty() {
            return;
        }
        let held = if self.newline { "\n" } else { "" };
        let kept = text.strip_suffix('\n');
        self.newline = kept.is_some();
        self.give(&(held.to_owned() + kept.unwrap_or(text)), call, events);
    }

    fn give(&mut self, text: &str, call: &mut OpenCall, events: &mut Vec<Event>) {
        if self.kind == ValueKind::Text {
            let quoted = Value::from(text).to_string();
            call.give(quoted.get(1..quoted.len() - 1).unwrap_or_default(), events);
        } else {
            self.text.push_str(text);
        }
    }

    fn end(self, call: &mut OpenCall, events: &mut Vec<Event>) {
        if self.kind == ValueKind::Text {
            call.give("\"", events);
        } else {
            call.give(&self.kind.json(&self.text), events);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn splitter() -> ToolSplitter {
        let properties = json!({
            "text": {"type": "string"}, "n": {"type": "integer"}, "list": {"type": "array"}, "opt": {"type": ["string", "null"]}
        });
        ToolSplitter::new(ToolSchemas::new(&[
            json!({"type": "function", "function": {"name": "f", "parameters": {"properties": properties}}}),
            json!({"type": "function", "function": {"name": "g"}}),
        ]))
    }

    /// Text and calls as one line, e.g. `a[f {"n":1}]b`, with `!error` at the end of a failed turn.
    fn told(pieces: &[&str], ending: Ending) -> String {
        let (mut splitter, mut events) = (splitter(), Vec::new());
        pieces.iter().for_each(|piece| splitter.push(piece, &mut events));
        splitter.finish(ending, &mut events);
        let mut told = String::new();
        let mut joined = String::new();
        for event in events {
            match event {
                Event::Text(text) => told += &text,
                Event::CallStart { .. } => joined.clear(),
                Event::CallArguments { json, .. } => joined += &json,
                Event::CallEnd { name, arguments, .. } => {
                    assert_eq!(joined, arguments);
                    assert!(serde_json::from_str::<Value>(&arguments).is_ok(), "{arguments}");
                    told += &format!("[{name} {arguments}]");
                }
                Event::Failed(error) => told += &format!("!{error}"),
                Event::Reasoning(_) | Event::Stop(_) => unreachable!(),
            }
        }
        told
    }

    fn whole(text: &str) -> String {
        told(&[text], Ending::Natural)
    }

    #[test]
    fn calls_are_read_as_the_template_writes_them() {
        let text = "Both.\n\n<tool_call>\n<function=f>\n<parameter=text>\na\n\"b\"\n</parameter>\n<parameter=n>\n3\n</parameter>\n\
                    </function>\n</tool_call>\n<tool_call>\n<function=g>\n</function>\n</tool_call>\n";
        assert_eq!(whole(text), "Both.\n\n[f {\"text\":\"a\\n\\\"b\\\"\",\"n\":3}][g {}]");
    }

    #[test]
    fn text_after_a_call_is_kept_with_its_white_space() {
        let call = "<tool_call><function=g></function></tool_call>";
        assert_eq!(whole(&format!("{call}\n done ")), "[g {}]\n done ");
        assert_eq!(whole(&format!("{call}\n \n{call} \n")), "[g {}][g {}]");
    }

    #[test]
    fn exactly_one_newline_is_removed_at_each_end() {
        let value = |body: &str| {
            whole(&format!("<tool_call><function=f><parameter=text>{body}</parameter></function></tool_call>"))
        };
        for (body, text) in
            [("", ""), ("\n", ""), ("\n\n", ""), ("\n\n\n", "\n"), ("a", "a"), (" a \n", " a "), ("\n\na\n\n", "\na\n")]
        {
            assert_eq!(value(body), format!("[f {}]", json!({"text": text})));
        }
    }

    #[test]
    fn a_tag_that_begins_no_block_is_text() {
        for text in [
            "<tool_call> is a tag",
            "<tool_call>\n<fun",
            "<tool_call>",
            "a <tool_",
            "<tool_call><functionx",
            "</tool_call>",
        ] {
            assert_eq!(whole(text), text);
        }
        assert_eq!(whole("a<tool_call>\n </tool_call>b"), "ab");
        assert_eq!(whole("<tool_call><tool_call>\n<function=g></function></tool_call>"), "<tool_call>[g {}]");
        assert_eq!(whole("<tool_call></tool_<tool_call><function=g></tool_call>"), "<tool_call></tool_[g {}]");
    }

    #[test]
    fn whichever_tag_comes_first_ends_a_value() {
        let n = "<tool_call><function=f><parameter=n>1";
        assert_eq!(whole(&format!("{n}</function></tool_call>")), "[f {\"n\":1}]");
        assert_eq!(whole(&format!("{n}\n</tool_call>")), "[f {\"n\":1}]");
        assert_eq!(
            whole(&format!("{n}\n<parameter=text>b</parameter></function></tool_call>")),
            "[f {\"n\":1,\"text\":\"b\"}]"
        );
        assert_eq!(
            whole("<tool_call><function=f><parameter=text>a <tool_call> b</parameter></function></tool_call>"),
            "[f {\"text\":\"a <tool_call> b\"}]"
        );
    }

    #[test]
    fn errors_of_the_turn_are_told() {
        let repeated =
            "<tool_call><function=f><parameter=n>1</parameter><parameter=n>2</parameter></function></tool_call>";
        assert!(whole(repeated).ends_with("!the model gave parameter \"n\" of function \"f\" twice in one call"));
        assert_eq!(whole("<tool_call><function=h>"), "!the model called function \"h\", which is not among the tools");
        let open = "!the model began a call of function \"f\" and did not close it";
        for text in
            ["", "<parameter=n>1", "<parameter=n>1</parameter></function>", "<parameter=n", "</function><tool_call>"]
        {
            assert_eq!(whole(&format!("x<tool_call><function=f>{text}")), format!("x{open}"));
        }
    }

    #[test]
    fn a_call_cut_by_the_limit_is_no_error() {
        let text = "x<tool_call><function=f><parameter=text>\nabc</par";
        assert_eq!(told(&[text], Ending::Cut), "x");
        let (mut splitter, mut events) = (splitter(), Vec::new());
        splitter.push(text, &mut events);
        splitter.finish(Ending::Cut, &mut events);
        let json: String = events
            .iter()
            .filter_map(|e| if let Event::CallArguments { json, .. } = e { Some(json.as_str()) } else { None })
            .collect();
        assert_eq!(json, "{\"text\":\"abc");
    }

    #[test]
    fn a_declared_string_streams_while_it_is_written() {
        let (mut splitter, mut events) = (splitter(), Vec::new());
        splitter.push("<tool_call>\n<function=f>\n<parameter=opt>\nab", &mut events);
        let CallPieces(before) = CallPieces::of(&events);
        splitter.push("c\n<", &mut events);
        let CallPieces(after) = CallPieces::of(&events);
        assert_eq!((before.as_str(), after.as_str()), ("{\"opt\":\"ab", "{\"opt\":\"abc"));
    }

    struct CallPieces(String);

    impl CallPieces {
        fn of(events: &[Event]) -> Self {
            let pieces = events.iter().filter_map(|event| match event {
                Event::CallArguments { json, .. } => Some(json.as_str()),
                _ => None,
            });
            CallPieces(pieces.collect())
        }
    }

    #[test]
    fn any_cut_of_the_answer_tells_the_same() {
        let text = "é<tool_call>\n<function=f>\n<parameter=text>\n<a>\n</par\n\n</parameter>\n<parameter=list>\n[1, 2]\n</parameter>\n\
                    </function>\n</tool_call>\n \n<tool_call></tool_call><tool_call> x<tool_call><function=g></function></tool_call>z";
        let expected = whole(text);
        assert_eq!(expected, "é[f {\"text\":\"<a>\\n</par\\n\",\"list\":[1,2]}]\n \n<tool_call> x[g {}]z");
        let letters: Vec<String> = text.chars().map(String::from).collect();
        assert_eq!(told(&letters.iter().map(String::as_str).collect::<Vec<_>>(), Ending::Natural), expected);
        for cut in (0..text.len()).filter(|&cut| text.is_char_boundary(cut)) {
            assert_eq!(told(&[&text[..cut], &text[cut..]], Ending::Natural), expected, "cut at {cut}");
        }
    }

    #[test]
    fn a_long_argument_takes_linear_time() {
        let once = |len: usize| {
            let (mut splitter, mut events) = (splitter(), Vec::new());
            splitter.push("<tool_call><function=f><parameter=list>", &mut events);
            let start = std::time::Instant::now();
            (0..len).for_each(|_| splitter.push("<tool", &mut events));
            start.elapsed().as_secs_f64()
        };
        // The fastest of three runs: other work on the machine only ever adds.
        let time = |len| (0..3).map(|_| once(len)).fold(f64::INFINITY, f64::min);
        let (short, long) = (time(20_000).max(1e-4), time(200_000));
        assert!(long < short * 60.0, "ten times the text took {:.1} times as long", long / short);
    }
}
