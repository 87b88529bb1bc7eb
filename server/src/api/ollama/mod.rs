//! Owns: Ollama's API: chat, generate, what it tells of the model, and what it says to what this server does not do
//! (server.md sections 4 and 10).
//! Invariants: a stream is the default; a load or unload request takes no place in the queue.

pub mod chat;
pub mod generate;
pub mod library;
pub mod refused;
pub mod reply;
pub mod settings;
pub mod told;

use crate::http::route::Route;

/// The paths of this API, and embeddings by every name.
pub const ROUTES: &[Route] = &[
    chat::ROUTE,
    generate::ROUTE,
    library::TAGS,
    library::PS,
    library::VERSION,
    library::SHOW,
    refused::EMBED,
    refused::EMBEDDINGS,
    refused::V1_EMBEDDINGS,
    refused::PULL,
    refused::CREATE,
    refused::PUSH,
    refused::COPY,
    refused::DELETE,
];
