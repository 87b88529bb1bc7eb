//! Owns: `POST /v1/responses` (server.md section 8): from its body to a generation, and the whole reply.
//! Invariants: a whole reply is the last state of the streamed one, made by the same code from the same events.

mod echo;
mod events;
mod fields;
mod input;
mod items;
pub mod stored;
mod tools;

use serde_json::Value;
use warp::http::Method;

use crate::Thinking;
use crate::api::common::{Object, flag, float, text, tokens};
use crate::flow::{self, Dialect, Made, Start};
use crate::http::answer::Answer;
use crate::http::route::{Call, Route};
use crate::http::stream::Writer;
use crate::refusal::{Family, Refusal};
use crate::request::{Format, Generation, Input};
use crate::shape::Kind;

use echo::Echo;
use events::Events;
use tools::Offered;

/// The endpoint.
pub const ROUTE: Route = Route {
    method: Method::POST,
    path: "/v1/responses",
    about: "Continues a conversation of items, as OpenAI's responses do.",
    body: Some(&fields::BODY),
    reply: Kind::Object(&fields::REPLY),
    handler: |call| Box::pin(answer(call)),
};

async fn answer(call: Call) -> Result<Answer, Refusal> {
    let fields = call.fields(&fields::BODY)?;
    call.app.check_model(text(&fields, "model"), Family::OpenAi)?;
    let (generation, offered) = generation(&fields)?;
    let stream = flag(&fields, "stream");
    let dialect = Responses { summary: wants_summary(&fields), offered, fields };
    flow::reply(call, generation, Box::new(dialect), stream).await.map_err(renamed)
}

/// What all APIs share names fields as chat completions do: here they have names of their own.
fn renamed(mut refusal: Refusal) -> Refusal {
    refusal.field = refusal.field.map(|field| match field.as_str() {
        "response_format" => "text.format".to_owned(),
        "messages" => "input".to_owned(),
        _ => field,
    });
    refusal
}

/// The request as the server sees it, and the tools by the names that the model knows them by.
fn generation(fields: &Object) -> Result<(Generation, Offered), Refusal> {
    let offered = Offered::read(fields)?;
    let mut generation = Generation::new(Input::Chat(input::messages(fields)?));
    generation.sampling.temperature = float(fields, "temperature");
    generation.sampling.top_p = float(fields, "top_p");
    generation.max_tokens = tokens(fields, "max_output_tokens");
    generation.format = format(fields)?;
    generation.thinking = thinking(fields)?;
    generation.parallel = fields.get("parallel_tool_calls").and_then(Value::as_bool).unwrap_or(true);
    (generation.tools, generation.choice) = offered.choose(fields)?;
    Ok((generation, offered))
}

fn reasoning(fields: &Object) -> Option<&Object> {
    fields.get("reasoning").and_then(Value::as_object)
}

fn thinking(fields: &Object) -> Result<Thinking, Refusal> {
    let effort = reasoning(fields).and_then(|reasoning| text(reasoning, "effort")).map(str::parse).transpose();
    effort
        .map(Option::unwrap_or_default)
        .map_err(|error| Refusal::field("reasoning.effort", format!("`reasoning.effort`: {error}")))
}

/// Whether thoughts are told as a summary, under the field's new name or its old one.
fn wants_summary(fields: &Object) -> bool {
    reasoning(fields).is_some_and(|reasoning| {
        text(reasoning, "summary").or(text(reasoning, "generate_summary")).is_some_and(|word| word != "none")
    })
}

fn format(fields: &Object) -> Result<Format, Refusal> {
    let format = fields.get("text").and_then(|text| text.get("format")).and_then(Value::as_object);
    let Some(format) = format else { return Ok(Format::Text) };
    Ok(match text(format, "type") {
        Some("json_object") => Format::Json,
        Some("json_schema") => Format::Schema(format.get("schema").cloned().unwrap_or_default()),
        _ => Format::Text,
    })
}

/// The forms of a reply.
struct Responses {
    fields: Object,
    offered: Offered,
    summary: bool,
}

impl Responses {
    fn events(&self, start: Start) -> Events {
        Events::new(Echo::new(&self.fields, &start), self.offered.clone(), self.summary, start)
    }
}

impl Dialect for Responses {
    fn whole(&self, made: Made) -> Result<Value, Refusal> {
        let Made { start, events, outcome, .. } = made;
        self.events(start).whole(events, &outcome)
    }

    fn writer(self: Box<Self>, start: Start) -> Box<dyn Writer> {
        Box::new(self.events(start))
    }
}
