//! Owns: what a reply can be held to, and how that becomes a parser over tokens.
//! Refuses: what the engine would only approximate; and grammars that take too much to compile.
//! Invariants: compiling runs on a thread with room for the deepest schema, whoever asks; a fault of the engine is an error.

use std::sync::{Arc, OnceLock};

use llguidance::TokenParser;
use llguidance::api::{GrammarWithLexer, TopLevelGrammar};
use serde_json::{Value, json};
use ss_generate::Words;

use crate::held::{Body, Compiled, mask};
use crate::schema::normalise;
use crate::tokens::Tokens;
use crate::tools::{Calls, schema_name};
use crate::{Error, Grammar, Options, Result, ToolRule, text};

/// Stack of the thread that compiles: the engine goes through schemas and properties by recursion.
const STACK: usize = 256 << 20;

/// Most bytes of a regular expression or a grammar.
const MAX_TEXT: usize = 64 << 10;

/// White space between the tokens of a JSON text, at most once in a place: a space, or the start of a line. It cannot go on.
const JSON_SPACE: &str = r"\x20|\x0A[\x20\x09]{0,64}";

/// What messages call a grammar of calls.
const CALLS: &str = "choice of tools";

/// Compiles grammars for one model. What depends on its tokens alone is made once, at the first grammar.
pub struct Grammars {
    words: Arc<Words>,
    tokens: OnceLock<Result<Arc<Tokens>>>,
}

impl Grammars {
    /// Grammars over the tokens of these words. Nothing is computed yet.
    pub fn new(words: Arc<Words>) -> Self {
        Grammars { words, tokens: OnceLock::new() }
    }

    /// Computes what depends on the tokens alone, so that no request waits for it.
    ///
    /// # Errors
    /// When no token of the model ends a reply.
    pub fn warm(&self) -> Result<()> {
        self.tokens().map(|_| ())
    }

    /// Compiles a grammar for one reply.
    ///
    /// # Errors
    /// When something in it cannot be enforced, or takes too much.
    pub fn compile(&self, grammar: &Grammar, options: &Options) -> Result<Compiled> {
        let tokens = self.tokens()?;
        let body = on_wide_stack(|| body(&tokens, grammar, options))?;
        Ok(Compiled::new(tokens, body, options.thinking))
    }

    fn tokens(&self) -> Result<Arc<Tokens>> {
        self.tokens.get_or_init(|| Tokens::new(&self.words).map(Arc::new)).clone()
    }
}

/// Runs `work` where recursion has room.
fn on_wide_stack<T: Send>(work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    let failed = |reason: &str| Error::Grammar { kind: "grammar", reason: reason.to_owned() };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("ss-grammar".to_owned()).stack_size(STACK);
        let thread = thread.spawn_scoped(scope, work).map_err(|_| failed("there is no thread to compile it"))?;
        thread.join().unwrap_or_else(|_| Err(failed("its compiler failed")))
    })
}

/// A grammar as the engine reads it: rules, and schemas that they refer to.
struct Source {
    kind: &'static str,
    lark: String,
    /// Grammars that the rules name.
    named: Vec<GrammarWithLexer>,
}

fn body(tokens: &Tokens, grammar: &Grammar, options: &Options) -> Result<Body> {
    if let Grammar::Tools { tools, required, at_most_one, named } = grammar {
        let tools = offered(tools, named.as_deref())?;
        let calls = Calls::write(&tools)?;
        if *required || named.is_some() {
            let more = if *at_most_one { "" } else { "(\"\\n\" call)*" };
            let source = calls_source(&calls, &format!("call {more}"), options);
            return Ok(Body::Whole { parser: parser(tokens, source)?, calls: true });
        }
        let source = calls_source(&calls, "body", &Options::default());
        return Ok(Body::Calls { call: parser(tokens, source)?, at_most_one: *at_most_one });
    }
    let (source, calls) = answer(grammar, options)?;
    Ok(Body::Whole { parser: parser(tokens, source)?, calls })
}

/// The tools that may be called.
fn offered<'t>(tools: &'t [ToolRule], named: Option<&str>) -> Result<Vec<&'t ToolRule>> {
    let offered: Vec<&ToolRule> = tools.iter().filter(|tool| named.is_none_or(|name| tool.name == name)).collect();
    match offered.is_empty() {
        false => Ok(offered),
        true => Err(Error::Tool {
            tool: crate::schema::shorten(named.unwrap_or_default()),
            reason: "there is no such tool to call".to_owned(),
        }),
    }
}

fn calls_source(calls: &Calls, start: &str, options: &Options) -> Source {
    let lark =
        format!("start: {}{start}\n{}call: \"<tool_call>\" body\n{}", lead(options), lead_rule(options), calls.text());
    Source { kind: CALLS, lark, named: schemas(calls) }
}

fn schemas(calls: &Calls) -> Vec<GrammarWithLexer> {
    calls.schemas.iter().enumerate().map(|(number, schema)| json_grammar(schema_name(number), schema.clone())).collect()
}

/// An answer that is no call, or an answer or calls; with whether calls may be in it.
fn answer(grammar: &Grammar, options: &Options) -> Result<(Source, bool)> {
    let (lead, rule) = (lead(options), lead_rule(options));
    let json = |schema: Value| Source {
        kind: "schema",
        lark: format!("start: {lead}@answer\n{rule}"),
        named: vec![json_grammar("answer".to_owned(), schema)],
    };
    Ok(match grammar {
        Grammar::JsonObject => (json(json!({ "type": "object" })), false),
        Grammar::JsonSchema(schema) => (json(normalise(schema, "")?.document()), false),
        Grammar::Regex(expression) => {
            check_size("regular expression", expression)?;
            check_regex(expression)?;
            let lark = match expression.is_empty() {
                true => format!("start: {lead}\"\"\n{rule}"),
                false => format!("start: {lead}ANSWER\nANSWER: {}\n{rule}", text::regex(expression)),
            };
            (Source { kind: "regular expression", lark, named: Vec::new() }, false)
        }
        Grammar::Lark(rules) => {
            check_size("grammar", rules)?;
            if rules.contains("x-guidance") {
                return Err(Error::Grammar { kind: "grammar", reason: "`x-guidance` is not supported".to_owned() });
            }
            let own = GrammarWithLexer {
                name: Some("answer".to_owned()),
                lark_grammar: Some(rules.clone()),
                ..Default::default()
            };
            (Source { kind: "grammar", lark: format!("start: {lead}@answer\n{rule}"), named: vec![own] }, false)
        }
        Grammar::JsonOrTools { schema, tools, at_most_one } => {
            let calls = Calls::write(&tools.iter().collect::<Vec<_>>())?;
            let more = if *at_most_one { "" } else { "(\"\\n\" call)*" };
            let mut source = calls_source(&calls, &format!("(@answer | call {more})"), options);
            source.named.push(json_grammar("answer".to_owned(), normalise(schema, "")?.document()));
            (source, true)
        }
        Grammar::Tools { .. } => {
            return Err(Error::Grammar { kind: "grammar", reason: "tools are no answer".to_owned() });
        }
    })
}

/// After the reasoning come up to two line feeds, which are no part of the answer.
fn lead(options: &Options) -> &'static str {
    if options.thinking { "lead? " } else { "" }
}

fn lead_rule(options: &Options) -> &'static str {
    if options.thinking { "lead: \"\\n\\n\" | \"\\n\"\n" } else { "" }
}

fn json_grammar(name: String, mut schema: Value) -> GrammarWithLexer {
    if let Value::Object(keys) = &mut schema {
        keys.insert("x-guidance".to_owned(), json!({ "whitespace_pattern": JSON_SPACE }));
    }
    GrammarWithLexer { name: Some(name), json_schema: Some(schema), ..Default::default() }
}

fn check_size(kind: &'static str, text: &str) -> Result<()> {
    match text.len() <= MAX_TEXT {
        true => Ok(()),
        false => Err(Error::TooLarge(format!("the {kind} is too long: it may have at most {MAX_TEXT} bytes"))),
    }
}

/// Reads an expression for the sake of our own words about what is wrong with it.
fn check_regex(expression: &str) -> Result<()> {
    let refuse = |reason| Error::Grammar { kind: "regular expression", reason };
    text::read_regex(expression).map(|_| ()).map_err(refuse)
}

fn parser(tokens: &Tokens, source: Source) -> Result<TokenParser> {
    let rules =
        GrammarWithLexer { name: Some("reply".to_owned()), lark_grammar: Some(source.lark), ..Default::default() };
    let grammars = std::iter::once(rules).chain(source.named).collect();
    let grammar = TopLevelGrammar { grammars, max_tokens: None };
    let kind = source.kind;
    let mut parser = tokens.factory.create_parser(grammar).map_err(|error| blame(kind, &error.to_string()))?;
    // What the engine does half it warns of.
    if let Some(warning) = parser.grammar_warnings().into_iter().next() {
        return Err(blame(kind, &warning));
    }
    parser.start_without_prompt();
    // What cannot even be begun is refused now, and the first token does not wait for it.
    mask(&mut parser.clone()).map_err(|error| blame(kind, &error))?;
    Ok(parser)
}

/// Words of the engine's messages, the keywords that they are about, and what is to be said of them.
const BLAME: [(&str, &str, &str); 9] = [
    ("oneOf", "oneOf", "it must be plain from constants or types that no value fits two branches; use `anyOf`"),
    ("min/maxProperties", "minProperties", "properties are counted only where all that are declared are required"),
    ("minProperties", "minProperties", "it asks for more properties than there may be"),
    ("not disjoint", "patternProperties", "two of its patterns may match the same name"),
    ("are disjoint", "patternProperties", "it cannot be told whether two of its patterns match the same name"),
    ("sibling keys", "$ref", "a circle of references may have no keywords beside them"),
    ("multipleOf", "multipleOf", "it has too many digits"),
    ("lookarounds", "pattern", "it may look around only by `^` at its beginning and `$` at its end"),
    ("if regex is empty", "pattern", "it takes too much to keep to"),
];

/// A refusal of the engine in our words.
fn blame(kind: &'static str, said: &str) -> Error {
    let first =
        said.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('<')).unwrap_or("no reason");
    let reason = crate::schema::shorten(first.trim_start_matches("panic: "));
    if said.contains("Unsatisfiable schema") {
        return Error::Unsatisfiable(reason.replace("Unsatisfiable schema: ", ""));
    }
    if ["too big", "too large", "too complex", "limit", "fuel"].iter().any(|word| said.contains(word)) {
        return Error::TooLarge(format!("the {kind} takes too much to keep to: {reason}"));
    }
    let schema = kind == "schema" || kind == CALLS;
    match BLAME.iter().find(|(word, ..)| schema && said.contains(word)) {
        Some((_, keyword, reason)) => {
            Error::Keyword { keyword: (*keyword).to_owned(), at: "#".to_owned(), reason: (*reason).to_owned() }
        }
        None => Error::Grammar { kind, reason },
    }
}
