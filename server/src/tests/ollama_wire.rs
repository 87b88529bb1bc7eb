//! Owns: requests that clients of Ollama's API send, replayed: each gets its status, in the form of its path.

use serde_json::{Value, json};

use super::rig::{Reply, Rig, Setup, request, script};
use crate::app::Settings;

/// What a path answers at least.
fn needed(path: &str) -> &'static [&'static str] {
    match path {
        "/api/tags" | "/api/ps" => &["models"],
        "/api/show" => &["details", "capabilities", "model_info"],
        "/api/chat" => &["message", "done"],
        "/api/generate" => &["response", "done"],
        _ => &[],
    }
}

fn check(path: &str, body: &Value, reply: &Reply) {
    if reply.status >= 400 {
        return assert!(reply.json()["error"].is_string(), "{path}: {}", reply.text());
    }
    let generates = path == "/api/chat" || path == "/api/generate";
    if generates && body["stream"] != false {
        let lines = reply.lines();
        let done = lines.iter().filter(|line| line["done"] == true).count();
        assert!(done == 1 && lines.last().unwrap()["done"] == true, "{path} {body}: {lines:?}");
        return assert!(lines.iter().all(|line| needed(path).iter().all(|name| line.get(name).is_some())));
    }
    let answer = reply.json();
    for name in needed(path) {
        assert!(answer.get(name).is_some(), "{path} {body}: no {name} in {answer}");
    }
}

fn replay(name: &str) {
    let path = format!("{}/fixtures/wire/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let recorded: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let settings = Settings { aliases: vec!["qwen3.8-flash-next:4bit".to_owned()], ..Settings::default() };
    let rig = Rig::set_up(script(json!([{ "text": "OK" }])), Setup { settings, ..Setup::default() });
    let requests = recorded["requests"].as_array().unwrap();
    let own = |request: &&Value| !request["path"].as_str().unwrap().starts_with("/v1/");
    let mut replayed = 0;
    for sent in requests.iter().filter(own) {
        let (method, path) = (sent["method"].as_str().unwrap(), sent["path"].as_str().unwrap());
        let headers = sent["headers"].as_object().unwrap();
        let headers: Vec<(&str, &str)> =
            headers.iter().map(|(name, value)| (name.as_str(), value.as_str().unwrap())).collect();
        let body = &sent["body"];
        let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let mut stream = rig.connect();
        std::io::Write::write_all(&mut stream, &request(method, path, &headers, &bytes)).unwrap();
        let reply = if method == "HEAD" { Reply::read_head(&mut stream) } else { Reply::read(&mut stream) };
        assert_eq!(json!(reply.status), sent["expect_status"], "{method} {path} {body}: {}", reply.text());
        if method != "HEAD" {
            check(path, body, &reply);
        }
        replayed += 1;
    }
    assert!(replayed > 0);
}

#[test]
fn the_javascript_client_is_answered() {
    replay("ollama-js-0.6.4");
}

#[test]
fn the_command_line_is_answered() {
    replay("ollama-cli-reconstructed");
}

#[test]
fn litellm_is_answered() {
    replay("litellm-1.110.2");
}
