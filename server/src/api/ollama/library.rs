//! Owns: what Ollama's clients ask about models: `/api/tags`, `/api/ps`, `/api/show`, `/api/version` (server.md section 10).
//! Refuses: models that are not here, and a system text or template in place of the model's own.
//! Invariants: none of them waits for the engine; sizes and windows are those that are, never those that could be.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use warp::http::Method;

use crate::api::common::text;
use crate::app::rfc3339;
use crate::engine::Facts;
use crate::http::answer::Answer;
use crate::http::route::{Call, Handler, Route};
use crate::refusal::{Code, Refusal};
use crate::shape::{ANY_WHOLE, Field, Fields, Kind};

/// The models that there are.
pub const TAGS: Route = get("/api/tags", "Lists the model.", Kind::Object(&MODELS), |call| {
    Box::pin(async move { Ok(json!({ "models": [model(&call)] }).into()) })
});

/// The models that are loaded.
pub const PS: Route = get("/api/ps", "Lists the model with what it holds in memory.", Kind::Object(&MODELS), |call| {
    Box::pin(async move { Ok(json!({ "models": [loaded(&call)] }).into()) })
});

/// This program's version.
pub const VERSION: Route = get("/api/version", "The version of this server.", Kind::Object(&VERSION_REPLY), |call| {
    Box::pin(async move { Ok(json!({ "version": call.app.settings.version }).into()) })
});

/// One model.
pub const SHOW: Route = Route {
    method: Method::POST,
    path: "/api/show",
    about: "Describes the model.",
    body: Some(&SHOW_BODY),
    reply: Kind::Object(&SHOW_REPLY),
    handler: |call| Box::pin(async move { show(&call) }),
};

const fn get(path: &'static str, about: &'static str, reply: Kind, handler: Handler) -> Route {
    Route { method: Method::GET, path, about, body: None, reply, handler }
}

const DETAILS: Fields = Fields::open(
    "OllamaModelDetails",
    &[
        Field::required("format", Kind::Text, "The form of the weights' files."),
        Field::required("family", Kind::Text, "The architecture."),
        Field::required("parameter_size", Kind::Text, "How many weights it has."),
        Field::required("quantization_level", Kind::Text, "How they are stored."),
    ],
);

const MODEL: Fields = Fields::open(
    "OllamaModel",
    &[
        Field::required("name", Kind::Text, "Its name."),
        Field::required("model", Kind::Text, "The same."),
        Field::required("modified_at", Kind::Text, "When its files were written, as RFC 3339 writes it."),
        Field::required("size", ANY_WHOLE, "Bytes of its weights; of a loaded model, bytes in memory."),
        Field::required("digest", Kind::Text, "An identity of its weights: 64 digits."),
        Field::required("details", Kind::Object(&DETAILS), "What it is."),
        Field::new("expires_at", Kind::Text, "Of a loaded model: when it goes, which is never."),
        Field::new("size_vram", ANY_WHOLE, "Of a loaded model: bytes in memory."),
        Field::new("context_length", ANY_WHOLE, "Of a loaded model: tokens of its window."),
    ],
);

const MODELS: Fields =
    Fields::open("OllamaModels", &[Field::required("models", Kind::List(&Kind::Object(&MODEL)), "The models.")]);

const VERSION_REPLY: Fields = Fields::open("OllamaVersion", &[Field::required("version", Kind::Text, "The version.")]);

const SHOW_BODY: Fields = Fields::strict(
    "OllamaShowRequest",
    &[
        Field::new("model", Kind::Text, "The model's name."),
        Field::new("name", Kind::Text, "The same by an older name."),
        Field::inert("verbose", Kind::Flag),
        Field::new("system", Kind::Text, "Nothing: what a model is told first is each request's."),
        Field::new("template", Kind::Text, "Nothing: the model's own template is used."),
        Field::new("options", Kind::Map, "Nothing: options are each request's."),
    ],
);

const SHOW_REPLY: Fields = Fields::open(
    "OllamaShowReply",
    &[
        Field::required("parameters", Kind::Text, "The window, as `num_ctx` and a number."),
        Field::required("template", Kind::Text, "The chat template."),
        Field::required("details", Kind::Object(&DETAILS), "What it is."),
        Field::required("model_info", Kind::Map, "The architecture, and its window as served."),
        Field::required("capabilities", Kind::List(&Kind::Text), "What is served."),
    ],
);

/// What is served; clients turn on what they read here.
const CAPABILITIES: [&str; 3] = ["completion", "tools", "thinking"];
/// A loaded model goes when its server ends: a time so far off that clients write "forever".
const FOREVER: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

fn details(facts: &Facts) -> Value {
    json!({
        "parent_model": "",
        "format": "safetensors",
        "family": facts.architecture,
        "families": [facts.architecture],
        "parameter_size": facts.parameters,
        "quantization_level": facts.quantization,
    })
}

fn modified(facts: &Facts) -> String {
    rfc3339(UNIX_EPOCH.checked_add(Duration::from_secs(facts.modified)).unwrap_or(UNIX_EPOCH))
}

fn model(call: &Call) -> Value {
    let (name, facts) = (&call.app.settings.model, call.core.words.facts());
    json!({
        "name": name,
        "model": name,
        "modified_at": modified(facts),
        "size": facts.bytes,
        "digest": facts.digest,
        "details": details(facts),
    })
}

/// The model with what it holds in memory now: clients show as the GPU's share of it what `size_vram` is of `size`.
fn loaded(call: &Call) -> Value {
    let mut model = model(call);
    let view = (call.core.watch)();
    let resident: u64 = view.memory.iter().map(|part| part.bytes).sum();
    model["size"] = json!(resident);
    model["size_vram"] = json!(if view.gpu { resident } else { 0 });
    model["expires_at"] = json!(rfc3339(call.app.started().checked_add(FOREVER).unwrap_or_else(SystemTime::now)));
    model["context_length"] = json!(call.core.words.facts().window);
    model
}

fn show(call: &Call) -> Result<Answer, Refusal> {
    let fields = call.fields(&SHOW_BODY)?;
    let names: Vec<&str> =
        ["model", "name"].into_iter().filter_map(|name| text(&fields, name)).filter(|name| !name.is_empty()).collect();
    if names.is_empty() {
        return Err(Refusal::field("model", "`model` is missing: it must be the name of a model"));
    }
    if let Some(name) = names.into_iter().find(|name| !call.app.answers_to(name)) {
        let (name, here): (String, _) = (name.chars().take(100).collect(), &call.app.settings.model);
        return Err(Refusal::new(Code::NotFound, format!("there is no model `{name}` here: this server has `{here}`")));
    }
    for name in ["system", "template"] {
        if text(&fields, name).is_some_and(|text| !text.is_empty()) {
            return Err(Refusal::field(name, format!("`{name}` must be empty: the model is shown as it is")));
        }
    }
    let options = fields.get("options").and_then(Value::as_object);
    if options.is_some_and(|options| options.values().any(|value| !value.is_null())) {
        return Err(Refusal::field("options", "`options` must be empty: the model is shown as it is"));
    }
    Ok(shown(call.core.words.facts()).into())
}

fn shown(facts: &Facts) -> Value {
    let window = format!("{}.context_length", facts.architecture);
    json!({
        "parameters": format!("num_ctx {}", facts.window),
        "template": facts.template,
        "modified_at": modified(facts),
        "details": details(facts),
        "model_info": { "general.architecture": facts.architecture, window: facts.window },
        "capabilities": CAPABILITIES,
    })
}
