//! Owns: the table of all paths: one module a dialect, and the server's own.
//! Invariants: the description of the API is made from this table, and requests are checked by it.

pub mod anthropic;
pub mod common;
pub mod metrics;
pub mod ollama;
pub mod openai;
pub mod openapi;
pub mod service;

use crate::http::route::Route;

/// Every path of the server.
pub fn routes() -> impl Iterator<Item = &'static Route> {
    [openai::ROUTES, anthropic::ROUTES, ollama::ROUTES, service::ROUTES].into_iter().flatten()
}
