//! Owns: `GET /v1/models` and `GET /v1/models/{id}` (server.md section 4), for OpenAI's clients and Anthropic's.

use serde_json::{Value, json};
use warp::http::Method;

use crate::app::{App, Core, rfc3339, seconds};
use crate::http::answer::Answer;
use crate::http::route::{Call, Route};
use crate::refusal::{Code, Refusal};
use crate::shape::{ANY_WHOLE, Field, Fields, Kind};

/// The list.
pub const LIST: Route = Route {
    method: Method::GET,
    path: "/v1/models",
    about: "Lists the model.",
    body: None,
    reply: Kind::Object(&MODELS),
    handler: |call| Box::pin(async move { Ok(list(&call)) }),
};

/// One model.
pub const ONE: Route = Route {
    method: Method::GET,
    path: "/v1/models/{id}",
    about: "Describes the model.",
    body: None,
    reply: Kind::Object(&MODEL),
    handler: |call| Box::pin(async move { one(&call) }),
};

const MODEL: Fields = Fields::open(
    "Model",
    &[
        Field::required("id", Kind::Text, "Its name."),
        Field::new("object", Kind::Only("\"model\""), ""),
        Field::new("created", ANY_WHOLE, "Seconds since 1970."),
        Field::new("owned_by", Kind::Text, ""),
        Field::new("context_length", ANY_WHOLE, "Tokens of its window, as served."),
    ],
);

const MODELS: Fields =
    Fields::open("Models", &[Field::required("data", Kind::List(&Kind::Object(&MODEL)), "The models.")]);

fn list(call: &Call) -> Answer {
    let model = model(&call.app, &call.core, is_anthropic(call));
    let mut list = json!({ "object": "list", "data": [model] });
    if is_anthropic(call) {
        list["first_id"] = json!(call.app.settings.model);
        list["last_id"] = json!(call.app.settings.model);
        list["has_more"] = json!(false);
    }
    Answer::from(list)
}

fn one(call: &Call) -> Result<Answer, Refusal> {
    match call.app.answers_to(&call.id) {
        true => Ok(Answer::from(model(&call.app, &call.core, is_anthropic(call)))),
        false => {
            let id: String = call.id.chars().take(100).collect();
            let here = &call.app.settings.model;
            Err(Refusal::new(Code::NotFound, format!("there is no model `{id}` here: this server has `{here}`")))
        }
    }
}

fn is_anthropic(call: &Call) -> bool {
    call.headers.contains_key("anthropic-version")
}

fn model(app: &App, core: &Core, anthropic: bool) -> Value {
    let window = core.words.facts().window;
    let mut model = json!({
        "id": app.settings.model,
        "object": "model",
        "created": seconds(app.started()),
        "owned_by": "slotstream",
        "context_length": window,
        "context_window": window,
        "max_output_tokens": window,
    });
    if anthropic {
        model["type"] = json!("model");
        model["display_name"] = json!(app.settings.model);
        model["created_at"] = json!(rfc3339(app.started()));
        model["max_input_tokens"] = json!(window);
        model["max_tokens"] = json!(window);
    }
    model
}
