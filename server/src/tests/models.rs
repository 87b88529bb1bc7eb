//! Owns: the list of models and its one model, for both kinds of clients (server.md section 4).

use std::io::Write;

use serde_json::{Value, json};

use super::rig::{Reply, Rig, Setup, request, script};
use crate::app::Settings;

fn rig() -> Rig {
    let settings = Settings { aliases: vec!["org/little:8bit".to_owned()], ..Settings::default() };
    Rig::set_up(script(json!([{ "text": "a" }])), Setup { settings, ..Setup::default() })
}

#[test]
fn the_model_is_listed_with_the_window_served() {
    let rig = rig();
    let list = rig.get("/v1/models").json();
    let model = list["data"][0].clone();
    assert_eq!((&list["object"], list["data"].as_array().unwrap().len()), (&json!("list"), 1));
    assert_eq!((&model["id"], &model["object"]), (&json!("nano"), &json!("model")));
    assert_eq!(model["owned_by"], "slotstream");
    for name in ["context_length", "context_window", "max_output_tokens"] {
        assert_eq!(model[name], 4096);
    }
    assert!(model["created"].as_u64().unwrap() > 1_700_000_000);
    assert!(model.get("type").is_none() && list.get("has_more").is_none());
    for path in [
        "/v1/models/nano",
        "/v1/models/NANO",
        "/v1/models/nano:latest",
        "/v1/models/nano/",
        "/v1/models/nano?x=1",
        "/v1/models/org/little:8bit",
        "/v1/models/org%2Flittle%3A8bit",
    ] {
        assert_eq!(rig.get(path).json(), model, "{path}");
    }
}

#[test]
fn a_client_of_anthropics_api_reads_its_own_fields() {
    let rig = rig();
    let get = |path: &str| rig.ask("GET", path, &[("anthropic-version", "2023-06-01")], b"").json();
    let list = get("/v1/models");
    let ends: Vec<&Value> = ["first_id", "last_id", "has_more"].iter().map(|name| &list[*name]).collect();
    assert_eq!(ends, [&json!("nano"), &json!("nano"), &json!(false)]);
    let model = &list["data"][0];
    assert_eq!((&model["type"], &model["display_name"]), (&json!("model"), &json!("nano")));
    assert_eq!((&model["max_input_tokens"], &model["max_tokens"]), (&json!(4096), &json!(4096)));
    assert!(model["created_at"].as_str().unwrap().ends_with('Z'));
    assert_eq!(&get("/v1/models/nano"), model);
}

#[test]
fn another_model_is_not_found_and_other_methods_are_not_allowed() {
    let rig = rig();
    for path in ["/v1/models/other", "/v1/models/nano:8bit", "/v1/models/%ff"] {
        let reply = rig.get(path);
        let error = reply.json()["error"].clone();
        assert_eq!((reply.status, &error["type"]), (404, &json!("invalid_request_error")), "{path}");
        assert!(error["message"].as_str().unwrap().contains("`nano`"), "{error}");
    }
    let reply = rig.post("/v1/models", &json!({}));
    assert_eq!((reply.status, reply.header("allow")), (405, Some("GET, HEAD, OPTIONS")));
    let mut stream = rig.connect();
    stream.write_all(&request("HEAD", "/v1/models", &[], b"")).unwrap();
    assert_eq!(Reply::read_head(&mut stream).status, 200);
}
