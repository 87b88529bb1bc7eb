//! Owns: reading a request's body within limits of size and time (server.md section 2).
//! Refuses: bodies over the limit, encodings that are not read, and what is not a JSON object in UTF-8.
//! Invariants: a client that is still sending reads its refusal: what it sends is taken and thrown away first, for a while.

use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use futures_util::{Stream, StreamExt};
use serde_json::Value;
use tokio::time::{Instant, timeout};
use warp::http::HeaderMap;
use warp::http::header::{CONTENT_ENCODING, CONTENT_LENGTH};

use crate::refusal::{Code, Refusal};

/// Most bytes of a body.
pub const MOST: usize = 32 << 20;
/// Most bytes that are taken of a body that is refused.
const MOST_DISCARDED: usize = 256 << 20;
/// How long a piece of it is waited for.
const DISCARD_PIECE: Duration = Duration::from_secs(2);
/// How long it is taken in all.
const DISCARD: Duration = Duration::from_secs(10);

/// Reads a body. A body that does not come ends the connection by itself: the socket waits no longer than it should.
///
/// # Errors
/// When it is too large, encoded, or breaks off.
pub async fn read<S, B, E>(headers: &HeaderMap, body: S) -> Result<Bytes, Refusal>
where
    S: Stream<Item = Result<B, E>>,
    B: Buf,
{
    let mut body = std::pin::pin!(body);
    if let Some(encoding) =
        headers.get(CONTENT_ENCODING).filter(|value| !value.as_bytes().eq_ignore_ascii_case(b"identity"))
    {
        let encoding = encoding.to_str().unwrap_or("?").chars().take(32).collect::<String>();
        discard(body, 0).await;
        return Err(Refusal::new(
            Code::Encoding,
            format!("the body is encoded as `{encoding}`: send it as it is, without Content-Encoding"),
        ));
    }
    let declared = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if declared.is_some_and(|declared| declared > MOST as u64) {
        discard(body, 0).await;
        return Err(too_large());
    }
    let mut whole = BytesMut::new();
    while let Some(piece) = body.next().await {
        let mut piece = piece.map_err(|_| Refusal::new(Code::Invalid, "the body broke off before its end"))?;
        if whole.len() + piece.remaining() > MOST {
            let taken = whole.len() + piece.remaining();
            drop(whole);
            discard(body, taken).await;
            return Err(too_large());
        }
        whole.extend_from_slice(&piece.copy_to_bytes(piece.remaining()));
    }
    Ok(whole.freeze())
}

/// Takes what a client still sends, within bounds.
async fn discard<S, B, E>(mut body: std::pin::Pin<&mut S>, taken: usize)
where
    S: Stream<Item = Result<B, E>>,
    B: Buf,
{
    let (until, mut taken) = (Instant::now() + DISCARD, taken);
    while taken <= MOST_DISCARDED && Instant::now() < until {
        match timeout(DISCARD_PIECE, body.next()).await {
            Ok(Some(Ok(piece))) => taken += piece.remaining(),
            _ => return,
        }
    }
}

fn too_large() -> Refusal {
    Refusal::new(Code::TooLarge, format!("the body is over {} MiB", MOST >> 20))
}

/// Most values of a body: a conversation of ten thousand messages has a tenth of them, and each takes memory.
const MOST_VALUES: usize = 1_000_000;

/// About how many values a body holds: one for each comma, colon and bracket outside texts.
fn values(bytes: &[u8]) -> usize {
    let (mut count, mut text, mut escaped) = (0, false, false);
    for &byte in bytes {
        match (text, byte) {
            (true, _) if escaped => escaped = false,
            (true, b'\\') => escaped = true,
            (_, b'"') => text = !text,
            (false, b',' | b':' | b'[' | b'{') => count += 1,
            _ => {}
        }
    }
    count
}

/// A body as a JSON value.
///
/// # Errors
/// When it is not JSON in UTF-8; whether it is an object, its table says.
pub fn json(bytes: &[u8]) -> Result<Value, Refusal> {
    if values(bytes) > MOST_VALUES {
        return Err(Refusal::field("body", format!("the body holds more than {MOST_VALUES} values: send fewer")));
    }
    let value: Value = serde_json::from_slice(bytes).map_err(|error| {
        let why = if bytes.is_empty() { "it is empty".to_owned() } else { error.to_string() };
        Refusal::field("body", format!("invalid JSON body: {why}"))
    })?;
    match value {
        Value::Object(_) => Ok(value),
        _ => Err(Refusal::field("body", "invalid JSON body: it must be an object, as in {\"model\": ...}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::stream;

    fn pieces(sizes: Vec<usize>) -> impl Stream<Item = Result<Bytes, std::io::Error>> {
        stream::iter(sizes.into_iter().map(|size| Ok(Bytes::from(vec![b' '; size]))))
    }

    #[tokio::test]
    async fn a_body_over_the_limit_is_refused_however_it_comes() {
        let plain = HeaderMap::new();
        assert_eq!(read(&plain, pieces(vec![MOST])).await.unwrap().len(), MOST);
        assert_eq!(read(&plain, pieces(vec![MOST, 1])).await.unwrap_err().code, Code::TooLarge);
        let mut declared = HeaderMap::new();
        declared.insert(CONTENT_LENGTH, (MOST + 1).into());
        assert_eq!(read(&declared, pieces(vec![1])).await.unwrap_err().code, Code::TooLarge);
        let mut encoded = HeaderMap::new();
        encoded.insert(CONTENT_ENCODING, "gzip".parse().unwrap());
        assert!(read(&encoded, pieces(vec![1])).await.unwrap_err().message.contains("gzip"));
    }

    #[test]
    fn only_an_object_is_a_body() {
        for bad in [&b"{not json"[..], b"", b"[]", b"\"x\"", b"null", b"{\"a\":\"\xff\"}", br#"{"a":"\ud800"}"#] {
            assert!(json(bad).unwrap_err().message.starts_with("invalid JSON body"), "{bad:?}");
        }
        let deep = "[".repeat(100_000);
        assert!(json(format!("{{\"a\":{deep}").as_bytes()).is_err());
        assert!(json(b"{}").is_ok());
        let many = format!("{{\"a\": [{}0]}}", "0,".repeat(MOST_VALUES));
        assert!(json(many.as_bytes()).unwrap_err().message.contains("more than"));
        let text = format!("{{\"a\": \"{}\\\",,\"}}", ",[{:".repeat(MOST_VALUES));
        assert!(json(text.as_bytes()).is_ok(), "what stands in a text is no value");
    }
}
