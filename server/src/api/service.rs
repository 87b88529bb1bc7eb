//! Owns: the server's own paths: root, health, metrics, status, tokens, templates (server.md section 4).
//! Invariants: none of them waits for the engine.

use serde::Serialize;
use serde_json::{Value, json};
use warp::http::header::VARY;
use warp::http::{Method, StatusCode};

use crate::api::common::text;
use crate::api::{metrics, openapi};
use crate::app::{rfc3339, seconds};
use crate::flow::off_thread;
use crate::http::answer::Answer;
use crate::http::route::{Call, Route};
use crate::page;
use crate::prepare::chat;
use crate::refusal::Refusal;
use crate::shape::{Field, Fields, Kind};
use crate::snapshot::{DoneView, EngineView, GapView, RunningView};

const TEXT: Kind = Kind::Text;

/// The paths.
pub const ROUTES: &[Route] = &[
    get("/", "Says that the server runs; to a browser, a page to chat and watch with.", TEXT, |call| {
        Box::pin(async move { Ok(root(&call)) })
    }),
    get("/health", "Whether the model is loaded.", Kind::Map, |_| {
        Box::pin(async { Ok(json!({ "status": "ok" }).into()) })
    }),
    get("/metrics", "Counters in Prometheus' format.", TEXT, |call| {
        Box::pin(async move { Ok(metrics::answer(&call)) })
    }),
    get("/openapi.json", "This description.", Kind::Map, |call| {
        Box::pin(async move { Ok(openapi::describe(&call.app.settings.version).into()) })
    }),
    get("/ss/status", "What is allocated, what runs, what ran.", Kind::Map, |call| {
        Box::pin(async move { Ok(status(&call)) })
    }),
    get("/slotstream/status", "The same by another name.", Kind::Map, |call| {
        Box::pin(async move { Ok(status(&call)) })
    }),
    post("/tokenize", "Ids of a text.", &TOKENIZE, |call| Box::pin(tokenize(call))),
    post("/detokenize", "The text of ids.", &DETOKENIZE, |call| Box::pin(detokenize(call))),
    post("/apply-template", "The prompt that a conversation becomes.", &super::openai::chat::BODY, |call| {
        Box::pin(apply_template(call))
    }),
];

const fn get(path: &'static str, about: &'static str, reply: Kind, handler: crate::http::route::Handler) -> Route {
    Route { method: Method::GET, path, about, body: None, reply, handler }
}

const fn post(
    path: &'static str,
    about: &'static str,
    body: &'static Fields,
    handler: crate::http::route::Handler,
) -> Route {
    Route { method: Method::POST, path, about, body: Some(body), reply: Kind::Map, handler }
}

const TOKENIZE: Fields = Fields::strict(
    "TokenizeRequest",
    &[
        Field::required("content", Kind::Text, "The text."),
        Field::new("with_pieces", Kind::Flag, "Whether each id's text is told."),
    ],
);

const DETOKENIZE: Fields = Fields::strict(
    "DetokenizeRequest",
    &[Field::required("tokens", Kind::List(&Kind::Whole(0, u32::MAX as i128)), "The ids.")],
);

/// The model is still being loaded.
pub fn loading() -> Answer {
    Answer::from(json!({ "status": "loading" })).with_status(StatusCode::SERVICE_UNAVAILABLE)
}

/// The root: a page for browsers, and for others the words that clients look for.
fn root(call: &Call) -> Answer {
    match page::is_wanted(&call.headers) {
        true => page_for_browsers(),
        false => Answer::text("Ollama is running").with_header(VARY, "Accept"),
    }
}

/// The page, which is there before the model is, and says so.
pub fn page_for_browsers() -> Answer {
    page::answer().with_header(VARY, "Accept")
}

/// What `/ss/status` tells.
#[derive(Serialize)]
struct Status<'a> {
    process: &'static str,
    version: &'a str,
    pid: u32,
    port: u16,
    model: &'a str,
    aliases: &'a [String],
    window: u32,
    /// RFC 3339.
    started_at: String,
    uptime_seconds: u64,
    active_requests: usize,
    queued: usize,
    queue_limit: usize,
    idle_seconds: f64,
    memory_bytes: u64,
    engine: EngineView,
    running: Vec<RunningView>,
    /// The last requests, the newest first.
    requests: Vec<DoneView>,
    gaps: GapView,
    totals: Value,
}

fn status(call: &Call) -> Answer {
    let (app, board) = (&call.app, &call.app.board);
    let engine = (call.core.watch)();
    let (running, totals) = (board.running(), board.totals());
    let rate = |tokens: u64, seconds: f64| if seconds > 0.0 { tokens as f64 / seconds } else { 0.0 };
    Answer::json(&Status {
        process: "slotstream",
        version: &app.settings.version,
        pid: std::process::id(),
        port: app.settings.port,
        model: &app.settings.model,
        aliases: &app.settings.aliases,
        window: call.core.words.facts().window,
        started_at: rfc3339(app.started()),
        uptime_seconds: seconds(std::time::SystemTime::now()).saturating_sub(seconds(app.started())),
        active_requests: usize::from(call.core.hub.is_busy()),
        queued: call.core.hub.waiting(),
        queue_limit: call.core.hub.limits().queue,
        idle_seconds: board.idle().as_secs_f64(),
        memory_bytes: engine.memory.iter().map(|part| part.bytes).sum(),
        engine,
        running,
        requests: board.done(),
        gaps: board.gaps(),
        totals: json!({
            "prompt_tokens": totals.prompt_tokens,
            "cached_tokens": totals.cached_tokens,
            "output_tokens": totals.output_tokens,
            "prefill_seconds": totals.prefill.as_secs_f64(),
            "decode_seconds": totals.decode.as_secs_f64(),
            "prefill_rate": rate(totals.prompt_tokens, totals.prefill.as_secs_f64()),
            "decode_rate": rate(totals.output_tokens, totals.decode.as_secs_f64()),
            "cancelled": totals.cancelled,
            "read_so_far": totals.read_so_far,
            "written_so_far": totals.written_so_far,
        }),
    })
}

async fn tokenize(call: Call) -> Result<Answer, Refusal> {
    let fields = call.fields(&TOKENIZE)?;
    let content = text(&fields, "content").unwrap_or_default().to_owned();
    let pieces = fields.get("with_pieces").and_then(Value::as_bool).unwrap_or(false);
    let words = call.core.words.clone();
    let tokens = off_thread(move || -> Result<Value, Refusal> {
        let ids = words.text_ids(&content)?;
        Ok(match pieces {
            true => ids.iter().map(|id| json!({ "id": id, "piece": words.text_of(&[*id]) })).collect(),
            false => json!(ids),
        })
    });
    Ok(json!({ "tokens": tokens.await?? }).into())
}

async fn detokenize(call: Call) -> Result<Answer, Refusal> {
    let fields = call.fields(&DETOKENIZE)?;
    let most = call.core.words.facts().vocabulary;
    let ids: Vec<u32> =
        super::common::list(&fields, "tokens").iter().filter_map(crate::shape::whole).map(|id| id as u32).collect();
    if let Some(id) = ids.iter().find(|&&id| id >= most) {
        return Err(Refusal::field(
            "tokens",
            format!("`tokens` holds the id {id}: this model's ids are 0 to {}", most.saturating_sub(1)),
        ));
    }
    Ok(json!({ "content": call.core.words.text_of(&ids) }).into())
}

async fn apply_template(call: Call) -> Result<Answer, Refusal> {
    let fields = call.fields(&super::openai::chat::BODY)?;
    let generation = super::openai::chat::generation(&fields, call.core.words.facts().window)?;
    let words = call.core.words.clone();
    let prompt = off_thread(move || words.chat_text(&chat(&generation)?)).await??;
    Ok(json!({ "prompt": prompt }).into())
}
