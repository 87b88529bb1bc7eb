//! Owns: `POST /v1/messages` (server.md section 9): from its fields to a request, and why its reply ended.
//! Invariants: a setting that this API does not have is never read, whatever a body holds.

use serde_json::{Value, json};
use warp::http::Method;

use super::fields::{self, BODY};
use super::{ignored, stream, telling, turns, whole};
use crate::SamplingRequest;
use crate::api::common::{Object, flag, float, number, text, texts, tokens};
use crate::engine::{Ended, Outcome};
use crate::flow::{self, Dialect, Made, Start};
use crate::http::answer::Answer;
use crate::http::route::{Call, Route};
use crate::http::stream::Writer;
use crate::prepare::check_stops;
use crate::refusal::{Family, Refusal};
use crate::request::{Generation, Input};
use crate::shape::{Field, Fields, Kind};

/// The endpoint.
pub const ROUTE: Route = Route {
    method: Method::POST,
    path: "/v1/messages",
    about: "Continues a conversation, as Anthropic's messages do.",
    body: Some(&BODY),
    reply: Kind::Object(&REPLY),
    handler: |call| Box::pin(answer(call)),
};

const REPLY: Fields = Fields::open(
    "MessagesReply",
    &[
        Field::required("id", Kind::Text, "`msg_` and 32 digits."),
        Field::required("type", Kind::Only("\"message\""), ""),
        Field::required("role", Kind::Only("\"assistant\""), ""),
        Field::required("model", Kind::Text, "The model."),
        Field::required("content", Kind::List(&Kind::Map), "Blocks: thinking, text, calls."),
        Field::required("stop_reason", Kind::Text, "Why the reply ended."),
        Field::new("stop_sequence", Kind::Text, "The string that ended it."),
        Field::required("usage", Kind::Map, "Tokens used."),
    ],
);

async fn answer(call: Call) -> Result<Answer, Refusal> {
    let fields = call.fields(&BODY)?;
    call.app.check_model(text(&fields, "model"), Family::Anthropic)?;
    let (talk, _) = turns::read(&fields)?;
    let generation = generation(&fields, talk.finish("messages")?)?;
    let dialect =
        Messages { asked: generation.max_tokens.unwrap_or(u32::MAX), hidden: fields::hides_thoughts(&fields) };
    let answer = flow::reply(call, generation, Box::new(dialect), flag(&fields, "stream")).await?;
    Ok(telling(answer, ignored(&BODY, &fields)))
}

/// The request as the server sees it.
///
/// # Errors
/// Names the field that is wrong.
pub fn generation(fields: &Object, messages: Vec<Value>) -> Result<Generation, Refusal> {
    let mut generation = Generation::new(Input::Chat(messages));
    generation.sampling = SamplingRequest {
        temperature: float(fields, "temperature"),
        top_p: float(fields, "top_p"),
        // More than there are tokens is off.
        top_k: number(fields, "top_k").map(|k| u32::try_from(k).unwrap_or(0)),
        ..SamplingRequest::default()
    };
    generation.max_tokens = tokens(fields, "max_tokens");
    generation.stops = texts(fields, "stop_sequences");
    check_stops(&generation.stops, "stop_sequences")?;
    (generation.tools, generation.choice) = fields::tools(fields)?;
    generation.parallel = fields::parallel(fields);
    generation.thinking = fields::thinking(fields)?;
    generation.format = fields::format(fields)?;
    Ok(generation)
}

/// The forms of a reply.
pub struct Messages {
    /// Most tokens that were asked for.
    pub asked: u32,
    /// Whether thoughts are left out.
    pub hidden: bool,
}

/// How a reply's content came to its end.
pub struct Ending<'r> {
    /// Complete calls.
    pub calls: usize,
    /// Whether a call was begun that was not completed.
    pub cut: bool,
    /// The stop string that ended it.
    pub stop: Option<&'r str>,
}

impl Messages {
    /// Why a reply ended, as Anthropic says it, with the stop string.
    pub fn reason(&self, start: &Start, outcome: &Outcome, ending: &Ending<'_>) -> (&'static str, Value) {
        let reason = match outcome.ended {
            _ if ending.calls > 0 && !ending.cut => "tool_use",
            // The room ran out before the limit that was asked for.
            Ended::Limit | Ended::Window if self.asked > start.room => "model_context_window_exceeded",
            ended if ended.is_cut() => "max_tokens",
            _ if ending.stop.is_some() => return ("stop_sequence", json!(ending.stop)),
            _ => "end_turn",
        };
        (reason, Value::Null)
    }
}

impl Dialect for Messages {
    fn whole(&self, made: Made) -> Result<Value, Refusal> {
        whole::message(self, made)
    }

    fn writer(self: Box<Self>, start: Start) -> Box<dyn Writer> {
        Box::new(stream::Events::new(*self, start))
    }
}

/// Tokens used: those read now, those whose state was there, those written.
pub fn usage(prompt: u32, cached: u32, output: u32) -> Value {
    json!({
        "input_tokens": prompt.saturating_sub(cached),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": output,
    })
}
