//! Owns: `POST /v1/chat/completions` (server.md section 6): the request as the server sees it.
//! Refuses: its conversation, which `messages.rs` reads, and the forms of its reply, which are in `reply.rs`.
//! Invariants: fields that say the same thing agree, or the request is refused.

mod body;
mod messages;
mod reply;

use serde_json::Value;
use warp::http::Method;

use super::fields;
use crate::Thinking;
use crate::api::common::{self, Object, flag, list, number, sampling, text, texts, tokens};
use crate::flow;
use crate::http::answer::Answer;
use crate::http::route::{Call, Route};
use crate::refusal::{Family, Refusal};
use crate::request::{Generation, Input, ToolChoice};
use crate::shape::Kind;

pub use body::BODY;
pub use reply::finish_reason;

/// The endpoint.
pub const ROUTE: Route = Route {
    method: Method::POST,
    path: "/v1/chat/completions",
    about: "Continues a conversation, as OpenAI's chat completions do.",
    body: Some(&BODY),
    reply: Kind::Object(&reply::REPLY),
    handler: |call| Box::pin(answer(call)),
};

async fn answer(call: Call) -> Result<Answer, Refusal> {
    let fields = call.fields(&BODY)?;
    call.app.check_model(text(&fields, "model"), Family::OpenAi)?;
    let generation = generation(&fields, call.core.words.facts().window)?;
    let usage =
        fields.get("stream_options").and_then(Value::as_object).is_some_and(|options| flag(options, "include_usage"));
    let chat = reply::Chat { usage, logprobs: generation.logprobs.is_some() };
    flow::reply(call, generation, Box::new(chat), flag(&fields, "stream")).await
}

/// The request as the server sees it.
///
/// # Errors
/// Names the field that is wrong.
pub fn generation(fields: &Object, window: u32) -> Result<Generation, Refusal> {
    let mut generation = Generation::new(Input::Chat(messages::read(fields)?));
    generation.sampling = sampling(fields, "repetition_penalty");
    generation.sampling.logit_bias = fields::bias(fields);
    generation.max_tokens = tokens(fields, "max_completion_tokens").or(tokens(fields, "max_tokens"));
    generation.stops = texts(fields, "stop");
    generation.format = fields::format(fields)?;
    generation.logprobs = logprobs(fields)?;
    let tools = list(fields, "tools").iter().filter_map(|tool| tool["function"].as_object());
    generation.tools = tools.map(fields::tool).collect();
    generation.choice = choice(fields);
    generation.parallel = fields.get("parallel_tool_calls").and_then(Value::as_bool).unwrap_or(true);
    generation.thinking = thinking(fields)?;
    if let Some(kept) = fields.get("chat_template_kwargs").and_then(|kwargs| kwargs.get("preserve_thinking")) {
        generation.variables.insert("preserve_thinking".to_owned(), kept.clone());
    }
    if let Some(options) = fields.get("options").and_then(Value::as_object) {
        generation.window = common::window(options, "options.num_ctx", window)?;
    }
    Ok(generation)
}

fn logprobs(fields: &Object) -> Result<Option<u8>, Refusal> {
    let top = number(fields, "top_logprobs").and_then(|top| u8::try_from(top).ok());
    match (flag(fields, "logprobs"), top) {
        (true, top) => Ok(Some(top.unwrap_or(0))),
        (false, None | Some(0)) => Ok(None),
        (false, Some(_)) => Err(Refusal::field("top_logprobs", "`top_logprobs` needs `logprobs` to be true")),
    }
}

fn choice(fields: &Object) -> ToolChoice {
    match fields.get("tool_choice") {
        Some(Value::String(word)) if word == "none" => ToolChoice::None,
        Some(Value::String(word)) if word == "required" => ToolChoice::Required,
        Some(Value::Object(named)) => {
            ToolChoice::Named(named["function"]["name"].as_str().unwrap_or_default().to_owned())
        }
        _ => ToolChoice::Auto,
    }
}

/// Whether the model thinks, by whichever of the fields says so; they must agree.
fn thinking(fields: &Object) -> Result<Thinking, Refusal> {
    let kwargs = fields.get("chat_template_kwargs").and_then(Value::as_object);
    let effort = |object: Option<&Object>, path: &str| -> Result<Option<Thinking>, Refusal> {
        let label = object.and_then(|object| text(object, "reasoning_effort"));
        let parsed: Result<Option<Thinking>, _> = label.map(str::parse).transpose();
        parsed.map_err(|error| Refusal::field(path, format!("`{path}`: {error}")))
    };
    let contradiction = |field: &str, other: &str| {
        Refusal::field(field, format!("`{field}` and `{other}` contradict each other: send one of them"))
    };
    const EFFORT: &str = "reasoning_effort";
    const INNER: &str = "chat_template_kwargs.reasoning_effort";
    let mut asked = effort(Some(fields), EFFORT)?.map(|thinking| (thinking, EFFORT));
    if let Some(inner) = effort(kwargs, INNER)? {
        match asked {
            Some((thinking, by)) if thinking != inner => return Err(contradiction(INNER, by)),
            _ => asked = Some((inner, INNER)),
        }
    }
    let enable = kwargs.and_then(|kwargs| kwargs.get("enable_thinking"));
    for (flag, name) in [(fields.get("think"), "think"), (enable, "chat_template_kwargs.enable_thinking")] {
        let Some(on) = flag.and_then(Value::as_bool) else { continue };
        match asked {
            Some((thinking, by)) if thinking.is_on() != on => return Err(contradiction(by, name)),
            Some(_) => {}
            None => asked = Some((if on { Thinking::On(None) } else { Thinking::Off }, name)),
        }
    }
    Ok(asked.map(|(thinking, _)| thinking).unwrap_or_default())
}
