//! Owns: requests that clients of OpenAI's API send, replayed: each gets its status, in the form of its path.

use serde_json::{Value, json};

use super::rig::{Reply, Rig, Setup, request, script};
use super::seen::{CHAT, Joined, TEXT};
use crate::app::Settings;

/// The paths whose form is checked here.
const OWN: [&str; 4] = [CHAT, TEXT, "/v1/models", "/v1/embeddings"];

fn check(path: &str, body: &Value, reply: &Reply) {
    if reply.status >= 400 {
        return assert!(reply.json()["error"]["message"].is_string(), "{path}: {}", reply.text());
    }
    if path == CHAT && body["stream"] == true {
        let joined = Joined::read(reply);
        assert!(joined.done && joined.chunks.iter().all(|chunk| chunk.get("error").is_none()), "{}", reply.text());
        assert!(["stop", "length", "tool_calls"].map(|end| vec![end.to_owned()]).contains(&joined.finish));
        if body["stream_options"]["include_usage"] == true {
            assert!(joined.chunks.last().unwrap()["usage"]["total_tokens"].as_u64().unwrap() > 0);
        }
        return;
    }
    let (answer, needed) =
        (reply.json(), if path == "/v1/models" { &["data"][..] } else { &["id", "choices", "usage"] });
    assert!(needed.iter().all(|name| answer.get(*name).is_some()), "{path}: {answer}");
}

/// Sends what a client sent; `ok` is what the model answers.
pub fn replay(name: &str, rig: &Rig) {
    let path = format!("{}/fixtures/wire/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let recorded: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let mut replayed = 0;
    for sent in recorded["requests"].as_array().unwrap() {
        let (method, path) = (sent["method"].as_str().unwrap(), sent["path"].as_str().unwrap());
        if !OWN.contains(&path) {
            continue;
        }
        let headers = sent["headers"].as_object().unwrap().iter();
        let headers: Vec<(&str, &str)> =
            headers.map(|(name, value)| (name.as_str(), value.as_str().unwrap())).collect();
        let body = &sent["body"];
        let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let mut stream = rig.connect();
        std::io::Write::write_all(&mut stream, &request(method, path, &headers, &bytes)).unwrap();
        let reply = Reply::read(&mut stream);
        let expected = &sent["expect_status"];
        let expected = expected.as_array().map_or(expected, |listed| &listed[0]);
        assert_eq!(&json!(reply.status), expected, "{method} {path} {body}: {}", reply.text());
        check(path, body, &reply);
        replayed += 1;
    }
    assert!(replayed > 0 && rig.settles(std::time::Duration::from_secs(5)));
}

/// The clients that were recorded.
pub const CLIENTS: [&str; 7] = [
    "ai-sdk-6.0.326",
    "litellm-1.110.2",
    "lm-eval-0.4.13-chat",
    "lm-eval-0.4.13-completions",
    "openai-python-3.57.0",
    "pi-0.74.2",
    "pi-0.74.2-tool",
];

/// A server that answers to the name that the clients used.
pub fn setup() -> Setup {
    let settings = Settings { aliases: vec!["qwen3.8-flash-next:4bit".to_owned()], ..Settings::default() };
    Setup { settings, ..Setup::default() }
}

#[test]
fn every_recorded_request_gets_its_answer() {
    let rig = Rig::set_up(script(json!([{ "text": "OK" }])), setup());
    CLIENTS.iter().for_each(|client| replay(client, &rig));
}
