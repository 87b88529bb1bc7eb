//! Owns: what a handler gives back, and its form on the wire.
//! Invariants: an answer of known size has its length; an error is JSON in the form of its path's API.

use serde::Serialize;
use serde_json::Value;
use warp::http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use warp::http::{HeaderMap, StatusCode};
use warp::reply::{Reply, Response};

use crate::http::stream::Frames;
use crate::refusal::{Code, Family, Refusal};

/// What a handler gives back.
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// Headers beside those that follow from the body.
    pub headers: HeaderMap,
    /// The body.
    pub body: Body,
}

/// The body of an answer.
pub enum Body {
    /// Bytes, with their type.
    Whole(&'static str, Vec<u8>),
    /// A stream of frames.
    Frames(Frames),
}

const JSON: &str = "application/json";

impl Answer {
    /// A value as JSON.
    pub fn json(value: &impl Serialize) -> Self {
        match serde_json::to_vec(value) {
            Ok(bytes) => Answer::whole(JSON, bytes),
            Err(error) => {
                let mut answer = Answer::whole(
                    JSON,
                    Family::Own.error(&Refusal::inference(error.to_string())).to_string().into_bytes(),
                );
                answer.status = StatusCode::INTERNAL_SERVER_ERROR;
                answer
            }
        }
    }

    /// Plain text.
    pub fn text(text: impl Into<String>) -> Self {
        Answer::whole("text/plain; charset=utf-8", text.into().into_bytes())
    }

    /// Bytes of a type.
    pub fn whole(kind: &'static str, bytes: Vec<u8>) -> Self {
        Answer { status: StatusCode::OK, headers: HeaderMap::new(), body: Body::Whole(kind, bytes) }
    }

    /// A stream.
    pub fn frames(frames: Frames) -> Self {
        Answer { status: StatusCode::OK, headers: HeaderMap::new(), body: Body::Frames(frames) }
    }

    /// A refusal in the form of an API.
    pub fn refusal(family: Family, refusal: &Refusal) -> Self {
        let mut answer = Answer::json(&family.error(refusal));
        answer.status = refusal.code.status();
        if matches!(refusal.code, Code::Busy | Code::Stopping | Code::Memory) {
            answer.headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        answer
    }

    /// A value with another status.
    pub fn with_status(mut self, status: StatusCode) -> Self {
        self.status = status;
        self
    }

    /// With one more header; one whose value no header can hold is left out.
    pub fn with_header(mut self, name: HeaderName, value: &str) -> Self {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.insert(name, value);
        }
        self
    }

    /// With the methods that a path has.
    pub fn with_allow(self, methods: &str) -> Self {
        self.with_header(ALLOW, methods)
    }

    /// The answer on the wire.
    pub fn into_response(self) -> Response {
        let (kind, mut response) = match self.body {
            Body::Whole(kind, bytes) => (kind, bytes.into_response()),
            Body::Frames(frames) => {
                let kind = frames.kind();
                let mut response = warp::reply::stream(frames).into_response();
                response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
                (kind, response)
            }
        };
        *response.status_mut() = self.status;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        response.headers_mut().extend(self.headers);
        response
    }
}

impl From<Value> for Answer {
    fn from(value: Value) -> Self {
        Answer::json(&value)
    }
}
