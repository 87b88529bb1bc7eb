//! Owns: why a request is not answered, and the three forms in which the APIs say so (server.md section 11).
//! Invariants: every refusal has a code, a status and a sentence; what a client reads is JSON in the form of its API.

use serde_json::{Value, json};
use warp::http::StatusCode;

/// What kind of refusal it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// Fields, types, roles, history.
    Invalid,
    /// The prompt leaves no room in the window.
    ContextLength,
    /// Reading the prompt would take longer than is allowed.
    PrefillWait,
    /// It waited longer than is allowed.
    PrefillDeadline,
    /// No room in memory now.
    Memory,
    /// Queue or connections are full.
    Busy,
    /// The server is about to end.
    Stopping,
    /// The engine failed, or the model's reply cannot be used.
    Inference,
    /// No key or a wrong one.
    Key,
    /// Another site's page, or a name that is not this machine's.
    Forbidden,
    /// No such path, model or object.
    NotFound,
    /// Replies are not kept, so that there is none to give or to go on from.
    StoredState,
    /// The path has other methods.
    Method,
    /// The body or the head is too large, or did not come.
    TooLarge,
    /// The body's encoding is not read.
    Encoding,
    /// It is not something that this server does.
    NotDone,
    /// Its client went away.
    Cancelled,
}

impl Code {
    /// The code as clients read it.
    pub const fn name(self) -> &'static str {
        match self {
            Code::Invalid | Code::Method | Code::TooLarge | Code::Encoding => "invalid_request_error",
            Code::ContextLength => "context_length_exceeded",
            Code::PrefillWait => "prefill_wait_exceeded",
            Code::PrefillDeadline => "prefill_deadline_exceeded",
            Code::Memory => "insufficient_memory",
            Code::Busy => "server_busy",
            Code::Stopping => "server_stopping",
            Code::Inference => "inference_error",
            Code::Key => "invalid_api_key",
            Code::Forbidden => "forbidden",
            Code::NotFound => "not_found",
            Code::StoredState => "stored_state_unsupported",
            Code::NotDone => "not_implemented",
            Code::Cancelled => "cancelled",
        }
    }

    /// The status that goes with it.
    pub const fn status(self) -> StatusCode {
        match self {
            Code::Invalid | Code::ContextLength | Code::PrefillWait => StatusCode::BAD_REQUEST,
            Code::PrefillDeadline | Code::Memory | Code::Busy | Code::Stopping | Code::Cancelled => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Code::Inference => StatusCode::INTERNAL_SERVER_ERROR,
            Code::Key => StatusCode::UNAUTHORIZED,
            Code::Forbidden => StatusCode::FORBIDDEN,
            Code::NotFound | Code::StoredState => StatusCode::NOT_FOUND,
            Code::Method => StatusCode::METHOD_NOT_ALLOWED,
            Code::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Code::Encoding => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Code::NotDone => StatusCode::NOT_IMPLEMENTED,
        }
    }
}

/// Why a request is not answered.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// What kind it is.
    pub code: Code,
    /// One sentence for a person.
    pub message: String,
    /// The field that it is about.
    pub field: Option<String>,
    /// Numbers and names that a program may read.
    pub details: Option<Box<Value>>,
}

impl Refusal {
    /// A refusal of this kind.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Refusal { code, message: shortened(message.into()), field: None, details: None }
    }

    /// A field is wrong.
    pub fn field(field: &str, message: impl Into<String>) -> Self {
        Refusal { field: Some(field.to_owned()), ..Refusal::new(Code::Invalid, message) }
    }

    /// The prompt with a reply of one token does not fit.
    pub fn context(tokens: u64, window: u64) -> Self {
        Refusal {
            details: Some(Box::new(json!({ "prompt_tokens": tokens, "window": window }))),
            ..Refusal::new(
                Code::ContextLength,
                format!("the prompt is {tokens} tokens and the window is {window}: there is no room for a reply"),
            )
        }
    }

    /// The engine failed, or the reply cannot be used.
    pub fn inference(message: impl Into<String>) -> Self {
        Refusal::new(Code::Inference, message)
    }

    /// Whether coming back later may help.
    pub fn is_passing(&self) -> bool {
        self.code.status() == StatusCode::SERVICE_UNAVAILABLE
    }
}

/// Most characters of a sentence: what clients sent is shown in it, but not at any length.
const LONGEST: usize = 600;

fn shortened(mut message: String) -> String {
    if let Some((end, _)) = message.char_indices().nth(LONGEST) {
        message.truncate(end);
        message += "...";
    }
    message
}

/// The API that a path belongs to: it decides the form of errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// `/v1/...`
    OpenAi,
    /// `/v1/messages...`
    Anthropic,
    /// `/api/...`
    Ollama,
    /// Everything else; errors have Ollama's form.
    Own,
}

impl Family {
    /// The family of a path.
    pub fn of(path: &str) -> Self {
        let under =
            |prefix: &str| path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        if under("/v1/messages") {
            Family::Anthropic
        } else if under("/v1") {
            Family::OpenAi
        } else if under("/api") {
            Family::Ollama
        } else {
            Family::Own
        }
    }

    /// The refusal as this API writes it.
    pub fn error(self, refusal: &Refusal) -> Value {
        let Refusal { code, message, field, details } = refusal;
        match self {
            Family::OpenAi => {
                let kind = if code.status().is_client_error() { "invalid_request_error" } else { "server_error" };
                json!({ "error": { "message": message, "type": kind, "param": field, "code": code.name() } })
            }
            Family::Anthropic => {
                let (kind, message) = (anthropic_type(code.status()), anthropic_message(refusal));
                json!({ "type": "error", "error": { "type": kind, "message": message } })
            }
            Family::Ollama | Family::Own => {
                let mut error = json!({ "error": message });
                if *code != Code::Invalid {
                    error["code"] = json!(code.name());
                }
                if let Some(details) = details {
                    error["details"] = (**details).clone();
                }
                error
            }
        }
    }
}

/// The sentence as clients of Anthropic's API know it: they read the numbers of a prompt that is too long, and shorten it.
fn anthropic_message(refusal: &Refusal) -> String {
    if refusal.code != Code::ContextLength {
        return refusal.message.clone();
    }
    let number = |name: &str| refusal.details.as_ref().and_then(|details| details[name].as_u64());
    match (number("prompt_tokens"), number("window")) {
        (Some(tokens), Some(window)) => {
            // A prompt that fills the window to its end leaves no room for a reply: it too is more than there may be.
            let most = window.min(tokens.saturating_sub(1));
            format!("prompt is too long: {tokens} tokens > {most} maximum")
        }
        _ => format!("prompt is too long: {}", refusal.message),
    }
}

/// Anthropic's name of a status.
pub fn anthropic_type(status: StatusCode) -> &'static str {
    match status.as_u16() {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 | 431 => "request_too_large",
        429 => "rate_limit_error",
        503 => "overloaded_error",
        500..=599 => "api_error",
        _ => "invalid_request_error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_tells_the_form_of_its_errors() {
        for (path, family) in [
            ("/v1/messages", Family::Anthropic),
            ("/v1/messages/count_tokens", Family::Anthropic),
            ("/v1/messagesx", Family::OpenAi),
            ("/v1/nope", Family::OpenAi),
            ("/api/chat", Family::Ollama),
            ("/apiary", Family::Own),
            ("/", Family::Own),
        ] {
            assert_eq!(Family::of(path), family, "{path}");
        }
    }

    #[test]
    fn a_sentence_has_an_end() {
        assert_eq!(Refusal::field("n", "short").message, "short");
        let long = Refusal::field("n", "é".repeat(5000)).message;
        assert_eq!((long.chars().count(), long.ends_with("é...")), (LONGEST + 3, true));
    }

    #[test]
    fn each_api_gets_its_own_form() {
        let refusal = Refusal::field("n", "`n` must be 1");
        assert_eq!(
            Family::OpenAi.error(&refusal),
            json!({ "error": { "message": "`n` must be 1", "type": "invalid_request_error", "param": "n",
                "code": "invalid_request_error" } })
        );
        assert_eq!(
            Family::Anthropic.error(&refusal),
            json!({ "type": "error", "error": { "type": "invalid_request_error", "message": "`n` must be 1" } })
        );
        assert_eq!(Family::Ollama.error(&refusal), json!({ "error": "`n` must be 1" }));
        let busy = Refusal::new(Code::Busy, "full");
        assert_eq!(Family::Anthropic.error(&busy)["error"]["type"], "overloaded_error");
        assert_eq!(Family::Ollama.error(&busy), json!({ "error": "full", "code": "server_busy" }));
        assert!(busy.is_passing());
    }
}
