//! Owns: how the page for browsers is served: to whom, when, and under which policy (what it does is tested in tests/browser).

use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::Empty;
use warp::http::{HeaderMap, Method, Uri};

use super::rig::{Rig, Setup, script};
use crate::app::{App, Settings};
use crate::http::gate::Gate;
use crate::http::route::{Request, answer};
use crate::http::socket::Link;

const BROWSER: (&str, &str) = ("accept", "text/html,application/xhtml+xml,*/*;q=0.8");

#[test]
fn browsers_get_the_page_and_others_the_words_that_they_look_for() {
    let rig = Rig::saying("x");
    let page = rig.ask("GET", "/", &[BROWSER], b"");
    assert_eq!((page.status, page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    assert_eq!((page.header("vary"), page.header("x-content-type-options")), (Some("Accept"), Some("nosniff")));
    assert!(page.text().starts_with("<!doctype html>") && page.text().ends_with("</html>\n"));
    for accept in ["*/*", "application/json", "text/plain"] {
        assert_eq!(rig.ask("GET", "/", &[("accept", accept)], b"").text(), "Ollama is running", "{accept}");
    }
}

#[test]
fn the_policy_lets_nothing_in_but_what_the_page_holds() {
    let rig = Rig::saying("x");
    let policy = rig.ask("GET", "/", &[BROWSER], b"").header("content-security-policy").unwrap().to_owned();
    for part in ["default-src 'none'", "connect-src 'self'", "frame-ancestors 'none'", "script-src 'sha256-"] {
        assert!(policy.contains(part), "{policy}");
    }
    assert!(!policy.contains("unsafe"));
}

#[test]
fn a_server_with_a_key_gives_the_page_without_it_and_nothing_else() {
    let gate = Gate { key: Some("secret".into()), ..Gate::default() };
    let rig = Rig::set_up(script(serde_json::json!([])), Setup { gate, ..Setup::default() });
    assert_eq!(rig.ask("GET", "/", &[BROWSER], b"").status, 200);
    for path in ["/ss/status", "/metrics", "/openapi.json"] {
        assert_eq!(rig.ask("GET", path, &[BROWSER], b"").status, 401, "{path}");
    }
    assert_eq!(rig.get("/").status, 401);
}

#[tokio::test]
async fn the_page_is_there_before_the_model_is() {
    let app = App::new(Settings::default(), Gate::default());
    let mut headers = HeaderMap::new();
    headers.insert(BROWSER.0, BROWSER.1.parse().unwrap());
    let asked = async |path: &'static str| {
        let body: Empty<Result<Bytes, warp::Error>> = futures_util::stream::empty();
        let request = Request { method: Method::GET, uri: Uri::from_static(path), headers: headers.clone(), body };
        answer(app.clone(), Arc::new(Link::default()), request).await.status().as_u16()
    };
    assert_eq!((asked("/").await, asked("/ss/status").await), (200, 503));
}
