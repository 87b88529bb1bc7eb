//! Owns: from a request to its handler: the table of paths, methods, and what every answer gets (server.md sections 2 to 4).
//! Refuses: what the gate does not let in, unknown paths, wrong methods.
//! Invariants: a handler that panics is an answer of 500; errors have the form of their path's API.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, Stream};
use serde_json::{Map, Value};
use warp::http::header::{CONNECTION, HeaderName, HeaderValue, ORIGIN};
use warp::http::{HeaderMap, Method, Uri};
use warp::reply::Response;

use crate::api;
use crate::app::{App, Core};
use crate::http::answer::Answer;
use crate::http::socket::{Link, REQUEST_ID};
use crate::http::{body, gate};
use crate::hub::Tag;
use crate::page;
use crate::refusal::{Code, Family, Refusal};
use crate::shape::{Fields, Kind};

/// A path with a method, and what answers it.
pub struct Route {
    /// `GET`, `POST` or `DELETE`; `HEAD` is answered wherever `GET` is.
    pub method: Method,
    /// The path; a last part `{id}` stands for any text.
    pub path: &'static str,
    /// One sentence on it.
    pub about: &'static str,
    /// The body that it takes.
    pub body: Option<&'static Fields>,
    /// What it answers.
    pub reply: Kind,
    /// Its handler.
    pub handler: Handler,
}

/// Answers a call.
pub type Handler = fn(Call) -> BoxFuture<'static, Result<Answer, Refusal>>;

/// A request on its way to its handler.
pub struct Call {
    /// The server.
    pub app: Arc<App>,
    /// The model and its queue.
    pub core: Arc<Core>,
    /// The connection.
    pub link: Arc<Link>,
    /// Its number, id and path.
    pub tag: Tag,
    /// Its headers.
    pub headers: HeaderMap,
    /// The text in place of `{id}`.
    pub id: String,
    /// The body.
    pub body: Bytes,
}

impl Call {
    /// The body, checked against a table.
    ///
    /// # Errors
    /// Names what is wrong.
    pub fn fields(&self, table: &Fields) -> Result<Map<String, Value>, Refusal> {
        let (fields, ignored) = table.check_telling(body::json(&self.body)?)?;
        if !ignored.is_empty() {
            self.app.board.ignored(ignored.len() as u64);
            tracing::debug!(request = self.tag.id, fields = ignored.join(", "), "fields were left out of account");
        }
        Ok(fields)
    }
}

/// A request as it came.
pub struct Request<S> {
    /// The method.
    pub method: Method,
    /// The target.
    pub uri: Uri,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: S,
}

/// Answers a request.
pub async fn answer<S, B, E>(app: Arc<App>, link: Arc<Link>, request: Request<S>) -> Response
where
    S: Stream<Item = Result<B, E>> + Send,
    B: Buf,
{
    let busy = link.busy();
    let (number, id) = app.next_id();
    let origin = request.headers.get(ORIGIN).cloned();
    let (path, method) = (request.uri.path().to_owned(), request.method.clone());
    let family = Family::of(&path);
    let mut label = "other";
    let work = route(app.clone(), link.clone(), (number, id.clone()), request, &mut label);
    let answer = match AssertUnwindSafe(work).catch_unwind().await {
        Ok(Ok(answer)) => answer,
        Ok(Err(refusal)) => {
            log(&id, label, &refusal);
            Answer::refusal(family, &refusal)
        }
        Err(_) => {
            tracing::error!(request = id, "a handler came upon a fault of its own");
            Answer::refusal(family, &Refusal::inference("the server came upon a fault of its own; its log tells more"))
        }
    };
    let status = answer.status.as_u16();
    app.board.answered(label, status);
    tracing::debug!(request = id, %method, path, status, "response");
    let mut response = answer.into_response();
    app.gate.mark(origin.as_ref(), response.headers_mut());
    if let Ok(id) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(REQUEST_ID, id.clone());
        if family == Family::Anthropic {
            response.headers_mut().insert(HeaderName::from_static("request-id"), id);
        }
    }
    if matches!(status, 413 | 415) {
        // What the client still sends is no request.
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    drop(busy);
    response
}

async fn route<S, B, E>(
    app: Arc<App>,
    link: Arc<Link>,
    (number, id): (u64, String),
    request: Request<S>,
    label: &mut &'static str,
) -> Result<Answer, Refusal>
where
    S: Stream<Item = Result<B, E>> + Send,
    B: Buf,
{
    let Request { method, uri, headers, body } = request;
    let path = uri.path();
    let path = path.strip_suffix('/').filter(|path| !path.is_empty()).unwrap_or(path);
    let wanted = if method == Method::HEAD { &Method::GET } else { &method };
    let routes: Vec<(&Route, &str)> =
        api::routes().filter_map(|route| Some((route, matches(route.path, path)?))).collect();
    if let Some((route, _)) = routes.first() {
        *label = route.path;
    }
    app.gate.check(&method, &uri, &headers)?;
    if method == Method::OPTIONS {
        return Ok(gate::preflight(&headers));
    }
    let Some(&(route, rest)) = routes.iter().find(|(route, _)| route.method == *wanted) else {
        let refused = match routes.is_empty() {
            true => Refusal::new(Code::NotFound, format!("there is nothing at `{}`", shorten(path))),
            false => {
                Refusal::new(Code::Method, format!("`{}` does not take {}", shorten(path), shorten(method.as_str())))
            }
        };
        // What is sent along is taken first, or the client never reads its refusal.
        let _ = body::read(&headers, body).await;
        let answer = Answer::refusal(Family::of(path), &refused);
        let methods = routes.iter().map(|(route, _)| route.method.as_str());
        let methods = methods.flat_map(|method| if method == "GET" { vec!["GET", "HEAD"] } else { vec![method] });
        let methods: Vec<&str> = methods.chain(["OPTIONS"]).collect();
        return Ok(if routes.is_empty() { answer } else { answer.with_allow(&methods.join(", ")) });
    };
    *label = route.path;
    let body = body::read(&headers, body).await?;
    let Some(core) = app.core().filter(|_| app.is_loaded()) else {
        return match route.path {
            "/health" => Ok(api::service::loading()),
            "/" if page::is_wanted(&headers) => Ok(api::service::page_for_browsers()),
            _ => Err(Refusal::new(Code::Busy, "the model is still being loaded; GET /health says when it is there")),
        };
    };
    let id_in_path = percent_encoding::percent_decode_str(rest).decode_utf8_lossy().into_owned();
    let tag = Tag { number, id, path: route.path };
    let large = body.len() > LARGE;
    let handled = (route.handler)(Call { app, core, link, tag, headers, id: id_in_path, body });
    if large { Beside(handled).await } else { handled.await }
}

/// Bytes of a body that takes long to read: milliseconds.
const LARGE: usize = 64 << 10;

/// A handler whose work is done beside the runtime's threads: others are answered meanwhile.
struct Beside(BoxFuture<'static, Result<Answer, Refusal>>);

impl Future for Beside {
    type Output = Result<Answer, Refusal>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        tokio::task::block_in_place(|| self.0.as_mut().poll(context))
    }
}

/// A line of the log for a request that never came to the engine; what a client wrote is not shown.
fn log(id: &str, path: &str, refusal: &Refusal) {
    if refusal.code.status().is_client_error() || refusal.code == Code::Busy {
        let (status, code) = (refusal.code.status().as_u16(), refusal.code.name());
        tracing::info!(request = id, path, status, code, field = refusal.field.as_deref(), "refused");
    }
}

/// Whether a path is that of a route, and the text in place of `{id}`.
fn matches<'p>(pattern: &str, path: &'p str) -> Option<&'p str> {
    match pattern.strip_suffix("{id}") {
        Some(prefix) => path.strip_prefix(prefix).filter(|rest| !rest.is_empty()),
        None => (pattern == path).then_some(""),
    }
}

fn shorten(text: &str) -> String {
    text.chars().take(100).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_matches_whole_or_with_its_id() {
        assert_eq!(matches("/v1/models", "/v1/models"), Some(""));
        assert_eq!(matches("/v1/models", "/v1/models/x"), None);
        assert_eq!(matches("/v1/models/{id}", "/v1/models/a/b:c"), Some("a/b:c"));
        assert_eq!(matches("/v1/models/{id}", "/v1/models/"), None);
        assert_eq!(matches("/api/tags", "//api/tags"), None);
    }
}
