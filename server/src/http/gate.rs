//! Owns: who may ask: pages of other sites, names that are not this machine's, keys (server.md section 3).
//! Invariants: a refusal comes before any work; a key is compared in constant time; nothing is ever allowed to every origin.

use warp::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS, AUTHORIZATION, HOST,
    HeaderMap, HeaderName, HeaderValue, ORIGIN, VARY,
};
use warp::http::{Method, StatusCode, Uri};

use crate::http::answer::Answer;
use crate::page;
use crate::refusal::{Code, Refusal};

/// Headers that a page may send beside those that it asks for.
const HEADERS: &str = "content-type, authorization, x-api-key, anthropic-version, anthropic-beta, \
    anthropic-dangerous-direct-browser-access, x-stainless-arch, x-stainless-lang, x-stainless-os, \
    x-stainless-package-version, x-stainless-retry-count, x-stainless-runtime, x-stainless-runtime-version, \
    x-stainless-timeout, x-stainless-helper-method, x-stainless-async";
/// Headers of answers that a page may read.
const EXPOSED: &str = "x-request-id, request-id, retry-after, x-slotstream-ignored-fields";
const METHODS: &str = "GET, POST, DELETE, HEAD, OPTIONS";

/// Who may ask.
#[derive(Clone, Debug, Default)]
pub struct Gate {
    /// Origins that may ask beside those of this machine.
    pub origins: Vec<String>,
    /// The key that is asked for.
    pub key: Option<String>,
    /// Whether only names of this machine are answered to.
    pub loopback_only: bool,
}

impl Gate {
    /// Lets a request in, or says why not.
    ///
    /// # Errors
    /// When its page, the name that it asked for, or its key is not let in.
    pub fn check(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<(), Refusal> {
        if let Some(origin) = headers.get(ORIGIN)
            && !self.allows(origin)
        {
            let origin = String::from_utf8_lossy(origin.as_bytes()).chars().take(100).collect::<String>();
            return Err(Refusal::new(
                Code::Forbidden,
                format!("pages of `{origin}` may not ask here; allow them with --cors-origin"),
            ));
        }
        // A name that is no text is none of this machine's.
        let hosts = headers.get_all(HOST).iter().map(|host| host.to_str().unwrap_or("?"));
        let mut hosts = hosts.chain(uri.authority().map(|host| host.as_str()));
        if self.loopback_only && hosts.any(|host| !host_of(host).is_some_and(is_loopback)) {
            return Err(Refusal::new(
                Code::Forbidden,
                "this server answers to names of this machine only, such as localhost; start it with --host to change that",
            ));
        }
        match &self.key {
            Some(key) if *method != Method::OPTIONS && !is_open(uri.path(), headers) && !has_key(headers, key) => {
                Err(Refusal::new(
                    Code::Key,
                    "a key is needed: send `Authorization: Bearer KEY` or `x-api-key: KEY` with the key of --api-key",
                ))
            }
            _ => Ok(()),
        }
    }

    fn allows(&self, origin: &HeaderValue) -> bool {
        let Ok(origin) = origin.to_str() else { return false };
        if self.origins.iter().any(|allowed| allowed.eq_ignore_ascii_case(origin)) {
            return true;
        }
        let rest = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        rest.and_then(host_of).is_some_and(|host| is_loopback(host) || host == "0.0.0.0")
    }

    /// Adds what a page needs to read an answer.
    pub fn mark(&self, origin: Option<&HeaderValue>, headers: &mut HeaderMap) {
        if let Some(origin) = origin.filter(|origin| self.allows(origin)) {
            headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
            headers.append(VARY, HeaderValue::from_static("Origin"));
            headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED));
        }
    }
}

/// What a page may do, before it does it.
pub fn preflight(headers: &HeaderMap) -> Answer {
    let mut answer = Answer::text("").with_status(StatusCode::NO_CONTENT);
    answer.headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(METHODS));
    let asked = headers.get(ACCESS_CONTROL_REQUEST_HEADERS).and_then(|asked| asked.to_str().ok());
    let asked = asked.filter(|asked| asked.len() < 4096).unwrap_or_default();
    let known = |name: &&str| !HEADERS.split(", ").any(|known| known.eq_ignore_ascii_case(name));
    let more: Vec<&str> = asked.split(',').map(str::trim).filter(|name| !name.is_empty()).filter(known).collect();
    let all = std::iter::once(HEADERS).chain(more).collect::<Vec<_>>().join(", ");
    answer = answer.with_header(ACCESS_CONTROL_ALLOW_HEADERS, &all);
    let private = HeaderName::from_static("access-control-allow-private-network");
    answer.headers.insert(private, HeaderValue::from_static("true"));
    answer.headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("86400"));
    answer
}

/// What needs no key: health, and the page for browsers, which holds nothing but the place where a key is asked for.
fn is_open(path: &str, headers: &HeaderMap) -> bool {
    match path.trim_end_matches('/') {
        "/health" => true,
        "" => page::is_wanted(headers),
        _ => false,
    }
}

/// The host without its port; none where it is not written as one.
fn host_of(authority: &str) -> Option<&str> {
    let (host, rest) = match authority.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
    };
    let port = rest.strip_prefix(':').unwrap_or(rest);
    let is_port =
        rest.is_empty() || (rest.starts_with(':') && !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()));
    is_port.then_some(host)
}

fn is_loopback(host: &str) -> bool {
    host.trim_end_matches('.').eq_ignore_ascii_case("localhost")
        || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn has_key(headers: &HeaderMap, key: &str) -> bool {
    let bearer = headers.get(AUTHORIZATION).map(HeaderValue::as_bytes).and_then(|value| {
        let (scheme, rest) = value.split_at_checked(7)?;
        scheme.eq_ignore_ascii_case(b"Bearer ").then_some(rest)
    });
    let own = headers.get("x-api-key").map(HeaderValue::as_bytes);
    let mut found = false;
    for given in [bearer, own].into_iter().flatten() {
        found |= same(given.trim_ascii(), key.as_bytes());
    }
    found
}

/// Whether two texts are the same, in a time that does not tell where they differ.
fn same(given: &[u8], key: &[u8]) -> bool {
    let mut difference = given.len() ^ key.len();
    for (at, byte) in key.iter().enumerate() {
        difference |= usize::from(byte ^ given.get(at).copied().unwrap_or(!byte));
    }
    std::hint::black_box(difference) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.insert(*name, value.parse().unwrap());
        }
        headers
    }

    fn asked(gate: &Gate, pairs: &[(&'static str, &str)]) -> Result<(), Code> {
        gate.check(&Method::POST, &Uri::from_static("/api/chat"), &headers(pairs)).map_err(|refusal| refusal.code)
    }

    #[test]
    fn pages_of_this_machine_may_ask_and_others_may_not() {
        let gate = Gate { origins: vec!["https://chat.example".into()], ..Gate::default() };
        for origin in [
            "http://localhost:3000",
            "https://127.0.0.1",
            "http://[::1]:8080",
            "http://0.0.0.0:1",
            "https://chat.example",
        ] {
            assert_eq!(asked(&gate, &[("origin", origin)]), Ok(()), "{origin}");
            let mut marked = HeaderMap::new();
            gate.mark(Some(&origin.parse().unwrap()), &mut marked);
            assert_eq!(marked[ACCESS_CONTROL_ALLOW_ORIGIN], *origin);
        }
        for origin in [
            "https://attacker.example",
            "null",
            "http://localhost.attacker.example",
            "http://127.0.0.1.nip.io",
            "file://localhost",
            "http://localhost:80@evil.example",
            "http://localhost:1.evil.example",
            "http://[::1].evil.example",
            "http://evil.localhost",
        ] {
            assert_eq!(asked(&gate, &[("origin", origin)]), Err(Code::Forbidden), "{origin}");
        }
        assert_eq!(asked(&gate, &[]), Ok(()));
    }

    #[test]
    fn a_name_of_another_machine_is_not_answered_to() {
        let gate = Gate { loopback_only: true, ..Gate::default() };
        for host in ["localhost:11434", "127.0.0.1", "[::1]:11434", "LOCALHOST"] {
            assert_eq!(asked(&gate, &[("host", host)]), Ok(()), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:11434",
            "127.0.0.1.evil.example",
            "localhost:80@evil.example",
            "localhost:evil.example",
            "[::1]evil.example",
            "evil.localhost",
            "localhost:",
        ] {
            assert_eq!(asked(&gate, &[("host", host)]), Err(Code::Forbidden), "{host}");
        }
        assert_eq!(asked(&Gate::default(), &[("host", "evil.example")]), Ok(()));
    }

    #[test]
    fn a_key_is_asked_for_in_either_header() {
        let gate = Gate { key: Some("secret".into()), ..Gate::default() };
        assert_eq!(asked(&gate, &[("authorization", "Bearer secret")]), Ok(()));
        assert_eq!(asked(&gate, &[("x-api-key", "secret")]), Ok(()));
        for wrong in ["Bearer secre", "Bearer secrets", "secret", "Bearer "] {
            assert_eq!(asked(&gate, &[("authorization", wrong)]), Err(Code::Key), "{wrong}");
        }
        assert_eq!(asked(&gate, &[]), Err(Code::Key));
        let open = |method, path| gate.check(&method, &Uri::from_static(path), &HeaderMap::new()).is_ok();
        assert!(open(Method::GET, "/health") && open(Method::OPTIONS, "/api/chat") && !open(Method::GET, "/api/tags"));
        assert!(!open(Method::GET, "/"));
        let page = headers(&[("accept", "text/html,*/*")]);
        assert!(gate.check(&Method::GET, &Uri::from_static("/"), &page).is_ok());
        assert!(gate.check(&Method::GET, &Uri::from_static("/ss/status"), &page).is_err());
    }
}
