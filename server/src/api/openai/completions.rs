//! Owns: `POST /v1/completions` (server.md section 7): text or ids that are continued as they are, with likelihoods of prompt and
//! reply, as evaluation harnesses ask for them.
//! Refuses: the chat template, and streams of several prompts.
//! Invariants: likelihoods are the model's own, whatever the sampler does; offsets count characters of the text given back.

use serde_json::{Map, Value, json};
use ss_text::Event;
use warp::http::Method;

use super::chat::finish_reason;
use super::fields::{self, BIAS, STREAM_OPTIONS};
use crate::api::common::{self, Object, flag, number, sampling, text, texts, tokens};
use crate::app::fresh_id;
use crate::engine::{Outcome, Piece, Token};
use crate::flow::{self, Dialect, Made, Start, Watched};
use crate::http::answer::Answer;
use crate::http::route::{Call, Route};
use crate::http::stream::{SSE, Writer, comment, event};
use crate::hub::Tag;
use crate::prepare::prepare;
use crate::refusal::{Family, Refusal};
use crate::request::{Generation, Input};
use crate::shape::{ANY_WHOLE, Field, Fields, Kind, TEXT_OR_TEXTS, whole};

/// The endpoint.
pub const ROUTE: Route = Route {
    method: Method::POST,
    path: "/v1/completions",
    about: "Continues a text, or several, as OpenAI's completions do.",
    body: Some(&BODY),
    reply: Kind::Object(&REPLY),
    handler: |call| Box::pin(answer(call)),
};

/// Most prompts of a request.
const MOST_PROMPTS: usize = 32;
/// Tokens of a reply unless told otherwise, as OpenAI has it.
const DEFAULT_TOKENS: u32 = 16;

const ID: Kind = Kind::Whole(0, u32::MAX as i128);
const ITEM: Kind = Kind::Either(&[Kind::Text, ID, Kind::List(&ID)]);

const BODY: Fields = Fields::strict(
    "CompletionRequest",
    &[
        Field::new("model", Kind::Text, "The model's name; left out, it is the one that there is."),
        Field::required(
            "prompt",
            Kind::Either(&[Kind::Text, Kind::List(&ITEM)]),
            "A text, a list of texts, a list of ids, or a list of lists of ids.",
        ),
        Field::new("stream", Kind::Flag, "Whether the reply comes in pieces; for one prompt."),
        Field::new("stream_options", Kind::Object(&STREAM_OPTIONS), "What a stream tells at its end."),
        Field::new(
            "max_tokens",
            Kind::Whole(0, i128::MAX),
            "Most tokens of the reply, 16 unless set; 0 with `echo` only.",
        ),
        common::TEMPERATURE,
        common::TOP_P,
        common::TOP_K,
        common::MIN_P,
        common::PRESENCE,
        common::FREQUENCY,
        Field::new("repetition_penalty", Kind::Real(0.5, 2.0), "Divides the logits of tokens seen before; 1 is off."),
        Field::new("logit_bias", BIAS, "Token ids, and what is added to their logits, -100 to 100."),
        common::SEED,
        Field::new("stop", TEXT_OR_TEXTS, "Strings that end the reply; they are left out of it."),
        Field::new("echo", Kind::Flag, "Whether the prompt is given back before the reply."),
        Field::new("logprobs", Kind::Whole(0, 5), "Tells each token's likelihood, with so many alternatives."),
        Field::inert("n", Kind::Only("1")),
        Field::inert("best_of", Kind::Only("1")),
        Field::inert("suffix", Kind::Only("\"\"")),
        Field::inert("user", Kind::Text),
    ],
);

const REPLY: Fields = Fields::open(
    "Completion",
    &[
        Field::required("id", Kind::Text, "`cmpl-` and 32 digits."),
        Field::required("object", Kind::Only("\"text_completion\""), ""),
        Field::required("created", ANY_WHOLE, "Seconds since 1970."),
        Field::required("model", Kind::Text, "The model."),
        Field::required("choices", Kind::List(&Kind::Map), "The replies, one a prompt."),
        Field::required("usage", Kind::Map, "Tokens used."),
    ],
);

async fn answer(call: Call) -> Result<Answer, Refusal> {
    let fields = call.fields(&BODY)?;
    call.app.check_model(text(&fields, "model"), Family::OpenAi)?;
    let (stream, echo) = (flag(&fields, "stream"), flag(&fields, "echo"));
    let mut asked: Vec<Generation> = prompts(&fields)?.into_iter().map(Generation::new).collect();
    for generation in &mut asked {
        set(generation, &fields, echo)?;
    }
    if !stream {
        return whole_answer(&call, asked, echo).await;
    }
    let options = fields.get("stream_options").and_then(Value::as_object);
    let usage = options.is_some_and(|options| flag(options, "include_usage"));
    match <[Generation; 1]>::try_from(asked) {
        Ok([generation]) => {
            let prompt = if echo { prompt_text(&call, &generation) } else { String::new() };
            flow::reply(call, generation, Box::new(Completion { prompt, echo, usage }), true).await
        }
        Err(_) => Err(Refusal::field("stream", "`stream` needs a single `prompt`: send one request for each")),
    }
}

fn set(generation: &mut Generation, fields: &Object, echo: bool) -> Result<(), Refusal> {
    generation.sampling = sampling(fields, "repetition_penalty");
    generation.sampling.logit_bias = fields::bias(fields);
    generation.stops = texts(fields, "stop");
    generation.max_tokens = Some(tokens(fields, "max_tokens").unwrap_or(DEFAULT_TOKENS));
    generation.logprobs = number(fields, "logprobs").and_then(|top| u8::try_from(top).ok());
    generation.prompt_logprobs = echo && generation.logprobs.is_some();
    if generation.max_tokens == Some(0) && !echo {
        return Err(Refusal::field("max_tokens", "`max_tokens` is 0: that needs `echo` to be true"));
    }
    Ok(())
}

fn prompts(fields: &Object) -> Result<Vec<Input>, Refusal> {
    let prompts = match fields.get("prompt") {
        Some(Value::String(text)) => vec![Input::Text(text.clone())],
        Some(Value::Array(items)) if items.iter().all(Value::is_number) && !items.is_empty() => {
            vec![Input::Ids(ids(items))]
        }
        Some(Value::Array(items)) => items.iter().map(prompt).collect::<Option<Vec<_>>>().ok_or_else(mixed)?,
        _ => Vec::new(),
    };
    match prompts.len() {
        0 => Err(Refusal::field("prompt", "`prompt` is empty: it must be a text, a list of ids, or a list of those")),
        1..=MOST_PROMPTS => Ok(prompts),
        many => {
            Err(Refusal::field("prompt", format!("`prompt` holds {many} prompts: at most {MOST_PROMPTS} are taken")))
        }
    }
}

fn prompt(item: &Value) -> Option<Input> {
    match item {
        Value::String(text) => Some(Input::Text(text.clone())),
        Value::Array(items) => Some(Input::Ids(ids(items))),
        _ => None,
    }
}

fn mixed() -> Refusal {
    Refusal::field(
        "prompt",
        "`prompt` mixes ids with other things: it must be a text, a list of ids, or a list of those",
    )
}

fn ids(items: &[Value]) -> Vec<u32> {
    items.iter().filter_map(whole).filter_map(|id| u32::try_from(id).ok()).collect()
}

fn prompt_text(call: &Call, generation: &Generation) -> String {
    match &generation.input {
        Input::Text(text) => text.clone(),
        Input::Ids(ids) => call.core.words.text_of(ids),
        Input::Chat(_) => String::new(),
    }
}

/// Makes the replies one after the other.
async fn whole_answer(call: &Call, asked: Vec<Generation>, echo: bool) -> Result<Answer, Refusal> {
    if asked.len() > 1 {
        // What is refused is refused before any reply is made.
        let (words, all) = (call.core.words.clone(), asked.clone());
        flow::off_thread(move || all.iter().try_for_each(|one| prepare(one, words.as_ref()).map(drop))).await??;
    }
    let (mut choices, mut used) = (Vec::new(), None::<Outcome>);
    let mut start = None;
    for (index, generation) in asked.into_iter().enumerate() {
        let prompt = if echo { prompt_text(call, &generation) } else { String::new() };
        let number = if index == 0 { call.tag.number } else { call.app.next_id().0 };
        let made = flow::make(call, Tag { number, ..call.tag.clone() }, generation).await?;
        choices.push(choice(index, &prompt, &made));
        used = Some(match used {
            None => made.outcome,
            Some(so_far) => plus(so_far, made.outcome),
        });
        start.get_or_insert(made.start);
    }
    let (Some(start), Some(used)) = (start, used) else { return Err(Refusal::field("prompt", "`prompt` is empty")) };
    Ok(json!({
        "id": fresh_id("cmpl-"),
        "object": "text_completion",
        "created": start.created,
        "model": start.model,
        "choices": choices,
        "usage": fields::usage(&used),
    })
    .into())
}

fn plus(one: Outcome, other: Outcome) -> Outcome {
    Outcome {
        prompt: one.prompt + other.prompt,
        cached: one.cached + other.cached,
        output: one.output + other.output,
        reasoning: one.reasoning + other.reasoning,
        ..one
    }
}

fn choice(index: usize, prompt: &str, made: &Made) -> Value {
    let wanted = made.tokens.iter().any(|token| token.logprob.is_some()) || !made.prompt.is_empty();
    let all: Vec<&Token> = made.prompt.iter().chain(&made.tokens).collect();
    let first = if made.prompt.is_empty() { prompt.chars().count() } else { 0 };
    json!({
        "index": index,
        "text": format!("{prompt}{}", made.reply.text),
        "finish_reason": finish_reason(&made.outcome, 0),
        "logprobs": if wanted { logprobs(&all, first).0 } else { Value::Null },
    })
}

/// Likelihoods in this API's form, with the character at which the last token ends.
fn logprobs(all: &[&Token], first: usize) -> (Value, usize) {
    let (mut offset, mut offsets) = (first, Vec::with_capacity(all.len()));
    for token in all {
        offsets.push(offset);
        offset += token.text.chars().count();
    }
    let shown = |token: &&Token| String::from_utf8_lossy(&token.bytes).into_owned();
    let top = |token: &&Token| match token.logprob {
        None => Value::Null,
        Some(_) => {
            // Two tokens that are no whole text may look alike: the likelier one, which comes first, is told.
            let mut pairs = Map::new();
            for (_, bytes, logprob) in &token.top {
                pairs.entry(String::from_utf8_lossy(bytes).into_owned()).or_insert_with(|| json!(logprob));
            }
            Value::Object(pairs)
        }
    };
    let told = json!({
        "tokens": all.iter().map(shown).collect::<Vec<_>>(),
        "token_logprobs": all.iter().map(|token| token.logprob).collect::<Vec<_>>(),
        "top_logprobs": all.iter().map(top).collect::<Vec<_>>(),
        "text_offset": offsets,
    });
    (told, offset)
}

/// The forms of a streamed reply.
struct Completion {
    prompt: String,
    echo: bool,
    usage: bool,
}

impl Dialect for Completion {
    fn whole(&self, made: Made) -> Result<Value, Refusal> {
        Ok(choice(0, &self.prompt, &made))
    }

    fn writer(self: Box<Self>, start: Start) -> Box<dyn Writer> {
        Box::new(Chunks {
            id: fresh_id("cmpl-"),
            offset: self.prompt.chars().count(),
            form: *self,
            watched: Watched::new(start),
            tokens: Vec::new(),
        })
    }
}

struct Chunks {
    id: String,
    form: Completion,
    watched: Watched,
    /// Tokens whose likelihood is still to be told.
    tokens: Vec<Token>,
    /// Characters given so far.
    offset: usize,
}

impl Chunks {
    fn chunk(&self, choices: Value, usage: Value, out: &mut Vec<u8>) {
        let start = &self.watched.start;
        let mut chunk = json!({
            "id": self.id,
            "object": "text_completion",
            "created": start.created,
            "model": start.model,
            "choices": choices,
        });
        if self.form.usage {
            chunk["usage"] = usage;
        }
        event(out, None, &chunk.to_string());
    }

    fn text(&mut self, text: &str, finish: Option<&str>, out: &mut Vec<u8>) {
        let tokens = std::mem::take(&mut self.tokens);
        let mut told = Value::Null;
        if tokens.iter().any(|token| token.logprob.is_some()) {
            (told, self.offset) = logprobs(&tokens.iter().collect::<Vec<_>>(), self.offset);
        }
        let choice = json!({ "index": 0, "text": text, "finish_reason": finish, "logprobs": told });
        self.chunk(json!([choice]), Value::Null, out);
    }
}

impl Writer for Chunks {
    fn kind(&self) -> &'static str {
        SSE
    }

    fn begin(&mut self, out: &mut Vec<u8>) {
        if self.form.echo {
            let prompt = std::mem::take(&mut self.form.prompt);
            self.text(&prompt, None, out);
        }
    }

    fn piece(&mut self, piece: Piece, out: &mut Vec<u8>) {
        match piece {
            Piece::Reading { .. } => {}
            Piece::Prompt(tokens) => {
                self.offset = 0;
                self.tokens = tokens;
                self.text("", None, out);
            }
            Piece::Token(token) => {
                if token.logprob.is_some() {
                    self.tokens.push(token);
                }
            }
            Piece::Event(told) => {
                self.watched.see(&told);
                if let Event::Text(text) = told {
                    self.text(&text, None, out);
                }
            }
        }
    }

    fn quiet(&mut self, out: &mut Vec<u8>) {
        comment(out, "keepalive");
    }

    fn end(&mut self, outcome: &Outcome, out: &mut Vec<u8>) {
        if let Err(refusal) = self.watched.check(outcome) {
            return self.fail(&refusal, out);
        }
        self.text("", Some(finish_reason(outcome, 0)), out);
        if self.form.usage {
            self.chunk(json!([]), fields::usage(outcome), out);
        }
        event(out, None, "[DONE]");
    }

    fn fail(&mut self, refusal: &Refusal, out: &mut Vec<u8>) {
        event(out, None, &Family::OpenAi.error(refusal).to_string());
    }
}
