//! Owns: OpenAI's API: chat completions, completions, responses, models (server.md sections 4, 6, 7 and 8).

pub mod chat;
pub mod completions;

pub mod fields;
pub mod models;
pub mod responses;

use crate::http::route::Route;

/// The paths of this API.
pub const ROUTES: &[Route] = &[
    chat::ROUTE,
    completions::ROUTE,
    models::LIST,
    models::ONE,
    responses::ROUTE,
    responses::stored::GET,
    responses::stored::DELETE,
];
