//! Owns: `GET` and `DELETE /v1/responses/{id}` (server.md section 4): no reply is kept, so that there is none to give.

use warp::http::Method;

use crate::http::answer::Answer;
use crate::http::route::{Call, Route};
use crate::refusal::{Code, Refusal};
use crate::shape::Kind;

/// Asks for a reply of the past.
pub const GET: Route = Route {
    method: Method::GET,
    path: "/v1/responses/{id}",
    about: "Always 404: replies are not kept.",
    body: None,
    reply: Kind::Map,
    handler: |call| Box::pin(async move { none(&call) }),
};

/// Deletes a reply of the past.
pub const DELETE: Route = Route {
    method: Method::DELETE,
    path: "/v1/responses/{id}",
    about: "Always 404: replies are not kept.",
    body: None,
    reply: Kind::Map,
    handler: |call| Box::pin(async move { none(&call) }),
};

fn none(call: &Call) -> Result<Answer, Refusal> {
    let id: String = call.id.chars().take(100).filter(|letter| !letter.is_control()).collect();
    Err(Refusal::new(
        Code::StoredState,
        format!("there is no response `{id}`: this server keeps none; send the whole conversation as `input`"),
    ))
}
