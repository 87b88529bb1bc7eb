//! Owns: `POST /v1/messages/count_tokens` (server.md section 9): how much the model would read.
//! Invariants: it takes no place in the queue and asks nothing of the engine, so that it answers while a reply is made.

use serde_json::json;
use warp::http::Method;

use super::fields::COUNT;
use super::messages::generation;
use super::{ignored, telling, turns};
use crate::api::common::text;
use crate::flow::off_thread;
use crate::http::answer::Answer;
use crate::http::route::{Call, Route};
use crate::prepare::{check_tools, prompt_ids};
use crate::refusal::{Family, Refusal};
use crate::shape::{ANY_WHOLE, Field, Fields, Kind};

/// The endpoint.
pub const ROUTE: Route = Route {
    method: Method::POST,
    path: "/v1/messages/count_tokens",
    about: "Counts the tokens of a conversation.",
    body: Some(&COUNT),
    reply: Kind::Object(&REPLY),
    handler: |call| Box::pin(answer(call)),
};

const REPLY: Fields = Fields::open(
    "CountTokensReply",
    &[Field::required("input_tokens", ANY_WHOLE, "Tokens that the model would read.")],
);

async fn answer(call: Call) -> Result<Answer, Refusal> {
    let fields = call.fields(&COUNT)?;
    call.app.check_model(text(&fields, "model"), Family::Anthropic)?;
    let (talk, by_model) = turns::read(&fields)?;
    let mut generation = generation(&fields, talk.finish_anywhere("messages")?)?;
    check_tools(&generation)?;
    if by_model {
        // Nothing is begun after the model's own words.
        generation.variables.insert("add_generation_prompt".to_owned(), json!(false));
    }
    let words = call.core.words.clone();
    let ids = off_thread(move || prompt_ids(&generation, words.as_ref())).await??;
    Ok(telling(json!({ "input_tokens": ids.len() }).into(), ignored(&COUNT, &fields)))
}
