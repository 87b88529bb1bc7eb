//! Owns: rendering a conversation with the chat template that the model directory carries (chat-template.md section 6).
//! Refuses: templates that do not parse, and renderings that work or write far more than the conversation explains.
//! Invariants: typed text reaches the template marked ([`Prompt`]); string methods see through the marks, so a test such
//! as `startswith('<tool_response>')` answers as it would on the plain text.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use minijinja::syntax::SyntaxConfig;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, State, Value as Templated};
use minijinja_contrib::pycompat::unknown_method_callback;
use serde_json::{Map, Value};

use crate::error::TextError;
use crate::files;
use crate::guard::{Guard, Prompt, Typed};
use crate::python_json::tojson;

/// The family's template, for directories that carry none.
const FAMILY_TEMPLATE: &str = include_str!("../template/chat_template.jinja");

/// A template file larger than this is refused: the released model's has 8,952 bytes.
const MAX_TEMPLATE_BYTES: u64 = 1 << 20;

/// Work that any rendering may do, in minijinja's unit (an instruction, or 64 bytes handled).
const BASE_FUEL: u64 = 1_000_000;

/// Values that refer to themselves many times over are compared and printed without using fuel; this ends such work.
const PATIENCE: Duration = Duration::from_secs(10);

/// Deep values are dropped level by level on the stack; this is room for all the levels that the fuel can build.
const STACK_BYTES: usize = 256 << 20;

/// Further work for each byte of the conversation: tool listings are joined in quadratic time.
const FUEL_PER_BYTE: u64 = 16;

/// Bytes that any rendering may write.
const BASE_OUTPUT: u64 = 4 << 20;

/// Further bytes for each byte of the conversation: JSON escapes and each message's frame.
const OUTPUT_PER_BYTE: u64 = 8;

/// Tokens that Hugging Face hands to a template by name.
const NAMED_TOKENS: [&str; 4] = ["bos_token", "eos_token", "pad_token", "unk_token"];

/// The name under which the environment holds the template.
const NAME: &str = "chat_template";

/// A chat template, parsed and ready to render.
pub struct Template {
    path: PathBuf,
    environment: Environment<'static>,
    tokens: Vec<(String, String)>,
    edges: Vec<char>,
    patience: Duration,
}

impl Template {
    /// The template of the model directory `dir`: `chat_template.jinja`, else `chat_template` of `tokenizer_config.json`
    /// (text, or the entry named `default` of a list), else the family's own. `edges` are the characters that open and
    /// close added tokens ([`crate::Tokenizer::added_edges`]).
    pub fn open(dir: &Path, edges: &[char]) -> Result<Self, TextError> {
        let config_path = dir.join("tokenizer_config.json");
        let config = match read_optional(&config_path)? {
            Some(text) => parse_config(&config_path, &text)?,
            None => Map::new(),
        };
        let file = dir.join("chat_template.jinja");
        let (path, source) = match (read_optional(&file)?, configured_template(&config)) {
            (Some(source), _) => (file, source),
            (None, Some(source)) => (config_path, source.to_owned()),
            (None, None) => (PathBuf::from("built-in chat_template.jinja"), FAMILY_TEMPLATE.to_owned()),
        };
        let mut template = Self::parse(&path, &source, edges)?;
        template.tokens = named_tokens(&config);
        Ok(template)
    }

    /// The template with the text `source`; `path` is what messages call it.
    pub fn parse(path: &Path, source: &str, edges: &[char]) -> Result<Self, TextError> {
        let refuse = |error: Error| TextError::Template { path: path.to_owned(), reason: reason(&error) };
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build().map_err(refuse)?;
        environment.set_syntax(syntax);
        environment.set_auto_escape_callback(|_| AutoEscape::None);
        environment.add_filter("tojson", |value: &Templated, kwargs| tojson(value, kwargs));
        environment.add_function("raise_exception", raise_exception);
        environment.add_function("strftime_now", strftime_now);
        environment.add_template_owned(NAME, source.to_owned()).map_err(refuse)?;
        Ok(Template {
            path: path.to_owned(),
            environment,
            tokens: Vec::new(),
            edges: edges.to_vec(),
            patience: PATIENCE,
        })
    }

    /// Renders `messages` with `tools` (OpenAI form, left undefined when empty) and the template's variables `options`
    /// (`add_generation_prompt`, `enable_thinking`, `reasoning_effort`, `preserve_thinking`, `add_vision_id`, others).
    /// What the template raises comes back as [`TextError::Refused`] in its own words.
    pub fn render(
        &self,
        messages: &[Value],
        tools: &[Value],
        options: &Map<String, Value>,
    ) -> Result<Prompt, TextError> {
        let mut typed = Typed::default();
        messages.iter().chain(tools).for_each(|value| typed.value(value));
        typed.object(options);
        let guard = Guard::choose(&self.edges, &typed)?;
        let context = self.context(&guard, messages, tools, options);

        let mut environment = self.environment.clone();
        environment.set_fuel(Some(BASE_FUEL.saturating_add(typed.bytes.saturating_mul(FUEL_PER_BYTE))));
        let marks = guard.clone();
        environment
            .set_unknown_method_callback(move |state, value, method, args| call(&marks, state, value, method, args));
        let output = Bounded::new(BASE_OUTPUT.saturating_add(typed.bytes.saturating_mul(OUTPUT_PER_BYTE)));
        let bytes = self.render_apart(environment, context, output, guard.clone())?;
        if bytes.iter().all(u8::is_ascii_whitespace) {
            let reason = "it wrote nothing for this conversation".to_owned();
            return Err(TextError::Render { path: self.path.clone(), reason });
        }
        Ok(Prompt::marked_by(guard, String::from_utf8_lossy(&bytes).into_owned()))
    }

    /// Renders on a thread of its own, which has a stack for deep values and is left behind when it takes too long.
    fn render_apart(
        &self,
        environment: Environment<'static>,
        context: Templated,
        mut output: Bounded,
        guard: Guard,
    ) -> Result<Vec<u8>, TextError> {
        let (done, wait) = mpsc::sync_channel(1);
        let path = self.path.clone();
        let render = move || {
            let rendered = environment.get_template(NAME).and_then(|template| {
                template.render_captured_to(context, &mut output)?;
                Ok(())
            });
            // An error holds the template's values: they are dropped here, where the stack is.
            let rendered = rendered.map_err(|error| explain(path, &guard, &error));
            // Nobody listens any more when it took too long.
            let _ = done.send(rendered.map(|()| output.bytes));
        };
        let thread = std::thread::Builder::new().name("chat template".to_owned()).stack_size(STACK_BYTES).spawn(render);
        let unreadable = |error: io::Error| TextError::Render { path: self.path.clone(), reason: error.to_string() };
        thread.map_err(unreadable)?;
        wait.recv_timeout(self.patience).unwrap_or_else(|_| Err(TextError::Unbounded { path: self.path.clone() }))
    }

    /// The file that this template was read from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn context(&self, guard: &Guard, messages: &[Value], tools: &[Value], options: &Map<String, Value>) -> Templated {
        let mut names: Vec<(String, Templated)> =
            self.tokens.iter().map(|(name, text)| (name.clone(), Templated::from(text.as_str()))).collect();
        names.extend(options.iter().map(|(name, value)| (name.clone(), guard.value(value))));
        names.push(("messages".to_owned(), guard.list(messages)));
        if !tools.is_empty() {
            names.push(("tools".to_owned(), guard.list(tools)));
        }
        Templated::from_pairs(names)
    }
}

/// What a person is told of a rendering that failed.
fn explain(path: PathBuf, guard: &Guard, error: &Error) -> TextError {
    if let Some(Raised(words)) = cause(error) {
        return TextError::Refused(guard.reveal(words).into_owned());
    }
    match error.kind() {
        ErrorKind::OutOfFuel | ErrorKind::WriteFailure => TextError::Unbounded { path },
        _ => TextError::Render { path, reason: guard.reveal(&reason(error)).into_owned() },
    }
}

/// The words of a template's `raise_exception`.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Raised(String);

fn raise_exception(words: &str) -> Result<Templated, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, words.to_owned()).with_source(Raised(words.to_owned())))
}

/// The local time in `format`, as Hugging Face's `strftime_now`.
fn strftime_now(format: &str) -> Result<String, Error> {
    jiff::fmt::strtime::format(format, &jiff::ZonedDateTime::now())
        .map_err(|error| Error::new(ErrorKind::InvalidOperation, format!("strftime_now({format:?}): {error}")))
}

/// A Python method on a value. On marked text, a question is asked of the plain text, and a transformation gets marked
/// arguments, so that its result stays marked.
fn call(
    guard: &Guard,
    state: &mut State,
    value: &Templated,
    method: &str,
    args: &[Templated],
) -> Result<Templated, Error> {
    let Some(text) = value.as_str().filter(|text| guard.is_marked(text)) else {
        return unknown_method_callback(state, value, method, args);
    };
    let turned = |turn: &dyn Fn(&str) -> String| -> Vec<Templated> {
        args.iter().map(|arg| arg.as_str().map_or_else(|| arg.clone(), |text| Templated::from(turn(text)))).collect()
    };
    if matches!(method, "startswith" | "endswith" | "find" | "rfind" | "count") {
        let plain = Templated::from(guard.reveal(text).as_ref());
        let args = turned(&|arg| guard.reveal(arg).into_owned());
        return unknown_method_callback(state, &plain, method, &args);
    }
    unknown_method_callback(state, value, method, &turned(&|arg| guard.mark(arg).into_owned()))
}

/// The innermost error that a template raised, if one did.
fn cause(error: &Error) -> Option<&Raised> {
    let mut link: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = link {
        if let Some(raised) = error.downcast_ref() {
            return Some(raised);
        }
        link = error.source();
    }
    None
}

/// A template error as part of a sentence: what failed, and the line.
fn reason(error: &Error) -> String {
    let what = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
    let what = what.lines().next().unwrap_or_default();
    error.line().map_or_else(|| what.to_owned(), |line| format!("{what} (line {line})"))
}

/// The file's text, or nothing when there is no such file.
fn read_optional(path: &Path) -> Result<Option<String>, TextError> {
    let not_text = |error: std::string::FromUtf8Error| TextError::Unreadable {
        path: path.to_owned(),
        reason: format!("it must be UTF-8 text ({})", error.utf8_error()),
    };
    files::read(path, MAX_TEMPLATE_BYTES)?.map(|bytes| String::from_utf8(bytes).map_err(not_text)).transpose()
}

fn parse_config(path: &Path, text: &str) -> Result<Map<String, Value>, TextError> {
    serde_json::from_str(text).map_err(|error| TextError::Unreadable {
        path: path.to_owned(),
        reason: format!("it must hold one JSON object ({error})"),
    })
}

/// `chat_template` of a tokenizer_config.json: text, or a list of `{name, template}` with one named `default`.
fn configured_template(config: &Map<String, Value>) -> Option<&str> {
    match config.get("chat_template")? {
        Value::String(source) => Some(source),
        Value::Array(entries) => {
            entries.iter().find(|entry| entry["name"] == "default").and_then(|entry| entry["template"].as_str())
        }
        _ => None,
    }
}

/// The named tokens of a tokenizer_config.json: each a text, or an object with its `content`.
fn named_tokens(config: &Map<String, Value>) -> Vec<(String, String)> {
    let text = |name: &str| {
        let token = config.get(name)?;
        token.as_str().or_else(|| token["content"].as_str()).map(|text| (name.to_owned(), text.to_owned()))
    };
    NAMED_TOKENS.iter().filter_map(|name| text(name)).collect()
}

/// A writer that fails beyond a number of bytes.
struct Bounded {
    bytes: Vec<u8>,
    most: u64,
}

impl Bounded {
    fn new(most: u64) -> Self {
        Bounded { bytes: Vec::new(), most }
    }
}

impl Write for Bounded {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        if (self.bytes.len() as u64).saturating_add(piece.len() as u64) > self.most {
            return Err(io::Error::other("the rendering is too long"));
        }
        self.bytes.extend_from_slice(piece);
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const EDGES: [char; 2] = ['<', '>'];

    fn family() -> Template {
        Template::parse(Path::new("family"), FAMILY_TEMPLATE, &EDGES).unwrap()
    }

    fn parse(source: &str) -> Template {
        Template::parse(Path::new("test.jinja"), source, &EDGES).unwrap()
    }

    fn render(template: &Template, messages: Value, options: Value) -> Result<String, TextError> {
        let tools = options["tools"].as_array().cloned().unwrap_or_default();
        let mut options = options.as_object().unwrap().clone();
        options.remove("tools");
        Ok(template.render(messages.as_array().unwrap(), &tools, &options)?.text().into_owned())
    }

    #[test]
    fn every_stored_pair_of_conversation_and_options_renders_exactly() {
        let cases: Vec<Value> = serde_json::from_str(include_str!("../fixtures/chat_template_cases.json")).unwrap();
        assert_eq!(cases.len(), 312);
        let template = family();
        for case in cases {
            let rendered = render(&template, case["messages"].clone(), case["options"].clone());
            let (name, options) = (&case["case"], &case["options"]);
            match (rendered, case["prompt"].as_str(), case["error"].as_str()) {
                (Ok(text), Some(prompt), None) => assert_eq!(text, prompt, "{name} {options}"),
                (Err(TextError::Refused(words)), None, Some(error)) => assert_eq!(words, error, "{name} {options}"),
                (found, ..) => panic!("{name} {options}: {found:?}"),
            }
        }
    }

    #[test]
    fn marks_change_no_rendering() {
        let cases: Vec<Value> = serde_json::from_str(include_str!("../fixtures/chat_template_cases.json")).unwrap();
        let (marked, plain) = (family(), Template::parse(Path::new("plain"), FAMILY_TEMPLATE, &[]).unwrap());
        for case in cases {
            let both = [&marked, &plain].map(|t| match render(t, case["messages"].clone(), case["options"].clone()) {
                Ok(text) => text,
                Err(error) => error.to_string(),
            });
            assert_eq!(both[0], both[1], "{}", case["case"]);
        }
    }

    #[test]
    fn tool_schemas_are_written_in_pythons_style() {
        let template = parse("{{ tools[0] | tojson }}|{{ tools[0] | tojson(indent=2) }}");
        let tool = json!({"b": [1, 1.0, 1e22, 18446744073709551615u64, -3], "a": {"é": "<&'\">\u{1}\n"}, "n": null, "e": [], "t": true});
        let text = render(&template, json!([]), json!({"tools": [tool]})).unwrap();
        let (flat, indented) = text.split_once('|').unwrap();
        assert_eq!(
            flat,
            r#"{"b": [1, 1.0, 1e+22, 18446744073709551615, -3], "a": {"é": "<&'\">\u0001\n"}, "n": null, "e": [], "t": true}"#
        );
        assert!(indented.starts_with("{\n  \"b\": [\n    1,\n    1.0,\n"), "{indented}");
        assert!(indented.ends_with("  \"e\": [],\n  \"t\": true\n}"), "{indented}");
    }

    #[test]
    fn string_methods_see_through_the_marks_and_keep_them() {
        let template = parse(
            "{%- set c = messages[0].content -%}{{ c.startswith('<a>') }} {{ c.endswith('</a>') }} {{ c.find('</') }} \
             {{ c.split('</a>')[0].split('<a>')[-1].strip('<') }} {{ c.replace('<a>', '[') }}",
        );
        let prompt = template.render(&[json!({"content": "<a>x<b</a>"})], &[], &Map::new()).unwrap();
        assert_eq!(prompt.text(), "True True 6 x<b [x<b</a>");
        assert!(!prompt.marked().contains('<'));
    }

    #[test]
    fn a_raised_text_comes_back_whole_even_from_within_a_macro() {
        let template = parse("{% macro m(x) %}{{ raise_exception('No ' ~ x ~ ' here.') }}{% endmacro %}{{ m(word) }}");
        let error = render(&template, json!([]), json!({"word": "<b>"})).unwrap_err();
        assert!(matches!(error, TextError::Refused(words) if words == "No <b> here."));
    }

    #[test]
    fn a_template_that_does_not_end_is_stopped() {
        let endless = parse("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}");
        assert!(matches!(render(&endless, json!([]), json!({})), Err(TextError::Unbounded { .. })));
        let flood = parse("{% for a in range(9999) %}{{ 'x' * 9999 }}{% endfor %}");
        assert!(matches!(render(&flood, json!([]), json!({})), Err(TextError::Unbounded { .. })));
    }

    #[test]
    fn a_broken_template_is_named_with_its_line() {
        let error = Template::parse(Path::new("dir/chat_template.jinja"), "a\n{% if %}", &EDGES).err().unwrap();
        let text = error.to_string();
        assert!(text.starts_with("dir/chat_template.jinja is not a chat template"), "{text}");
        assert!(text.contains("(line 2)") && !text.contains('\n'), "{text}");
    }

    #[test]
    fn the_date_follows_its_format_and_a_wrong_format_is_an_error() {
        let template = parse("{{ strftime_now(f) }}");
        let year = render(&template, json!([]), json!({"f": "%Y"})).unwrap();
        assert!(year.len() == 4 && year.as_str() > "2025", "{year}");
        assert!(matches!(render(&template, json!([]), json!({"f": "%!"})), Err(TextError::Render { .. })));
    }

    #[test]
    fn the_directory_decides_which_template_is_used() {
        let dir = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
        let hello = || {
            let template = Template::open(dir.path(), &EDGES).unwrap();
            render(&template, json!([{"role": "user", "content": "hi"}]), json!({"enable_thinking": false})).unwrap()
        };
        assert_eq!(hello(), "<|im_start|>user\nhi<|im_end|>\n");
        put("tokenizer_config.json", r#"{"chat_template": "one {{ eos_token }}", "eos_token": {"content": "<e>"}}"#);
        assert_eq!(hello(), "one <e>");
        put(
            "tokenizer_config.json",
            r#"{"chat_template": [{"name": "rag", "template": "r"}, {"name": "default", "template": "two"}]}"#,
        );
        assert_eq!(hello(), "two");
        put("chat_template.jinja", "three");
        assert_eq!(hello(), "three");
        put("tokenizer_config.json", "[]");
        assert!(Template::open(dir.path(), &EDGES).is_err());
    }

    #[test]
    fn private_use_characters_of_the_conversation_are_kept() {
        let template = parse("{{ messages[0].content }}");
        let text = "<\u{100000}\u{100001}\u{10FFFD}>";
        let prompt = template.render(&[json!({"content": text})], &[], &Map::new()).unwrap();
        assert_eq!(prompt.text(), text);
        let all: String = ('\u{100000}'..='\u{10FFFD}').collect();
        let refused = template.render(&[json!({"content": all})], &[], &Map::new());
        assert!(matches!(refused, Err(TextError::NoMarkLeft)));
    }

    /// A template that nests `[a]` or doubles `[a, a]` as often as it is told, then does something with it.
    fn grown(step: &str, times: usize, end: &str) -> Template {
        let nest = format!("{{% set ns.a = {step} %}}");
        let source = format!(
            "{{% set ns = namespace(a=[1], b=[1]) %}}{{% for i in range({times}) %}}{nest}{{% set ns.b = {} %}}{{% endfor %}}{end}",
            step.replace("ns.a", "ns.b")
        );
        let mut template = parse(&source);
        template.patience = Duration::from_millis(300);
        template
    }

    #[test]
    fn values_nested_as_deep_as_the_fuel_allows_do_not_exhaust_the_stack() {
        for end in ["{{ ns.a|length }}", "{{ ns.a == ns.b }}", ""] {
            // Whether it ends well or is stopped, it ends.
            let _ended = render(&grown("[ns.a]", 90_000, end), json!([]), json!({}));
        }
    }

    #[test]
    fn values_that_refer_to_themselves_many_times_over_are_stopped() {
        for end in ["{{ ns.a == ns.b }}", "{{ ns.a|tojson }}", "{{ ns.a }}"] {
            let ended = render(&grown("[ns.a, ns.a]", 60, end), json!([]), json!({}));
            assert!(matches!(ended, Err(TextError::Unbounded { .. } | TextError::Render { .. })), "{end}: {ended:?}");
        }
    }

    #[test]
    fn an_indent_beyond_reason_is_refused() {
        let ended = render(&parse("{{ [1]|tojson(indent=100000000000) }}"), json!([]), json!({}));
        assert!(matches!(ended, Err(TextError::Render { .. })), "{ended:?}");
    }
}
