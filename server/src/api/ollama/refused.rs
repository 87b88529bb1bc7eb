//! Owns: what clients of this API may ask for and this server does not do: embeddings, and changing the models that there are
//! (server.md section 4).
//! Invariants: each is refused with words that say what to do instead, in the form of its path's API.

use warp::http::Method;

use crate::http::route::{Handler, Route};
use crate::refusal::{Code, Refusal};
use crate::shape::Kind;

/// Vectors of texts.
pub const EMBED: Route = embeddings("/api/embed");
/// A vector of a text.
pub const EMBEDDINGS: Route = embeddings("/api/embeddings");
/// Vectors of texts, as OpenAI's clients ask for them.
pub const V1_EMBEDDINGS: Route = embeddings("/v1/embeddings");

/// Fetching a model.
pub const PULL: Route = library(Method::POST, "/api/pull");
/// Making a model of another.
pub const CREATE: Route = library(Method::POST, "/api/create");
/// Publishing a model.
pub const PUSH: Route = library(Method::POST, "/api/push");
/// Copying a model.
pub const COPY: Route = library(Method::POST, "/api/copy");
/// Deleting a model.
pub const DELETE: Route = library(Method::DELETE, "/api/delete");

const fn embeddings(path: &'static str) -> Route {
    refused(Method::POST, path, "Refused: the model does not support embeddings.", |_| {
        Box::pin(async { Err(Refusal::field("model", "the model does not support embeddings")) })
    })
}

const fn library(method: Method, path: &'static str) -> Route {
    refused(method, path, "Refused: models are directories on the host.", |_| {
        Box::pin(async {
            Err(Refusal::new(Code::NotDone, "put the model in a directory on the host and start with --model"))
        })
    })
}

/// Whatever the body says, it is not done: no table checks it.
const fn refused(method: Method, path: &'static str, about: &'static str, handler: Handler) -> Route {
    Route { method, path, about, body: None, reply: Kind::Map, handler }
}
