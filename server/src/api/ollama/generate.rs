//! Owns: `POST /api/generate` (server.md section 10): one prompt, through the template or as it is.
//! Refuses: templates and suffixes, the ids of an earlier reply, pictures.
//! Invariants: without a prompt it loads or unloads, and touches no engine; a raw prompt is never rendered.

use warp::http::Method;

use super::reply::{Form, answer};
use super::settings::{self, FORMAT, KEEP_ALIVE, MODEL, OPTIONS, STREAM, THINK};
use super::told;
use crate::api::common::{Object, flag, list, no_pictures, text};
use crate::conversation::Conversation;
use crate::http::route::Route;
use crate::refusal::Refusal;
use crate::request::{Generation, Input};
use crate::shape::{Field, Fields, Kind};

/// The endpoint.
pub const ROUTE: Route = Route {
    method: Method::POST,
    path: "/api/generate",
    about: "Answers a prompt, as Ollama's generate does; without one it loads or unloads.",
    body: Some(&BODY),
    reply: Kind::Object(&REPLY),
    handler: |call| Box::pin(answer(call, Form::Generate, &BODY, generation)),
};

const BODY: Fields = Fields::strict(
    "OllamaGenerateRequest",
    &[
        MODEL,
        Field::new("prompt", Kind::Text, "What is asked; without it the model is loaded."),
        Field::new("system", Kind::Text, "What the model is told first."),
        Field::new("raw", Kind::Flag, "Whether the prompt goes to the model as it is, without the template."),
        Field::new("images", Kind::List(&Kind::Text), "None: pictures are refused."),
        Field::new("suffix", Kind::Text, "Nothing: text after the reply is not supported."),
        Field::new("template", Kind::Text, "Nothing: the model's own template is used."),
        Field::new("context", Kind::List(&Kind::Anything), "Nothing: an earlier reply is not gone on from."),
        STREAM,
        THINK,
        FORMAT,
        OPTIONS,
        KEEP_ALIVE,
    ],
);

const REPLY: Fields = Fields::open(
    "OllamaGenerateReply",
    &[
        Field::required("model", Kind::Text, "The model."),
        Field::required("created_at", Kind::Text, "When, as RFC 3339 writes it."),
        Field::required("response", Kind::Text, "The answer."),
        Field::new("thinking", Kind::Text, "The thoughts before it."),
        told::DONE,
        told::DONE_REASON,
        told::TOTAL,
        told::LOADING,
        told::PROMPT_TOKENS,
        told::PROMPT_TIME,
        told::TOKENS,
        told::TIME,
    ],
);

/// The request as the server sees it; none where there is no prompt.
fn generation(fields: &Object, window: u32) -> Result<Option<Generation>, Refusal> {
    check_unsupported(fields)?;
    let prompt = text(fields, "prompt").unwrap_or_default().to_owned();
    let input = if flag(fields, "raw") { raw(fields, prompt)? } else { rendered(fields, prompt)? };
    let mut generation = Generation::new(Input::Text(String::new()));
    settings::apply(&mut generation, fields, window)?;
    Ok(input.map(|input| Generation { input, ..generation }))
}

/// Refuses what would change the reply and is not done; empty ones change nothing.
fn check_unsupported(fields: &Object) -> Result<(), Refusal> {
    for (name, instead) in [
        ("suffix", "filling in before a suffix is not supported; leave it out"),
        ("template", "the model's own template is used; send a rendered prompt with `raw` to use another"),
    ] {
        if text(fields, name).is_some_and(|text| !text.is_empty()) {
            return Err(Refusal::field(name, format!("`{name}` must be empty: {instead}")));
        }
    }
    if !list(fields, "images").is_empty() {
        return Err(no_pictures("images[0]"));
    }
    if !list(fields, "context").is_empty() {
        return Err(Refusal::field(
            "context",
            "`context` must be empty: going on from an earlier reply is done with /api/chat and its messages",
        ));
    }
    Ok(())
}

/// A prompt that goes to the model as it is.
fn raw(fields: &Object, prompt: String) -> Result<Option<Input>, Refusal> {
    let alone = |name: &str| Refusal::field(name, format!("`{name}` cannot go with `raw`: it is the template's"));
    if text(fields, "system").is_some_and(|system| !system.is_empty()) {
        return Err(alone("system"));
    }
    if settings::thinking(fields)?.is_on() {
        return Err(alone("think"));
    }
    match prompt.is_empty() {
        true => Err(Refusal::field("prompt", "prompt must not be empty")),
        false => Ok(Some(Input::Text(prompt))),
    }
}

/// A prompt that is a user's message.
fn rendered(fields: &Object, prompt: String) -> Result<Option<Input>, Refusal> {
    if prompt.is_empty() {
        return Ok(None);
    }
    let mut talk = Conversation::default();
    if let Some(system) = text(fields, "system").filter(|system| !system.is_empty()) {
        talk.system(system.to_owned(), "system")?;
    }
    talk.user(prompt, "prompt")?;
    talk.finish("prompt").map(|messages| Some(Input::Chat(messages)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn asked(body: Value) -> Result<Option<Input>, Refusal> {
        Ok(generation(&BODY.check(body)?, 4096)?.map(|generation| generation.input))
    }

    #[test]
    fn a_prompt_is_rendered_or_raw() {
        let talk = json!([{ "role": "system", "content": "s" }, { "role": "user", "content": "p" }]);
        let talk = Input::Chat(talk.as_array().unwrap().clone());
        assert_eq!(asked(json!({ "prompt": "p", "system": "s" })), Ok(Some(talk)));
        let raw = json!({ "prompt": "p", "raw": true, "system": "", "think": false, "images": [], "context": [] });
        assert_eq!(asked(raw), Ok(Some(Input::Text("p".into()))));
        assert_eq!(asked(json!({})), Ok(None));
        assert_eq!(asked(json!({ "prompt": "", "system": "s" })), Ok(None));
    }

    #[test]
    fn what_is_not_done_is_named() {
        for (body, name) in [
            (json!({ "prompt": "p", "suffix": "x" }), "suffix"),
            (json!({ "prompt": "p", "template": "x" }), "template"),
            (json!({ "template": "x" }), "template"),
            (json!({ "prompt": "p", "context": [1, 2] }), "context"),
            (json!({ "prompt": "p", "images": ["aGk="] }), "images[0]"),
            (json!({ "prompt": "p", "raw": true, "system": "s" }), "system"),
            (json!({ "prompt": "p", "raw": true, "think": true }), "think"),
            (json!({ "prompt": "p", "raw": true, "think": "low" }), "think"),
            (json!({ "prompt": "p", "raw": true, "images": ["aGk="] }), "images[0]"),
            (json!({ "prompt": "", "raw": true }), "prompt"),
            (json!({ "prompt": "p", "messages": [] }), "messages"),
            (json!({ "prompt": "p", "options": { "num_ctx": 4097 } }), "options.num_ctx"),
        ] {
            assert_eq!(asked(body).unwrap_err().field.as_deref(), Some(name));
        }
    }
}
